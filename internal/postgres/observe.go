package postgres

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Observe makes the run the subject's current one, takes its outbox rows and its open
// operations, and says all that the decision needs.
func (s *Store) Observe(ctx context.Context, of fleet.Subject) (fleet.InstanceSeen, error) {
	return s.act(ctx, "observe", of, func(q *db.Queries, sub db.Subject) error {
		if err := q.AttachRun(ctx, db.AttachRunParams{Site: sub.Site, Name: sub.Name, Run: of.Run}); err != nil {
			return failed("attach the run", err)
		}
		p := db.ServeOperationsParams{Subject: of.Name(), Run: of.Run, Build: of.Build}
		if err := q.ServeOperations(ctx, p); err != nil {
			return failed("serve operations", err)
		}
		return failed("take the outbox", q.TakeOutbox(ctx, of.Name()))
	})
}

// act runs one step of an entity under the subject's lock and says what is seen after it.
func (s *Store) act(ctx context.Context, doing string, of fleet.Subject, f func(q *db.Queries, sub db.Subject) error) (fleet.InstanceSeen, error) {
	var seen fleet.InstanceSeen
	err := s.tx(ctx, doing+" "+of.Name(), func(q *db.Queries) error {
		if err := lock(ctx, q, []fleet.ObjectKey{of.Key()}); err != nil {
			return err
		}
		sub, err := q.LockSubject(ctx, db.LockSubjectParams{Site: string(of.Site), Name: string(of.Instance)})
		if noRows(err) {
			return orNotFound(nil, "instance", string(of.Site)+"/"+string(of.Instance), "nothing was ever released under this name")
		}
		if err != nil {
			return failed("lock the subject", err)
		}
		if err := f(q, sub); err != nil {
			return err
		}
		seen, err = see(ctx, q, of)
		return err
	})
	return seen, err
}

func see(ctx context.Context, q *db.Queries, of fleet.Subject) (fleet.InstanceSeen, error) {
	var seen fleet.InstanceSeen
	want, err := desired(ctx, q, of.Key())
	if err != nil {
		return seen, err
	}
	seen.Desired = revisionOf(want)
	if want != nil {
		seen.Durability = fleet.Durability(want.Durability)
	}
	deployed, err := snapshot(ctx, q, of.Key())
	if err != nil {
		return seen, err
	}
	seen.Snapshot = revisionOf(deployed)
	lease, err := q.GetLease(ctx, string(of.Site))
	if err != nil && !noRows(err) {
		return seen, failed("read the lease", err)
	}
	seen.Holder, seen.Epoch = fleet.NodeName(lease.Holder), lease.Epoch
	if seen.Open, err = seeOpen(ctx, q, of); err != nil {
		return seen, err
	}
	return seen, seeRest(ctx, q, of, &seen)
}

func seeOpen(ctx context.Context, q *db.Queries, of fleet.Subject) (*fleet.DeliverySeen, error) {
	d, err := q.OpenDelivery(ctx, db.OpenDeliveryParams{Site: string(of.Site), Name: string(of.Instance)})
	if noRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, failed("read the open delivery", err)
	}
	r, err := q.GetRevision(ctx, db.GetRevisionParams{Site: d.Site, Name: d.Name, Revision: d.Revision})
	if err != nil {
		return nil, failed("read revision", err)
	}
	targets, err := q.TargetsOf(ctx, d.ID)
	if err != nil {
		return nil, failed("read targets", err)
	}
	seen := &fleet.DeliverySeen{
		ID: fleet.DeliveryID(d.ID), Revision: revisionOf(&r), Node: fleet.NodeName(d.Node), Epoch: d.Epoch,
		Since: d.CreatedAt, Deadline: d.DeadlineAt,
	}
	for _, t := range targets {
		seen.Targets = append(seen.Targets, fleet.TargetSeen{
			Node: fleet.NodeName(t.Node), Role: fleet.Role(t.Role), State: fleet.TargetState(t.State),
			Tries: int(t.Tries), Reason: fleet.Kind(t.Reason),
		})
	}
	return seen, nil
}

func seeRest(ctx context.Context, q *db.Queries, of fleet.Subject, seen *fleet.InstanceSeen) error {
	unsettled, err := q.UnsettledDeliveries(ctx, db.UnsettledDeliveriesParams{Site: string(of.Site), Name: string(of.Instance)})
	if err != nil {
		return failed("read unsettled deliveries", err)
	}
	for _, u := range unsettled {
		seen.Unsettled = append(seen.Unsettled, fleet.Version{Era: u.Era, Revision: u.Revision})
	}
	due, err := q.DueOwed(ctx, db.DueOwedParams{Site: string(of.Site), Name: string(of.Instance)})
	if err != nil {
		return failed("read what is owed", err)
	}
	for _, o := range due {
		seen.Owed = append(seen.Owed, fleet.OwedSeen{
			Node: fleet.NodeName(o.Node), Role: fleet.Role(o.Role), Revision: fleet.Version{Era: o.Era, Revision: o.Revision},
		})
	}
	n, err := q.CountOperations(ctx, of.Name())
	seen.Asked, seen.Cancelled = int(n.Asked), int(n.Cancelled)
	return failed("count operations", err)
}
