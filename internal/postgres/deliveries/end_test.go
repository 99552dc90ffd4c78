package deliveries_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// X4, N14, N102
func TestEnd(t *testing.T) {
	t.Parallel()

	t.Run("well owes nothing and closes all", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.Put(`{"a":1}`).Operation
		d := b.MustClaim(run1, "1")
		b.MustRecord(d, nodeA)
		b.MustRecord(d, nodeB)
		seen := b.MustEnd(d, fleet.DeliverySucceeded)
		require.Nil(t, seen.Open)
		require.Zero(t, seen.Asked)
		require.Empty(t, b.Owed())
		require.Zero(t, stores.Scan[int](b, "SELECT count(*) FROM pending"))
		require.Equal(t, fleet.DeliverySucceeded, b.Delivery(d.ID).State)
		require.Empty(t, b.Delivery(d.ID).SettledAs)
		require.Equal(t, fleet.OperationSucceeded, b.Operation(op.ID).State)
		require.Equal(t, d.ID, b.Operation(op.ID).Delivery)
	})

	t.Run("without the standby fails what asked for sync, and stays owed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.Put(`{"a":1}`).Operation
		d := b.MustClaim(run1, "1")
		b.MustRecord(d, nodeA)
		require.Equal(t, fleet.OperationRunning, b.Operation(op.ID).State, "one copy is not enough")
		b.Notify(d.ID, nodeB, "b")
		b.MustMiss(d.ID, nodeB, fleet.TargetFailed, fleet.Communication)
		seen := b.MustEnd(d, fleet.DeliveryFailed, stores.Because("not_replicated"))
		require.Empty(t, seen.Owed, "it is not tried again before the node is back")
		require.Equal(t, []string{"plant-b 1 parked communication"}, b.Owed())
		require.Equal(t, "not_replicated", b.Operation(op.ID).Reason)
		require.Equal(t, d.Revision, b.DeployedRevision(), "the active keeps it")
		require.Equal(t, fleet.SettledApplied, b.Delivery(d.ID).SettledAs)
	})

	t.Run("of what asked for async comes with the active's record", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.Put(`{"a":1}`, stores.As(fleet.DurabilityAsync)).Operation
		d := b.MustClaim(run1, "1")
		seen := b.MustRecord(d, nodeA)
		require.Equal(t, fleet.OperationSucceeded, b.Operation(op.ID).State)
		require.Equal(t, d.ID, b.Operation(op.ID).Delivery)
		require.NotNil(t, seen.Open, "the standby is still served")
		require.Zero(t, seen.Asked)
		b.MustMiss(d.ID, nodeB, fleet.TargetUnknown, fleet.Communication)
		b.MustEnd(d, fleet.DeliverySucceeded, stores.Because("not_replicated"))
		require.Equal(t, []string{"plant-b 1 parked communication"}, b.Owed())
		require.Empty(t, b.Operation(op.ID).Reason, "what has ended stays as it ended")
	})

	t.Run("by communication owes the active what was asked", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.Put(`{"a":1}`).Operation
		d := b.MustClaim(run1, "1")
		b.Notify(d.ID, nodeA, "a")
		b.MustMiss(d.ID, nodeA, fleet.TargetFailed, fleet.Communication)
		b.MustEnd(d, fleet.DeliveryFailed, stores.Because("communication"), stores.Owing)
		require.Equal(t, []string{"plant-a 1 parked communication"}, b.Owed())
		require.Equal(t, fleet.SettledNotApplied, b.Delivery(d.ID).SettledAs)
		require.Equal(t, fleet.OperationFailed, b.Operation(op.ID).State)

		require.Equal(t, []string{"instance.plant.press"}, b.back(nodeA))
		require.Equal(t, []fleet.OwedSeen{{Node: nodeA, Role: fleet.RoleActive, Revision: d.Revision.Version}}, b.MustObserve(run1).Owed)
		b.Deploy("2")
		require.Empty(t, b.Owed())
	})

	t.Run("by a node that could not apply it owes nothing, and takes back what was owed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.MustEnd(d, fleet.DeliveryFailed, stores.Because("communication"), stores.Owing)
		b.Turn(fleet.OperationDeploy)
		again := b.MustClaim(run1, "2")
		b.Notify(again.ID, nodeA, "a")
		seen := b.MustMiss(again.ID, nodeA, fleet.TargetFailed, fleet.ApplyFailed)
		require.Equal(t, fleet.ApplyFailed, seen.Open.Active().Reason)
		b.MustEnd(again, fleet.DeliveryFailed, stores.Because("apply_failed"))
		require.Empty(t, b.Owed())
		require.Equal(t, "it said so", b.Delivery(again.ID).Targets[0].Message)
	})

	t.Run("without an answer is unknown, and owes the active", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.Put(`{"a":1}`).Operation
		d := b.MustClaim(run1, "1")
		b.Notify(d.ID, nodeA, "a")
		b.MustEnd(d, fleet.DeliveryUnknown, stores.Because("no_answer"), stores.Owing)
		require.Equal(t, fleet.OperationUnknown, b.Operation(op.ID).State)
		require.Equal(t, []string{"plant-a 1 parked no_answer"}, b.Owed())
		require.Empty(t, b.Delivery(d.ID).SettledAs)
	})

	t.Run("leaves alone what the standby is owed of an earlier revision", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.MustRecord(b.MustClaim(run1, "1"), nodeA)
		b.Put(`{"a":2}`)
		d := b.MustClaim(run1, "2")
		b.Notify(d.ID, nodeA, "a")
		b.MustMiss(d.ID, nodeA, fleet.TargetFailed, fleet.ApplyFailed)
		seen := b.MustEnd(d, fleet.DeliveryFailed, stores.Because("apply_failed"))
		require.Equal(t, []string{"plant-b 1 due replicating"}, b.Owed(), "nobody has tried that node")
		require.Len(t, seen.Owed, 1)
	})

	t.Run("twice ends once", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.Put(`{"a":1}`).Operation
		d := b.MustClaim(run1, "1")
		b.MustEnd(d, fleet.DeliveryCancelled, stores.Because("cancelled"))
		events := len(b.Feed(postgres.Cursor{}))
		again := b.Turn(fleet.OperationDeploy).Operation
		b.MustEnd(d, fleet.DeliverySucceeded)
		require.Equal(t, fleet.DeliveryCancelled, b.Delivery(d.ID).State)
		require.Equal(t, fleet.OperationCancelled, b.Operation(op.ID).State)
		require.Equal(t, fleet.OperationRunning, b.Operation(again.ID).State, "that asked for more since")
		require.Len(t, b.Feed(postgres.Cursor{}), events)
	})

	t.Run("ends no operation of a newer revision", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		older := b.Put(`{"a":1}`).Operation
		d := b.MustClaim(run1, "1")
		newer := b.Put(`{"a":2}`).Operation
		b.MustEnd(d, fleet.DeliveryFailed, stores.Because("apply_failed"))
		require.Equal(t, fleet.OperationFailed, b.Operation(older.ID).State)
		require.Equal(t, fleet.OperationRunning, b.Operation(newer.ID).State)
	})

	t.Run("of nobody's delivery ends just the operations", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.Put(`{"a":1}`).Operation
		b.MustObserve(run1)
		seen, err := b.End(t.Context(), fleet.End{Subject: stores.SubjectOf(run1), Operation: fleet.OperationFailed, Reason: "no_active_node"})
		require.NoError(t, err)
		require.Zero(t, seen.Asked)
		require.Equal(t, "no_active_node", b.Operation(op.ID).Reason)
	})

	t.Run("owes what was never deployed to whoever holds the lease", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Put(`{"a":2}`)
		d := b.MustClaim(run1, "2")
		b.Notify(d.ID, nodeA, "a")
		b.MustMiss(d.ID, nodeA, fleet.TargetFailed, fleet.Communication)
		b.MustEnd(d, fleet.DeliveryFailed, stores.Because("communication"), stores.Owing)
		b.Exec("DELETE FROM outbox")

		b.MoveLease(nodeB)
		waiting, err := b.WaitingWakes(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Equal(t, []string{"instance.plant.press"}, waiting)
		require.Equal(t, []string{"plant-b 2 due communication"}, b.Owed())
		require.Equal(t, []fleet.OwedSeen{{Node: nodeB, Role: fleet.RoleActive, Revision: d.Revision.Version}}, b.MustObserve(run1).Owed)
		again := b.MustClaim(run1, "3")
		require.Equal(t, nodeB, again.Node)
		b.MustRecord(again, nodeB)
		require.Equal(t, []string{"plant-a 2 due replicating"}, b.Owed())
	})

	t.Run("shows nobody what only another could deploy", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Put(`{"a":2}`)
		b.MustEnd(b.MustClaim(run1, "2"), fleet.DeliveryFailed, stores.Because("communication"), stores.Owing)
		b.Exec("UPDATE site_leases SET holder = $1, epoch = 9, promised = 9", nodeB) // by votes, while that was written
		b.back(nodeA)
		require.Empty(t, b.MustObserve(run1).Owed, "a ticket for revision 1 would never confirm revision 2")
		require.Empty(t, b.openSubjects(0))
	})

	t.Run("parks a ticket that did not get through, until the node is back", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.MustRecord(d, nodeA)
		b.MustEnd(d, fleet.DeliveryFailed, stores.Because("not_replicated"))
		require.Equal(t, []string{"plant-b 1 due replicating"}, b.Owed(), "it was never tried")
		require.Empty(t, b.MustMiss("", nodeB, fleet.TargetFailed, fleet.Unavailable).Owed)
		require.Equal(t, []string{"plant-b 1 parked unavailable"}, b.Owed())
		b.back(nodeB)
		require.Len(t, b.MustObserve(run1).Owed, 1)
		served, err := b.Record(t.Context(), stores.RecordOf("", nodeB, d.Revision))
		require.NoError(t, err)
		require.Empty(t, served.Owed)
		require.Empty(t, b.Owed())
	})
}

// X4
func TestDelete(t *testing.T) {
	t.Parallel()

	t.Run("confirms on the active and is owed to the standby", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		op := b.Turn(fleet.OperationDelete).Operation
		d := b.MustClaim(run1, "2")
		b.MustRecord(d, nodeA)
		b.Notify(d.ID, nodeB, "b")
		b.MustMiss(d.ID, nodeB, fleet.TargetFailed, fleet.Communication)
		b.MustEnd(d, fleet.DeliveryFailed, stores.Because("not_replicated"))
		_, err := b.GetObject(t.Context(), pressKey)
		stores.Refused(t, fleet.NotFound, err)
		require.True(t, stores.Scan[bool](b, "SELECT deleted FROM subjects"))
		require.Equal(t, []string{"plant-b 2 parked communication"}, b.Owed())
		require.Equal(t, "delete", stores.Scan[string](b, "SELECT action FROM owed"))
		require.Equal(t, "not_replicated", b.Operation(op.ID).Reason)

		b.back(nodeB)
		seen := b.MustObserve(run1)
		require.Len(t, seen.Owed, 1)
		require.Equal(t, fleet.ActionDelete, seen.Snapshot.Action)
		_, err = b.Record(t.Context(), stores.RecordOf("", nodeB, d.Revision))
		require.NoError(t, err)
		require.Empty(t, b.Owed())
	})

	t.Run("that the active did not confirm leaves the object with its mark", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Turn(fleet.OperationDelete)
		d := b.MustClaim(run1, "2")
		b.MustEnd(d, fleet.DeliveryFailed, stores.Because("communication"), stores.Owing)
		o, err := b.GetObject(t.Context(), pressKey)
		require.NoError(t, err)
		require.NotNil(t, o.DeletingSince)
		require.False(t, stores.Scan[bool](b, "SELECT deleted FROM subjects"))
		again := b.Turn(fleet.OperationDelete)
		require.False(t, again.Changed)
		require.EqualValues(t, 2, again.Operation.Revision, "the same delete, tried again")
		b.Deploy("3")
		_, err = b.GetObject(t.Context(), pressKey)
		stores.Refused(t, fleet.NotFound, err)
	})
}

// X4
func TestDeleteLate(t *testing.T) {
	t.Parallel()

	t.Run("confirmed after it was given up takes the object away", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Turn(fleet.OperationDelete)
		d := b.MustClaim(run1, "2")
		b.Notify(d.ID, nodeA, "a")
		b.MustMiss(d.ID, nodeA, fleet.TargetFailed, fleet.Communication)
		b.MustEnd(d, fleet.DeliveryFailed, stores.Because("communication"), stores.Owing)
		b.MustRecord(d, nodeA)
		_, err := b.GetObject(t.Context(), pressKey)
		stores.Refused(t, fleet.NotFound, err)
		require.True(t, stores.Scan[bool](b, "SELECT deleted FROM subjects"))
		require.Equal(t, []string{"plant-b 2 due replicating"}, b.Owed())
	})

	t.Run("confirmed while another delete is wanted waits for that one", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Turn(fleet.OperationDelete)
		d := b.MustClaim(run1, "2")
		b.Put(`{"a":2}`)
		b.Turn(fleet.OperationDelete)
		b.MustRecord(d, nodeA)
		b.MustEnd(d, fleet.DeliverySucceeded)
		o, err := b.GetObject(t.Context(), pressKey)
		require.NoError(t, err)
		require.NotNil(t, o.DeletingSince)
		b.Deploy("3")
		_, err = b.GetObject(t.Context(), pressKey)
		stores.Refused(t, fleet.NotFound, err)
		require.True(t, stores.Scan[bool](b, "SELECT deleted FROM subjects"))
	})
}

// X7
func TestCancel(t *testing.T) {
	t.Parallel()

	t.Run("is seen by the entity and wakes it", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.Put(`{"a":1}`).Operation
		d := b.MustClaim(run1, "1")
		_, err := b.CancelOperation(t.Context(), op.ID)
		require.NoError(t, err)
		waiting, err := b.WaitingWakes(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Len(t, waiting, 1)
		seen := b.MustObserve(run1)
		require.Equal(t, 0, seen.Asked)
		require.Equal(t, 1, seen.Cancelled)
		b.MustEnd(d, fleet.DeliveryCancelled, func(e *fleet.End) { e.OnlyCancelled = true })
		require.Equal(t, fleet.OperationCancelled, b.Operation(op.ID).State)
		_, err = b.CancelOperation(t.Context(), op.ID)
		stores.Refused(t, fleet.IllegalState, err)
		_, err = b.CancelOperation(t.Context(), "0123456789abcdef0123456789abcdef")
		stores.Refused(t, fleet.NotFound, err)
	})

	t.Run("of one leaves the others that ask for the same", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		one := b.Put(`{"a":1}`).Operation
		two := b.Turn(fleet.OperationDeploy).Operation
		b.MustObserve(run1)
		_, err := b.CancelOperation(t.Context(), one.ID)
		require.NoError(t, err)
		seen, err := b.End(t.Context(), fleet.End{Subject: stores.SubjectOf(run1), Operation: fleet.OperationCancelled, OnlyCancelled: true})
		require.NoError(t, err)
		require.Equal(t, 1, seen.Asked)
		require.Equal(t, fleet.OperationCancelled, b.Operation(one.ID).State)
		require.Equal(t, fleet.OperationRunning, b.Operation(two.ID).State)
	})
}

func TestEnds(t *testing.T) {
	t.Parallel()

	t.Run("tells whoever waits in this process that an operation ended", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.Put(`{"a":1}`).Operation
		ends := postgres.NewEnds(b.Store.Store)
		over := ends.Of(op.ID)
		require.Equal(t, over, ends.Of(op.ID), "all wait on one")
		other := ends.Of("0123456789abcdef0123456789abcdef")
		listening := make(chan error, 1)
		ctx, stop := stores.ContextWithDeadline(t)
		go func() { listening <- ends.Listen(ctx) }()
		stores.Eventually(t, "it listens", func() bool {
			var n int
			err := b.Raw.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND query = 'LISTEN holdfast_operation' AND state = 'idle'`).Scan(&n)
			return err == nil && n == 1
		})
		b.Deploy("1")
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
	op := b.Put(`{"a":1}`, stores.As(fleet.DurabilityAsync)).Operation
	d := b.MustClaim(run1, "1")
	b.Notify(d.ID, nodeA, "a")
	b.MustEnd(d, fleet.DeliveryUnknown, stores.Because("no_answer"), stores.Owing)
	seen := b.MustRecord(d, nodeA) // the answer comes after all
	require.Equal(t, d.Revision, seen.Snapshot)
	require.Empty(t, seen.Unsettled)
	require.Equal(t, fleet.SettledApplied, b.Delivery(d.ID).SettledAs)
	require.Equal(t, fleet.OperationUnknown, b.Operation(op.ID).State, "unknown is terminal for the operation")
	require.Equal(t, []string{"plant-b 1 due replicating"}, b.Owed())
}

// back has a node start again, and what it is owed served.
func (b *bench) back(node fleet.NodeName) []string {
	b.T.Helper()
	require.NoError(b.T, b.NodeReady(b.Ctx(), node, "start-2"))
	wake, err := b.ServeOwed(b.Ctx(), node, time.Now().Add(time.Hour), 10)
	require.NoError(b.T, err)
	return wake
}
