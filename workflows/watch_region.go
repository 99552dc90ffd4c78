package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// WatchRegionInput names the peer.
type WatchRegionInput struct {
	Peer fleet.RegionName `json:"peer"`
	// Turns counts what earlier runs did.
	Turns int `json:"turns,omitempty"`
}

const (
	// WatchTurn is how long one activity follows a peer.
	WatchTurn = 10 * time.Minute
	// WatchBeat is the time without a heartbeat after which another server follows a peer.
	WatchBeat = 10 * time.Second
	// turnsOfRun is how many turns one run takes: its history stays short.
	turnsOfRun = 100
)

func watchOptions() workflow.ActivityOptions {
	return workflow.ActivityOptions{
		StartToCloseTimeout: WatchTurn + time.Minute, ScheduleToCloseTimeout: 6 * WatchTurn, HeartbeatTimeout: WatchBeat, WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, MaximumInterval: WatchBeat},
	}
}

var regions *activities.Regions

// WatchRegion follows what a peer changes, for as long as it is one. docs/regions.md draws it.
func WatchRegion(ctx workflow.Context, in WatchRegionInput) error {
	ctx = workflow.WithActivityOptions(ctx, watchOptions())
	for range turnsOfRun {
		var turn fleet.Followed
		err := workflow.ExecuteActivity(ctx, regions.FollowPeer, activities.FollowPeer{Peer: in.Peer}).Get(ctx, &turn)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if err := workflow.Sleep(ctx, WatchBeat); err != nil {
				return err
			}
		case turn.Left:
			return nil
		}
	}
	in.Turns += turnsOfRun
	drain(workflow.GetSignalChannel(ctx, SignalWake))
	return workflow.NewContinueAsNewError(ctx, WatchRegion, in)
}
