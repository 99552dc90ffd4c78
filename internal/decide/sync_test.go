package decide_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// F50, F55: a digest counts only if it describes the same instant as the rows.
func TestIgnoreDigest(t *testing.T) {
	t.Parallel()
	counts := fleet.DigestSeen{
		Digest: fleet.SetVersion{Era: 2, Number: 7}, Set: fleet.SetVersion{Era: 2, Number: 7}, After: 3, Reports: 3, Connected: true,
	}
	for why, edit := range map[string]func(*fleet.DigestSeen){
		"":               func(*fleet.DigestSeen) {},
		"disconnected":   func(s *fleet.DigestSeen) { s.Connected = false },
		"another_set":    func(s *fleet.DigestSeen) { s.Set.Number++ },
		"reported_since": func(s *fleet.DigestSeen) { s.Reports++ },
	} {
		seen := counts
		edit(&seen)
		require.Equal(t, why, decide.IgnoreDigest(seen))
	}
	another := counts
	another.Digest.Era--
	require.Equal(t, "another_set", decide.IgnoreDigest(another), "of the era before")
}

func markOf(id string, edits ...func(*fleet.ReplicaMark)) fleet.ReplicaMark {
	m := fleet.ReplicaMark{
		ID: fleet.ReplicaID(id), Revision: 1, ProcessVersion: 1, Definition: "0123456789abcdef", Phase: fleet.PhaseRunning, Health: fleet.HealthHealthy,
	}
	for _, edit := range edits {
		edit(&m)
	}
	return m
}

func rowOf(id string, edits ...func(*fleet.ReplicaRow)) fleet.ReplicaRow {
	r := fleet.ReplicaRow{ReplicaMark: markOf(id), State: fleet.ReplicaHealthy}
	for _, edit := range edits {
		edit(&r)
	}
	return r
}

// F25, F66, X8: each difference is of one kind, and what is under way, known or said is none.
func TestRuntimeDrift(t *testing.T) {
	t.Parallel()
	rows := func(all ...fleet.ReplicaRow) []fleet.ReplicaRow { return all }
	marks := func(all ...fleet.ReplicaMark) []fleet.ReplicaMark { return all }
	for what, c := range map[string]struct {
		rows   []fleet.ReplicaRow
		marks  []fleet.ReplicaMark
		listed []fleet.ReplicaID
		want   fleet.Drift
	}{
		"nothing":                   {},
		"equal":                     {rows: rows(rowOf("a"), rowOf("b")), marks: marks(markOf("a"), markOf("b"))},
		"first, middle and last":    {rows: rows(rowOf("a"), rowOf("c"), rowOf("e")), marks: marks(markOf("b"), markOf("c"), markOf("d")), want: fleet.Drift{fleet.DriftMissing: 2, fleet.DriftStray: 2}},
		"missing":                   {rows: rows(rowOf("a")), want: fleet.Drift{fleet.DriftMissing: 1}},
		"missing, and said so":      {rows: rows(rowOf("a", func(r *fleet.ReplicaRow) { r.Lost = true }))},
		"lost, and there":           {rows: rows(rowOf("a", func(r *fleet.ReplicaRow) { r.Lost = true })), marks: marks(markOf("a")), want: fleet.Drift{fleet.DriftState: 1}},
		"missing and to end":        {rows: rows(rowOf("a", func(r *fleet.ReplicaRow) { r.State = fleet.ReplicaTerminating })), want: fleet.Drift{fleet.DriftMissing: 1}},
		"stray":                     {marks: marks(markOf("a")), want: fleet.Drift{fleet.DriftStray: 1}},
		"stray, named or waiting":   {marks: marks(markOf("a"), markOf("b")), listed: []fleet.ReplicaID{"a", "b"}},
		"stray that has ended":      {marks: marks(markOf("a", func(m *fleet.ReplicaMark) { m.Phase = fleet.PhaseStopped }))},
		"another definition":        {rows: rows(rowOf("a")), marks: marks(markOf("a", func(m *fleet.ReplicaMark) { m.Definition = "fedcba9876543210" })), want: fleet.Drift{fleet.DriftVersion: 1}},
		"another revision":          {rows: rows(rowOf("a")), marks: marks(markOf("a", func(m *fleet.ReplicaMark) { m.Revision++ })), want: fleet.Drift{fleet.DriftVersion: 1}},
		"another process version":   {rows: rows(rowOf("a")), marks: marks(markOf("a", func(m *fleet.ReplicaMark) { m.ProcessVersion++ })), want: fleet.Drift{fleet.DriftVersion: 1}},
		"of unknown content":        {rows: rows(rowOf("a")), marks: marks(markOf("a", func(m *fleet.ReplicaMark) { m.Definition, m.Revision = "", 0 }))},
		"other content, to end":     {rows: rows(rowOf("a", func(r *fleet.ReplicaRow) { r.State = fleet.ReplicaTerminating })), marks: marks(markOf("a", func(m *fleet.ReplicaMark) { m.Revision++ }))},
		"another phase":             {rows: rows(rowOf("a")), marks: marks(markOf("a", func(m *fleet.ReplicaMark) { m.Phase = fleet.PhaseExited })), want: fleet.Drift{fleet.DriftState: 1}},
		"another health":            {rows: rows(rowOf("a")), marks: marks(markOf("a", func(m *fleet.ReplicaMark) { m.Health = fleet.HealthUnhealthy })), want: fleet.Drift{fleet.DriftState: 1}},
		"not ready any more":        {rows: rows(rowOf("a")), marks: marks(markOf("a", func(m *fleet.ReplicaMark) { m.Unready = true })), want: fleet.Drift{fleet.DriftState: 1}},
		"ready again":               {rows: rows(rowOf("a", func(r *fleet.ReplicaRow) { r.Unready = true })), marks: marks(markOf("a")), want: fleet.Drift{fleet.DriftState: 1}},
		"a state that nobody said":  {rows: rows(rowOf("a", func(r *fleet.ReplicaRow) { r.State = fleet.ReplicaUnhealthy })), marks: marks(markOf("a")), want: fleet.Drift{fleet.DriftState: 1}},
		"health of another process": {rows: rows(rowOf("a", func(r *fleet.ReplicaRow) { r.Health = fleet.HealthNotChecked })), marks: marks(markOf("a", func(m *fleet.ReplicaMark) { m.Health = fleet.HealthNotChecked }))},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, decide.RuntimeDrift(fleet.NodeSeen{Rows: c.rows, Marks: c.marks, Listed: c.listed}))
		})
	}
}

// F50, F55: whatever a region and a node do, and however their messages lie, a digest that counts shows no drift.
func TestNoDriftByItself(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &syncWorld{
			T: t, set: 1, connected: true, rows: map[fleet.ReplicaID]fleet.ReplicaRow{}, tombs: map[fleet.ReplicaID]bool{}, node: map[fleet.ReplicaID]*nodeReplica{},
			dirty: map[fleet.ReplicaID]bool{}, complete: true,
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": w.create, "terminate": w.terminate, "fetch": w.fetch, "changes": w.changes, "send": w.send, "deliver": w.deliver,
			"ack": w.ack, "cut": w.cut, "connect": w.connect, "fail": w.fail, "settle": w.settle, "report": w.report, "": w.sweep,
		})
	})
}

// syncWorld is a region and one node, with at most one message between them.
type syncWorld struct {
	*rapid.T
	set       int64
	rows      map[fleet.ReplicaID]fleet.ReplicaRow
	tombs     map[fleet.ReplicaID]bool // ended, and not by the word that nothing of them runs
	reports   int64
	digest    *fleet.ReplicasDigest
	of        fleet.DigestSeen
	connected bool
	made      int

	node     map[fleet.ReplicaID]*nodeReplica
	has      int64
	dirty    map[fleet.ReplicaID]bool
	complete bool
	message  *syncMessage
}

type nodeReplica struct {
	fleet.ReplicaMark
	run bool
}

type syncMessage struct {
	lines     []fleet.ReplicaMark
	digest    bool
	complete  bool
	set       int64
	delivered bool
}

func (w *syncWorld) create(*rapid.T) {
	w.made++
	id := fleet.ReplicaID(rapid.StringMatching(`[0-9a-f]{12}`).Draw(w.T, "id"))
	w.set++
	w.rows[id] = fleet.ReplicaRow{ReplicaMark: fleet.ReplicaMark{ID: id, Revision: int64(w.made), Health: fleet.HealthNotChecked, Definition: "d"}, State: fleet.ReplicaStarting}
}

func (w *syncWorld) someRow(t *rapid.T) (fleet.ReplicaRow, bool) {
	if len(w.rows) == 0 {
		return fleet.ReplicaRow{}, false
	}
	return w.rows[rapid.SampledFrom(slices.Sorted(maps.Keys(w.rows))).Draw(t, "row")], true
}

func (w *syncWorld) terminate(t *rapid.T) {
	if r, is := w.someRow(t); is && r.State.Live() {
		r.State = fleet.ReplicaTerminating
		w.rows[r.ID] = r
		w.set++
	}
}

// fail is the region's word about a node that is away.
func (w *syncWorld) fail(t *rapid.T) {
	if r, is := w.someRow(t); is && !w.connected && r.State.Live() {
		r.State, r.Health = fleet.ReplicaUnhealthy, fleet.HealthUnhealthy
		w.rows[r.ID] = r
	}
}

func (w *syncWorld) fetch(*rapid.T) {
	w.has = w.set
	for _, r := range w.rows {
		w.listed(r.ReplicaMark, r.State.Live())
	}
	for id := range w.tombs {
		w.listed(fleet.ReplicaMark{ID: id, Health: fleet.HealthNotChecked}, false)
	}
	for id, at := range w.node {
		if _, row := w.rows[id]; !row && !w.tombs[id] && !at.run {
			delete(w.node, id)
			delete(w.dirty, id)
		}
	}
}

// listed is a line of the set. A node reports each that changed.
func (w *syncWorld) listed(m fleet.ReplicaMark, run bool) {
	at, knows := w.node[m.ID]
	if !knows {
		at = &nodeReplica{ReplicaMark: m, run: !run}
		at.Phase = fleet.PhasePreparing
		w.node[m.ID] = at
	}
	if run != at.run {
		at.run, w.dirty[m.ID] = run, true
	}
}

func (w *syncWorld) changes(t *rapid.T) {
	if len(w.node) == 0 {
		return
	}
	at := w.node[rapid.SampledFrom(slices.Sorted(maps.Keys(w.node))).Draw(t, "replica")]
	at.Phase, at.Health, at.Unready = fleet.PhaseStopped, fleet.HealthNotChecked, false
	if at.run {
		at.Phase = rapid.SampledFrom([]fleet.ReplicaPhase{fleet.PhasePreparing, fleet.PhaseRunning, fleet.PhaseExited, fleet.PhaseFailed}).Draw(t, "phase")
	}
	if at.Phase == fleet.PhaseRunning {
		at.Health, at.Unready = rapid.SampledFrom(fleet.ReplicaHealths()).Draw(t, "health"), rapid.Bool().Draw(t, "unready")
	}
	w.dirty[at.ID] = true
}

func (w *syncWorld) send(*rapid.T) {
	if w.message != nil || !w.connected {
		return
	}
	m := &syncMessage{set: w.has, complete: w.complete, digest: !w.complete && len(w.dirty) == 0}
	for _, id := range slices.Sorted(maps.Keys(w.node)) {
		if m.complete || m.digest || w.dirty[id] {
			m.lines = append(m.lines, w.node[id].ReplicaMark)
		}
	}
	w.message, w.complete, w.dirty = m, false, map[fleet.ReplicaID]bool{}
}

// deliver may happen again before the ack: the region repeats what it could not write.
func (w *syncWorld) deliver(*rapid.T) {
	m := w.message
	if m == nil || !w.connected {
		return
	}
	if m.delivered = true; m.digest {
		w.digest = &fleet.ReplicasDigest{Replicas: m.lines}
		w.of = fleet.DigestSeen{Digest: fleet.SetVersion{Number: m.set}, After: w.reports, Connected: true}
		return
	}
	w.reports++
	for _, said := range m.lines {
		if r, is := w.rows[said.ID]; is {
			w.reported(r, said)
		} else if said.Phase == fleet.PhaseStopped && w.tombs[said.ID] {
			delete(w.tombs, said.ID)
			w.set++
		}
	}
}

func (w *syncWorld) reported(r fleet.ReplicaRow, said fleet.ReplicaMark) {
	for _, on := range decide.ReplicaReported(fleet.ReplicaSeen{State: r.State}, fleet.ReplicaStatus{Phase: said.Phase, Health: said.Health}) {
		to, err := r.State.Next(on)
		require.NoError(w.T, err)
		r.State = to
	}
	r.Phase, r.Health, r.Unready = said.Phase, said.Health, said.Unready
	w.rows[r.ID] = r
	if r.State == fleet.ReplicaTerminated {
		delete(w.rows, r.ID)
		if said.Phase != fleet.PhaseStopped {
			w.tombs[r.ID] = true
		}
		w.set++
	}
}

func (w *syncWorld) ack(*rapid.T) {
	if w.message != nil && w.message.delivered && w.connected {
		w.message = nil
	}
}

func (w *syncWorld) cut(*rapid.T) { w.connected, w.of.Connected, w.message = false, false, nil }

func (w *syncWorld) connect(*rapid.T) {
	if !w.connected {
		w.connected, w.complete = true, true
	}
}

// report is a change of which the region hears at once.
func (w *syncWorld) report(t *rapid.T) {
	w.changes(t)
	w.send(t)
	w.deliver(t)
	w.ack(t)
}

// settle is some quiet time: everything is fetched and said, and a digest has come.
func (w *syncWorld) settle(t *rapid.T) {
	w.connect(t)
	w.fetch(t)
	for w.message == nil || !w.message.digest {
		w.ack(t)
		w.send(t)
		w.deliver(t)
		w.fetch(t)
	}
	w.ack(t)
}

func (w *syncWorld) sweep(*rapid.T) {
	seen := w.of
	seen.Set, seen.Reports = fleet.SetVersion{Number: w.set}, w.reports
	if w.digest == nil || decide.IgnoreDigest(seen) != "" {
		return
	}
	n := fleet.NodeSeen{Marks: w.digest.Replicas, Listed: slices.Sorted(maps.Keys(w.tombs))}
	for _, id := range slices.Sorted(maps.Keys(w.rows)) {
		n.Rows = append(n.Rows, w.rows[id])
	}
	require.Empty(w.T, decide.RuntimeDrift(n))
}
