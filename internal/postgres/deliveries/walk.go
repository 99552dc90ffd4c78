package deliveries

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Walk takes an entity from step to step under its subject's lock, in one transaction: the
// first, then what next says of what is seen after each, until it says no more or a notify
// is prepared. Next may be called again from the start, when the transaction is.
func (s *Store) Walk(ctx context.Context, of fleet.Subject, first fleet.Step, next func(seen fleet.InstanceSeen, taken int) (fleet.Step, bool)) (fleet.Walked, error) {
	var w *walk
	err := s.Tx(ctx, func(q *db.Queries) error {
		w = &walk{q: q, of: of, revisions: map[int64]*db.Revision{}}
		if err := w.enter(ctx); err != nil {
			return err
		}
		for step, more := first, true; more; step, more = next(w.Seen, len(w.Steps)) {
			if err := w.take(ctx, step); err != nil {
				return err
			}
			if w.Prepared != nil {
				break
			}
		}
		return w.leave(ctx)
	})
	if err == nil {
		s.Refuse(w.stale)
	}
	return w.Walked, err
}

// walk is one walk under way.
type walk struct {
	fleet.Walked
	q     *db.Queries
	of    fleet.Subject
	sub   db.Subject
	stale *audit.Refusal // of what a record step found
	// changed is set by a step that has to reach the disk before anybody acts on it.
	changed bool
	// What the transaction has locked, or what never changes, is read once.
	delivery  *db.Delivery
	lease     *db.SiteLease
	revisions map[int64]*db.Revision
}

func (w *walk) enter(ctx context.Context) error {
	if err := postgres.Lock(ctx, w.q, []fleet.ObjectKey{w.of.Key()}); err != nil {
		return err
	}
	var err error
	w.sub, err = w.q.LockSubject(ctx, db.LockSubjectParams{Site: string(w.of.Site), Name: string(w.of.Instance)})
	if postgres.NoRows(err) {
		return postgres.OrNotFound(nil, "instance", string(w.of.Site)+"/"+string(w.of.Instance), "nothing was ever released under this name")
	}
	return err
}

// leave does not wait for the disk when the walk only looked: should the database lose
// it, the outbox row is back and the next claim of the run is refused, so that it looks anew.
func (w *walk) leave(ctx context.Context) error {
	if w.changed {
		return nil
	}
	return w.q.CommitLater(ctx)
}

func (w *walk) take(ctx context.Context, step fleet.Step) error {
	if err := w.do(ctx, step); err != nil {
		return err
	}
	w.Steps = append(w.Steps, step)
	w.changed = w.changed || step != (fleet.Step{})
	if w.Prepared != nil { // no decision uses what the notify itself changed
		return nil
	}
	return w.see(ctx)
}

func (w *walk) do(ctx context.Context, step fleet.Step) error {
	switch {
	case step.Claim != nil:
		return w.claim(ctx, *step.Claim)
	case step.Prepare != nil:
		return w.prepare(ctx, *step.Prepare)
	case step.Record != nil:
		return w.record(ctx, *step.Record)
	case step.Miss != nil:
		return w.miss(ctx, *step.Miss)
	case step.Settle != nil:
		return w.settle(ctx, *step.Settle)
	case step.End != nil:
		return w.end(ctx, *step.End)
	}
	return w.look(ctx)
}

// look makes the run the subject's current one, and takes its outbox rows and its open
// operations.
func (w *walk) look(ctx context.Context) error {
	w.sub.EntityRun = w.of.Run
	return attach(ctx, w.q, postgres.Server{Run: w.of.Run, Build: w.of.Build}, w.of.Site, w.sub.Name)
}

// see reads all that the decision looks at, in one query.
func (w *walk) see(ctx context.Context) error {
	row, err := w.q.SeeInstance(ctx, db.SeeInstanceParams{
		Subject: w.of.Name(), Site: string(w.of.Site), Name: string(w.of.Instance),
	})
	if err != nil {
		return err
	}
	w.Seen = fleet.InstanceSeen{}
	if err := json.Unmarshal(row, &w.Seen); err != nil {
		return postgres.Unreadable("the instance", err)
	}
	if d, open := w.delivery, w.Seen.Open; d != nil && open != nil && d.ID == string(open.ID) {
		d.DeadlineAt = open.Deadline
	}
	return nil
}

func (w *walk) lockDelivery(ctx context.Context, id fleet.DeliveryID) (*db.Delivery, error) {
	if w.delivery == nil || w.delivery.ID != string(id) {
		d, err := w.q.LockDelivery(ctx, string(id))
		if err != nil {
			return nil, err
		}
		w.delivery = &d
	}
	return w.delivery, nil
}

// lockLease is nil when the site has no active node.
func (w *walk) lockLease(ctx context.Context) (*db.SiteLease, error) {
	if w.lease == nil {
		l, err := w.q.LockLease(ctx, w.sub.Site)
		if postgres.NoRows(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		w.lease = &l
	}
	return w.lease, nil
}

func (w *walk) revision(ctx context.Context, number int64) (*db.Revision, error) {
	if w.revisions[number] == nil {
		r, err := revisionAt(ctx, w.q, w.sub.Site, w.sub.Name, number)
		if err != nil {
			return nil, err
		}
		w.revisions[number] = r
	}
	return w.revisions[number], nil
}

// deployed is the version and the action of the snapshot.
func (w *walk) deployed(ctx context.Context) (fleet.Revision, error) {
	if len(w.Steps) > 0 {
		return w.Seen.Snapshot, nil
	}
	r, err := Snapshot(ctx, w.q, w.of.Key())
	return RevisionOf(r), err
}
