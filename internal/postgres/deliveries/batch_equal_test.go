package deliveries_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// way is one of the two ways in which a revision comes to its nodes.
type way interface {
	claim()
	tell(node fleet.NodeName)
	took(node fleet.NodeName)
	refused(node fleet.NodeName, kind fleet.Kind)
	silent(node fleet.NodeName)
	end()
	lose()
}

// walked goes step by step for one instance alone.
type walked struct {
	*bench
	of    fleet.Subject
	steps int
	last  *fleet.DeliverySeen
}

func (w *walked) see() *fleet.DeliverySeen {
	seen, err := w.Observe(w.Ctx(), w.of)
	require.NoError(w.T, err)
	if seen.Open != nil {
		w.last = seen.Open
	}
	return seen.Open
}

func (w *walked) claim() {
	w.see()
	w.steps++
	c := stores.ClaimOf(w.of.Run, fmt.Sprint(w.steps))
	c.Subject = w.of
	_, err := w.Claim(w.Ctx(), c)
	require.NoError(w.T, err)
	w.see()
}

func (w *walked) tell(node fleet.NodeName) {
	open := w.see()
	if open == nil || !tellable(open, node) {
		return
	}
	w.steps++
	_, err := w.Prepare(w.Ctx(), fleet.Prepare{
		Subject: w.of, Delivery: open.ID, Node: node, TTL: 5 * minute, TokenHash: []byte(stores.JSONOf(fmt.Sprint(w.of, w.steps)).Hash)[:32],
	})
	require.NoError(w.T, err)
}

// tellable is what the decision of an entity asks before it prepares a notify.
func tellable(open *fleet.DeliverySeen, node fleet.NodeName) bool {
	for _, t := range open.Targets {
		brief := t.Reason == fleet.Communication || t.Reason == fleet.Stale && !t.Ahead
		again := t.State != fleet.TargetApplied && (t.State != fleet.TargetFailed || brief) && t.Tries < 3
		if t.Node == node {
			return again && (node == open.Node || open.Active().State == fleet.TargetApplied)
		}
	}
	return false
}

func (w *walked) took(node fleet.NodeName) {
	r := stores.RecordOf(w.last.ID, node, w.last.Revision)
	r.Subject = w.of
	_, err := w.Record(w.Ctx(), r)
	require.NoError(w.T, err)
}

func (w *walked) missed(node fleet.NodeName, state fleet.TargetState, kind fleet.Kind) {
	_, err := w.Miss(w.Ctx(), fleet.Miss{
		Subject: w.of, Delivery: w.last.ID, Node: node, State: state, Reason: kind, Message: "node says " + string(kind),
	})
	require.NoError(w.T, err)
}

func (w *walked) refused(node fleet.NodeName, kind fleet.Kind) {
	w.missed(node, fleet.TargetFailed, kind)
}

func (w *walked) silent(node fleet.NodeName) {
	open := w.see()
	if open == nil {
		return
	}
	for _, t := range open.Targets {
		if t.Node == node && t.State == fleet.TargetNotified {
			w.missed(node, fleet.TargetUnknown, fleet.Communication)
		}
	}
}

func (w *walked) end() {
	w.see()
	seen, err := w.Observe(w.Ctx(), w.of)
	require.NoError(w.T, err)
	if seen.Open == nil {
		return
	}
	e := decide.EndOfDelivery(*seen.Open, fleet.Durability(stores.Scan[string](w.bench,
		"SELECT durability FROM revisions WHERE name = $1 AND revision = $2", w.of.Instance, seen.Open.Revision.Version.Revision)))
	e.Subject, e.Delivery = w.of, seen.Open.ID
	_, err = w.End(w.Ctx(), e)
	require.NoError(w.T, err)
}

func (w *walked) lose() {
	w.see()
	err := w.CloseLost(w.Ctx(), deliveries.OpenSubject{Site: plant, Instance: w.of.Instance, Run: w.of.Run}, fleet.OperationRunning, "workflow_terminated")
	require.NoError(w.T, err)
}

// batched takes the same steps as a batch of one.
type batched struct {
	*bench
	name fleet.InstanceName
	ids  *int
	id   fleet.BatchID
	last fleet.BatchItem
}

func (w *batched) claim() {
	*w.ids++
	w.id = batchID(*w.ids)
	spec, content := w.specOf(w.name)
	o, err := w.GetObject(w.Ctx(), keyOf(w.name))
	require.NoError(w.T, err)
	r := alone(releaseOf(w.id, deliveries.BatchChange{Instance: w.name, Generation: o.Generation, Spec: spec, Content: content}))
	require.Equal(w.T, 1, w.release(r).Claimed)
	w.last = fleet.BatchItem{
		DeploymentID: stores.Scan[string](w.bench, "SELECT id FROM deliveries WHERE name = $1 AND state = 'open'", w.name), Instance: w.name,
		Revision: w.desiredOf(w.name),
	}
}

func (w *batched) tell(node fleet.NodeName) { w.bench.tell(w.id, node) }

func (w *batched) say(node fleet.NodeName, r fleet.BatchResult) {
	for range 2 { // the same again changes nothing
		require.NoError(w.T, w.RecordBatch(w.Ctx(), w.id, node, []fleet.BatchResult{r}))
	}
}

func (w *batched) took(node fleet.NodeName) {
	r := taken(w.last)
	r.Fetched = 0
	w.say(node, r)
}

func (w *batched) refused(node fleet.NodeName, kind fleet.Kind) {
	w.say(node, refusedBy(w.last, kind))
}

func (w *batched) silent(node fleet.NodeName) {
	require.NoError(w.T, w.MissBatch(w.Ctx(), fleet.BatchMiss{
		ID: w.id, Node: node, State: fleet.TargetUnknown, Reason: fleet.Communication, Message: "node says communication",
	}))
}

func (w *batched) end() {
	first := w.endBatch(w.id)
	require.Equal(w.T, first, w.endBatch(w.id))
}

func (w *batched) lose() {
	w.loseBatch(w.id)
	w.loseBatch(w.id)
}

// rowsOf is all that the database has of an instance, but for ids and times.
func (b *bench) rowsOf(name fleet.InstanceName) []string {
	b.T.Helper()
	return stores.Scan[[]string](b, `SELECT array_agg(row ORDER BY row) FROM (
		SELECT format('subject %s %s %s %s', last_revision, desired_revision, attempts, deleted) AS row FROM subjects WHERE name = $1
		UNION ALL SELECT format('object %s', generation) FROM objects WHERE name = $1
		UNION ALL SELECT format('revision %s %s %s %s', revision, action, generation, spec) FROM revisions WHERE name = $1
		UNION ALL SELECT format('snapshot %s %s %s', revision, epoch, action) FROM snapshots WHERE name = $1
		UNION ALL SELECT format('owed %s %s %s %s %s', node, revision, action, due, reason) FROM owed WHERE name = $1
		UNION ALL SELECT format('held %s %s %s %s', node, revision, high_revision, running) FROM node_held WHERE name = $1
		UNION ALL SELECT format('pending %s', revision) FROM pending WHERE name = $1
		UNION ALL SELECT format('delivery %s %s %s %s %s %s %s %s %s %s %s', attempt, revision, state, phase, reason, message, settled_as, node, epoch,
			from_revision, from_generation) FROM deliveries WHERE name = $1
		UNION ALL SELECT format('target %s %s %s %s %s %s %s %s', d.attempt, t.node, t.role, t.state, t.already, t.tries, t.reason, t.message)
			FROM deliveries d JOIN delivery_nodes t ON t.delivery_id = d.id WHERE d.name = $1
		UNION ALL SELECT format('operation %s %s %s %s %s', o.revision, o.state, o.reason, o.message, d.attempt)
			FROM operations o LEFT JOIN deliveries d ON d.id = o.delivery_id WHERE o.name = $1
		UNION ALL SELECT format('event %s %s %s %s', type, generation, before - 'delivery', after - 'delivery') FROM events WHERE name = $1) all_rows`, name)
}

// settled says that what was released last is deployed, and owed to nobody.
func (b *bench) settled(name fleet.InstanceName) bool {
	b.T.Helper()
	return stores.Scan[bool](b, `SELECT s.desired_revision = coalesce(p.revision, 0) AND NOT EXISTS (SELECT 1 FROM owed o WHERE o.name = s.name)
		FROM subjects s LEFT JOIN snapshots p ON p.name = s.name WHERE s.name = $1`, name)
}

func (b *bench) specOf(name fleet.InstanceName) (fleet.InstanceSpec, fleet.Content) {
	b.T.Helper()
	o, err := b.GetObject(b.Ctx(), keyOf(name))
	require.NoError(b.T, err)
	spec := specIn(b.T, o.Spec)
	return spec, *spec.Config
}

// N98: whoever looks at the rows later sees no difference.
func TestBatchEqualsWalk(t *testing.T) {
	t.Parallel()
	one, many := setup(t), setup(t)
	both := []*bench{one, many}
	n, ids, active := 0, 0, nodeA
	rapid.Check(t, func(r *rapid.T) {
		n++
		name := fleet.InstanceName(fmt.Sprintf("r%04d", n))
		durability := rapid.SampledFrom([]fleet.Durability{fleet.DurabilitySync, fleet.DurabilityAsync}).Draw(r, "durability")
		put := func(body string) {
			for _, b := range both {
				b.Put(body, stores.Named(string(name)), stores.As(durability))
			}
		}
		put(`{"a":0}`)
		ways := []way{
			&walked{bench: one, of: fleet.Subject{Site: plant, Instance: name, Run: "run-" + string(name), Build: "build-1"}},
			&batched{bench: many, name: name, ids: &ids},
		}
		do := func(f func(w way)) {
			for _, w := range ways {
				f(w)
			}
		}
		do(way.claim)
		moved := false
		for i := range rapid.IntRange(1, 9).Draw(r, "steps") {
			node := rapid.SampledFrom([]fleet.NodeName{nodeA, nodeA, nodeB}).Draw(r, "node")
			step := rapid.SampledFrom([]string{
				"tell", "tell", "took", "took", "refused", "silent", "end", "lose", "put", "claim", "move", "revoke", "enrol",
			}).Draw(r, "step")
			if moved && (step == "end" || step == "lose") {
				step = "claim" // an entity whose lease moved claims anew; a batch is told by its next
			}
			switch step {
			case "tell":
				do(func(w way) { w.tell(node) })
			case "took":
				do(func(w way) { w.took(node) })
			case "refused":
				kind := rapid.SampledFrom([]fleet.Kind{fleet.ApplyFailed, fleet.Communication, fleet.Stale, fleet.Unavailable}).Draw(r, "kind")
				do(func(w way) { w.refused(node, kind) })
			case "silent":
				do(func(w way) { w.silent(node) })
			case "end":
				do(way.end)
			case "lose":
				do(way.lose)
			case "put":
				put(fmt.Sprintf(`{"a":%d}`, i+1))
			case "claim":
				if many.settled(name) {
					continue // a batch has nothing to deliver there
				}
				do(way.claim)
				moved = false
			case "revoke", "enrol": // a node whose key is revoked has not enrolled
				for _, b := range both {
					b.Exec("UPDATE nodes SET revoked_at = CASE WHEN $2 THEN now() END WHERE name = $1", node, step == "revoke")
				}
			case "move":
				active = map[fleet.NodeName]fleet.NodeName{nodeA: nodeB, nodeB: nodeA}[active]
				for _, b := range both {
					b.MoveLease(active)
				}
				moved = true
			}
			require.Equal(r, one.rowsOf(name), many.rowsOf(name), "after step %d, %s", i, step)
		}
	})
}
