package deliveries

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// BatchGather takes over what waits at a site: for each instance whose desired revision was
// asked for, it claims a delivery, serves its operations and takes its outbox rows.
type BatchGather struct {
	ID                   fleet.BatchID
	Site                 fleet.SiteName
	Workflow, Run, Build string
	Deadline             time.Duration // of every delivery
	TTL                  time.Duration // of the pending rows (N20)
}

// BatchGathered is what a gathering came to. Left are subjects that wait for their own
// entity: they start something, are large, are under way, or want no delivery.
type BatchGathered struct {
	BatchReleased
	Left []string
}

// GatherBatch claims what waits at a site and may travel in a batch, in one transaction. A
// repeated one is answered as the first.
func (s *Store) GatherBatch(ctx context.Context, in BatchGather) (BatchGathered, error) {
	var out BatchGathered
	prefix := fleet.InstanceSubject(in.Site, "")
	names, err := s.Q.WaitingNames(ctx, db.WaitingNamesParams{Prefix: prefix, MaxRows: fleet.MaxBatchItems})
	if err != nil {
		return out, err
	}
	err = s.Tx(ctx, func(q *db.Queries) error {
		out = BatchGathered{}
		g := &gathering{build: in.Build, batchRelease: batchRelease{s: s.Store, q: q, in: BatchRelease{
			ID: in.ID, Site: in.Site, Workflow: in.Workflow, Run: in.Run, Deadline: in.Deadline, TTL: in.TTL, Items: itemsNamed(names),
		}}}
		if err := g.lock(ctx); err != nil {
			return err
		}
		known, err := q.GetBatch(ctx, string(in.ID))
		if err == nil {
			out.BatchReleased, err = releasedAs(known, g.in)
			return err
		}
		if !postgres.NoRows(err) {
			return err
		}
		if err := g.gather(ctx); err != nil || len(g.claims) == 0 {
			out.Left = g.left
			return err
		}
		out = BatchGathered{g.released(), g.left}
		return nil
	})
	return out, err
}

func itemsNamed(names []string) []BatchChange {
	items := make([]BatchChange, len(names))
	for i, name := range names {
		items[i].Instance = fleet.InstanceName(name)
	}
	return items
}

// gathering is a release of what was released before.
type gathering struct {
	batchRelease
	build string
	left  []string
}

func (g *gathering) gather(ctx context.Context) error {
	if len(g.names) == 0 {
		return nil
	}
	reason, _, err := g.closed(ctx)
	if err != nil {
		return err
	}
	if reason != "" {
		g.leave(g.names...)
		return nil
	}
	if err := g.read(ctx); err != nil {
		return err
	}
	if err := g.choose(ctx); err != nil || len(g.claims) == 0 {
		return err
	}
	if err := g.serve(ctx); err != nil {
		return err
	}
	if err := g.write(ctx); err != nil {
		return err
	}
	g.moves = targetMoves{} // of no fleet change
	return g.insertBatch(ctx)
}

func (g *gathering) leave(names ...string) {
	for _, name := range names {
		g.left = append(g.left, g.subject(name))
	}
}

// choose claims what its desired revision was asked of, until the stream is full; the rest
// of that waits for the next batch.
func (g *gathering) choose(ctx context.Context) error {
	rows, err := g.q.WaitingItems(ctx, db.WaitingItemsParams{Site: string(g.in.Site), Names: g.names, Prefix: fleet.InstanceSubject(g.in.Site, "")})
	if err != nil {
		return err
	}
	var bytes int64
	seen := map[string]bool{}
	for _, w := range rows {
		seen[w.Name] = true
		want := g.desired[w.Name]
		if want == nil || g.objects[w.Name] == nil || !w.Asked || w.Cancelled || w.UnderWay || w.Starts || want.Size > fleet.MaxBatchBody {
			g.leave(w.Name)
			continue
		}
		if bytes += want.Size; bytes > fleet.MaxBatchBytes {
			break
		}
		g.claims = append(g.claims, &batchClaim{Name: w.Name, Object: g.objects[w.Name], Before: want, Revision: want.Revision, Action: want.Action})
	}
	for _, name := range g.names {
		if !seen[name] && g.subjects[name].Name == "" {
			g.leave(name) // nothing was ever released under it
		}
	}
	return nil
}

// serve takes over the operations and the outbox rows of what is claimed, as a look of each
// entity would: one that still runs looks anew before it claims again.
func (g *gathering) serve(ctx context.Context) error {
	return attach(ctx, g.q, postgres.Server{Run: g.in.Run, Build: g.build}, g.in.Site, g.claimed()...)
}

// Waiting counts the operations that wait at a site, up to a number.
func (s *Store) Waiting(ctx context.Context, site fleet.SiteName, most int) (int, error) {
	n, err := s.Q.CountWaiting(ctx, db.CountWaitingParams{Site: string(site), Most: int32(most)}) //nolint:gosec // a handful
	return int(n), err
}
