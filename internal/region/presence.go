package region

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/store"
)

// presence records that this server is alive, and knows which builds have a worker.
type presence struct {
	store     *store.Store
	id, build string
	clock     func() (lease.Instant, error)

	mu      sync.Mutex
	limit   time.Duration // after which a silent server lapses
	watch   *decide.Watch[decide.Server]
	falling *decide.Falling
	had     map[string]time.Duration // when a build last had a worker
}

func newPresence(store *store.Store, id string, cfg ServerConfig, clock func() (lease.Instant, error)) *presence {
	t := cfg.Timing
	limit := max(3*t.ServerSeen, t.Stranded)
	return &presence{
		store: store, id: id, build: cfg.Build, clock: clock, limit: limit,
		watch: decide.NewWatch[decide.Server](limit), falling: decide.NewFalling(limit), had: map[string]time.Duration{},
	}
}

// seen records that this server is alive. A worker calls it before its build becomes current, so that new workflows
// are never taken for stranded.
func (p *presence) seen(ctx context.Context) error {
	return p.store.ServerSeen(ctx, p.id, p.build)
}

// live are the builds with a worker, including this one. Lapsed servers are removed.
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
	p.falling.Look(all, lapsed, time.Duration(now))
	builds := []string{p.build}
	for _, s := range all {
		switch {
		case slices.Contains(lapsed, s):
			if err := p.store.ForgetServer(ctx, s); err != nil {
				return nil, err
			}
		case !slices.Contains(builds, s.Build):
			builds = append(builds, s.Build)
			p.had[s.Build] = time.Duration(now)
		}
	}
	return builds, nil
}

// lately are the live builds and those that had a worker a moment ago, so that a restart of a build's only server
// does not strand its workflows.
func (p *presence) lately(ctx context.Context) ([]string, error) {
	builds, err := p.live(ctx)
	if err != nil {
		return nil, err
	}
	now, err := p.clock()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for build, at := range p.had {
		switch {
		case time.Duration(now)-at > p.limit:
			delete(p.had, build)
		case !slices.Contains(builds, build):
			builds = append(builds, build)
		}
	}
	return builds, nil
}

// falls reports whether the servers of a build crash and none is steady.
func (p *presence) falls(build string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.falling.Falls(build)
}

// alone reports whether this build has no other server, and had none that did not end cleanly.
func (p *presence) alone(ctx context.Context) (bool, error) {
	all, err := p.store.Servers(ctx)
	return !slices.ContainsFunc(all, func(s decide.Server) bool { return s.Build == p.build && s.ID != p.id }), err
}

// gone records that this server ends.
func (p *presence) gone(ctx context.Context) error { return p.store.ServerGone(ctx, p.id) }
