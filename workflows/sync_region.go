package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// SyncInput names the peer.
type SyncInput struct {
	Peer fleet.RegionName `json:"peer"`
}

// SyncStatus answers the status query: how far the comparison is.
type SyncStatus struct {
	Peer fleet.RegionName `json:"peer"`
	Turn fleet.SyncTurn   `json:"turn"`
}

// syncRetry is the time between two attempts to continue a comparison that waits, for example for a peer that does not
// answer.
const syncRetry = 15 * time.Second

// Sync compares the copies of what a peer owns with the peer, page by page, until a comparison ended that began after the
// last request. Postgres stores the position, so a new run continues there. docs/copies.md draws it.
func Sync(ctx workflow.Context, in SyncInput) (DoorResult, error) {
	status := SyncStatus{Peer: in.Peer}
	err := workflow.SetQueryHandler(ctx, QueryStatus, func() (SyncStatus, error) { return status, nil })
	if err != nil {
		return DoorResult{}, err
	}
	wake := workflow.GetSignalChannel(ctx, SignalWake)
	acting := workflow.WithActivityOptions(ctx, policyOptions)
	visit := fleet.SyncVisit{Peer: in.Peer, Run: workflow.GetInfo(ctx).WorkflowExecution.RunID}
	for {
		drain(wake)             // the activity reads what they announced
		var turn fleet.SyncTurn // a new one: what JSON leaves out would stay of the last one
		if err := workflow.ExecuteActivity(acting, regions.CompareRegion, visit).Get(ctx, &turn); err != nil {
			return DoorResult{}, err
		}
		status.Turn = turn
		message := status.Turn.Message(in.Peer)
		switch {
		case status.Turn.Left:
			return DoorResult{State: fleet.OperationFailed, Reason: string(fleet.NotFound), Message: "region " + string(in.Peer) + " is not a peer, or is disabled"}, nil
		case status.Turn.Waits != "":
			message = status.Turn.Waits
		}
		workflow.SetCurrentDetails(ctx, "**compare** "+message)
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return DoorResult{}, workflow.NewContinueAsNewError(ctx, TypeSync, in)
		}
		if status.Turn.Done && !wake.ReceiveAsync(nil) {
			return DoorResult{State: fleet.OperationSucceeded, Reason: "compared", Message: message}, nil
		}
		if status.Turn.Waits != "" {
			wake.ReceiveWithTimeout(ctx, syncRetry, nil)
		}
	}
}
