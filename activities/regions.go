package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// follower applies what a peer changes, for a while.
type follower interface {
	// Follow is stale when another turn has replaced this one.
	Follow(ctx context.Context, peer fleet.RegionName, run string, beat func(fleet.Followed)) (fleet.Followed, error)
}

// comparer compares the copies of what a peer owns with the peer, a page at a time.
type comparer interface {
	// Page is stale if another run compared the same page.
	Page(ctx context.Context, v fleet.SyncVisit) (fleet.SyncTurn, error)
}

// Regions are the steps of what regions share.
type Regions struct {
	Follower follower
	Comparer comparer
	Doors    doorTeller
	Build    string
}

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

// waitedAtOnce is the time between two attempts of one activity.
const waitedAtOnce = 500 * time.Millisecond

// CompareRegion compares the next pages of what a peer owns, until all is compared, or the comparison has to wait.
func (r *Regions) CompareRegion(ctx context.Context, in fleet.SyncVisit) (fleet.SyncTurn, error) {
	stop := beating(ctx)
	defer stop()
	in.Build = r.Build
	for page := 1; ; page++ {
		turn, err := r.Comparer.Page(ctx, in)
		switch {
		case fleet.KindOf(err) == fleet.Stale:
			turn.Done = false
		case err != nil:
			return turn, fail(ctx, err)
		case turn.Done:
			return turn, fail(ctx, r.Doors.TellDoors(ctx, fleet.SyncSubject(in.Peer)))
		}
		if page == pagesAtOnce {
			return turn, nil
		}
		if turn.Waits == "" {
			continue
		}
		select {
		case <-time.After(waitedAtOnce):
		case <-ctx.Done():
			return turn, ctx.Err()
		}
	}
}
