package activities

import (
	"context"

	"go.temporal.io/sdk/activity"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// follower applies what a peer changes, for a while.
type follower interface {
	// Follow is stale when another turn has replaced this one.
	Follow(ctx context.Context, peer fleet.RegionName, run string, beat func(fleet.Followed)) (fleet.Followed, error)
}

// Regions are the steps of what regions share.
type Regions struct{ Follower follower }

// FollowPeer names a peer.
type FollowPeer struct {
	Peer fleet.RegionName `json:"peer"`
}

// FollowPeer applies what a peer changes, for one turn.
func (r *Regions) FollowPeer(ctx context.Context, in FollowPeer) (fleet.Followed, error) {
	run := activity.GetInfo(ctx).WorkflowExecution.RunID
	done, err := r.Follower.Follow(ctx, in.Peer, run, func(f fleet.Followed) { activity.RecordHeartbeat(ctx, f) })
	return done, fail(ctx, err)
}
