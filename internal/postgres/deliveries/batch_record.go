package deliveries

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// batchWork is a step of a batch under the locks of all its instances.
type batchWork struct {
	q          *db.Queries
	batch      db.Batch
	subjects   map[string]db.Subject
	deliveries []db.Delivery // in the order of their names
	revisions  map[string]*db.Revision
	judged     map[string]bool // the deliveries that end by what their nodes made of them
}

// inBatch runs a step of a batch in one transaction, under the locks that each of its
// instances' own steps would take.
func (s *Store) inBatch(ctx context.Context, id fleet.BatchID, f func(w *batchWork) error) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		w := &batchWork{q: q}
		if err := w.enter(ctx, id); err != nil {
			return err
		}
		return f(w)
	})
}

func (w *batchWork) enter(ctx context.Context, id fleet.BatchID) error {
	b, err := w.q.GetBatch(ctx, string(id))
	if err != nil {
		return noBatch(err, id)
	}
	names, err := w.q.NamesOfBatch(ctx, b.ID)
	if err != nil {
		return err
	}
	keys := map[int64]bool{}
	for _, name := range names {
		keys[postgres.LockID(fleet.InstanceKey(fleet.SiteName(b.Site), fleet.InstanceName(name)))] = false
	}
	if err := postgres.LockKeys(ctx, w.q, keys); err != nil {
		return err
	}
	if w.subjects, err = lockNames(ctx, w.q, b.Site, names...); err != nil {
		return err
	}
	if w.batch, err = w.q.LockBatch(ctx, b.ID); err != nil {
		return err
	}
	w.deliveries, err = w.q.DeliveriesOfBatch(ctx, b.ID)
	return err
}

// readRevisions reads those of some deliveries.
func (w *batchWork) readRevisions(ctx context.Context, of []*db.Delivery) error {
	p := db.GetRevisionsParams{Site: w.batch.Site}
	for _, d := range of {
		p.Names, p.Revisions = append(p.Names, d.Name), append(p.Revisions, d.Revision)
	}
	rows, err := w.q.GetRevisions(ctx, p)
	w.revisions = make(map[string]*db.Revision, len(rows))
	for i := range rows {
		w.revisions[rows[i].Name] = &rows[i]
	}
	return err
}

func (w *batchWork) key(name string) fleet.ObjectKey {
	return fleet.InstanceKey(fleet.SiteName(w.batch.Site), fleet.InstanceName(name))
}

func (w *batchWork) subject(name string) fleet.Subject {
	return fleet.Subject{Site: fleet.SiteName(w.batch.Site), Instance: fleet.InstanceName(name)}
}

// lease is nil when the site has no active node.
func (w *batchWork) lease(ctx context.Context) (*db.SiteLease, error) {
	l, err := w.q.LockLease(ctx, w.batch.Site)
	if postgres.NoRows(err) {
		return nil, nil
	}
	return &l, err
}

// said is one result, and the delivery that it is of.
type said struct {
	fleet.BatchResult
	d *db.Delivery
}

// RecordBatch writes down what a node made of items of a batch: for each what a record or a
// miss of a single delivery writes. The same results again change nothing.
func (s *Store) RecordBatch(ctx context.Context, id fleet.BatchID, node fleet.NodeName, results []fleet.BatchResult) error {
	var stale *audit.Refusal
	err := s.inBatch(ctx, id, func(w *batchWork) error {
		stale = nil
		applied, others, err := w.sort(results)
		if err != nil {
			return err
		}
		if err := w.miss(ctx, node, others); err != nil || len(applied) == 0 {
			return err
		}
		lease, err := w.lease(ctx)
		if err != nil || lease == nil {
			return err
		}
		if lease.Epoch != w.batch.Epoch { // it is done again with who may be active now
			if n := w.unrecorded(node, applied); n > 0 {
				stale = notRecorded(node, n, "batch "+string(id), w.batch.Epoch, lease.Epoch)
			}
			return nil
		}
		return w.record(ctx, node, applied)
	})
	if err == nil {
		s.Refuse(stale)
	}
	return err
}

// unrecorded counts those of some results that were not written down before.
func (w *batchWork) unrecorded(node fleet.NodeName, applied []said) int {
	n := 0
	for _, a := range applied {
		if a.d.Phase != phaseRecorded || string(node) != w.batch.Node {
			n++
		}
	}
	return n
}

// sort finds the delivery of each result, and parts what was applied from what was not.
func (w *batchWork) sort(results []fleet.BatchResult) (applied, others []said, err error) {
	byID := make(map[string]*db.Delivery, len(w.deliveries))
	for i := range w.deliveries {
		byID[w.deliveries[i].ID] = &w.deliveries[i]
	}
	// In the order of their names, in which others write what a node holds.
	results = slices.SortedFunc(slices.Values(results), func(a, b fleet.BatchResult) int { return cmp.Compare(a.Instance, b.Instance) })
	for _, r := range results {
		d := byID[r.DeploymentID]
		if d == nil || d.Name != string(r.Instance) {
			return nil, nil, fleet.Errorf(fleet.Invalid, "delivery %.40q of %.80q does not belong to this batch, or is given twice", r.DeploymentID, r.Instance).
				At("results")
		}
		delete(byID, r.DeploymentID)
		if r.Staged && !w.batch.Stage {
			return nil, nil, fleet.Errorf(fleet.Invalid, "this batch stages nothing").At("results")
		}
		if r.Reason == "" && !r.Staged {
			applied = append(applied, said{r, d})
		} else {
			others = append(others, said{r, d})
		}
	}
	return applied, others, nil
}

// miss writes down of each what it came to where it was not applied: a failure, or that it
// was fetched and no more.
func (w *batchWork) miss(ctx context.Context, node fleet.NodeName, results []said) error {
	if len(results) == 0 {
		return nil
	}
	p := db.RecordTargetsParams{Node: string(node)}
	for _, r := range results {
		state, reason := fleet.TargetFailed, r.Reason
		if reason == "" {
			state = fleet.TargetStaged
		} else if !slices.Contains(fleet.Kinds(), reason) {
			reason = fleet.Internal
		}
		p.Ids, p.States, p.Already = append(p.Ids, r.d.ID), append(p.States, string(state)), append(p.Already, r.Already && r.Staged)
		p.Reasons, p.Messages = append(p.Reasons, string(reason)), append(p.Messages, bounded(r.Message))
		p.Fetched = append(p.Fetched, r.Fetched)
	}
	_, err := recordTargets(ctx, w.q, p)
	return err
}

// recordTargets gives the deliveries whose target changed by it.
func recordTargets(ctx context.Context, q *db.Queries, p db.RecordTargetsParams) (recorded []string, err error) {
	if err := q.HoldTargets(ctx, db.HoldTargetsParams{Ids: p.Ids, Node: p.Node}); err != nil {
		return nil, err
	}
	recorded, err = q.RecordTargets(ctx, p)
	return recorded, err
}

// record is what walk.record does, for all at once.
func (w *batchWork) record(ctx context.Context, node fleet.NodeName, results []said) error {
	p := db.RecordTargetsParams{Node: string(node)}
	for _, r := range results {
		p.Ids, p.States, p.Already = append(p.Ids, r.d.ID), append(p.States, string(fleet.TargetApplied)), append(p.Already, r.Already)
		p.Exits = append(p.Exits, nodes.ExitsOf(r.Held))
		p.Reasons, p.Messages, p.Fetched = append(p.Reasons, ""), append(p.Messages, ""), append(p.Fetched, r.Fetched)
	}
	recorded, err := recordTargets(ctx, w.q, p)
	if err != nil {
		return err
	}
	if err := w.confirm(ctx, node, results); err != nil {
		return err
	}
	if string(node) != w.batch.Node {
		return nil
	}
	first := map[string]bool{} // said before: all that follows is done
	for _, id := range recorded {
		first[id] = true
	}
	results = slices.DeleteFunc(results, func(r said) bool { return !first[r.d.ID] })
	if len(results) == 0 {
		return nil
	}
	return w.recordActive(ctx, node, results)
}

// confirm writes what the node holds, and takes back what it was owed up to there.
func (w *batchWork) confirm(ctx context.Context, node fleet.NodeName, results []said) error {
	held := nodes.HeldRows{Site: w.batch.Site, Node: string(node)}
	c := db.ConfirmOwedManyParams{Site: w.batch.Site, Node: string(node)}
	for _, r := range results {
		held.Add(fleet.NodeInstance{Instance: r.Instance, Held: r.Held})
		c.Names, c.Revisions = append(c.Names, r.d.Name), append(c.Revisions, r.d.Revision)
	}
	if err := held.Write(ctx, w.q); err != nil {
		return err
	}
	return w.q.ConfirmOwedMany(ctx, c)
}

// recordActive promotes what the active applied (N13), and owes it to the rest.
func (w *batchWork) recordActive(ctx context.Context, node fleet.NodeName, results []said) error {
	snaps := promotion{Site: w.batch.Site, Epoch: w.batch.Epoch}
	byID := make(map[string]*db.Delivery, len(results))
	for _, r := range results {
		snaps.add(r.d)
		byID[r.d.ID] = r.d
	}
	done, err := snaps.write(ctx, w.q)
	if err != nil {
		return err
	}
	if err := snaps.oweRest(ctx, w.q, node); err != nil {
		return err
	}
	if err := setPhase(ctx, w.q, phaseRecorded, snaps.DeliveryIds...); err != nil {
		return err
	}
	if err := w.settleOlder(ctx, node, results, snaps.Names); err != nil {
		return err
	}
	var ends endings
	for _, s := range done {
		if s.Durability != string(fleet.DurabilityAsync) {
			continue // its standby has to record it first
		}
		d := byID[s.DeliveryID]
		ends.add(w.subject(d.Name).Name(), postgres.Ending{
			To: d.Revision, State: fleet.OperationSucceeded, Delivery: fleet.DeliveryID(d.ID),
		})
	}
	return ends.write(ctx, w.q)
}

// settleOlder goes one by one over the few that have deliveries of unknown end, and over
// those that no run will end any more.
func (w *batchWork) settleOlder(ctx context.Context, node fleet.NodeName, results []said, names []string) error {
	unsettled, err := w.q.UnsettledNames(ctx, db.UnsettledNamesParams{Site: w.batch.Site, Names: names})
	if err != nil {
		return err
	}
	for _, r := range results {
		if slices.Contains(unsettled, r.d.Name) {
			if err := settleOlder(ctx, w.q, w.subject(r.d.Name), node, r.Held); err != nil {
				return err
			}
		}
		if r.d.State != string(fleet.DeliveryOpen) {
			if _, err := bury(ctx, w.q, w.key(r.d.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// MissBatch records why a node did not answer some or all of a notify.
func (s *Store) MissBatch(ctx context.Context, in fleet.BatchMiss) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		b, err := q.GetBatch(ctx, string(in.ID))
		if err != nil {
			return noBatch(err, in.ID)
		}
		if err := lockSubjects(ctx, q, b); err != nil {
			return err
		}
		return q.MissTargets(ctx, db.MissTargetsParams{
			State: string(in.State), Reason: string(in.Reason), Message: bounded(in.Message), BatchID: b.ID, Node: string(in.Node),
			Open: string(fleet.DeliveryOpen),
		})
	})
}
