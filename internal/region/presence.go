package region

import (
	"context"
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
	silence   decide.Silence
	clock     func() (lease.Instant, error)

	mu    sync.Mutex
	beats decide.Beats
}

func newPresence(store *postgres.Store, id string, cfg ServerConfig, clock func() (lease.Instant, error)) *presence {
	t := cfg.Timing
	return &presence{
		store: store, id: id, build: cfg.Build, clock: clock,
		silence: decide.Silence{Every: t.ServerSeen, Gone: max(3*t.ServerSeen, t.Stranded)},
	}
}

// seen says that this server lives. A worker does before its build becomes the one that new
// workflows go to: nobody may take them for stranded.
func (p *presence) seen(ctx context.Context) error {
	if err := p.store.ServerSeen(ctx, p.id, p.build); err != nil {
		return err
	}
	now, err := p.clock()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beats = p.silence.Beat(p.beats, time.Duration(now))
	return nil
}

// remembered is for how long the database remembers a server that only fell silent.
const remembered = 24 * time.Hour

// live are the builds with a worker. As long as this server cannot tell who is gone, all count
// that did not say so themselves. It judges by the time after the answer, which may have taken
// as long as anything else.
func (p *presence) live(ctx context.Context) ([]string, error) {
	builds, err := p.store.LiveBuilds(ctx, p.silence.Gone.Seconds())
	if err != nil {
		return nil, err
	}
	now, err := p.clock()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	sure := p.silence.CanTell(p.beats, time.Duration(now))
	p.mu.Unlock()
	if sure {
		return builds, nil
	}
	return p.store.LiveBuilds(ctx, remembered.Seconds())
}

// gone says that this server ends.
func (p *presence) gone(ctx context.Context) error { return p.store.ServerGone(ctx, p.id) }
