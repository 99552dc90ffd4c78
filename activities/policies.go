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

// pagesAtOnce is how many pages one activity visits; then the workflow says how far it is.
const pagesAtOnce = 20

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
		if page == pagesAtOnce {
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
