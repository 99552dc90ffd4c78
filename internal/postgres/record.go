package postgres

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Record writes down what a node applied. The active's success becomes the deployed
// snapshot, and what the other nodes now owe is written, in one transaction that compares
// the epoch with the lease; if that moved, nothing is recorded and the decision claims anew.
func (s *Store) Record(ctx context.Context, r fleet.Record) (fleet.InstanceSeen, error) {
	return s.act(ctx, "record", r.Subject, func(q *db.Queries, sub db.Subject) error {
		if r.Delivery == "" {
			return s.recordOwed(ctx, q, r)
		}
		d, err := q.LockDelivery(ctx, string(r.Delivery))
		if err != nil {
			return failed("lock the delivery", err)
		}
		lease, err := q.LockLease(ctx, sub.Site)
		if err != nil {
			return failed("read the lease", err)
		}
		if lease.Epoch != d.Epoch {
			return nil
		}
		first, err := q.SetTarget(ctx, db.SetTargetParams{
			DeliveryID: d.ID, Node: string(r.Node), State: string(fleet.TargetApplied), Already: r.Response.Already, Fetched: r.Response.Fetched,
		})
		if err != nil {
			return failed("record the target", err)
		}
		if err := confirm(ctx, q, r, d.Revision); err != nil {
			return err
		}
		if first == 0 || string(r.Node) != d.Node { // not the active, or said before: all that follows is done
			return nil
		}
		return s.recordActive(ctx, q, r, d)
	})
}

// confirm writes what a node holds, and takes back what it was owed up to there.
func confirm(ctx context.Context, q *db.Queries, r fleet.Record, revision int64) error {
	if err := q.UpsertHeld(ctx, heldRow(r.Site, r.Node, r.Instance, r.Response.Held, "")); err != nil {
		return failed("record what the node holds", err)
	}
	return failed("confirm what was owed", q.ConfirmOwed(ctx, db.ConfirmOwedParams{
		Site: string(r.Site), Name: string(r.Instance), Node: string(r.Node), Revision: revision,
	}))
}

func heldRow(site fleet.SiteName, node fleet.NodeName, name fleet.InstanceName, h fleet.Held, reason string) db.UpsertHeldParams {
	return db.UpsertHeldParams{
		Site: string(site), Name: string(name), Node: string(node), Era: h.Era, Revision: h.Version.Revision,
		Hash: hashBytes(h.Content.Hash), Enabled: h.Enabled, Deleted: h.Action == fleet.ActionDelete, Running: h.Running,
		HighEra: h.HighWater.Era, HighRevision: h.HighWater.Revision, Reason: reason,
	}
}

func (s *Store) recordActive(ctx context.Context, q *db.Queries, r fleet.Record, d db.Delivery) error {
	if err := deploySnapshot(ctx, q, r, d); err != nil {
		return err
	}
	if err := q.SetPhase(ctx, db.SetPhaseParams{ID: d.ID, Phase: phaseRecorded}); err != nil {
		return failed("mark the delivery as recorded", err)
	}
	if err := settleOlder(ctx, q, r.Subject, r.Node, r.Response.Held); err != nil {
		return err
	}
	if d.State != string(fleet.DeliveryOpen) { // nobody will end it any more
		if _, err := bury(ctx, q, r.Key()); err != nil {
			return err
		}
	}
	rev, err := q.GetRevision(ctx, db.GetRevisionParams{Site: d.Site, Name: d.Name, Revision: d.Revision})
	if err != nil || rev.Durability != string(fleet.DurabilityAsync) {
		return failed("read revision", err)
	}
	return endOperations(ctx, q, r.Name(), ending{
		To: d.Revision, State: fleet.OperationSucceeded, Delivery: r.Delivery,
	})
}

// deploySnapshot promotes what the active applied (N13), and owes it to the rest, unless
// something newer is deployed already.
func deploySnapshot(ctx context.Context, q *db.Queries, r fleet.Record, d db.Delivery) error {
	if _, err := promote(ctx, q, d); err != nil {
		return err
	}
	snap, err := snapshot(ctx, q, r.Key())
	if err != nil || snap.Revision != d.Revision {
		return err
	}
	return oweRest(ctx, q, d, r.Node)
}

// promote makes a delivery's revision the deployed one; it never lowers it.
func promote(ctx context.Context, q *db.Queries, d db.Delivery) (bool, error) {
	n, err := q.RecordSnapshot(ctx, db.RecordSnapshotParams{
		Site: d.Site, Name: d.Name, Revision: d.Revision, DeliveryID: d.ID, Epoch: d.Epoch,
	})
	return n > 0, failed("record the snapshot", err)
}

// oweRest owes a revision to all nodes of the pair but the one that has it.
func oweRest(ctx context.Context, q *db.Queries, d db.Delivery, has fleet.NodeName) error {
	rev, err := q.GetRevision(ctx, db.GetRevisionParams{Site: d.Site, Name: d.Name, Revision: d.Revision})
	if err != nil {
		return failed("read revision", err)
	}
	nodes, err := q.NodesOfSite(ctx, d.Site)
	if err != nil {
		return failed("read the site's nodes", err)
	}
	for _, n := range nodes {
		if n.Name == string(has) || n.Role == string(fleet.RoleWorker) {
			continue
		}
		err := q.UpsertOwed(ctx, db.UpsertOwedParams{
			Site: d.Site, Name: d.Name, Node: n.Name, Revision: d.Revision, Action: rev.Action, Due: true, Reason: "replicating",
		})
		if err != nil {
			return failed("write what is owed", err)
		}
	}
	return nil
}

// settleOlder says what became of deliveries whose answer was lost, from what the active
// holds now. One that turns out applied is promoted.
func settleOlder(ctx context.Context, q *db.Queries, of fleet.Subject, active fleet.NodeName, held fleet.Held) error {
	rows, err := q.UnsettledDeliveries(ctx, db.UnsettledDeliveriesParams{Site: string(of.Site), Name: string(of.Instance)})
	if err != nil {
		return failed("read unsettled deliveries", err)
	}
	for _, u := range rows {
		as := string(fleet.SettledNotApplied)
		if held.Known && held.Version == (fleet.Version{Era: u.Era, Revision: u.Revision}) {
			as = string(fleet.SettledApplied)
			if err := settleApplied(ctx, q, of, active, u.ID); err != nil {
				return err
			}
		}
		if err := q.SettleDelivery(ctx, db.SettleDeliveryParams{ID: u.ID, SettledAs: &as}); err != nil {
			return failed("settle the delivery", err)
		}
	}
	return nil
}

// settleApplied does what the record of a lost answer would have done.
func settleApplied(ctx context.Context, q *db.Queries, of fleet.Subject, active fleet.NodeName, id string) error {
	d, err := q.GetDelivery(ctx, id)
	if err != nil {
		return failed("read the delivery", err)
	}
	risen, err := promote(ctx, q, d)
	if err != nil {
		return err
	}
	if risen {
		if err := oweRest(ctx, q, d, active); err != nil {
			return err
		}
	}
	err = q.ConfirmOwed(ctx, db.ConfirmOwedParams{Site: d.Site, Name: d.Name, Node: string(active), Revision: d.Revision})
	if err != nil {
		return failed("confirm what was owed", err)
	}
	_, err = bury(ctx, q, of.Key())
	return err
}

func (s *Store) recordOwed(ctx context.Context, q *db.Queries, r fleet.Record) error {
	return confirm(ctx, q, r, r.Response.Held.Version.Revision)
}

// Settle records what the holder says it holds when nobody asked it to change anything.
func (s *Store) Settle(ctx context.Context, in fleet.Settle) (fleet.InstanceSeen, error) {
	of, node, held := in.Subject, in.Node, in.Held
	return s.act(ctx, "settle", of, func(q *db.Queries, _ db.Subject) error {
		if held.Known {
			if err := q.UpsertHeld(ctx, heldRow(of.Site, node, of.Instance, held, "")); err != nil {
				return failed("record what the node holds", err)
			}
		}
		lease, err := q.GetLease(ctx, string(of.Site))
		if err != nil || lease.Holder != string(node) {
			return failed("read the lease", err)
		}
		return settleOlder(ctx, q, of, node, held)
	})
}

// Miss writes down why; for what was owed (Delivery "") the row is parked until the node
// starts, reports or is swept.
func (s *Store) Miss(ctx context.Context, m fleet.Miss) (fleet.InstanceSeen, error) {
	return s.act(ctx, "record a miss", m.Subject, func(q *db.Queries, _ db.Subject) error {
		if m.Delivery == "" {
			return failed("park what is owed", q.ParkOwed(ctx, db.ParkOwedParams{
				Site: string(m.Site), Name: string(m.Instance), Node: string(m.Node), Reason: string(m.Reason),
			}))
		}
		_, err := q.SetTarget(ctx, db.SetTargetParams{
			DeliveryID: string(m.Delivery), Node: string(m.Node), State: string(m.State),
			Reason: string(m.Reason), Message: m.Message,
		})
		return failed("record the target", err)
	})
}

// End is guarded by the delivery's state: what has ended stays as it ended.
func (s *Store) End(ctx context.Context, e fleet.End) (fleet.InstanceSeen, error) {
	return s.act(ctx, "end", e.Subject, func(q *db.Queries, sub db.Subject) error {
		how := ending{
			To: sub.LastRevision, State: e.Operation, Reason: e.Reason, Message: e.Message,
			Delivery: e.Delivery, OnlyCancelled: e.OnlyCancelled,
		}
		if e.Delivery == "" {
			return endOperations(ctx, q, e.Name(), how)
		}
		d, err := q.LockDelivery(ctx, string(e.Delivery))
		if err != nil || d.State != string(fleet.DeliveryOpen) {
			return failed("lock the delivery", err)
		}
		if err := s.endDelivery(ctx, q, e, d); err != nil {
			return err
		}
		how.To = d.Revision
		if err := endOperations(ctx, q, e.Name(), how); err != nil {
			return err
		}
		return s.finish(ctx, q, e, d)
	})
}

func (s *Store) endDelivery(ctx context.Context, q *db.Queries, e fleet.End, d db.Delivery) error {
	p := db.EndDeliveryParams{ID: d.ID, State: string(e.State), Reason: e.Reason, Message: e.Message}
	targets, err := q.TargetsOf(ctx, d.ID)
	if err != nil {
		return failed("read targets", err)
	}
	if e.State != fleet.DeliverySucceeded {
		p.SettledAs = settledAs(d, targets)
	}
	if _, err := q.EndDelivery(ctx, p); err != nil {
		return failed("end the delivery", err)
	}
	if err := q.ClosePending(ctx, d.ID); err != nil {
		return failed("close the pending row", err)
	}
	return oweTargets(ctx, q, e, d, targets)
}

// settledAs is known unless the active was notified and never answered.
func settledAs(d db.Delivery, targets []db.DeliveryNode) *string {
	as := string(fleet.SettledNotApplied)
	if d.Phase == phaseRecorded {
		as = string(fleet.SettledApplied)
		return &as
	}
	for _, t := range targets {
		lost := t.State == string(fleet.TargetNotified) || t.State == string(fleet.TargetUnknown)
		if t.Node == d.Node && lost {
			return nil
		}
	}
	return &as
}

func oweTargets(ctx context.Context, q *db.Queries, e fleet.End, d db.Delivery, targets []db.DeliveryNode) error {
	for _, t := range targets {
		if t.State == string(fleet.TargetApplied) {
			continue
		}
		if t.Reason == "" {
			t.Reason = e.Reason
		}
		owe := oweStandby
		if t.Node == d.Node {
			owe = oweActive
		}
		if err := owe(ctx, q, e, d, t); err != nil {
			return err
		}
	}
	return nil
}

// oweStandby parks what the active's record wrote, unless the standby was never tried: then
// what it is owed, also of an earlier revision, stays due.
func oweStandby(ctx context.Context, q *db.Queries, _ fleet.End, d db.Delivery, t db.DeliveryNode) error {
	if t.State == string(fleet.TargetWaiting) {
		return nil
	}
	p := db.ParkOwedParams{Site: d.Site, Name: d.Name, Node: t.Node, Reason: t.Reason}
	return failed("park what is owed", q.ParkOwed(ctx, p))
}

// oweActive keeps owed what may still succeed, and takes back what the node refused.
func oweActive(ctx context.Context, q *db.Queries, e fleet.End, d db.Delivery, t db.DeliveryNode) error {
	if !e.Owe {
		p := db.ConfirmOwedParams{Site: d.Site, Name: d.Name, Node: t.Node, Revision: d.Revision}
		return failed("take back what is owed", q.ConfirmOwed(ctx, p))
	}
	rev, err := q.GetRevision(ctx, db.GetRevisionParams{Site: d.Site, Name: d.Name, Revision: d.Revision})
	if err != nil {
		return failed("read revision", err)
	}
	return failed("write what is owed", q.UpsertOwed(ctx, db.UpsertOwedParams{
		Site: d.Site, Name: d.Name, Node: t.Node, Revision: d.Revision, Action: rev.Action, Due: false, Reason: t.Reason,
	}))
}

// finish writes the status event, or removes an object whose delete the active confirmed.
func (s *Store) finish(ctx context.Context, q *db.Queries, e fleet.End, d db.Delivery) error {
	buried, err := bury(ctx, q, e.Key())
	if err != nil || buried {
		return err
	}
	o, err := find(ctx, q, e.Key())
	if err != nil || o == nil {
		return err
	}
	rev, err := q.GetRevision(ctx, db.GetRevisionParams{Site: d.Site, Name: d.Name, Revision: d.Revision})
	if err != nil {
		return failed("read revision", err)
	}
	return statusEvent(ctx, q, o, e, rev)
}

// bury removes an object whose delete is deployed and still wanted, and leaves the tombstone.
func bury(ctx context.Context, q *db.Queries, k fleet.ObjectKey) (bool, error) {
	snap, err := snapshot(ctx, q, k)
	if err != nil || snap == nil || snap.Action != string(fleet.ActionDelete) {
		return false, err
	}
	want, err := desired(ctx, q, k)
	if err != nil || want.Revision != snap.Revision {
		return false, err
	}
	o, err := find(ctx, q, k)
	if err != nil || o == nil || o.DeletingSince == nil {
		return false, err
	}
	tomb := db.SetTombstoneParams{Site: k.Scope, Name: k.Name, Revision: snap.Revision}
	if err := q.SetTombstone(ctx, tomb); err != nil {
		return false, failed("write the tombstone", err)
	}
	return true, remove(ctx, q, snap.CreatedBy, o)
}

func statusEvent(ctx context.Context, q *db.Queries, o *fleet.Object, e fleet.End, rev db.Revision) error {
	after, err := json.Marshal(map[string]any{
		"delivery": e.Delivery, "state": e.State, "reason": e.Reason, "revision": rev.Revision,
		"revisionHash": hashText(rev.BodyHash),
	})
	if err != nil {
		return failed("write the status event", err)
	}
	_, err = q.AppendEvent(ctx, db.AppendEventParams{
		Type: "status", Kind: string(o.Kind), Project: string(o.Project), Scope: o.Scope, Name: o.Name, Uid: o.UID,
		Generation: rev.Generation, Actor: "region", After: after,
	})
	return failed("append event", err)
}
