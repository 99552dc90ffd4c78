package activities

import (
	"context"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// applier is the node's own side: it fetches, applies and says what it holds.
type applier interface {
	// Apply carries a notify out once; the same one again is answered as before.
	Apply(ctx context.Context, cmd fleet.RefreshDeploymentCommand, progress func(phase string, done, total int64)) (fleet.DeploymentStatusResponse, error)
	// Held reads the node's store.
	Held(ctx context.Context, name fleet.InstanceName) (fleet.Held, error)
}

// batcher is the node's own side of many deliveries at once.
type batcher interface {
	// ApplyBatch carries out what can be carried out; again, it finds that done.
	ApplyBatch(ctx context.Context, cmd fleet.BatchCommand, progress func(phase string, done, total int64)) (fleet.BatchOutcome, error)
}

// reconciler compares the node with its site's expected set.
type reconciler interface {
	// Reconcile acts upon the set once; again, it finds less to do.
	Reconcile(ctx context.Context, cmd fleet.ReconcileCommand) (fleet.ReconcileReport, error)
}

// Node are the activities of one node's own queue.
type Node struct {
	Applier    applier
	Batches    batcher
	Reconciler reconciler
	// Leases is nil on a node that has no vote.
	Leases leaser

	working atomic.Int64
}

// InFlight is how many that change something are at work: what a drain of the node waits for.
func (n *Node) InFlight() int { return int(n.working.Load()) }

// begin counts one and has it heartbeat, until the function that it returns is called.
func (n *Node) begin(ctx context.Context) (context.Context, func()) {
	n.working.Add(1)
	ctx, stop := heartbeat(ctx)
	return ctx, func() {
		stop()
		n.working.Add(-1)
	}
}

// heartbeatEvery is well inside the 5 s timeout of node-bound activities.
const heartbeatEvery = time.Second

// RefreshDeployment brings the node to one revision of one instance (N34, N36).
func (n *Node) RefreshDeployment(ctx context.Context, cmd fleet.RefreshDeploymentCommand) (fleet.DeploymentStatusResponse, error) {
	ctx, end := n.begin(ctx)
	defer end()
	res, err := n.Applier.Apply(ctx, cmd, func(string, int64, int64) {})
	return res, fail(ctx, cutShort(ctx, err))
}

// RefreshBatch brings the node to one revision of each of many instances (N98). What became
// of each has gone to the region by the bulk path: Temporal sees numbers only (X27).
func (n *Node) RefreshBatch(ctx context.Context, cmd fleet.BatchCommand) (fleet.BatchOutcome, error) {
	ctx, end := n.begin(ctx)
	defer end()
	out, err := n.Batches.ApplyBatch(ctx, cmd, func(string, int64, int64) {})
	return out, fail(ctx, cutShort(ctx, err))
}

// cutShort: work that ended with its context (the worker stops, Temporal is out of reach, the
// run is gone) says nothing about the revision. It failed by communication, so that it is
// tried again or stays owed. The cause of the context's end may be any error.
func cutShort(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && fleet.KindOf(err) == fleet.Internal {
		return fleet.Errorf(fleet.Communication, "Communication failure: the work was cut short: %w", err)
	}
	return err
}

// QueryDeployment says what the node holds: it settles what the region does not know (N42, N44).
func (n *Node) QueryDeployment(ctx context.Context, name fleet.InstanceName) (fleet.Held, error) {
	held, err := n.Applier.Held(ctx, name)
	return held, fail(ctx, err)
}

// Reconcile has the node compare itself with its site's expected set (N54). What differs by
// name has gone to the region by the bulk path: Temporal sees numbers only (X27).
func (n *Node) Reconcile(ctx context.Context, cmd fleet.ReconcileCommand) (fleet.ReconcileReport, error) {
	ctx, end := n.begin(ctx)
	defer end()
	report, err := n.Reconciler.Reconcile(ctx, cmd)
	report.Differs = nil
	return report, fail(ctx, cutShort(ctx, err))
}

// heartbeat shows that the node lives, and lets cancellation reach the work.
func heartbeat(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(heartbeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				activity.RecordHeartbeat(ctx)
			}
		}
	}()
	return ctx, func() { cancel(); <-done }
}
