package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
)

var sweeps *activities.Sweeps

// Duties are the workflow types that schedules start, with their functions.
func Duties() map[string]any {
	return map[string]any{
		TypePurgePending: PurgePending, TypeSweepOperations: SweepOperations, TypeSweepNodes: SweepNodes,
		TypeCollectGarbage: CollectGarbage, TypeSyncRuntime: SyncRuntime,
	}
}

// PurgePendingResult counts the rows that were removed.
type PurgePendingResult struct {
	Removed int64 `json:"removed"`
}

// PurgePending removes expired pending rows, tickets and tokens, bounded per run (N15).
func PurgePending(ctx workflow.Context) (PurgePendingResult, error) {
	var res PurgePendingResult
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, sweepOptions), sweeps.Purge).Get(ctx, &res.Removed)
	return res, err
}

// SweepOperations closes or moves the operations whose workflow was terminated, timed out,
// lost or stranded, and tells the doors that missed the end (X25).
func SweepOperations(ctx workflow.Context) (activities.SweptOperations, error) {
	var res activities.SweptOperations
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, sweepOptions), sweeps.SweepOperations).Get(ctx, &res)
	return res, err
}

// SweepNodesInput names one shard of the nodes, of about 500 each (X12).
type SweepNodesInput struct {
	Shard  int `json:"shard"`
	Shards int `json:"shards"`
}

// SweepNodesResult counts the nodes whose comparison was started.
type SweepNodesResult struct {
	Started int `json:"started"`
}

// SweepNodes compares what the nodes of a shard hold with what is deployed, in one statement,
// and starts ReconcileNode of those that drifted or were not compared for long.
func SweepNodes(ctx workflow.Context, in SweepNodesInput) (SweepNodesResult, error) {
	var res SweepNodesResult
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, sweepOptions), sweeps.SweepNodes, in.Shard, in.Shards).Get(ctx, &res.Started)
	return res, err
}

// CollectGarbage removes what nobody needs any more, by retention, a bounded time per run;
// the next run goes on. What is kept and why: docs/collection.md.
func CollectGarbage(ctx workflow.Context) (activities.Collected, error) {
	var res activities.Collected
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, sweepOptions), sweeps.CollectGarbage).Get(ctx, &res)
	return res, err
}

// SyncRuntimeInput names one shard of the deployments, of about 500 each.
type SyncRuntimeInput struct {
	Shard  int `json:"shard"`
	Shards int `json:"shards,omitempty"`
}

// SyncRuntimeResult counts the deployments that were woken.
type SyncRuntimeResult struct {
	Woken int `json:"woken"`
}

// SyncRuntime compares what the deployments of a shard are to be with what runs, and wakes those
// that are not so (S19): what an event should have told, and did not.
func SyncRuntime(ctx workflow.Context, in SyncRuntimeInput) (SyncRuntimeResult, error) {
	var res SyncRuntimeResult
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, sweepOptions), deployments.SyncRuntime, in.Shard, max(in.Shards, 1)).Get(ctx, &res.Woken)
	return res, err
}
