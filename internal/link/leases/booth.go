package leases

import (
	"context"
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// booth is where one site's vote is cast. The goroutine inside has exclusive use of the voter.
type booth struct {
	site  fleet.SiteName
	key   chan struct{} // one inside
	voter lease.Voter
	pair  []fleet.NodeName // nil before it was seen
	reset int64            // the last one by an operator that this server knows
	past  bool             // the row that was read last was older than what was written here
}

func newBooth(site fleet.SiteName) *booth {
	return &booth{site: site, key: make(chan struct{}, 1)}
}

func (b *booth) enter(ctx context.Context) error {
	select {
	case b.key <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fleet.Errorf(fleet.Unavailable, "the vote of site %s is busy: %w", b.site, ctx.Err())
	}
}

// tryEnter is false while the booth is occupied.
func (b *booth) tryEnter() bool {
	select {
	case b.key <- struct{}{}:
		return true
	default:
		return false
	}
}

func (b *booth) leave() { <-b.key }

// votes reports whether the region has a vote: a single node decides alone.
func (b *booth) votes() bool { return len(b.pair) == 2 }

// see takes over the stored vote. Clocks restart if the voter does not know the site yet, if its nodes changed,
// after a reset by an operator, and if a lost vote was restored: another server may have restored it, and this one
// measured no time since.
func (b *booth) see(row nodes.SiteVote, cfg lease.VoterConfig, now lease.Instant) {
	record := lease.Record(row.Vote)
	again := b.pair == nil || !slices.Equal(b.pair, row.Pair) || b.voter.Record().Lost && !record.Lost || b.reset != row.Resets
	b.pair, b.reset = row.Pair, row.Resets
	if !again {
		b.voter = b.voter.See(record, now)
		return
	}
	cfg.Site, cfg.Name, cfg.Others = b.site, lease.Region, [2]fleet.NodeName{}
	copy(cfg.Others[:], row.Pair)
	if row.Vote.Unvoted() { // it never voted; its epoch comes from the declaration
		b.voter = lease.Start(cfg, lease.Record{}, now).See(record, now)
		return
	}
	b.voter = lease.Start(cfg, record, now)
}
