package deliveries

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// record writes down what a node applied. The active's success becomes the deployed
// snapshot, and what the other nodes now owe is written, in one transaction that compares
// the epoch with the lease; if that moved, nothing is recorded and the decision claims anew.
func (w *walk) record(ctx context.Context, r fleet.Record) error {
	if r.Delivery == "" {
		return confirm(ctx, w.q, r, r.Response.Held.Version.Revision)
	}
	d, err := w.lockDelivery(ctx, r.Delivery)
	if err != nil {
		return err
	}
	lease, err := w.lockLease(ctx)
	if err != nil || lease == nil {
		return err
	}
	if lease.Epoch != d.Epoch {
		if d.Phase != phaseRecorded || string(r.Node) != d.Node { // else it was said before
			w.stale = notRecorded(r.Node, 1, fmt.Sprintf("delivery %s of %s", d.ID, r.Key()), d.Epoch, lease.Epoch)
		}
		return nil
	}
	first, err := w.q.SetTarget(ctx, db.SetTargetParams{
		DeliveryID: d.ID, Node: string(r.Node), State: string(fleet.TargetApplied), Already: r.Response.Already, Fetched: r.Response.Fetched,
	})
	if err != nil {
		return err
	}
	if err := confirm(ctx, w.q, r, d.Revision); err != nil {
		return err
	}
	if first == 0 || string(r.Node) != d.Node { // not the active, or said before: all that follows is done
		return nil
	}
	return w.recordActive(ctx, r, d)
}

// doorRecord is the record step's in refusals.
const doorRecord = "record"

// notRecorded is what a node did by an earlier right than its site has now (X21).
func notRecorded(node fleet.NodeName, times int, what string, then, now int64) *audit.Refusal {
	return &audit.Refusal{
		Door: doorRecord, Identity: "node:" + string(node), Reason: audit.StaleEpoch, Times: int64(times),
		What: fmt.Sprintf("%s at epoch %d; the lease is at %d", what, then, now),
	}
}

// confirm writes what a node holds, and takes back what it was owed up to there.
func confirm(ctx context.Context, q *db.Queries, r fleet.Record, revision int64) error {
	held := nodes.HeldRows{Site: string(r.Site), Node: string(r.Node)}
	held.Add(fleet.NodeInstance{Instance: r.Instance, Held: r.Response.Held})
	if err := held.Write(ctx, q); err != nil {
		return err
	}
	return q.ConfirmOwed(ctx, db.ConfirmOwedParams{
		Site: string(r.Site), Name: string(r.Instance), Node: string(r.Node), Revision: revision,
	})
}

func (w *walk) recordActive(ctx context.Context, r fleet.Record, d *db.Delivery) error {
	snaps := promotion{Site: d.Site, Epoch: d.Epoch}
	snaps.add(d)
	done, err := snaps.write(ctx, w.q)
	if err != nil {
		return err
	}
	if err := snaps.oweRest(ctx, w.q, r.Node); err != nil {
		return err
	}
	if err := w.setPhase(ctx, d, phaseRecorded); err != nil {
		return err
	}
	if err := settleOlder(ctx, w.q, r.Subject, r.Node, r.Response.Held); err != nil {
		return err
	}
	if d.State != string(fleet.DeliveryOpen) { // no run will end it any more
		if _, err := bury(ctx, w.q, r.Key()); err != nil {
			return err
		}
	}
	if done[0].Durability != string(fleet.DurabilityAsync) {
		return nil
	}
	return postgres.EndOperations(ctx, w.q, r.Name(), postgres.Ending{
		To: d.Revision, State: fleet.OperationSucceeded, Delivery: r.Delivery,
	})
}

// settleOlder says what became of deliveries whose answer was lost, from what the active
// holds now. One that turns out applied is promoted.
func settleOlder(ctx context.Context, q *db.Queries, of fleet.Subject, active fleet.NodeName, held fleet.Held) error {
	rows, err := q.UnsettledDeliveries(ctx, db.UnsettledDeliveriesParams{Site: string(of.Site), Name: string(of.Instance)})
	if err != nil {
		return err
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
			return err
		}
	}
	return nil
}

// settleApplied does what the record of a lost answer would have done.
func settleApplied(ctx context.Context, q *db.Queries, of fleet.Subject, active fleet.NodeName, id string) error {
	d, err := q.GetDelivery(ctx, id)
	if err != nil {
		return err
	}
	snaps := promotion{Site: d.Site, Epoch: d.Epoch}
	snaps.add(&d)
	rows, err := snaps.write(ctx, q)
	if err != nil {
		return err
	}
	if rows[0].Risen {
		if err := snaps.oweRest(ctx, q, active); err != nil {
			return err
		}
	}
	err = q.ConfirmOwed(ctx, db.ConfirmOwedParams{Site: d.Site, Name: d.Name, Node: string(active), Revision: d.Revision})
	if err != nil {
		return err
	}
	_, err = bury(ctx, q, of.Key())
	return err
}

// settle records what the holder reports that it holds, without a change being requested.
func (w *walk) settle(ctx context.Context, in fleet.Settle) error {
	if in.Held.Known {
		held := nodes.HeldRows{Site: string(w.of.Site), Node: string(in.Node)}
		held.Add(fleet.NodeInstance{Instance: w.of.Instance, Held: in.Held})
		if err := held.Write(ctx, w.q); err != nil {
			return err
		}
	}
	lease, err := w.lockLease(ctx)
	if err != nil || lease == nil || lease.Holder != string(in.Node) {
		return err
	}
	return settleOlder(ctx, w.q, w.of, in.Node, in.Held)
}

// miss writes down why; for what was owed (Delivery "") the row is parked until the node
// starts, reports or is swept. One that took something newer is owed it no more: the
// comparison with what it holds sees to it.
func (w *walk) miss(ctx context.Context, m fleet.Miss) error {
	if m.Delivery == "" {
		if m.Reason == fleet.Stale {
			p := db.DropOwedBelowParams{Site: w.sub.Site, Name: w.sub.Name, Node: string(m.Node)}
			if err := w.q.DropOwedBelow(ctx, p); err != nil {
				return err
			}
		}
		park := parkedRows{Site: w.sub.Site}
		park.add(w.sub.Name, m.Node, string(m.Reason))
		return park.write(ctx, w.q)
	}
	_, err := w.q.SetTarget(ctx, db.SetTargetParams{
		DeliveryID: string(m.Delivery), Node: string(m.Node), State: string(m.State),
		Reason: string(m.Reason), Message: m.Message,
	})
	return err
}

// end is guarded by the delivery's state: what has ended stays as it ended.
func (w *walk) end(ctx context.Context, e fleet.End) error {
	how := postgres.Ending{
		To: w.sub.LastRevision, State: e.Operation, Reason: e.Reason, Message: e.Message,
		Delivery: e.Delivery, OnlyCancelled: e.OnlyCancelled,
	}
	if e.Delivery == "" {
		return postgres.EndOperations(ctx, w.q, e.Name(), how)
	}
	d, err := w.lockDelivery(ctx, e.Delivery)
	if err != nil || d.State != string(fleet.DeliveryOpen) {
		return err
	}
	was := deliveryStatusOf(d)
	if err := w.endDelivery(ctx, e, d); err != nil {
		return err
	}
	how.To = d.Revision
	if err := postgres.EndOperations(ctx, w.q, e.Name(), how); err != nil {
		return err
	}
	return w.finish(ctx, e, was)
}

func (w *walk) endDelivery(ctx context.Context, e fleet.End, d *db.Delivery) error {
	targets, err := w.targets(ctx, d.ID)
	if err != nil {
		return err
	}
	settled := ""
	if e.State != fleet.DeliverySucceeded {
		settled = settledAs(d, targets)
	}
	var ends endedRows
	ends.add(d.ID, e, settled)
	if err := ends.write(ctx, w.q); err != nil {
		return err
	}
	d.State = string(e.State)
	return w.oweTargets(ctx, e, d, targets)
}

// targets are of the open delivery.
func (w *walk) targets(ctx context.Context, id string) ([]fleet.TargetSeen, error) {
	if open := w.Seen.Open; open != nil && string(open.ID) == id {
		return open.Targets, nil
	}
	rows, err := w.q.TargetsOf(ctx, []string{id})
	out := make([]fleet.TargetSeen, len(rows))
	for i, r := range rows {
		out[i] = fleet.TargetSeen{Node: fleet.NodeName(r.Node), State: fleet.TargetState(r.State), Reason: fleet.Kind(r.Reason)}
	}
	return out, err
}

// settledAs is known unless the active was notified and never answered: then it is "".
func settledAs(d *db.Delivery, targets []fleet.TargetSeen) string {
	if d.Phase == phaseRecorded {
		return string(fleet.SettledApplied)
	}
	for _, t := range targets {
		lost := t.State == fleet.TargetNotified || t.State == fleet.TargetUnknown
		if string(t.Node) == d.Node && lost {
			return ""
		}
	}
	return string(fleet.SettledNotApplied)
}

func (w *walk) oweTargets(ctx context.Context, e fleet.End, d *db.Delivery, targets []fleet.TargetSeen) error {
	for _, t := range targets {
		if t.State == fleet.TargetApplied {
			continue
		}
		if t.Reason == "" {
			t.Reason = fleet.Kind(e.Reason)
		}
		owe := w.oweStandby
		if string(t.Node) == d.Node {
			owe = w.oweActive
		}
		if err := owe(ctx, e, d, t); err != nil {
			return err
		}
	}
	return nil
}

// oweStandby parks what the active's record wrote, unless the standby was never tried: then
// what it is owed, also of an earlier revision, stays due.
func (w *walk) oweStandby(ctx context.Context, _ fleet.End, d *db.Delivery, t fleet.TargetSeen) error {
	if t.State == fleet.TargetWaiting {
		return nil
	}
	park := parkedRows{Site: d.Site}
	park.add(d.Name, t.Node, string(t.Reason))
	return park.write(ctx, w.q)
}

// oweActive keeps owed what may still succeed, and takes back what the node refused.
func (w *walk) oweActive(ctx context.Context, e fleet.End, d *db.Delivery, t fleet.TargetSeen) error {
	if !e.Owe {
		p := db.ConfirmOwedParams{Site: d.Site, Name: d.Name, Node: string(t.Node), Revision: d.Revision}
		return w.q.ConfirmOwed(ctx, p)
	}
	rev, err := w.revision(ctx, d.Revision)
	if err != nil {
		return err
	}
	owe := Owing{Site: d.Site, Node: string(t.Node)}
	owe.Add(d.Name, d.Revision, rev.Action, string(t.Reason))
	return owe.Write(ctx, w.q)
}

// finish writes the status event, or removes an object whose delete the active confirmed.
func (w *walk) finish(ctx context.Context, e fleet.End, was deliveryStatus) error {
	snap, err := w.deployed(ctx)
	if err != nil {
		return err
	}
	if snap.Action == fleet.ActionDelete {
		if buried, err := bury(ctx, w.q, e.Key()); err != nil || buried {
			return err
		}
	}
	o, err := postgres.Find(ctx, w.q, e.Key())
	if err != nil || o == nil {
		return err
	}
	rev, err := w.revision(ctx, was.Revision)
	if err != nil {
		return err
	}
	p := db.AppendEventParams{
		Kind: string(o.Kind), Project: string(o.Project), Scope: o.Scope, Name: o.Name, Uid: o.UID, Generation: rev.Generation, Actor: postgres.RegionActor,
	}
	was.RevisionHash = postgres.HashText(rev.BodyHash)
	return postgres.AppendStatus(ctx, w.q, p, was, was.ended(e))
}

// deliveryStatus is what events tell of an instance: the delivery that ended.
type deliveryStatus struct {
	Delivery     fleet.DeliveryID    `json:"delivery"`
	State        fleet.DeliveryState `json:"state"`
	Reason       string              `json:"reason"`
	Revision     int64               `json:"revision"`
	RevisionHash fleet.Hash          `json:"revisionHash"`
}

func deliveryStatusOf(d *db.Delivery) deliveryStatus {
	return deliveryStatus{Delivery: fleet.DeliveryID(d.ID), State: fleet.DeliveryState(d.State), Reason: d.Reason, Revision: d.Revision}
}

func (s deliveryStatus) ended(e fleet.End) deliveryStatus {
	s.State, s.Reason = e.State, e.Reason
	return s
}

// bury removes an object whose delete is deployed and still wanted, and leaves the tombstone;
// so does a delete that came again for a name that is gone.
func bury(ctx context.Context, q *db.Queries, k fleet.ObjectKey) (bool, error) {
	snap, err := Snapshot(ctx, q, k)
	if err != nil || snap == nil || snap.Action != string(fleet.ActionDelete) {
		return false, err
	}
	want, err := Desired(ctx, q, k)
	if err != nil || want.Revision != snap.Revision {
		return false, err
	}
	o, err := postgres.Find(ctx, q, k)
	if err != nil || o != nil && o.DeletingSince == nil {
		return false, err
	}
	tomb := db.SetTombstoneParams{Site: k.Scope, Name: k.Name, Revision: snap.Revision}
	if err := q.SetTombstone(ctx, tomb); err != nil {
		return false, err
	}
	if o == nil {
		return false, nil
	}
	return true, postgres.Remove(ctx, q, snap.CreatedBy, o)
}
