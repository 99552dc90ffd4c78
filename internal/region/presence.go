package region

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// presence says that this server lives, and which builds have a worker.
type presence struct {
	store     *postgres.Store
	id, build string
	clock     func() (lease.Instant, error)

	mu    sync.Mutex
	watch *decide.Watch[postgres.Server]
}

func newPresence(store *postgres.Store, id string, cfg ServerConfig, clock func() (lease.Instant, error)) *presence {
	t := cfg.Timing
	return &presence{
		store: store, id: id, build: cfg.Build, clock: clock,
		watch: decide.NewWatch[postgres.Server](max(3*t.ServerSeen, t.Stranded)),
	}
}

// seen says that this server lives. A worker does before its build becomes the one that new
// workflows go to: nobody may take them for stranded.
func (p *presence) seen(ctx context.Context) error {
	return p.store.ServerSeen(ctx, p.id, p.build)
}

// live are the builds with a worker, this one's among them. Servers that lapsed are forgotten.
func (p *presence) live(ctx context.Context) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, err := p.store.Servers(ctx)
	if err != nil {
		return nil, err
	}
	now, err := p.clock()
	if err != nil {
		return nil, err
	}
	lapsed := p.watch.Lapsed(all, time.Duration(now))
	builds := []string{p.build}
	for _, s := range all {
		switch {
		case slices.Contains(lapsed, s):
			if err := p.store.ForgetServer(ctx, s); err != nil {
				return nil, err
			}
		case !slices.Contains(builds, s.Build):
			builds = append(builds, s.Build)
		}
	}
	return builds, nil
}

// gone says that this server ends.
func (p *presence) gone(ctx context.Context) error { return p.store.ServerGone(ctx, p.id) }
