package leases

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// Run reads all votes at each tick and writes renewals in batches, until the context ends.
func (s *Service) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { s.writeBatches(ctx); return nil })
	group.Go(func() error {
		tick := time.NewTicker(tickEvery)
		defer tick.Stop()
		failed := false
		for {
			err := s.Tick(ctx)
			if err != nil && ctx.Err() == nil && !failed {
				s.o.Log.Warn("failed, retrying", "what", "read the votes", "error", err)
			}
			failed = err != nil
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
			}
		}
	})
	defer s.later.Wait()
	return group.Wait()
}

// Tick reads all votes once. If the store does not answer, the voters' clocks do not advance either, so they
// restart.
func (s *Service) Tick(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	rows, err := s.o.Store.Votes(ctx)
	if err != nil {
		return err
	}
	now, err := s.o.Clock()
	if err != nil {
		return clockFailed(err)
	}
	counts := standings{}
	known := make(map[fleet.SiteName]bool, len(rows))
	for _, row := range rows {
		known[row.Site] = true
		counts.add(row)
		s.tickSite(ctx, row, now)
	}
	s.forget(known)
	s.metrics.stands(counts)
	return nil
}

// tickLimit is how long one site may delay the tick of all.
const tickLimit = 250 * time.Millisecond

// tickSite skips a busy booth: the goroutine inside reads what is stored, and the tick follows when it leaves.
// Renewals may come with every tick. If ticks never reached a vote, it would see a pause once the renewals end.
func (s *Service) tickSite(ctx context.Context, row nodes.SiteVote, now lease.Instant) {
	b := s.open(row.Site)
	if !b.tryEnter() {
		s.later.Go(func() { s.tickLater(context.WithoutCancel(ctx), b) })
		return
	}
	defer b.leave()
	if b.past = !b.past && older(row, b); !b.past {
		b.see(row, s.config(), now)
	}
	if !b.votes() {
		return
	}
	s.tickVote(ctx, b)
}

func (s *Service) tickLater(ctx context.Context, b *booth) {
	ctx, cancel := context.WithTimeout(ctx, tickEvery)
	defer cancel()
	if b.enter(ctx) != nil {
		return // it is busy for longer than that
	}
	defer b.leave()
	if b.votes() {
		s.tickVote(ctx, b)
	}
}

func (s *Service) tickVote(ctx context.Context, b *booth) {
	ctx, cancel := context.WithTimeout(ctx, tickLimit)
	defer cancel()
	err := s.change(ctx, b, "region", func(v lease.Voter, now lease.Instant) (lease.Voter, bool) { return v.Tick(now) })
	if err != nil {
		s.o.Log.Warn("failed, retrying", "what", "write the effect of time on a vote", "site", b.site, "error", err)
	}
}

// older reports that the row was read before this server's last write: taking it over would restart the clocks for
// nothing. Twice in a row means that the database was restored.
func older(row nodes.SiteVote, b *booth) bool {
	if b.pair == nil || b.reset != row.Resets {
		return b.pair != nil && row.Resets < b.reset
	}
	r := b.voter.Record()
	return row.Vote.Epoch < r.Epoch || row.Vote.Epoch == r.Epoch && row.Vote.Counter < r.Counter
}

// forget drops sites that no longer exist.
func (s *Service) forget(known map[fleet.SiteName]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for site, b := range s.booths {
		if !known[site] && b.tryEnter() {
			delete(s.booths, site)
			b.leave()
		}
	}
}
