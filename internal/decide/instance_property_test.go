package decide_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// world is a toy region: it carries actions out as the store and two nodes would, with
// answers that are lost, refused or late at random.
type world struct {
	seen  fleet.InstanceSeen
	run   decide.InstanceRun
	now   time.Time
	held  map[fleet.NodeName]int64
	ended []fleet.OperationState
}

func (w *world) target(node fleet.NodeName) *fleet.TargetSeen {
	for i := range w.seen.Open.Targets {
		if w.seen.Open.Targets[i].Node == node {
			return &w.seen.Open.Targets[i]
		}
	}
	return nil
}

func (w *world) do(t *rapid.T, a decide.InstanceAction) {
	switch a.Do {
	case decide.DoClaim:
		w.run = decide.InstanceRun{}
		open(w.seen.Desired.Version.Revision, is(fleet.TargetWaiting), is(fleet.TargetWaiting))(&w.seen)
		w.seen.Open.Deadline = w.now.Add(time.Minute)
		w.seen.Owed = nil
	case decide.DoNotify:
		w.now = w.now.Add(a.Wait)
		w.target(a.Node).State, w.target(a.Node).Tries = fleet.TargetNotified, w.target(a.Node).Tries+1
		w.run.InFlight = a.Node
	case decide.DoWait:
		w.answer(t, a.Node)
	case decide.DoAsk:
		w.run.Asks++
		w.ask(t, a.Node)
	case decide.DoServe:
		require.NotEqual(t, w.seen.Holder, a.Node, "the active gets deliveries, no tickets")
		w.seen.Owed = slices.DeleteFunc(w.seen.Owed, func(o fleet.OwedSeen) bool { return o.Node == a.Node })
	case decide.DoEnd:
		w.end(a)
	case decide.DoNothing:
	}
}

func (w *world) answer(t *rapid.T, node fleet.NodeName) {
	target := w.target(node)
	w.run.InFlight = ""
	n := w.seen.Open.Revision.Version.Revision
	applies := func() { w.held[node] = max(w.held[node], n) }
	switch rapid.SampledFrom([]string{"applies", "lost", "lost but applied", "fails", "breaks", "away", "disagrees"}).Draw(t, "answer") {
	case "applies":
		applies()
		target.State = fleet.TargetApplied
		w.record(node, n)
	case "lost but applied":
		applies()
		target.State, target.Reason = fleet.TargetUnknown, fleet.Communication
	case "lost":
		target.State, target.Reason = fleet.TargetUnknown, fleet.Communication
	case "fails":
		target.State, target.Reason = fleet.TargetFailed, fleet.ApplyFailed
	case "disagrees":
		target.State, target.Reason, target.Ahead = fleet.TargetFailed, fleet.Stale, rapid.Bool().Draw(t, "ahead")
	case "breaks":
		target.State, target.Reason = fleet.TargetFailed, fleet.Communication
	case "away":
		target.State, target.Reason = fleet.TargetFailed, fleet.Unavailable
	}
}

func (w *world) record(node fleet.NodeName, n int64) {
	if node == "a" && n > w.seen.Snapshot.Version.Revision {
		w.seen.Snapshot = revision(n)
	}
}

func (w *world) ask(t *rapid.T, node fleet.NodeName) {
	if rapid.Bool().Draw(t, "no answer") {
		return
	}
	if w.seen.Open == nil {
		w.seen.Unsettled = nil
		w.record("a", w.held["a"])
		return
	}
	if w.held[node] == w.seen.Open.Revision.Version.Revision {
		w.target(node).State = fleet.TargetApplied
		w.record(node, w.held[node])
		return
	}
	w.target(node).State, w.target(node).Reason = fleet.TargetFailed, fleet.Communication
}

func (w *world) end(a decide.InstanceAction) {
	if w.seen.Open != nil && a.State == fleet.DeliveryUnknown {
		w.seen.Unsettled = append(w.seen.Unsettled, w.seen.Open.Revision.Version)
	}
	w.seen.Open, w.run.InFlight = nil, ""
	if a.OnlyCancelled {
		w.seen.Cancelled = 0
	} else {
		w.seen.Asked, w.seen.Cancelled = 0, 0
	}
	w.ended = append(w.ended, a.Operation)
}

// X6, X7, N52, N83: whatever the nodes answer, and however often a newer revision, a
// cancellation or a debt comes in between, the entity comes to an end, every operation
// ends, and the deployed revision never goes back.
func TestInstanceAlwaysEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{seen: seen(asked(1)), now: noon, held: map[fleet.NodeName]int64{"a": 1, "b": 1}}
		for events, steps := 0, 0; ; steps++ {
			require.Less(t, steps, 300, "it does not end")
			before := w.seen.Snapshot.Version
			a := decide.Instance(w.seen, w.run, w.now)
			require.NotEmpty(t, a.Rule)
			w.do(t, a)
			require.False(t, before.Newer(w.seen.Snapshot.Version), "the deployed revision went back")
			if a.Do == decide.DoNothing {
				break
			}
			if events < 5 && rapid.IntRange(0, 3).Draw(t, "event") == 0 {
				events++
				w.disturb(t)
			}
		}
		require.Zero(t, w.seen.Asked)
		require.Zero(t, w.seen.Cancelled)
		require.Nil(t, w.seen.Open)
		require.NotEmpty(t, w.ended)
	})
}

func (w *world) disturb(t *rapid.T) {
	switch rapid.SampledFrom([]string{"release", "cancel", "owe", "late"}).Draw(t, "disturbance") {
	case "release":
		w.seen.Desired = revision(w.seen.Desired.Version.Revision + 1)
		w.seen.Asked++
	case "cancel":
		w.seen.Cancelled, w.seen.Asked = w.seen.Cancelled+w.seen.Asked, 0
	case "owe":
		owedTo(rapid.SampledFrom([]fleet.NodeName{"a", "b"}).Draw(t, "node"))(&w.seen)
	case "late":
		w.now = w.now.Add(2 * time.Minute)
	}
}
