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

	mu      sync.Mutex
	limit   time.Duration // after which a server that says nothing lapses
	watch   *decide.Watch[decide.Server]
	falling *decide.Falling
	had     map[string]time.Duration // when a build had a worker last
}

func newPresence(store *postgres.Store, id string, cfg ServerConfig, clock func() (lease.Instant, error)) *presence {
	t := cfg.Timing
	limit := max(3*t.ServerSeen, t.Stranded)
	return &presence{
		store: store, id: id, build: cfg.Build, clock: clock, limit: limit,
		watch: decide.NewWatch[decide.Server](limit), falling: decide.NewFalling(limit), had: map[string]time.Duration{},
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

// lately are the live builds and those that were a moment ago: one whose only server is restarted
// is not given up for that.
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

// falls says that a build has servers which fall without a word, and none that stays.
func (p *presence) falls(build string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.falling.Falls(build)
}

// alone says that no other server of this build is there, nor was until it said that it ends.
func (p *presence) alone(ctx context.Context) (bool, error) {
	all, err := p.store.Servers(ctx)
	return !slices.ContainsFunc(all, func(s decide.Server) bool { return s.Build == p.build && s.ID != p.id }), err
}

// gone says that this server ends.
func (p *presence) gone(ctx context.Context) error { return p.store.ServerGone(ctx, p.id) }
