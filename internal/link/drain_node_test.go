package link_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

const drained = fleet.NodeName("plant-1-a")

// drainedNode is a server of the link and a node of a site that lives on it.
func drainedNode(t *testing.T, timing fleet.LinkTiming) (*region, *client, *live) {
	t.Helper()
	r := newRegion(t)
	_, err := r.store.Declare(t.Context(), postgres.Write{
		Request: postgres.Request{Project: "default", Actor: "test"}, Key: fleet.ObjectKey{Kind: fleet.KindSite, Name: "plant-1"},
	}, fleet.SiteSpec{Nodes: []fleet.SiteNode{{Name: drained, Role: fleet.RoleActive}}})
	require.NoError(t, err)
	c := r.dial(r.serve(timing).address, signed(r.node(drained)))
	return r, c, c.connect(offer(named(string(drained)), bare))
}

func (r *region) askNodeDrain(limit time.Duration) fleet.OperationID {
	r.t.Helper()
	op, err := r.store.AskNodeDrain(r.t.Context(), nodes.DrainRequest{
		Request: postgres.Request{Actor: "test"},
		Node:    drained,
		Order:   fleet.DrainOrder{Reason: "new disk", DeadlineSeconds: int64(limit / time.Second)},
	})
	require.NoError(r.t, err)
	return op.ID
}

// drainStep is a step of the drain's entity.
func (r *region) drainStep() decide.DrainAction {
	r.t.Helper()
	seen, err := r.store.SeeDrain(r.t.Context(), fleet.DrainLook{Node: drained, Run: "run-1"})
	require.NoError(r.t, err)
	a := decide.Drain(seen, decide.DrainRun{})
	switch a.Do {
	case decide.DrainAsk:
		require.NoError(r.t, r.store.AskConnections(r.t.Context(), drained, a.Connections))
	case decide.DrainCut:
		require.NoError(r.t, r.store.CutConnections(r.t.Context(), drained, a.Connections))
	case decide.DrainFinish, decide.DrainClose, decide.DrainWait, decide.DrainMove, decide.DrainEvict, decide.DrainStop:
	}
	return a
}

// drainsTo takes steps until one is by this rule.
func (r *region) drainsTo(rule string) decide.DrainAction {
	r.t.Helper()
	var a decide.DrainAction
	r.eventually("the drain comes to "+rule, func() bool { a = r.drainStep(); return a.Rule == rule || a.Do == decide.DrainFinish })
	require.Equal(r.t, rule, a.Rule, a.Message)
	return a
}

func (r *region) isCordoned() bool {
	r.t.Helper()
	rows, err := r.store.ListNodes(r.t.Context(), nodes.NodeFilter{Name: drained}, "", 1)
	require.NoError(r.t, err)
	return rows[0].CordonedAt != nil
}

// C12, C23 to C29, X5: the node finishes what it has, closes, and starts anew.
func TestDrainOfNode(t *testing.T) {
	t.Parallel()
	r, c, l := drainedNode(t, slow())
	l.beat(2)
	r.askNodeDrain(time.Minute)
	r.drainsTo("ack")
	require.Equal(t, "new disk", l.drainRequest().GetReason())
	l.ackDrain(2)
	r.drainsTo("in_flight")
	l.beat(0)
	r.drainsTo("close")
	require.NoError(t, l.stream.CloseSend())
	_ = l.ended()
	again := c.connect(offer(named(string(drained)), bare))
	require.Equal(t, fleet.OperationSucceeded, r.drainsTo("drained").State)
	require.True(t, r.isCordoned(), "it stays cordoned")
	require.Nil(t, r.row(again.id).Drain, "it is not drained again")
}

// C13, C66, C67, X6: a node that reads nothing, or acks and hangs, is cut off at the deadline.
func TestDrainOfNodeThatHangs(t *testing.T) {
	t.Parallel()
	for name, acks := range map[string]bool{"without an ack": false, "after its ack": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _, l := drainedNode(t, slow())
			r.eventually("its work is known", func() bool { l.beat(3); return r.row(l.id).InFlight == 3 })
			const limit = 5 * time.Second
			began := now()
			r.askNodeDrain(limit)
			r.drainsTo("ack")
			if acks {
				l.drainRequest()
				l.ackDrain(3)
				r.drainsTo("in_flight")
			}
			a := r.drainsTo("cut_off")
			require.Equal(t, fleet.OperationSucceeded, a.State)
			require.Contains(t, a.Message, "with 3 in flight")
			require.GreaterOrEqual(t, now().Sub(began), limit, "it was not cut before")
			require.Error(t, l.ended(), "its server has let go of it")
			require.Equal(t, fleet.DrainDeadline, r.row(l.id).Reason)
		})
	}
}

// A node that is lost in mid-drain comes back with its work, and goes on draining.
func TestDrainOfNodeThatIsLost(t *testing.T) {
	t.Parallel()
	r, c, l := drainedNode(t, quick())
	stop := l.keep(100 * time.Millisecond)
	r.askNodeDrain(time.Minute)
	r.drainsTo("ack")
	stop()
	l.cancel() // the link is cut
	r.drainsTo("lost")
	back := c.connect(offer(named(string(drained)), bare))
	back.keep(100 * time.Millisecond)
	r.drainsTo("ack")
	require.NotNil(t, back.drainRequest())
	back.ackDrain(0)
	r.drainsTo("close")
	require.NoError(t, back.say(&nodev1.ConnectRequest{}))
	require.NoError(t, back.stream.CloseSend())
	require.Equal(t, fleet.OperationSucceeded, r.drainsTo("drained").State)
}
