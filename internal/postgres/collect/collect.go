package collect

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// The sizes of one page of the collection, each a short transaction.
const (
	collectRows     = 500
	collectSubjects = 200
	collectChunks   = 32
	// collectBytes is what of bodies goes at once; a larger body loses its name first, and then
	// a few chunks at a time.
	collectBytes = collectChunks * postgres.ChunkSize
)

// CollectPage removes one page of unneeded rows of a kind, and returns how many rows
// it was and whether there may be more. Any number of servers may do this at once.
func (s *Store) CollectPage(ctx context.Context, kind fleet.CollectedKind, keep fleet.Retention) (removed int64, more bool, err error) {
	page := collection{keep: keep}
	err = s.Tx(ctx, func(q *db.Queries) error {
		page.removed, page.more, page.q = 0, false, q
		if err := q.CommitLater(ctx); err != nil { // what a crash brings back is collected again
			return err
		}
		return page.take(ctx, kind)
	})
	if err != nil {
		return 0, false, err
	}
	return page.removed, page.more, nil
}

// collection is one page under way.
type collection struct {
	q       *db.Queries
	keep    fleet.Retention
	removed int64
	more    bool
}

func (c *collection) take(ctx context.Context, kind fleet.CollectedKind) (err error) {
	switch kind {
	case fleet.CollectDeliveries, fleet.CollectRevisions:
		return c.histories(ctx, kind)
	case fleet.CollectOperations:
		p := db.CollectOperationsParams{OlderSeconds: c.keep.Operations.Seconds(), MaxRows: collectRows}
		c.removed, err = c.q.CollectOperations(ctx, p)
	case fleet.CollectBatches:
		p := db.CollectBatchesParams{OlderSeconds: c.keep.Operations.Seconds(), MaxRows: collectRows}
		c.removed, err = c.q.CollectBatches(ctx, p)
	case fleet.CollectUploads:
		p := db.CollectUploadsParams{OlderSeconds: c.keep.Uploads.Seconds(), MaxRows: collectRows}
		c.removed, err = c.q.CollectUploads(ctx, p)
	case fleet.CollectConnections:
		p := db.CollectConnectionsParams{OlderSeconds: c.keep.Events.Seconds(), MaxRows: collectRows}
		c.removed, err = c.q.CollectConnections(ctx, p)
	case fleet.CollectRefusals:
		p := db.CollectRefusalsParams{OlderSeconds: c.keep.Operations.Seconds(), MaxRows: collectRows}
		c.removed, err = c.q.CollectRefusals(ctx, p)
	case fleet.CollectMarkers:
		p := db.CollectMarkersParams{OlderSeconds: c.keep.Events.Seconds(), MaxRows: collectRows}
		c.removed, err = c.q.CollectMarkers(ctx, p)
	case fleet.CollectLost:
		p := db.CollectLostParams{OlderSeconds: c.keep.Operations.Seconds(), MaxRows: collectRows}
		c.removed, err = c.q.CollectLost(ctx, p)
	case fleet.CollectFleetRuns:
		return c.fleetRuns(ctx)
	case fleet.CollectReplicas:
		return c.replicas(ctx)
	case fleet.CollectDeployments:
		return c.deployments(ctx)
	case fleet.CollectEvents:
		return c.events(ctx)
	case fleet.CollectGenerations:
		return c.generations(ctx)
	case fleet.CollectBodies:
		return c.bodies(ctx)
	case fleet.CollectChunks:
		return c.chunks(ctx)
	}
	c.more = c.removed == collectRows
	return err
}

// histories goes over some instances, in the order of their names, and on from there in the
// next page or the next run.
func (c *collection) histories(ctx context.Context, kind fleet.CollectedKind) error {
	at, err := c.q.LockCollectionPlace(ctx, string(kind))
	if err != nil {
		return err
	}
	next, err := c.q.SubjectsAfter(ctx, db.SubjectsAfterParams{Site: at.Site, Name: at.Name, MaxRows: collectSubjects})
	if err != nil {
		return err
	}
	if len(next) > 0 {
		if err := c.history(ctx, kind, db.SubjectsAfterRow(at), next[len(next)-1]); err != nil {
			return err
		}
	}
	switch {
	case c.removed == collectRows: // these instances have more of it
		c.more = true
		return nil
	case len(next) == collectSubjects:
		c.more = true
		last := next[len(next)-1]
		at.Site, at.Name = last.Site, last.Name
	default:
		at.Site, at.Name = "", ""
	}
	return c.q.MoveCollectionPlace(ctx, db.MoveCollectionPlaceParams{Kind: string(kind), Site: at.Site, Name: at.Name})
}

func (c *collection) history(ctx context.Context, kind fleet.CollectedKind, after, to db.SubjectsAfterRow) (err error) {
	p := db.CollectDeliveriesParams{
		Keep: int64(c.keep.Newest), OlderSeconds: c.keep.Deliveries.Seconds(), MaxRows: collectRows,
		AfterSite: after.Site, AfterName: after.Name, ToSite: to.Site, ToName: to.Name,
	}
	if kind == fleet.CollectDeliveries {
		c.removed, err = c.q.CollectDeliveries(ctx, p)
		return err
	}
	c.removed, err = c.q.CollectRevisions(ctx, db.CollectRevisionsParams{
		Keep: p.Keep, DeliveriesSeconds: p.OlderSeconds, MaxRows: p.MaxRows,
		OlderSeconds: c.keep.Bodies.Seconds(), // so long a body stays that nothing refers to
		AfterSite:    p.AfterSite, AfterName: p.AfterName, ToSite: p.ToSite, ToName: p.ToName,
	})
	return err
}

// events removes the oldest of the feed, and writes in the same transaction how far: who
// resumes from before that gets an error (X24).
func (c *collection) events(ctx context.Context) error {
	from, err := c.q.LockFeedHorizon(ctx)
	if err != nil {
		return err
	}
	rows, err := c.q.EventsToCollect(ctx, db.EventsToCollectParams{
		OlderSeconds: c.keep.Events.Seconds(), Era: from.Era, Xid: uint64(from.Xid), Seq: from.Seq, MaxRows: collectRows, //nolint:gosec // never negative
	})
	if err != nil {
		return err
	}
	var seqs []int64
	to := db.RaiseFeedHorizonParams{}
	for _, e := range rows {
		if !e.Old { // what follows stays too: the feed has no holes
			break
		}
		seqs = append(seqs, e.Seq)
		to = db.RaiseFeedHorizonParams{Era: e.Era, Xid: uint64(e.Xid), Seq: e.Seq} //nolint:gosec // never negative
	}
	if len(seqs) == 0 {
		return nil
	}
	c.removed, c.more = int64(len(seqs)), len(seqs) == collectRows
	if err := c.q.DropEvents(ctx, seqs); err != nil {
		return err
	}
	return c.q.RaiseFeedHorizon(ctx, to)
}

// fleetRuns removes the targets of a run first, a page at a time, and then the run.
func (c *collection) fleetRuns(ctx context.Context) (err error) {
	p := db.CollectFleetTargetsParams{Keep: int64(c.keep.Newest), OlderSeconds: c.keep.Operations.Seconds(), MaxRows: collectRows}
	if c.removed, err = c.q.CollectFleetTargets(ctx, p); err != nil {
		return err
	}
	if c.more = c.removed == collectRows; c.more {
		return nil
	}
	n, err := c.q.CollectFleetRuns(ctx, db.CollectFleetRunsParams{Keep: p.Keep, OlderSeconds: p.OlderSeconds, MaxRows: p.MaxRows})
	c.removed, c.more = c.removed+n, n == collectRows
	return err
}
