package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
)

var sweeps *activities.Sweeps

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

// CollectGarbage removes what nobody needs any more, by retention, a bounded time per run;
// the next run goes on. What is kept and why: docs/collection.md.
func CollectGarbage(ctx workflow.Context) (activities.Collected, error) {
	var res activities.Collected
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, sweepOptions), sweeps.CollectGarbage).Get(ctx, &res)
	return res, err
}
