package region

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/store"
)

// waitingStore counts what waits at a site.
type waitingStore interface {
	Waiting(ctx context.Context, site fleet.SiteName, most int) (int, error)
}

// siteWaker wakes one subject, or has everything that waits at a site delivered in batches.
type siteWaker interface {
	Wake(ctx context.Context, subject string) error
}

// crowdWaker wakes an instance's entity or, if many instances of a site are waiting, requests a batch. It only
// speeds things up: the outbox row stays until a run has taken it.
type crowdWaker struct {
	store waitingStore
	flows siteWaker
	log   *slog.Logger

	mu    sync.Mutex
	about map[fleet.SiteName]bool // a batch is about to be requested
}

// gatherFor is how long requests are collected before a batch is requested.
const gatherFor = 10 * time.Millisecond

// Wake wakes a subject.
func (c *crowdWaker) Wake(ctx context.Context, subject string) error {
	kind, names, _ := fleet.ParseSubject(subject)
	if kind != fleet.EntityInstance {
		return c.flows.Wake(ctx, subject)
	}
	site := fleet.SiteName(names[0])
	if c.joins(site) {
		return nil
	}
	// The number of waiting instances decides, not time: in a slow region requests arrive slowly, and it needs
	// batches most.
	if waiting, err := c.store.Waiting(ctx, site, decide.Crowd); err == nil && decide.Crowded(waiting) {
		c.gather(ctx, site)
		return nil
	}
	return c.flows.Wake(ctx, subject)
}

// joins reports whether a batch of the site is about to be requested: it will include what was committed.
func (c *crowdWaker) joins(site fleet.SiteName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.about[site]
}

func (c *crowdWaker) gather(ctx context.Context, site fleet.SiteName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.about[site] {
		return
	}
	if c.about == nil {
		c.about = map[fleet.SiteName]bool{}
	}
	c.about[site] = true
	ctx = context.WithoutCancel(ctx)
	time.AfterFunc(gatherFor, func() {
		c.mu.Lock()
		delete(c.about, site)
		c.mu.Unlock()
		if err := c.flows.Wake(ctx, fleet.DeliverSubject(site)); err != nil {
			c.log.Warn("gather failed; the outbox delivers what waits", "site", site, "error", err)
		}
	})
}

// siteGatherer claims what waits at a site.
type siteGatherer struct {
	store    *store.Store
	entities *waker
}

// Gather claims what may travel in a batch, and wakes the entities of the rest.
func (g *siteGatherer) Gather(ctx context.Context, in activities.GatherBatch) (activities.BatchMade, error) {
	got, err := g.store.GatherBatch(ctx, deliveries.BatchGather{
		ID: in.ID(), Site: in.Site, Workflow: in.Workflow, Run: in.Run, Build: in.Build, Deadline: in.Total, TTL: in.TTL,
	})
	if err != nil {
		return activities.BatchMade{}, err
	}
	for _, subject := range got.Left {
		if err := g.entities.Wake(ctx, subject); err != nil {
			return activities.BatchMade{}, err
		}
	}
	return activities.BatchMade{Looked: got.Claimed + len(got.Left), Claimed: got.Claimed, Nodes: got.Nodes}, nil
}
