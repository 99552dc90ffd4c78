package deliveries_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func (b *bench) openSubjects(older time.Duration) []deliveries.OpenSubject {
	b.T.Helper()
	list, err := b.OpenSubjects(b.Ctx(), deliveries.OpenSubject{}, older, 100)
	require.NoError(b.T, err)
	return list
}

func lostRun(run string) deliveries.OpenSubject {
	return deliveries.OpenSubject{Site: plant, Instance: press, Run: run}
}

// X25
func TestCloseLost(t *testing.T) {
	t.Parallel()

	t.Run("fails the operations with the reason, and wakes the object to ask its node", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.Put(`{"a":1}`).Operation
		d := b.MustClaim(run1, "1")
		b.Notify(d.ID, nodeA, "a")
		require.NoError(t, b.CloseLost(t.Context(), lostRun(run1), fleet.OperationFailed, "workflow_terminated"))

		ended := b.Operation(op.ID)
		require.Equal(t, fleet.OperationFailed, ended.State)
		require.Equal(t, "workflow_terminated", ended.Reason)
		require.Contains(t, ended.Message, run1)
		require.Equal(t, d.ID, ended.Delivery)
		require.Equal(t, fleet.DeliveryUnknown, b.Delivery(d.ID).State)
		require.Equal(t, "workflow_terminated", b.Delivery(d.ID).Reason)
		b.dead(d.ID)
		require.Equal(t, []string{"plant-a 1 due workflow_terminated"}, b.Owed())
		waiting, err := b.WaitingWakes(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Equal(t, []string{"instance.plant.press"}, waiting)
		seen := b.MustObserve(run2)
		require.Len(t, seen.Unsettled, 1)
		require.Len(t, seen.Owed, 1)
	})

	t.Run("owes the revision to the node that is active now", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Notify(b.MustClaim(run1, "1").ID, nodeA, "a")
		b.MoveLease(nodeB)
		require.NoError(t, b.CloseLost(t.Context(), lostRun(run1), fleet.OperationFailed, "workflow_terminated"))
		require.Equal(t, []string{"plant-b 1 due workflow_terminated"}, b.Owed())
		require.Len(t, b.MustObserve(run2).Owed, 1)
	})

	t.Run("moves operations that the system lost, and ends none", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.Put(`{"a":1}`).Operation
		d := b.MustClaim(run1, "1")
		require.NoError(t, b.CloseLost(t.Context(), lostRun(run1), fleet.OperationRunning, "workflow_timed_out"))
		require.Equal(t, fleet.OperationRunning, b.Operation(op.ID).State)
		require.Equal(t, fleet.DeliveryUnknown, b.Delivery(d.ID).State)
		seen := b.MustObserve(run2)
		require.Equal(t, 1, seen.Asked)
		require.Nil(t, seen.Open)
		b.Deploy("2")
		require.Equal(t, fleet.OperationSucceeded, b.Operation(op.ID).State)
	})

	t.Run("fails what the run served, and nothing that was asked for since", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		old := b.Put(`{"a":1}`).Operation
		b.MustClaim(run1, "1")
		later := b.Put(`{"a":2}`).Operation
		require.NoError(t, b.CloseLost(t.Context(), lostRun(run1), fleet.OperationFailed, "workflow_terminated"))
		require.Equal(t, fleet.OperationFailed, b.Operation(old.ID).State)
		require.Equal(t, fleet.OperationRunning, b.Operation(later.ID).State)
		require.Equal(t, 1, b.MustObserve(run2).Asked)
	})

	t.Run("leaves alone what another run serves since", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.Put(`{"a":1}`).Operation
		b.MustObserve(run1)
		d := b.MustClaim(run2, "1")
		require.NoError(t, b.CloseLost(t.Context(), lostRun(run1), fleet.OperationFailed, "workflow_terminated"))
		require.Equal(t, fleet.OperationRunning, b.Operation(op.ID).State)
		require.Equal(t, d.ID, b.MustObserve(run2).Open.ID)
		require.Empty(t, b.Owed())
	})

	t.Run("keeps what the active had recorded, and goes on with the standby", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.MustRecord(d, nodeA)
		require.NoError(t, b.CloseLost(t.Context(), lostRun(run1), fleet.OperationFailed, "workflow_terminated"))
		require.Equal(t, fleet.SettledApplied, b.Delivery(d.ID).SettledAs)
		require.Equal(t, d.Revision, b.DeployedRevision())
		require.Equal(t, []string{"plant-b 1 due replicating"}, b.Owed())
	})

	t.Run("takes away the object of a delete that the active had confirmed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Turn(fleet.OperationDelete)
		b.MustRecord(b.MustClaim(run1, "2"), nodeA)
		require.NoError(t, b.CloseLost(t.Context(), lostRun(run1), fleet.OperationFailed, "workflow_terminated"))
		_, err := b.GetObject(t.Context(), pressKey)
		stores.Refused(t, fleet.NotFound, err)
		require.True(t, stores.Scan[bool](b, "SELECT deleted FROM subjects"))
		require.Equal(t, []string{"plant-b 2 due replicating"}, b.Owed())
	})
}

// X6
func TestEndOverdue(t *testing.T) {
	t.Parallel()

	t.Run("fails what passed its deadline, so many at a time, and nothing else", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for i := range 5 {
			b.Put(`{"a":1}`, stores.Named(fmt.Sprintf("n%d", i)))
		}
		late := b.Put(`{"a":1}`).Operation
		b.Exec("UPDATE operations SET deadline_at = now() - interval '1 s' WHERE name <> 'n0'")
		for _, want := range []int{2, 2, 1, 0} {
			n, _, err := b.EndOverdue(t.Context(), 2)
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		require.Equal(t, fleet.OperationFailed, b.Operation(late.ID).State)
		require.Equal(t, "deadline", b.Operation(late.ID).Reason)
		running, err := b.ListOperations(t.Context(), postgres.OperationFilter{State: fleet.OperationRunning}, postgres.Place{}, 10)
		require.NoError(t, err)
		require.Len(t, running, 1)
		require.EqualValues(t, "n0", running[0].Instance)
	})

	t.Run("never ends twice what ended in time", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.Put(`{"a":1}`).Operation
		b.Deploy("1")
		b.Exec("UPDATE operations SET deadline_at = now() - interval '1 s'")
		n, _, err := b.EndOverdue(t.Context(), 10)
		require.NoError(t, err)
		require.Zero(t, n)
		require.Equal(t, fleet.OperationSucceeded, b.Operation(op.ID).State)
	})
}

// X11, X25
func TestOpenSubjects(t *testing.T) {
	t.Parallel()

	t.Run("lists each subject with something under way once, and no other", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		require.Equal(t, []deliveries.OpenSubject{lostRun("")}, b.openSubjects(0), "no run has it yet")
		d := b.MustClaim(run1, "1")
		require.Equal(t, []deliveries.OpenSubject{lostRun(run1)}, b.openSubjects(0))
		b.MustRecord(d, nodeA)
		b.MustEnd(d, fleet.DeliveryFailed, stores.Because("not_replicated"))
		require.Equal(t, []deliveries.OpenSubject{lostRun(run1)}, b.openSubjects(0), "the standby's copy is due")
		b.MustMiss("", nodeB, fleet.TargetFailed, fleet.Unavailable)
		require.Empty(t, b.openSubjects(0), "what waits for a node's return costs nothing")
	})

	t.Run("leaves out what is younger than asked, but no open delivery", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		require.Empty(t, b.openSubjects(minute))
		b.MustClaim(run1, "1")
		require.Len(t, b.openSubjects(minute), 1)
	})

	t.Run("lists what nobody will ask for again, once its active is heard", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.Put(`{"a":1}`).Operation
		d := b.MustClaim(run1, "1")
		b.Notify(d.ID, nodeA, "a")
		b.Exec("UPDATE nodes SET seen_at = now() - interval '10 min'")
		_, err := b.CancelOperation(t.Context(), op.ID)
		require.NoError(t, err)
		b.MustEnd(d, fleet.DeliveryCancelled)
		require.Len(t, b.MustObserve(run1).Unsettled, 1)
		require.Empty(t, b.Owed())
		require.Empty(t, b.openSubjects(0), "the node is not there")
		_, err = b.HeldBy(t.Context(), nodes.NodeReport{Node: nodeA})
		require.NoError(t, err)
		require.Equal(t, []deliveries.OpenSubject{lostRun(run1)}, b.openSubjects(0))
		require.Empty(t, b.openSubjects(minute))
		_, err = b.Settle(t.Context(), fleet.Settle{Subject: stores.SubjectOf(run1), Node: nodeA})
		require.NoError(t, err)
		require.Empty(t, b.openSubjects(0))
	})

	t.Run("goes page by page in the order of names", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for i := range 7 {
			b.Put(`{"a":1}`, stores.Named(fmt.Sprintf("n%d", i)))
		}
		var names []fleet.InstanceName
		var after deliveries.OpenSubject
		for {
			page, err := b.OpenSubjects(t.Context(), after, 0, 3)
			require.NoError(t, err)
			for _, o := range page {
				names = append(names, o.Instance)
			}
			if len(page) < 3 {
				break
			}
			after = page[len(page)-1]
		}
		require.Equal(t, []fleet.InstanceName{"n0", "n1", "n2", "n3", "n4", "n5", "n6"}, names)
	})

	t.Run("forgets what a node was owed that is there no more", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.MustRecord(d, nodeA)
		b.PutSite(plant, nodeA, "")
		b.MustEnd(d, fleet.DeliverySucceeded)
		require.Empty(t, b.MustObserve(run1).Owed)
		require.Empty(t, b.openSubjects(0))
	})
}

// X25
func TestServers(t *testing.T) {
	t.Parallel()
	b := bare(t)
	require.NoError(t, b.ServerSeen(t.Context(), "s1", "build-1"))
	require.NoError(t, b.ServerSeen(t.Context(), "s2", "build-2"))
	builds := func() (all []string) {
		servers, err := b.Servers(t.Context())
		require.NoError(t, err)
		for _, s := range servers {
			all = append(all, s.Build)
		}
		return all
	}
	require.ElementsMatch(t, []string{"build-1", "build-2"}, builds())
	before, err := b.Servers(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.ServerSeen(t.Context(), "s2", "build-2"))
	for _, s := range before {
		require.NoError(t, b.ForgetServer(t.Context(), s))
	}
	require.Equal(t, []string{"build-2"}, builds(), "it has spoken since")
	require.NoError(t, b.ServerGone(t.Context(), "s2"))
	require.Empty(t, builds())
}
