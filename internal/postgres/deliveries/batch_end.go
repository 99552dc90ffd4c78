package deliveries

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// EndBatch ends every delivery of a batch that is open, with the operations
// that it served, what is owed, its event and its target. An ended batch stays as it ended.
func (s *Store) EndBatch(ctx context.Context, id fleet.BatchID) (fleet.BatchEnded, error) {
	var out fleet.BatchEnded
	err := s.inBatch(ctx, id, func(w *batchWork) error {
		out = fleet.BatchEnded{}
		if w.batch.State == batchOpen {
			if err := w.end(ctx); err != nil {
				return err
			}
		}
		rows, err := w.q.CountBatch(ctx, w.batch.ID)
		for _, r := range rows {
			switch fleet.DeliveryState(r.State) {
			case fleet.DeliverySucceeded:
				out.Succeeded += int(r.Deliveries)
			case fleet.DeliveryStaged:
				out.Staged += int(r.Deliveries)
			case fleet.DeliveryFailed, fleet.DeliveryUnknown, fleet.DeliveryCancelled:
				out.Failed += int(r.Deliveries)
			case fleet.DeliveryOpen, fleet.DeliverySuperseded: // another run's by now
			}
		}
		return err
	})
	return out, err
}

// itemEnd is how one delivery of a batch ends.
type itemEnd struct {
	fleet.End
	d       *db.Delivery
	was     deliveryStatus
	rev     *db.Revision
	targets []fleet.TargetSeen
	// Moved is set when the site has another active by now, which is owed it instead.
	Moved bool
}

func (w *batchWork) end(ctx context.Context) error {
	lease, err := w.lease(ctx)
	if err != nil {
		return err
	}
	ends, err := w.judge(ctx, lease)
	if err != nil {
		return err
	}
	if len(ends) > 0 {
		for _, step := range []func(context.Context, []itemEnd) error{
			w.endDeliveries, w.oweTargets, w.endOperations, w.announce,
		} {
			if err := step(ctx, ends); err != nil {
				return err
			}
		}
		if err := w.oweMoved(ctx, ends, lease); err != nil {
			return err
		}
	}
	return w.close(ctx, batchEnded, "")
}

// judge says how each open delivery ends.
func (w *batchWork) judge(ctx context.Context, lease *db.SiteLease) ([]itemEnd, error) {
	targets, err := w.targets(ctx)
	if err != nil {
		return nil, err
	}
	open := w.open()
	if len(open) == 0 {
		return nil, nil
	}
	if err := w.readRevisions(ctx, open); err != nil {
		return nil, err
	}
	moved := lease != nil && (lease.Epoch != w.batch.Epoch || lease.Holder != w.batch.Node)
	out := make([]itemEnd, len(open))
	w.judged = make(map[string]bool, len(open))
	for i, d := range open {
		e := itemEnd{d: d, was: deliveryStatusOf(d), rev: w.revisions[d.Name], targets: targets[d.ID]}
		e.was.RevisionHash = postgres.HashText(e.rev.BodyHash)
		seen := fleet.DeliverySeen{
			ID: fleet.DeliveryID(d.ID), Revision: RevisionOf(e.rev), Node: fleet.NodeName(d.Node), Epoch: d.Epoch,
			Since: d.CreatedAt, Deadline: d.DeadlineAt, Batch: fleet.BatchID(w.batch.ID), Targets: asApplied(e.targets),
		}
		e.End = decide.EndOfDelivery(seen, fleet.Durability(e.rev.Durability))
		e.Message = bounded(e.Message)
		e.Subject, e.Delivery = w.subject(d.Name), seen.ID
		if e.State == fleet.DeliverySucceeded && stagedOnly(e.targets) {
			e.State, e.Operation = fleet.DeliveryStaged, ""
		}
		if moved && e.Owe && d.Phase != phaseRecorded {
			e.Moved, e.State, e.Operation, e.Reason = true, fleet.DeliveryUnknown, "", "lease_moved"
			e.Message = "the site has another active node by now"
		}
		w.judged[d.ID] = !e.Moved
		out[i] = e
	}
	return out, nil
}

// asApplied makes the judge count what only had to be fetched as done.
func asApplied(targets []fleet.TargetSeen) []fleet.TargetSeen {
	out := make([]fleet.TargetSeen, len(targets))
	for i, t := range targets {
		if t.State == fleet.TargetStaged {
			t.State = fleet.TargetApplied
		}
		out[i] = t
	}
	return out
}

// stagedOnly says that the active has only fetched it.
func stagedOnly(targets []fleet.TargetSeen) bool {
	open := fleet.DeliverySeen{Targets: targets}
	return open.Active().State == fleet.TargetStaged
}

// open gives the open deliveries of the batch, in place.
func (w *batchWork) open() []*db.Delivery {
	var out []*db.Delivery
	for i := range w.deliveries {
		if w.deliveries[i].State == string(fleet.DeliveryOpen) {
			out = append(out, &w.deliveries[i])
		}
	}
	return out
}

func (w *batchWork) targets(ctx context.Context) (map[string][]fleet.TargetSeen, error) {
	rows, err := w.q.TargetsOfBatch(ctx, w.batch.ID)
	out := make(map[string][]fleet.TargetSeen, len(w.deliveries))
	for _, r := range rows {
		out[r.DeliveryID] = append(out[r.DeliveryID], fleet.TargetSeen{
			Node: fleet.NodeName(r.Node), Role: fleet.Role(r.Role), State: fleet.TargetState(r.State), Tries: int(r.Tries),
			Reason: fleet.Kind(r.Reason), Ahead: r.Ahead,
		})
	}
	return out, err
}

func (w *batchWork) endDeliveries(ctx context.Context, ends []itemEnd) error {
	var rows endedRows
	for _, e := range ends {
		rows.add(e.d.ID, e.End, w.settledAs(e))
		e.d.State, e.d.Reason, e.d.Message = string(e.State), e.Reason, e.Message
	}
	return rows.write(ctx, w.q)
}

// settledAs is "" while unknown. What only had to be fetched applied nothing;
// one that is staged waits for the delivery that switches to it.
func (w *batchWork) settledAs(e itemEnd) string {
	switch {
	case e.State == fleet.DeliverySucceeded || e.State == fleet.DeliveryStaged:
		return ""
	case w.batch.Stage && e.d.Phase != phaseRecorded:
		return string(fleet.SettledNotApplied)
	}
	return settledAs(e.d, e.targets)
}

// oweTargets is walk.oweTargets for all at once. What was only to be fetched is owed to
// no node: it would be switched to when its node comes back, whatever the window.
func (w *batchWork) oweTargets(ctx context.Context, ends []itemEnd) error {
	if w.batch.Stage {
		return nil
	}
	park := parkedRows{Site: w.batch.Site}
	drop := db.ConfirmOwedManyParams{Site: w.batch.Site, Node: w.batch.Node}
	owe := Owing{Site: w.batch.Site, Node: w.batch.Node}
	for _, e := range ends {
		for _, t := range e.targets {
			reason := string(t.Reason)
			if reason == "" {
				reason = e.Reason
			}
			switch active := string(t.Node) == e.d.Node; {
			case t.State == fleet.TargetApplied || active && e.Moved:
			case active && e.Owe:
				owe.Add(e.d.Name, e.d.Revision, e.rev.Action, reason)
			case active:
				drop.Names, drop.Revisions = append(drop.Names, e.d.Name), append(drop.Revisions, e.d.Revision)
			case t.State != fleet.TargetWaiting:
				park.add(e.d.Name, t.Node, reason)
			}
		}
	}
	if err := park.write(ctx, w.q); err != nil {
		return err
	}
	if len(drop.Names) > 0 {
		if err := w.q.ConfirmOwedMany(ctx, drop); err != nil {
			return err
		}
	}
	return owe.Write(ctx, w.q)
}

// endOperations ends what asked for the deliveries. What asked for one that is only staged,
// or that another node has to apply now, is served by its entity.
func (w *batchWork) endOperations(ctx context.Context, ends []itemEnd) error {
	var all endings
	var open []string
	for _, e := range ends {
		if e.Operation == "" || w.batch.Stage && e.State != fleet.DeliverySucceeded {
			open = append(open, e.Name())
			continue
		}
		all.add(e.Name(), postgres.Ending{
			To: e.d.Revision, State: e.Operation, Reason: e.Reason, Message: e.Message, Delivery: e.Delivery,
		})
	}
	if err := all.write(ctx, w.q); err != nil || len(open) == 0 {
		return err
	}
	asking, err := w.q.RunningSubjects(ctx, open)
	if err != nil {
		return err
	}
	return postgres.PutOutbox(ctx, w.q, asking...)
}

// announce writes the status events, and takes away the few objects whose delete was confirmed.
func (w *batchWork) announce(ctx context.Context, ends []itemEnd) error {
	p := db.AppendStatusEventsParams{Site: w.batch.Site}
	for _, e := range ends {
		before, err := json.Marshal(e.was)
		if err != nil {
			return err
		}
		after, err := json.Marshal(e.was.ended(e.End))
		if err != nil {
			return err
		}
		p.Names, p.Generations = append(p.Names, e.d.Name), append(p.Generations, e.rev.Generation)
		p.Befores, p.Afters = append(p.Befores, string(before)), append(p.Afters, string(after))
	}
	if err := w.bury(ctx, p.Names); err != nil {
		return err
	}
	return w.q.AppendStatusEvents(ctx, p)
}

func (w *batchWork) bury(ctx context.Context, names []string) error {
	deleted, err := w.q.DeletedNames(ctx, db.DeletedNamesParams{Site: w.batch.Site, Names: names})
	if err != nil {
		return err
	}
	for _, name := range deleted {
		if _, err := bury(ctx, w.q, w.key(name)); err != nil {
			return err
		}
	}
	return nil
}

// oweMoved owes to who may deploy now what the batch's own active did not confirm.
func (w *batchWork) oweMoved(ctx context.Context, ends []itemEnd, lease *db.SiteLease) error {
	if lease == nil || w.batch.Stage {
		return nil
	}
	owe := Owing{Site: w.batch.Site, Node: lease.Holder, Due: true}
	var wake []string
	for _, e := range ends {
		if !e.Moved {
			continue
		}
		owe.Add(e.d.Name, e.d.Revision, e.rev.Action, e.Reason)
		wake = append(wake, e.Name())
	}
	if len(wake) == 0 {
		return nil
	}
	if err := owe.Write(ctx, w.q); err != nil {
		return err
	}
	return postgres.PutOutbox(ctx, w.q, wake...)
}

// close ends the batch, and says of each target of its fleet change what it came to.
func (w *batchWork) close(ctx context.Context, state, reason string) error {
	if err := w.q.EndBatchRow(ctx, db.EndBatchRowParams{State: state, Reason: reason, ID: w.batch.ID}); err != nil {
		return err
	}
	return w.moveTargets(ctx, state, reason)
}
