package deliveries

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// OpenBatch is a batch under way, and the workflow run that serves it. Overdue is set when
// its deadline has passed: it counts as lost whatever became of its run.
type OpenBatch struct {
	ID            fleet.BatchID
	Site          fleet.SiteName
	Fleet         fleet.FleetName
	Workflow, Run string
	CreatedAt     time.Time
	Overdue       bool
}

// Place is where a list continues after the batch.
func (b OpenBatch) Place() postgres.Place { return postgres.Place{At: b.CreatedAt, ID: string(b.ID)} }

// OpenBatches pages through the batches under way that are older than a time, oldest first.
func (s *Store) OpenBatches(ctx context.Context, after postgres.Place, older time.Duration, limit int32) ([]OpenBatch, error) {
	rows, err := s.Q.OpenBatches(ctx, db.OpenBatchesParams{
		AfterAt: after.At, AfterID: after.ID, OlderSeconds: older.Seconds(), MaxRows: limit,
	})
	out := make([]OpenBatch, len(rows))
	for i, r := range rows {
		out[i] = OpenBatch{
			ID: fleet.BatchID(r.ID), Site: fleet.SiteName(r.Site), Fleet: fleet.FleetName(r.Fleet), Workflow: r.WorkflowID,
			Run: r.RunID, CreatedAt: r.CreatedAt, Overdue: r.Overdue,
		}
	}
	return out, err
}

// LoseBatch gives a batch up whose workflow is gone (X25). Each of its open deliveries ends as
// that of a lost run does: unknown, and owed to who may deploy it; their entities are woken.
func (s *Store) LoseBatch(ctx context.Context, id fleet.BatchID, reason string) error {
	return s.inBatch(ctx, id, func(w *batchWork) error {
		if w.batch.State != batchOpen {
			return nil
		}
		if err := w.lose(ctx, reason); err != nil {
			return err
		}
		return w.close(ctx, batchLost, reason)
	})
}

func (w *batchWork) lose(ctx context.Context, reason string) error {
	open := w.open()
	if len(open) == 0 {
		return nil
	}
	if err := w.readRevisions(ctx, open); err != nil {
		return err
	}
	lease, err := w.lease(ctx)
	if err != nil {
		return err
	}
	if lease == nil {
		lease = &db.SiteLease{Holder: w.batch.Node}
	}
	var ends endedRows
	owe := Owing{Site: w.batch.Site, Node: lease.Holder, Due: true}
	var names, wake []string
	for _, d := range open {
		settled := ""
		switch {
		case d.Phase == phaseRecorded: // the standby's row is owed since the record
			settled = string(fleet.SettledApplied)
		case w.batch.Stage:
			settled = string(fleet.SettledNotApplied)
		default:
			owe.Add(d.Name, d.Revision, w.revisions[d.Name].Action, reason)
		}
		ends.add(d.ID, fleet.End{State: fleet.DeliveryUnknown, Reason: reason}, settled)
		names, wake = append(names, d.Name), append(wake, w.subject(d.Name).Name())
		d.State, d.Reason = string(fleet.DeliveryUnknown), reason
	}
	if err := ends.write(ctx, w.q); err != nil {
		return err
	}
	if err := w.bury(ctx, names); err != nil {
		return err
	}
	if err := owe.Write(ctx, w.q); err != nil {
		return err
	}
	if w.batch.Stage { // nothing to do for one that was not requested
		if wake, err = w.q.RunningSubjects(ctx, wake); err != nil {
			return err
		}
	}
	return postgres.PutOutbox(ctx, w.q, wake...)
}
