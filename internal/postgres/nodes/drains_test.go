package nodes_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

const drainServer = "server-1"

// linked has a node live on the link, with an open stream.
func (b *bench) linked(node fleet.NodeName) fleet.ConnectionID { return b.linkedBy(node, "") }

// linkedBy has the node's connection opened by a key.
func (b *bench) linkedBy(node fleet.NodeName, key string) fleet.ConnectionID {
	b.T.Helper()
	require.NoError(b.T, b.LinkServerSeen(b.Ctx(), drainServer, time.Minute))
	identity := "node:" + string(node)
	reg, err := b.RegisterConnection(b.Ctx(), fleet.Registration{
		Identity: identity, Node: node, Key: key, Provider: fleet.ProviderName(node), Protocol: 1,
	}, drainServer)
	require.NoError(b.T, err)
	_, err = b.OpenConnection(b.Ctx(), reg.ID, identity, drainServer)
	require.NoError(b.T, err)
	return reg.ID
}

// ends has the server of a connection see it end.
func (b *bench) ends(id fleet.ConnectionID, on fleet.ConnectionEvent) {
	b.T.Helper()
	require.NoError(b.T, b.MoveConnections(b.Ctx(), drainServer, nodes.ConnectionMoves{Ended: map[fleet.ConnectionID]fleet.ConnectionEvent{id: on}}))
}

func (b *bench) cordonOf(node fleet.NodeName) *time.Time {
	b.T.Helper()
	rows, err := b.ListNodes(b.Ctx(), nodes.NodeFilter{Name: node}, "", 1)
	require.NoError(b.T, err)
	require.Len(b.T, rows, 1)
	return rows[0].CordonedAt
}

func TestCordon(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := nodes.CordonRequest{Request: postgres.Request{Actor: "ada"}, Node: nodeB, Reason: "new disk"}
	events := func() int64 { return stores.Scan[int64](b, "SELECT count(*) FROM events WHERE kind = 'node'") }

	dry := in
	dry.DryRun = true
	require.NoError(t, b.Cordon(t.Context(), dry))
	require.Nil(t, b.cordonOf(nodeB))
	other := in
	other.Project = "other"
	stores.Refused(t, fleet.NotFound, b.Cordon(t.Context(), other))
	require.Zero(t, events())

	require.NoError(t, b.Cordon(t.Context(), in)) // X13
	since := b.cordonOf(nodeB)
	again := in
	again.Reason = "another"
	require.NoError(t, b.Cordon(t.Context(), again))
	require.Equal(t, since, b.cordonOf(nodeB), "it was cordoned since")
	require.Equal(t, "new disk", stores.Scan[string](b, "SELECT cordon_reason FROM nodes WHERE name = $1", string(nodeB)))
	require.Equal(t, int64(1), events(), "what changes nothing is no event")

	require.NoError(t, b.NodeReady(t.Context(), nodeB, "start-2")) // its agent starts anew
	require.NotNil(t, b.cordonOf(nodeB), "it stays cordoned")
	b.PutSite(plant, nodeA, nodeB)
	require.NotNil(t, b.cordonOf(nodeB), "it stays cordoned")

	require.NoError(t, b.Uncordon(t.Context(), in))
	require.NoError(t, b.Uncordon(t.Context(), in))
	require.Nil(t, b.cordonOf(nodeB))
	require.Equal(t, int64(2), events())
	require.Equal(t, []string{ // X17
		`{"cordoned": false} {"reason": "new disk", "cordoned": true}`,
		`{"reason": "new disk", "cordoned": true} {"cordoned": false}`,
	}, stores.Scan[[]string](b, "SELECT array_agg(format('%s %s', before, after) ORDER BY seq) FROM events WHERE kind = 'node'"))
	stores.Refused(t, fleet.NotFound, b.Cordon(t.Context(), nodes.CordonRequest{Node: "nobody"}))
}

func TestAskNodeDrain(t *testing.T) {
	t.Parallel()

	t.Run("cordons, opens an operation of the site's project, and wakes the entity", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.MustDrain(stores.DrainOf(nodeB, 60))
		require.Equal(t, []any{nodeB, plant, stores.Project, fleet.OperationDrain, fleet.InstanceName("")}, []any{op.Node, op.Site, op.Project, op.Kind, op.Instance})
		require.NotNil(t, b.cordonOf(nodeB))
		waiting, err := b.WaitingWakes(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Contains(t, waiting, fleet.DrainSubject(nodeB))
		open, err := b.OpenSubjects(t.Context(), deliveries.OpenSubject{}, -time.Minute, 10)
		require.NoError(t, err)
		require.Empty(t, open, "a node's operation was taken for that of an instance")
	})

	t.Run("of a door or a key that asks twice opens one", func(t *testing.T) { // X13, X23
		t.Parallel()
		b := setup(t)
		for _, in := range []nodes.DrainRequest{
			stores.DrainOf(nodeB, 60, func(d *nodes.DrainRequest) { d.Door = postgres.Door{Workflow: "by-hand", Run: "run-7"} }),
			stores.DrainOf(nodeB, 60, func(d *nodes.DrainRequest) { d.Idempotency = postgres.Idempotency{Key: "k", Hash: []byte("h")} }),
		} {
			ids := make([]fleet.OperationID, 4)
			require.NoError(t, stores.AtOnce(len(ids), func(i int) error {
				op, err := b.AskNodeDrain(b.Ctx(), in)
				ids[i] = op.ID
				return err
			}))
			for _, id := range ids {
				require.Equal(t, ids[0], id)
			}
		}
		require.Equal(t, int64(2), stores.Scan[int64](b, "SELECT count(*) FROM operations"))
	})

	t.Run("leaves nothing of a dry run, nor of a stranger's", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.MustDrain(stores.DrainOf(nodeB, 60, func(d *nodes.DrainRequest) { d.DryRun = true }))
		_, err := b.AskNodeDrain(t.Context(), stores.DrainOf(nodeB, 60, func(d *nodes.DrainRequest) { d.Project = "other" }))
		stores.Refused(t, fleet.NotFound, err)
		_, err = b.AskNodeDrain(t.Context(), stores.DrainOf("nobody", 60))
		stores.Refused(t, fleet.NotFound, err)
		require.Nil(t, b.cordonOf(nodeB))
		require.Zero(t, stores.Scan[int64](b, "SELECT count(*) FROM operations")+stores.Scan[int64](b, "SELECT count(*) FROM node_drains"))
	})

	t.Run("joins the drain that runs: the earlier deadline counts", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.NoError(t, b.LinkServerSeen(t.Context(), drainServer, time.Minute))
		first := b.MustDrain(stores.DrainOf(nodeB, 60))
		seen := b.MustSeeDrain(nodeB)
		later := b.MustDrain(stores.DrainOf(nodeB, 600))
		require.Equal(t, seen.Deadline, b.MustSeeDrain(nodeB).Deadline)
		b.MustDrain(stores.DrainOf(nodeB, 10, func(d *nodes.DrainRequest) { d.Order.Force = true }))
		now := b.MustSeeDrain(nodeB)
		require.Less(t, now.Left(), 11*time.Second)
		require.True(t, now.Force)
		require.Equal(t, []any{seen.Began, "new disk"}, []any{now.Began, now.Reason})
		// What was found before the third asked does not end it.
		require.NoError(t, b.EndDrain(t.Context(), fleet.DrainEnd{Node: nodeB, Operation: later.ID, State: fleet.OperationFailed, Reason: "no_other_place"}))
		require.True(t, b.MustSeeDrain(nodeB).Wanted)
		require.NoError(t, b.EndDrain(t.Context(), fleet.DrainEnd{Node: nodeB, Operation: now.Operation, State: fleet.OperationSucceeded, Reason: "drained"}))
		require.Equal(t, fleet.OperationSucceeded, b.Operation(first.ID).State)
		require.Equal(t, fleet.OperationSucceeded, b.Operation(later.ID).State)
		require.Empty(t, b.MustSeeDrain(nodeB).Operation)
		require.NotNil(t, b.cordonOf(nodeB), "it stays cordoned")
		require.NoError(t, b.Uncordon(t.Context(), nodes.CordonRequest{Node: nodeB}))
	})
}

// X7
func TestCancelDrain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.MustDrain(stores.DrainOf(nodeB, 60)), b.MustDrain(stores.DrainOf(nodeB, 60))
	stores.Refused(t, fleet.IllegalState, b.Uncordon(t.Context(), nodes.CordonRequest{Node: nodeB}))
	ended, err := b.CancelOperation(t.Context(), second.ID)
	require.NoError(t, err)
	require.Equal(t, fleet.OperationCancelled, ended.State)
	require.Contains(t, ended.Message, "stays cordoned")
	seen := b.MustSeeDrain(nodeB)
	require.True(t, seen.Wanted, "another waits for it")
	_, err = b.CancelOperation(t.Context(), first.ID)
	require.NoError(t, err)
	seen = b.MustSeeDrain(nodeB)
	require.False(t, seen.Wanted)

	third := b.MustDrain(stores.DrainOf(nodeB, 60))
	end := fleet.DrainEnd{Node: nodeB, Operation: third.ID, State: fleet.OperationCancelled, Reason: "nobody_waits"}
	require.NoError(t, b.EndDrain(t.Context(), end))
	require.True(t, b.MustSeeDrain(nodeB).Wanted, "somebody asked after the entity had looked")
	_, err = b.CancelOperation(t.Context(), third.ID)
	require.NoError(t, err)
	require.NoError(t, b.EndDrain(t.Context(), end))
	require.NotNil(t, b.cordonOf(nodeB))
	require.NoError(t, b.Uncordon(t.Context(), nodes.CordonRequest{Node: nodeB}))
}

func TestDrainConnections(t *testing.T) {
	t.Parallel()

	t.Run("are asked once by the drain's deadline, and again by an earlier one", func(t *testing.T) { // C23, C24, C68
		t.Parallel()
		b := setup(t)
		id := b.linked(nodeB)
		b.MustDrain(stores.DrainOf(nodeB, 600))
		require.NoError(t, b.AskConnections(t.Context(), nodeB, []fleet.ConnectionID{id}))
		seen := b.MustSeeDrain(nodeB)
		require.True(t, seen.Connections[0].Asked)
		c, err := b.GetConnection(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, seen.Deadline, c.Drain.Deadline)
		require.Equal(t, "new disk", c.Drain.Reason)
		require.False(t, c.TakesWork())

		b.MustDrain(stores.DrainOf(nodeB, 10))
		require.False(t, b.MustSeeDrain(nodeB).Connections[0].Asked, "it was asked to go later")
		require.NoError(t, b.AskConnections(t.Context(), nodeB, []fleet.ConnectionID{id}))
		require.True(t, b.MustSeeDrain(nodeB).Connections[0].Asked)
	})

	t.Run("are not cut before the deadline, nor another node's at all", func(t *testing.T) { // C66
		t.Parallel()
		b := setup(t)
		id, others := b.linked(nodeB), b.linked(nodeA)
		b.MustDrain(stores.DrainOf(nodeB, 600))
		ids := []fleet.ConnectionID{id, others}
		require.NoError(t, b.AskConnections(t.Context(), nodeB, ids))
		require.NoError(t, b.CutConnections(t.Context(), nodeB, ids))
		require.Equal(t, fleet.ConnectionActive, b.MustSeeDrain(nodeB).Connections[0].State)
		b.Exec("UPDATE connections SET drain_deadline = now() WHERE drain_deadline IS NOT NULL")
		require.NoError(t, b.CutConnections(t.Context(), nodeB, ids))
		require.NoError(t, b.CutConnections(t.Context(), nodeB, ids)) // X13
		require.Equal(t, fleet.DrainDeadline, b.MustSeeDrain(nodeB).Connections[0].Reason)
		c, err := b.GetConnection(t.Context(), others)
		require.NoError(t, err)
		require.True(t, c.TakesWork())
	})

	t.Run("wake the drain when they end, and those of before say nothing", func(t *testing.T) { // C28
		t.Parallel()
		b := setup(t)
		before := b.linked(nodeB)
		b.ends(before, fleet.StreamClosed)
		id := b.linked(nodeB)
		b.MustDrain(stores.DrainOf(nodeB, 600))
		seen := b.MustSeeDrain(nodeB)
		require.Len(t, seen.Connections, 1)
		require.Equal(t, id, seen.Connections[0].ID)
		require.NoError(t, b.AskConnections(t.Context(), nodeB, []fleet.ConnectionID{id}))
		b.ends(id, fleet.StreamClosed)
		waiting, err := b.WaitingWakes(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Contains(t, waiting, fleet.DrainSubject(nodeB))

		next := b.linked(nodeB) // its agent starts anew
		require.NotNil(t, b.cordonOf(nodeB))
		require.Equal(t, "drained", decide.Drain(b.MustSeeDrain(nodeB), decide.DrainRun{Asked: true}).Rule)
		c, err := b.GetConnection(t.Context(), next)
		require.NoError(t, err)
		require.Nil(t, c.Drain)
	})
}

// X5: a node whose connection the region's own stop ended is not taken for gone before it could be back.
func TestDrainAfterRegionWasAway(t *testing.T) {
	t.Parallel()
	rule := func(b *bench) string {
		return decide.Drain(b.MustSeeDrain(nodeB), decide.DrainRun{}).Rule
	}
	away := func(t *testing.T) *bench {
		b := setup(t)
		b.linked(nodeB)
		require.NoError(t, b.LinkServerGone(t.Context(), drainServer))
		b.Exec("UPDATE connections SET ended_at = now() - interval '1 hour'")
		return b
	}
	t.Run("it waits for the node, and asks its new connection", func(t *testing.T) {
		t.Parallel()
		b := away(t)
		require.NoError(t, b.LinkServerSeen(t.Context(), drainServer, time.Minute))
		b.MustDrain(stores.DrainOf(nodeB, 600))
		require.Equal(t, "lost", rule(b))
		id := b.linked(nodeB)
		a := decide.Drain(b.MustSeeDrain(nodeB), decide.DrainRun{})
		require.Equal(t, "ask", a.Rule)
		require.Equal(t, []fleet.ConnectionID{id}, a.Connections)
		require.Empty(t, b.MustSeeDrain(nodeB).Before)
	})
	t.Run("it waits while no server is there", func(t *testing.T) {
		t.Parallel()
		b := away(t)
		b.MustDrain(stores.DrainOf(nodeB, 600))
		require.Equal(t, "lost", rule(b))
	})
	t.Run("a node that did not come back is gone", func(t *testing.T) {
		t.Parallel()
		b := away(t)
		require.NoError(t, b.LinkServerSeen(t.Context(), drainServer, time.Minute))
		b.LinkSince("31 seconds")
		b.MustDrain(stores.DrainOf(nodeB, 600))
		require.Equal(t, "not_connected", rule(b))
	})
	t.Run("a node that left by itself is gone", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.linked(nodeB)
		b.ends(b.linked(nodeB), fleet.StreamClosed)
		b.MustDrain(stores.DrainOf(nodeB, 600))
		require.Equal(t, "not_connected", rule(b))
	})
	t.Run("a node that never was on the link is not waited for", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.MustDrain(stores.DrainOf(nodeB, 600))
		require.Equal(t, "not_connected", rule(b))
	})
}

// X5, X6: a drain whose deadline passed while the region was away has time to move what runs when it is back.
func TestDrainOutlivesItsRegion(t *testing.T) {
	t.Parallel()
	// forced is the drain of a node that runs something, whose deadline passed.
	forced := func(t *testing.T) (*bench, postgres.Operation) {
		b := setup(t)
		b.MoveLease(nodeA)
		require.NoError(t, b.NodeReady(t.Context(), nodeB, "start-1"))
		b.linked(nodeA)
		b.linked(nodeB)
		op := b.MustDrain(stores.DrainOf(nodeA, 300, func(d *nodes.DrainRequest) { d.Order.Force = true }))
		b.Exec("UPDATE node_drains SET asked_at = asked_at - interval '1 hour', deadline = deadline - interval '1 hour'")
		b.Exec("UPDATE operations SET created_at = created_at - interval '1 hour', deadline_at = deadline_at - interval '1 hour'")
		return b, op
	}
	look := func(b *bench) (decide.DrainAction, time.Duration) {
		seen := b.MustSeeDrain(nodeA)
		seen.Running = 1
		return decide.Drain(seen, decide.DrainRun{}), seen.Left()
	}
	overdue := func(b *bench) int {
		n, _, err := b.EndOverdue(b.Ctx(), 10)
		require.NoError(b.T, err)
		return n
	}
	t.Run("the region is back: it moves what runs, and nothing is stopped", func(t *testing.T) {
		t.Parallel()
		b, op := forced(t)
		b.LinkSince("1 second")
		require.Zero(t, overdue(b), "its entity is to look first")
		a, left := look(b)
		require.Equal(t, "move_lease", a.Rule)
		require.InDelta(t, 59, left.Seconds(), 5)
		b.LinkSince("1 day")
		require.Zero(t, overdue(b), "its operation has as much time")
		require.Equal(t, fleet.OperationRunning, b.Operation(op.ID).State)
	})
	t.Run("and has no more time than that", func(t *testing.T) {
		t.Parallel()
		b, _ := forced(t)
		b.LinkSince("61 seconds")
		a, _ := look(b)
		require.Equal(t, "stop_forced", a.Rule)
	})
	t.Run("the region was there all the time", func(t *testing.T) {
		t.Parallel()
		b, _ := forced(t)
		b.LinkSince("1 day")
		a, _ := look(b)
		require.Equal(t, "stop_forced", a.Rule)
		require.Equal(t, 1, overdue(b))
	})
	t.Run("it was asked for when the region was back", func(t *testing.T) {
		t.Parallel()
		b, _ := forced(t)
		b.LinkSince("1 second")
		b.Exec("UPDATE node_drains SET asked_at = now(), deadline = now() + interval '10 seconds'")
		_, left := look(b)
		require.LessOrEqual(t, left, 10*time.Second)
	})
	t.Run("nobody can speak to a node: nothing is stopped, and it ends", func(t *testing.T) {
		t.Parallel()
		b, op := forced(t)
		require.NoError(t, b.LinkServerGone(t.Context(), drainServer))
		a, left := look(b)
		require.Equal(t, decide.DrainWait, a.Do)
		require.Positive(t, left)
		require.Equal(t, 1, overdue(b))
		require.Equal(t, fleet.OperationFailed, b.Operation(op.ID).State)
		a, _ = look(b)
		require.Equal(t, "nobody_waits", a.Rule)
	})
}

// C25, X5: what people see while it runs.
func TestNodeDrains(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.linked(nodeA)
	op := b.MustDrain(stores.DrainOf(nodeA, 600))
	seen := b.MustSeeDrain(nodeA)
	require.True(t, seen.Holds)
	require.Equal(t, &fleet.DrainPeer{Node: nodeB}, seen.Peer, "it has not started")
	require.NoError(t, b.NodeReady(t.Context(), nodeB, "start-1"))
	require.False(t, b.MustSeeDrain(nodeA).Peer.Ready, "its machine may be off")
	peer := b.linked(nodeB)
	require.True(t, b.MustSeeDrain(nodeA).Peer.Ready)
	b.ends(peer, fleet.HeartbeatLapsed)
	require.False(t, b.MustSeeDrain(nodeA).Peer.Ready, "it went off the link")
	b.linked(nodeB)
	require.True(t, b.MustSeeDrain(nodeA).Peer.Ready)
	require.NoError(t, b.Cordon(t.Context(), nodes.CordonRequest{Node: nodeB}))
	require.False(t, b.MustSeeDrain(nodeA).Peer.Ready, "a cordoned node takes over nothing")

	_, err := b.SeeDrain(t.Context(), fleet.DrainLook{Node: nodeA, Run: run1, Phase: fleet.DrainDraining, Rule: "in_flight", Message: "it waits"})
	require.NoError(t, err)
	require.NoError(t, b.RecordHeartbeats(t.Context(), drainServer, []nodes.Heartbeat{{ID: id, InFlight: 7}}))
	all, err := b.NodeDrains(t.Context(), nodeA, nodeB)
	require.NoError(t, err)
	require.Len(t, all, 1)
	d := all[nodeA]
	require.Equal(t, []any{op.ID, fleet.DrainDraining, "in_flight", "it waits", int64(7)}, []any{d.Operation, d.Phase, d.Rule, d.Message, d.InFlight})
	require.Equal(t, seen.Deadline, d.Deadline)

	// X25: the run that served it was ended by a person.
	open, err := b.OpenEntities(t.Context(), fleet.EntityDrain, "", -time.Minute, 10)
	require.NoError(t, err)
	require.Equal(t, []postgres.OpenEntity{{Subject: fleet.DrainSubject(nodeA), Run: run1}}, open)
	_, err = b.CloseEntityOperations(t.Context(), open[0], "workflow_terminated")
	require.NoError(t, err)
	require.Equal(t, fleet.OperationFailed, b.Operation(op.ID).State)
	require.False(t, b.MustSeeDrain(nodeA).Wanted)
}

// X5: what became of the lease that a drain asked to move.
func TestDrainSeesItsMove(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.MoveLease(nodeA)
	move := nodes.FailoverRequest{Request: postgres.Request{Actor: "temporal:region", Limit: minute}, Site: plant, To: nodeB}
	release := func() { b.cast(func(v *nodes.Vote) { v.Holder = "" }) }
	b.MustDrain(stores.DrainOf(nodeA, 600))
	see := func() []any {
		s := b.MustSeeDrain(nodeA)
		return []any{s.Holds, s.Vacant, s.Failover}
	}
	none := fleet.OperationID("")

	require.Equal(t, []any{true, false, none}, see())
	_, err := b.AskFailover(t.Context(), move) // a person's
	require.NoError(t, err)
	require.Equal(t, []any{true, false, none}, see())
	release()
	require.Equal(t, []any{false, false, none}, see(), "the drain did not ask for it")
	b.MoveLease(nodeA)
	require.NoError(t, b.EndFailover(t.Context(), fleet.FailoverEnd{Site: plant, To: nodeB, State: fleet.OperationFailed, Reason: "deadline"}))

	move.DrainOf = nodeA
	op, err := b.AskFailover(t.Context(), move)
	require.NoError(t, err)
	require.Equal(t, []any{true, false, op.ID}, see())
	release()
	require.Equal(t, []any{false, true, op.ID}, see())
	require.NoError(t, b.EndFailover(t.Context(), fleet.FailoverEnd{Site: plant, To: nodeB, State: fleet.OperationFailed, Reason: "deadline"}))
	require.Equal(t, []any{false, true, none}, see(), "nobody holds it still")
	b.MoveLease(nodeB)
	require.Equal(t, []any{false, false, none}, see())
}

// X7: a drain that ends badly leaves no failover behind that stops what runs later.
func TestEndDrainCancelsItsMove(t *testing.T) {
	t.Parallel()
	for state, cancelled := range map[fleet.OperationState]bool{
		fleet.OperationFailed: true, fleet.OperationCancelled: true, fleet.OperationSucceeded: false,
	} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.MoveLease(nodeA)
			ask := b.MustDrain(stores.DrainOf(nodeA, 600))
			move := nodes.FailoverRequest{Request: postgres.Request{Actor: "ann", Limit: minute}, Site: plant, To: nodeB}
			_, err := b.AskFailover(t.Context(), move)
			require.NoError(t, err)
			move.DrainOf = nodeA
			_, err = b.AskFailover(t.Context(), move)
			require.NoError(t, err)
			requested := func() []bool {
				return stores.Scan[[]bool](b, "SELECT array_agg(cancel_requested ORDER BY created_at) FROM operations WHERE kind = 'failover'")
			}
			end := fleet.DrainEnd{Node: nodeA, Operation: ask.ID, State: state, Reason: "lease_not_moved"}
			if state == fleet.OperationCancelled {
				require.NoError(t, b.EndDrain(t.Context(), end))
				require.Equal(t, []bool{false, false}, requested(), "somebody waits for the drain")
				_, err = b.CancelOperation(t.Context(), ask.ID)
				require.NoError(t, err)
			}
			b.Exec("DELETE FROM outbox")
			require.NoError(t, b.EndDrain(t.Context(), end))
			require.NoError(t, b.EndDrain(t.Context(), end)) // X13
			require.Equal(t, []bool{false, cancelled}, requested(), "a person's own goes on")
			waiting, err := b.WaitingWakes(t.Context(), 0, 10)
			require.NoError(t, err)
			require.Equal(t, cancelled, slices.Contains(waiting, fleet.SiteSubject(plant)), "the site's entity hears of it")
		})
	}
}

// A cordoned node gets nothing new: no lease, and no executions.
func TestCordonKeepsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.LinkServerSeen(t.Context(), drainServer, time.Minute))
	identity := "node:" + string(nodeB)
	reg, err := b.RegisterConnection(t.Context(), fleet.Registration{
		Identity: identity, Node: nodeB, Provider: "vision", Namespace: "acme", Executor: "10.0.0.7:1", Protocol: 1,
		Modules: []fleet.ModuleOffer{{Name: "detect"}},
	}, drainServer)
	require.NoError(t, err)
	_, err = b.OpenConnection(t.Context(), reg.ID, identity, drainServer)
	require.NoError(t, err)
	callable := func() bool {
		all, err := b.ModuleMembers(t.Context(), fleet.ModuleRef{Namespace: "acme", Name: "detect"})
		require.NoError(t, err)
		require.Len(t, all, 1)
		return all[0].Callable()
	}
	failover := nodes.FailoverRequest{Request: postgres.Request{Actor: "ada", Limit: minute}, Site: plant, To: nodeB}
	require.True(t, callable())
	member := func() fleet.Membership {
		all, err := b.MembershipsOf(t.Context(), []fleet.NodeName{nodeA})
		require.NoError(t, err)
		return all[nodeA]
	}
	before := member()

	require.NoError(t, b.Cordon(t.Context(), nodes.CordonRequest{Node: nodeB}))
	told := member()
	require.NotEqual(t, before.Mark, told.Mark, "its peer is told")
	require.Equal(t, []bool{false, true}, []bool{told.Members[0].Cordoned, told.Members[1].Cordoned})
	require.False(t, callable())
	last, err := b.LastOffer(t.Context(), fleet.ModuleRef{Namespace: "acme", Name: "detect"})
	require.NoError(t, err)
	require.True(t, last.Cordoned)
	_, err = b.AskFailover(t.Context(), failover)
	stores.Refused(t, fleet.IllegalState, err)
	failover.Force = true
	_, err = b.AskFailover(t.Context(), failover)
	require.NoError(t, err, "it is forced")

	require.NoError(t, b.Uncordon(t.Context(), nodes.CordonRequest{Node: nodeB}))
	require.True(t, callable())
	failover.Force = false
	_, err = b.AskFailover(t.Context(), failover)
	require.NoError(t, err)
}
