package deliveries

import (
	"cmp"
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// targetMove is what a batch comes to for one target of its fleet change.
type targetMove struct {
	Name             string
	State            fleet.FleetTargetState
	Tries            int32 // to be counted
	Delivery         string
	Revision, Before int64
	Reason, Message  string
}

// targetMoves are written with one statement.
type targetMoves []targetMove

func (m *targetMoves) add(one targetMove) { *m = append(*m, one) }

func (m targetMoves) write(ctx context.Context, q *db.Queries, of string, run int64, site string) error {
	if of == "" || len(m) == 0 {
		return nil
	}
	p := db.MoveFleetTargetsParams{Fleet: of, Run: run, Site: site}
	for _, t := range m {
		p.Names, p.States, p.Tries = append(p.Names, t.Name), append(p.States, string(t.State)), append(p.Tries, t.Tries)
		p.DeliveryIds, p.Befores = append(p.DeliveryIds, t.Delivery), append(p.Befores, t.Before)
		p.Revisions = append(p.Revisions, t.Revision)
		p.Reasons, p.Messages = append(p.Reasons, t.Reason), append(p.Messages, t.Message)
	}
	return q.MoveFleetTargets(ctx, p)
}

// moveTargets says of each target that waits for the batch what its delivery came to. One
// whose delivery says nothing of it, because the batch was lost, the active is another one,
// or an attempt of the same revision took its place, goes to the next batch.
func (w *batchWork) moveTargets(ctx context.Context, state, reason string) error {
	if w.batch.Fleet == "" || len(w.deliveries) == 0 {
		return nil
	}
	names := make([]string, len(w.deliveries))
	for i, d := range w.deliveries {
		names[i] = d.Name
	}
	run, err := w.q.HoldFleetRun(ctx, db.HoldFleetRunParams{Fleet: w.batch.Fleet, Run: w.batch.FleetRun})
	if err != nil && !postgres.NoRows(err) {
		return err
	}
	live := err == nil && fleet.FleetState(run.State).Live()
	rows, err := w.q.LockFleetTargets(ctx, db.LockFleetTargetsParams{
		Fleet: w.batch.Fleet, Run: w.batch.FleetRun, Site: w.batch.Site, Names: names,
	})
	if err != nil {
		return err
	}
	targets := byName(rows, func(t db.FleetTarget) string { return t.Name })
	var moves targetMoves
	for _, d := range w.deliveries {
		t, is := targets[d.Name]
		if !is || t.State != string(fleet.FleetTargetDelivering) || t.DeliveryID != d.ID {
			continue
		}
		m := w.moveOf(d, w.subjects[d.Name].DesiredRevision)
		if m.State == fleet.FleetTargetWaiting && (t.Tries >= maxTargetTries || state == batchLost && !live) {
			m.State = fleet.FleetTargetFailed
			m.Reason = cmp.Or(m.Reason, reason)
		}
		moves.add(m)
	}
	return moves.write(ctx, w.q, w.batch.Fleet, w.batch.FleetRun, w.batch.Site)
}

// moveOf is what an ended delivery means for its target.
func (w *batchWork) moveOf(d db.Delivery, desired int64) targetMove {
	m := targetMove{Name: d.Name, Reason: d.Reason, Message: d.Message}
	switch fleet.DeliveryState(d.State) {
	case fleet.DeliverySucceeded:
		m.State = fleet.FleetTargetSucceeded
	case fleet.DeliveryStaged:
		m.State = fleet.FleetTargetStaged
	case fleet.DeliverySuperseded:
		m.State = fleet.FleetTargetSuperseded
		if desired == d.Revision {
			m.State, m.Reason = fleet.FleetTargetWaiting, ""
		}
	case fleet.DeliveryFailed, fleet.DeliveryCancelled:
		m.State = fleet.FleetTargetFailed
	case fleet.DeliveryUnknown:
		m.State = fleet.FleetTargetWaiting
		if w.judged[d.ID] { // whether it was applied is for its entity to find out, not for another batch
			m.State = fleet.FleetTargetFailed
		}
	case fleet.DeliveryOpen: // ended before
	}
	return m
}
