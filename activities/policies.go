package activities

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// policyStore applies policies a page at a time. It stores the position, so a page that is repeated changes nothing.
type policyStore interface {
	ApplyPolicyPage(ctx context.Context, in fleet.PolicyVisit) (fleet.PolicyTurn, error)
}

// handOverStore cancels hand-overs.
type handOverStore interface {
	// RenounceOf is nil when no hand-over is under way that could be cancelled.
	RenounceOf(ctx context.Context, holder fleet.ObjectKey) (to fleet.RegionName, r *fleet.Renounce, err error)
	// TakeBack changes nothing when it was done before.
	TakeBack(ctx context.Context, r fleet.Renounce) error
}

// renouncer asks another region not to claim a holder: illegal_state when it has.
type renouncer interface {
	Renounce(ctx context.Context, to fleet.RegionName, r fleet.Renounce) error
}

// Policies are the steps of ApplyRegionPolicy and HandOverRegion.
type Policies struct {
	Store     policyStore
	HandOvers handOverStore
	Peers     renouncer
	Doors     doorTeller
	Build     string
	Now       func() time.Time
}

// After so many pages, or so long, an activity ends, and the workflow says how far it is. Pages of a policy are small, and an
// activity costs as much as some of them.
const (
	pagesAtOnce  = 20
	policyAtOnce = 2 * time.Second
)

// ApplyPolicy visits the next pages of what a policy holder governs, at the pace that the writes of others leave.
func (p *Policies) ApplyPolicy(ctx context.Context, in fleet.PolicyVisit) (fleet.PolicyTurn, error) {
	stop := beating(ctx)
	defer stop()
	in.Build = p.Build
	var last fleet.PolicyTurn
	pace := decide.Pace{Objects: decide.PolicyPage}
	for end := p.Now().Add(policyAtOnce); ; {
		began := p.Now()
		in.Objects = pace.Objects
		turn, err := p.Store.ApplyPolicyPage(ctx, in)
		if err != nil {
			return turn, fail(ctx, err)
		}
		if turn.Done {
			return turn, fail(ctx, p.Doors.TellDoors(ctx, fleet.PolicySubject(in.Holder())))
		}
		if turn.Waits || !p.Now().Before(end) {
			return turn, nil
		}
		written := int64(0)
		if last.Feed > 0 {
			written = turn.Feed - last.Feed - (turn.Refreshed - last.Refreshed)
		}
		pace, last = decide.PolicyPace(pace, p.Now().Sub(began), written), turn
		pause := time.NewTimer(pace.Pause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return turn, ctx.Err()
		}
	}
}

// CancelHandOver takes a holder back when the new owner has renounced it. If that has claimed it, the hand-over succeeds.
func (p *Policies) CancelHandOver(ctx context.Context, in fleet.PolicyVisit) error {
	to, r, err := p.HandOvers.RenounceOf(ctx, in.Holder())
	if err != nil || r == nil {
		return fail(ctx, err)
	}
	err = p.Peers.Renounce(ctx, to, *r)
	if fleet.KindOf(err) == fleet.IllegalState {
		return nil
	}
	if err == nil {
		err = p.HandOvers.TakeBack(ctx, *r)
	}
	return fail(ctx, err)
}
