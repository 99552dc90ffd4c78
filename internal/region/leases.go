package region

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease/boottime"
	"github.com/holdfast-io/holdfast/internal/link"
	"github.com/holdfast-io/holdfast/internal/link/leases"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/store"
)

// doorLeases is the name of the votes' listener in refusals.
const doorLeases = "leases"

// openVotes makes this server's part of the region's votes. Every server times them, and those with a link serve
// them.
func (s *server) openVotes() error {
	o := leases.Options{
		Store: s.store, Timing: s.cfg.Timing.Link, Clock: boottime.Now, Now: time.Now, Log: s.log, Metrics: s.registry,
		Nonce:  func() int64 { return 1 + rand.Int64N(1<<62) }, //nolint:gosec // it distinguishes restarts, and is not a secret
		Caller: func(ctx context.Context) fleet.NodeName { return link.IdentityOf(ctx).Node },
		Status: link.StatusOf,
		Refuse: func(ctx context.Context, reason, what string) {
			s.refusals.Refuse(audit.Refusal{Door: doorLeases, Identity: link.IdentityOf(ctx).Name, Reason: reason, What: what})
		},
	}
	var err error
	if s.votes, err = leases.New(o); err != nil || s.link == nil {
		return err
	}
	nodev1.RegisterLeasesServer(s.link.Registrar(), s.votes)
	return nil
}

// failbackSweep hands leases back to declared active nodes that are available again.
type failbackSweep struct {
	store         *store.Store
	flows         *waker
	stable, limit time.Duration
	log           *slog.Logger
}

// FailBack checks the sites of a shard once.
func (f *failbackSweep) FailBack(ctx context.Context, shard, shards int) (int, error) {
	asked, after := 0, fleet.SiteName("")
	for {
		page, err := f.store.Failbacks(ctx, shard, shards, string(after), sweepPage)
		if err != nil {
			return asked, err
		}
		for _, b := range page {
			after = b.Site
			reason, back := decide.Failback(b, f.stable)
			if !back {
				f.log.Debug("the lease is not handed back", "site", b.Site, "declared", b.Node, "reason", reason)
				continue
			}
			op, err := f.store.AskFailover(ctx, nodes.FailoverRequest{Request: postgres.Request{Actor: "region", Limit: f.limit}, Site: b.Site, To: b.Node})
			if err != nil {
				return asked, err
			}
			asked++
			if err := f.flows.Wake(ctx, op.Subject); err != nil {
				return asked, err
			}
		}
		if len(page) < sweepPage {
			return asked, nil
		}
	}
}
