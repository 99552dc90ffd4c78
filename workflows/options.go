package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Node-bound activities heartbeat, so that cancellation and death are seen (X14).
const nodeHeartbeat = 5 * time.Second

// refusals are the kinds that no repetition mends.
func refusals() []string {
	var kinds []string
	for _, k := range fleet.Kinds() {
		if !k.Retryable() {
			kinds = append(kinds, string(k))
		}
	}
	return kinds
}

// storeOptions are for short database steps inside a workflow task.
func storeOptions() workflow.LocalActivityOptions {
	return workflow.LocalActivityOptions{
		StartToCloseTimeout:    5 * time.Second,
		ScheduleToCloseTimeout: 15 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 100 * time.Millisecond, MaximumInterval: 2 * time.Second, MaximumAttempts: 8,
			NonRetryableErrorTypes: refusals(),
		},
	}
}

// notifyOptions are for the one regular activity of a delivery per node: one attempt per
// token; a retry is a new task with a new token.
func notifyOptions(node fleet.NodeName, take, total time.Duration) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue: NodeQueue(node), ScheduleToStartTimeout: take, StartToCloseTimeout: total,
		HeartbeatTimeout: nodeHeartbeat, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
		DisableEagerExecution: true,
	}
}

// askOptions are for reading what a node holds.
func askOptions(node fleet.NodeName, take time.Duration) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue: NodeQueue(node), ScheduleToStartTimeout: take, StartToCloseTimeout: 10 * time.Second,
		HeartbeatTimeout: nodeHeartbeat, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
		DisableEagerExecution: true,
	}
}

// compareOptions are for a node's comparison of itself with its site's expected set, in
// which it may fetch all that it should hold.
func compareOptions(node fleet.NodeName) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue: NodeQueue(node), ScheduleToStartTimeout: 30 * time.Second, StartToCloseTimeout: DefaultTotal,
		HeartbeatTimeout: nodeHeartbeat, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
		DisableEagerExecution: true,
	}
}

// leaseOptions are for what a node is asked about its site's lease: one that does not begin
// soon is not there, and the votes go on without it.
func leaseOptions(node fleet.NodeName, take, limit time.Duration) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue: NodeQueue(node), ScheduleToStartTimeout: take, StartToCloseTimeout: limit + nodeHeartbeat,
		HeartbeatTimeout: nodeHeartbeat, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
		DisableEagerExecution: true,
	}
}

// sweepOptions are for the scheduled duties: minutes, with a heartbeat. They outlast a restart of the
// database.
var sweepOptions = workflow.ActivityOptions{
	StartToCloseTimeout: 2 * time.Minute, ScheduleToStartTimeout: time.Minute, HeartbeatTimeout: 20 * time.Second,
	RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 6, InitialInterval: time.Second, MaximumInterval: 5 * time.Second},
}
