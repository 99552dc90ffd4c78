package activities

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// policyStore applies policies a page at a time. It stores the position, so a page that is repeated changes nothing.
type policyStore interface {
	ApplyPolicyPage(ctx context.Context, in fleet.PolicyVisit) (fleet.PolicyTurn, error)
}

// Policies are the steps of ApplyRegionPolicy.
type Policies struct {
	Store policyStore
	Doors doorTeller
	Build string
	Now   func() time.Time
}

// After so many pages an activity ends, and the workflow says how far it is. Pages of a policy are small, and an activity
// costs as much as some of them.
const (
	pagesAtOnce       = 20
	policyPagesAtOnce = 100
)

// ApplyPolicy visits the next pages of what a policy holder governs. Between two it pauses for a quarter of the time
// that the first one took: the busier the region, the slower it goes.
func (p *Policies) ApplyPolicy(ctx context.Context, in fleet.PolicyVisit) (fleet.PolicyTurn, error) {
	stop := beating(ctx)
	defer stop()
	in.Build = p.Build
	for page := 1; ; page++ {
		began := p.Now()
		turn, err := p.Store.ApplyPolicyPage(ctx, in)
		if err != nil {
			return turn, fail(ctx, err)
		}
		if turn.Done {
			return turn, fail(ctx, p.Doors.TellDoors(ctx, fleet.PolicySubject(in.Holder())))
		}
		if page == policyPagesAtOnce {
			return turn, nil
		}
		pause := time.NewTimer(p.Now().Sub(began) / 4)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return turn, ctx.Err()
		}
	}
}
