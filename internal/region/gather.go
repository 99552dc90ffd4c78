package region

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/workflows"
)

// waitingStore counts what waits at a site.
type waitingStore interface {
	Waiting(ctx context.Context, site fleet.SiteName, most int) (int, error)
}

// siteWaker wakes one subject, or has all that waits at a site delivered together.
type siteWaker interface {
	Wake(ctx context.Context, subject string) error
	DeliverSite(ctx context.Context, site fleet.SiteName) error
}

// crowdWaker wakes an instance's entity, or, where many instances of a site wait already,
// has them delivered together. It is a hurry only: the outbox row stays until somebody has
// taken it.
type crowdWaker struct {
	store waitingStore
	flows siteWaker
	log   *slog.Logger

	mu     sync.Mutex
	about  map[fleet.SiteName]bool // a batch is about to be asked for
	recent map[fleet.SiteName]*lastWakes
}

// lastWakes are the times of the last few wakes at a site, in a ring.
type lastWakes struct {
	at   [decide.Crowd]time.Time
	next int
}

// gatherSpan is how soon after one another wakes have to come, so that it is worth a look
// whether many wait.
const gatherSpan = 500 * time.Millisecond

// gatherFor is how long requests are gathered before a batch is asked for.
const gatherFor = 10 * time.Millisecond

// Wake wakes a subject.
func (c *crowdWaker) Wake(ctx context.Context, subject string) error {
	site, _, is := workflows.ParseInstanceSubject(subject)
	if !is {
		return c.flows.Wake(ctx, subject)
	}
	joins, busy := c.count(site)
	if joins {
		return nil
	}
	if busy {
		if waiting, err := c.store.Waiting(ctx, site, decide.Crowd); err == nil && decide.Crowded(waiting) {
			c.gather(ctx, site)
			return nil
		}
	}
	return c.flows.Wake(ctx, subject)
}

// count notes a wake. It joins a batch that is about to be asked for, and that will find what
// was committed; busy is a site whose last wakes came soon after one another.
func (c *crowdWaker) count(site fleet.SiteName) (joins, busy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.recent == nil {
		c.recent, c.about = map[fleet.SiteName]*lastWakes{}, map[fleet.SiteName]bool{}
	}
	w := c.recent[site]
	if w == nil {
		w = &lastWakes{}
		c.recent[site] = w
	}
	now := time.Now()
	busy = now.Sub(w.at[w.next]) < gatherSpan
	w.at[w.next] = now
	w.next = (w.next + 1) % len(w.at)
	return c.about[site], busy
}

func (c *crowdWaker) gather(ctx context.Context, site fleet.SiteName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.about[site] {
		return
	}
	c.about[site] = true
	ctx = context.WithoutCancel(ctx)
	time.AfterFunc(gatherFor, func() {
		c.mu.Lock()
		delete(c.about, site)
		c.mu.Unlock()
		if err := c.flows.DeliverSite(ctx, site); err != nil {
			c.log.Warn("what waits is left to the outbox", "site", site, "error", err)
		}
	})
}

// siteGatherer claims what waits at a site.
type siteGatherer struct {
	store    *postgres.Store
	entities *waker
}

// Gather claims what may travel in a batch, and wakes the entities of what may not.
func (g *siteGatherer) Gather(ctx context.Context, in activities.GatherBatch) (activities.BatchMade, error) {
	got, err := g.store.GatherBatch(ctx, postgres.BatchGather{
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
