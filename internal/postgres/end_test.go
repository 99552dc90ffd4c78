package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

func (b *bench) miss(d fleet.DeliveryID, node fleet.NodeName, state fleet.TargetState, reason fleet.Kind) fleet.InstanceSeen {
	b.t.Helper()
	seen, err := b.Miss(b.ctx(), fleet.Miss{
		Subject: subject(run1), Delivery: d, Node: node, State: state, Reason: reason, Message: "it said so",
	})
	require.NoError(b.t, err)
	return seen
}

// X4, N14, N102
func TestEnd(t *testing.T) {
	t.Parallel()

	t.Run("well owes nothing and closes all", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.put(`{"a":1}`).Operation
		d := b.claim(run1, "1")
		b.record(d, nodeA)
		b.record(d, nodeB)
		seen := b.end(d, fleet.DeliverySucceeded)
		require.Nil(t, seen.Open)
		require.Zero(t, seen.Asked)
		require.Empty(t, b.owed())
		require.Zero(t, scan[int](b, "SELECT count(*) FROM pending"))
		require.Equal(t, fleet.DeliverySucceeded, b.delivery(d.ID).State)
		require.Empty(t, b.delivery(d.ID).SettledAs)
		require.Equal(t, fleet.OperationSucceeded, b.operation(op.ID).State)
		require.Equal(t, d.ID, b.operation(op.ID).Delivery)
	})

	t.Run("without the standby fails what asked for sync, and stays owed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.put(`{"a":1}`).Operation
		d := b.claim(run1, "1")
		b.record(d, nodeA)
		require.Equal(t, fleet.OperationRunning, b.operation(op.ID).State, "one copy is not enough")
		b.notify(d.ID, nodeB, "b")
		b.miss(d.ID, nodeB, fleet.TargetFailed, fleet.Communication)
		seen := b.end(d, fleet.DeliveryFailed, because("not_replicated"))
		require.Empty(t, seen.Owed, "it is not tried again before the node is back")
		require.Equal(t, []string{"plant-b 1 parked communication"}, b.owed())
		require.Equal(t, "not_replicated", b.operation(op.ID).Reason)
		require.Equal(t, d.Revision, b.deployed(), "the active keeps it")
		require.Equal(t, fleet.SettledApplied, b.delivery(d.ID).SettledAs)
	})

	t.Run("of what asked for async comes with the active's record", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.put(`{"a":1}`, as(fleet.DurabilityAsync)).Operation
		d := b.claim(run1, "1")
		seen := b.record(d, nodeA)
		require.Equal(t, fleet.OperationSucceeded, b.operation(op.ID).State)
		require.Equal(t, d.ID, b.operation(op.ID).Delivery)
		require.NotNil(t, seen.Open, "the standby is still served")
		require.Zero(t, seen.Asked)
		b.miss(d.ID, nodeB, fleet.TargetUnknown, fleet.Communication)
		b.end(d, fleet.DeliverySucceeded, because("not_replicated"))
		require.Equal(t, []string{"plant-b 1 parked communication"}, b.owed())
		require.Empty(t, b.operation(op.ID).Reason, "what has ended stays as it ended")
	})

	t.Run("by communication owes the active what was asked", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.put(`{"a":1}`).Operation
		d := b.claim(run1, "1")
		b.notify(d.ID, nodeA, "a")
		b.miss(d.ID, nodeA, fleet.TargetFailed, fleet.Communication)
		b.end(d, fleet.DeliveryFailed, because("communication"), owing)
		require.Equal(t, []string{"plant-a 1 parked communication"}, b.owed())
		require.Equal(t, fleet.SettledNotApplied, b.delivery(d.ID).SettledAs)
		require.Equal(t, fleet.OperationFailed, b.operation(op.ID).State)

		require.Equal(t, []string{"instance.plant.press"}, b.back(nodeA))
		require.Equal(t, []fleet.OwedSeen{{Node: nodeA, Role: fleet.RoleActive, Revision: d.Revision.Version}}, b.observe(run1).Owed)
		b.deploy("2")
		require.Empty(t, b.owed())
	})

	t.Run("by a node that could not apply it owes nothing, and takes back what was owed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		d := b.claim(run1, "1")
		b.end(d, fleet.DeliveryFailed, because("communication"), owing)
		b.turn(fleet.OperationDeploy)
		again := b.claim(run1, "2")
		b.notify(again.ID, nodeA, "a")
		seen := b.miss(again.ID, nodeA, fleet.TargetFailed, fleet.ApplyFailed)
		require.Equal(t, fleet.ApplyFailed, seen.Open.Active().Reason)
		b.end(again, fleet.DeliveryFailed, because("apply_failed"))
		require.Empty(t, b.owed())
		require.Equal(t, "it said so", b.delivery(again.ID).Targets[0].Message)
	})

	t.Run("without an answer is unknown, and owes the active", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.put(`{"a":1}`).Operation
		d := b.claim(run1, "1")
		b.notify(d.ID, nodeA, "a")
		b.end(d, fleet.DeliveryUnknown, because("no_answer"), owing)
		require.Equal(t, fleet.OperationUnknown, b.operation(op.ID).State)
		require.Equal(t, []string{"plant-a 1 parked no_answer"}, b.owed())
		require.Empty(t, b.delivery(d.ID).SettledAs)
	})

	t.Run("leaves alone what the standby is owed of an earlier revision", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		b.record(b.claim(run1, "1"), nodeA)
		b.put(`{"a":2}`)
		d := b.claim(run1, "2")
		b.notify(d.ID, nodeA, "a")
		b.miss(d.ID, nodeA, fleet.TargetFailed, fleet.ApplyFailed)
		seen := b.end(d, fleet.DeliveryFailed, because("apply_failed"))
		require.Equal(t, []string{"plant-b 1 due replicating"}, b.owed(), "nobody has tried that node")
		require.Len(t, seen.Owed, 1)
	})

	t.Run("twice ends once", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.put(`{"a":1}`).Operation
		d := b.claim(run1, "1")
		b.end(d, fleet.DeliveryCancelled, because("cancelled"))
		events := len(b.feed(postgres.Cursor{}))
		again := b.turn(fleet.OperationDeploy).Operation
		b.end(d, fleet.DeliverySucceeded)
		require.Equal(t, fleet.DeliveryCancelled, b.delivery(d.ID).State)
		require.Equal(t, fleet.OperationCancelled, b.operation(op.ID).State)
		require.Equal(t, fleet.OperationRunning, b.operation(again.ID).State, "that asked for more since")
		require.Len(t, b.feed(postgres.Cursor{}), events)
	})

	t.Run("ends no operation of a newer revision", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		older := b.put(`{"a":1}`).Operation
		d := b.claim(run1, "1")
		newer := b.put(`{"a":2}`).Operation
		b.end(d, fleet.DeliveryFailed, because("apply_failed"))
		require.Equal(t, fleet.OperationFailed, b.operation(older.ID).State)
		require.Equal(t, fleet.OperationRunning, b.operation(newer.ID).State)
	})

	t.Run("of nobody's delivery ends just the operations", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.put(`{"a":1}`).Operation
		b.observe(run1)
		seen, err := b.End(t.Context(), fleet.End{Subject: subject(run1), Operation: fleet.OperationFailed, Reason: "no_active_node"})
		require.NoError(t, err)
		require.Zero(t, seen.Asked)
		require.Equal(t, "no_active_node", b.operation(op.ID).Reason)
	})

	t.Run("owes what was never deployed to whoever holds the lease", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		b.deploy("1")
		b.put(`{"a":2}`)
		d := b.claim(run1, "2")
		b.notify(d.ID, nodeA, "a")
		b.miss(d.ID, nodeA, fleet.TargetFailed, fleet.Communication)
		b.end(d, fleet.DeliveryFailed, because("communication"), owing)
		b.exec("DELETE FROM outbox")

		b.move(nodeB)
		waiting, err := b.WaitingWakes(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Equal(t, []string{"instance.plant.press"}, waiting)
		require.Equal(t, []string{"plant-b 2 due communication"}, b.owed())
		require.Equal(t, []fleet.OwedSeen{{Node: nodeB, Role: fleet.RoleActive, Revision: d.Revision.Version}}, b.observe(run1).Owed)
		again := b.claim(run1, "3")
		require.Equal(t, nodeB, again.Node)
		b.record(again, nodeB)
		require.Equal(t, []string{"plant-a 2 due replicating"}, b.owed())
	})

	t.Run("shows nobody what only another could deploy", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		b.deploy("1")
		b.put(`{"a":2}`)
		b.end(b.claim(run1, "2"), fleet.DeliveryFailed, because("communication"), owing)
		b.exec("UPDATE site_leases SET holder = $1, epoch = 9, promised = 9", nodeB) // by votes, while that was written
		b.back(nodeA)
		require.Empty(t, b.observe(run1).Owed, "a ticket for revision 1 would never confirm revision 2")
		require.Empty(t, b.openSubjects(0))
	})

	t.Run("parks a ticket that did not get through, until the node is back", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		d := b.claim(run1, "1")
		b.record(d, nodeA)
		b.end(d, fleet.DeliveryFailed, because("not_replicated"))
		require.Equal(t, []string{"plant-b 1 due replicating"}, b.owed(), "it was never tried")
		require.Empty(t, b.miss("", nodeB, fleet.TargetFailed, fleet.Unavailable).Owed)
		require.Equal(t, []string{"plant-b 1 parked unavailable"}, b.owed())
		b.back(nodeB)
		require.Len(t, b.observe(run1).Owed, 1)
		served, err := b.Record(t.Context(), recordOf("", nodeB, d.Revision))
		require.NoError(t, err)
		require.Empty(t, served.Owed)
		require.Empty(t, b.owed())
	})
}

// X4
func TestDelete(t *testing.T) {
	t.Parallel()

	t.Run("confirms on the active and is owed to the standby", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		b.deploy("1")
		op := b.turn(fleet.OperationDelete).Operation
		d := b.claim(run1, "2")
		b.record(d, nodeA)
		b.notify(d.ID, nodeB, "b")
		b.miss(d.ID, nodeB, fleet.TargetFailed, fleet.Communication)
		b.end(d, fleet.DeliveryFailed, because("not_replicated"))
		_, err := b.GetObject(t.Context(), pressKey)
		refused(t, fleet.NotFound, err)
		require.True(t, scan[bool](b, "SELECT deleted FROM subjects"))
		require.Equal(t, []string{"plant-b 2 parked communication"}, b.owed())
		require.Equal(t, "delete", scan[string](b, "SELECT action FROM owed"))
		require.Equal(t, "not_replicated", b.operation(op.ID).Reason)

		b.back(nodeB)
		seen := b.observe(run1)
		require.Len(t, seen.Owed, 1)
		require.Equal(t, fleet.ActionDelete, seen.Snapshot.Action)
		_, err = b.Record(t.Context(), recordOf("", nodeB, d.Revision))
		require.NoError(t, err)
		require.Empty(t, b.owed())
	})

	t.Run("that the active did not confirm leaves the object with its mark", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		b.deploy("1")
		b.turn(fleet.OperationDelete)
		d := b.claim(run1, "2")
		b.end(d, fleet.DeliveryFailed, because("communication"), owing)
		o, err := b.GetObject(t.Context(), pressKey)
		require.NoError(t, err)
		require.NotNil(t, o.DeletingSince)
		require.False(t, scan[bool](b, "SELECT deleted FROM subjects"))
		again := b.turn(fleet.OperationDelete)
		require.False(t, again.Changed)
		require.EqualValues(t, 2, again.Operation.Revision, "the same delete, tried again")
		b.deploy("3")
		_, err = b.GetObject(t.Context(), pressKey)
		refused(t, fleet.NotFound, err)
	})
}

// X4
func TestDeleteLate(t *testing.T) {
	t.Parallel()

	t.Run("confirmed after it was given up takes the object away", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		b.deploy("1")
		b.turn(fleet.OperationDelete)
		d := b.claim(run1, "2")
		b.notify(d.ID, nodeA, "a")
		b.miss(d.ID, nodeA, fleet.TargetFailed, fleet.Communication)
		b.end(d, fleet.DeliveryFailed, because("communication"), owing)
		b.record(d, nodeA)
		_, err := b.GetObject(t.Context(), pressKey)
		refused(t, fleet.NotFound, err)
		require.True(t, scan[bool](b, "SELECT deleted FROM subjects"))
		require.Equal(t, []string{"plant-b 2 due replicating"}, b.owed())
	})

	t.Run("confirmed while another delete is wanted waits for that one", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		b.deploy("1")
		b.turn(fleet.OperationDelete)
		d := b.claim(run1, "2")
		b.put(`{"a":2}`)
		b.turn(fleet.OperationDelete)
		b.record(d, nodeA)
		b.end(d, fleet.DeliverySucceeded)
		o, err := b.GetObject(t.Context(), pressKey)
		require.NoError(t, err)
		require.NotNil(t, o.DeletingSince)
		b.deploy("3")
		_, err = b.GetObject(t.Context(), pressKey)
		refused(t, fleet.NotFound, err)
		require.True(t, scan[bool](b, "SELECT deleted FROM subjects"))
	})
}

// X7
func TestCancel(t *testing.T) {
	t.Parallel()

	t.Run("is seen by the entity and wakes it", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.put(`{"a":1}`).Operation
		d := b.claim(run1, "1")
		_, err := b.CancelOperation(t.Context(), op.ID)
		require.NoError(t, err)
		waiting, err := b.WaitingWakes(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Len(t, waiting, 1)
		seen := b.observe(run1)
		require.Equal(t, 0, seen.Asked)
		require.Equal(t, 1, seen.Cancelled)
		b.end(d, fleet.DeliveryCancelled, func(e *fleet.End) { e.OnlyCancelled = true })
		require.Equal(t, fleet.OperationCancelled, b.operation(op.ID).State)
		_, err = b.CancelOperation(t.Context(), op.ID)
		refused(t, fleet.IllegalState, err)
		_, err = b.CancelOperation(t.Context(), "0123456789abcdef0123456789abcdef")
		refused(t, fleet.NotFound, err)
	})

	t.Run("of one leaves the others that ask for the same", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		one := b.put(`{"a":1}`).Operation
		two := b.turn(fleet.OperationDeploy).Operation
		b.observe(run1)
		_, err := b.CancelOperation(t.Context(), one.ID)
		require.NoError(t, err)
		seen, err := b.End(t.Context(), fleet.End{Subject: subject(run1), Operation: fleet.OperationCancelled, OnlyCancelled: true})
		require.NoError(t, err)
		require.Equal(t, 1, seen.Asked)
		require.Equal(t, fleet.OperationCancelled, b.operation(one.ID).State)
		require.Equal(t, fleet.OperationRunning, b.operation(two.ID).State)
	})
}

func TestEnds(t *testing.T) {
	t.Parallel()

	t.Run("tells whoever waits in this process that an operation ended", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.put(`{"a":1}`).Operation
		ends := postgres.NewEnds(b.Store)
		over := ends.Of(op.ID)
		require.Equal(t, over, ends.Of(op.ID), "all wait on one")
		other := ends.Of("0123456789abcdef0123456789abcdef")
		listening := make(chan error, 1)
		ctx, stop := contextWithDeadline(t)
		go func() { listening <- ends.Listen(ctx) }()
		eventually(t, "it listens", func() bool {
			var n int
			err := b.raw.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND query = 'LISTEN holdfast_operation' AND state = 'idle'`).Scan(&n)
			return err == nil && n == 1
		})
		b.deploy("1")
		select {
		case <-over:
		case <-ctx.Done():
			require.Fail(t, "nobody was told")
		}
		select {
		case <-other:
			require.Fail(t, "that one has not ended")
		default:
		}
		stop()
		require.Error(t, <-listening)
	})
}

// N102
func TestAsyncAfterUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	op := b.put(`{"a":1}`, as(fleet.DurabilityAsync)).Operation
	d := b.claim(run1, "1")
	b.notify(d.ID, nodeA, "a")
	b.end(d, fleet.DeliveryUnknown, because("no_answer"), owing)
	seen := b.record(d, nodeA) // the answer comes after all
	require.Equal(t, d.Revision, seen.Snapshot)
	require.Empty(t, seen.Unsettled)
	require.Equal(t, fleet.SettledApplied, b.delivery(d.ID).SettledAs)
	require.Equal(t, fleet.OperationUnknown, b.operation(op.ID).State, "unknown is terminal for the operation")
	require.Equal(t, []string{"plant-b 1 due replicating"}, b.owed())
}

// back has a node start again, and what it is owed served.
func (b *bench) back(node fleet.NodeName) []string {
	b.t.Helper()
	require.NoError(b.t, b.NodeReady(b.ctx(), node, "start-2"))
	wake, err := b.ServeOwed(b.ctx(), node, time.Now().Add(time.Hour), 10)
	require.NoError(b.t, err)
	return wake
}
