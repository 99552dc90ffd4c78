package deliveries

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// OpenSubject is a subject with something under way, and the run that spoke for it last.
type OpenSubject struct {
	Site     fleet.SiteName
	Instance fleet.InstanceName
	Run      string
}

// Name is the id of the subject's entity.
func (o OpenSubject) Name() string { return fleet.InstanceSubject(o.Site, o.Instance) }

// heardWithin is how lately an active was heard, to be asked what became of a lost answer: a
// live node reports every few seconds, and one that is disconnected is not asked again and again.
const heardWithin = time.Minute

// OpenSubjects pages through the subjects with running operations, an open delivery, something
// due, or an unsettled delivery that its active can settle, older than a time.
func (s *Store) OpenSubjects(ctx context.Context, after OpenSubject, older time.Duration, limit int32) ([]OpenSubject, error) {
	rows, err := s.Q.OpenSubjects(ctx, db.OpenSubjectsParams{
		AfterSite: string(after.Site), AfterName: string(after.Instance), OlderSeconds: older.Seconds(),
		HeardSeconds: heardWithin.Seconds(), MaxRows: limit,
	})
	out := make([]OpenSubject, len(rows))
	for i, r := range rows {
		out[i] = OpenSubject{Site: fleet.SiteName(r.Site), Instance: fleet.InstanceName(r.Name), Run: r.EntityRun}
	}
	return out, err
}

// CloseLost ends the operations and the open delivery of a subject whose workflow run is
// gone, and wakes the object. A delivery that was under way becomes unknown, and stays
// owed, so that the next run asks the node and continues.
func (s *Store) CloseLost(ctx context.Context, o OpenSubject, end fleet.OperationState, reason string) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		key := fleet.InstanceKey(o.Site, o.Instance)
		if err := postgres.Lock(ctx, q, []fleet.ObjectKey{key}); err != nil {
			return err
		}
		sub, err := q.LockSubject(ctx, db.LockSubjectParams{Site: key.Scope, Name: key.Name})
		if err != nil {
			return err
		}
		if sub.EntityRun != o.Run {
			return nil // served by another run since
		}
		batched, err := q.InOpenBatch(ctx, db.InOpenBatchParams{Site: key.Scope, Name: key.Name})
		if err != nil || batched { // claimed since it was looked at; who loses the batch sees to it
			return err
		}
		if err := loseDelivery(ctx, q, key, reason); err != nil {
			return err
		}
		if end != fleet.OperationRunning {
			e := postgres.Ending{To: sub.LastRevision, State: end, Reason: reason, Message: "its workflow run " + o.Run + " is gone", Run: o.Run}
			if err := postgres.EndOperations(ctx, q, o.Name(), e); err != nil {
				return err
			}
		}
		return postgres.PutOutbox(ctx, q, o.Name())
	})
}

func loseDelivery(ctx context.Context, q *db.Queries, key fleet.ObjectKey, reason string) error {
	d, err := q.OpenDelivery(ctx, db.OpenDeliveryParams{Site: key.Scope, Name: key.Name})
	if postgres.NoRows(err) {
		return nil
	}
	if err != nil {
		return err
	}
	settled := ""
	if d.Phase == phaseRecorded {
		settled = string(fleet.SettledApplied)
	}
	var ends endedRows
	ends.add(d.ID, fleet.End{State: fleet.DeliveryUnknown, Reason: reason}, settled)
	if err := ends.write(ctx, q); err != nil {
		return err
	}
	if d.Phase == phaseRecorded { // the standby's row is owed since the record
		_, err := bury(ctx, q, key)
		return err
	}
	r, err := revisionAt(ctx, q, d.Site, d.Name, d.Revision)
	if err != nil {
		return err
	}
	// To whom may deploy it now: the right may have moved since the delivery began.
	active := d.Node
	lease, err := q.LockLease(ctx, d.Site)
	if err != nil && !postgres.NoRows(err) {
		return err
	}
	if err == nil {
		active = lease.Holder
	}
	owe := Owing{Site: d.Site, Node: active, Due: true}
	owe.Add(d.Name, d.Revision, r.Action, reason)
	return owe.Write(ctx, q)
}
