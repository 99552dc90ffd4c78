package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// ReconcileNodeInput names a node: {"node":"plant-1-b"}.
type ReconcileNodeInput struct {
	Node fleet.NodeName `json:"node"`
}

// ReconcileNodeResult counts the instances that were woken.
type ReconcileNodeResult struct {
	Woken int `json:"woken"`
}

var reconciles *activities.Reconciles

// ReconcileNode compares what a node said it holds with what is deployed, and has what is
// missing or stale delivered. It drops nothing.
func ReconcileNode(ctx workflow.Context, in ReconcileNodeInput) (ReconcileNodeResult, error) {
	var res ReconcileNodeResult
	wake := workflow.GetSignalChannel(ctx, SignalWake)
	local := workflow.WithLocalActivityOptions(ctx, storeOptions())
	for {
		drain(wake)
		page := activities.ReconcilePage{Node: in.Node}
		for {
			var done activities.ReconciledPage
			if err := workflow.ExecuteLocalActivity(local, reconciles.Page, page).Get(ctx, &done); err != nil {
				return res, err
			}
			res.Woken += done.Woken
			if page.After = done.Next; page.After == "" {
				break
			}
		}
		if !wake.ReceiveAsync(nil) {
			return res, nil
		}
	}
}
