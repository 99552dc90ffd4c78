package deliveries_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func ahead(content string) fleet.Revision {
	return fleet.Revision{Version: fleet.Version{Era: 1, Revision: 7}, Content: stores.JSONOf(content)}
}

func (b *bench) gap(node fleet.NodeName) decide.NodeGap {
	b.T.Helper()
	page, _, err := b.ComparePage(b.Ctx(), node, "", 10)
	require.NoError(b.T, err)
	if len(page) == 0 {
		return decide.GapNone // what is level is not compared
	}
	return decide.Reconcile(page[0])
}

// X1, X28, N86
func TestReleaseDeleteAgain(t *testing.T) {
	t.Parallel()

	t.Run("brings a node that is ahead of a tombstone to it, and wakes nobody for nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Turn(fleet.OperationDelete)
		gone := b.Deploy("2").Revision
		require.Zero(t, stores.Scan[int](b, "SELECT count(*) FROM objects WHERE kind = 'instance'"))
		b.RaiseEra()
		b.Report(nodeA, ahead("lost"))
		require.Equal(t, decide.GapAhead, b.gap(nodeA))

		wake, err := b.ReleaseAgain(t.Context(), nodeA, press, gone.Version)
		require.NoError(t, err)
		require.Equal(t, "instance.plant.press", wake)
		wake, err = b.ReleaseAgain(t.Context(), nodeA, press, gone.Version)
		require.NoError(t, err)
		require.Empty(t, wake, "it is on its way")

		d := b.Deploy("3")
		require.Equal(t, fleet.Version{Era: 2, Revision: 3}, d.Revision.Version)
		require.Equal(t, fleet.ActionDelete, d.Revision.Action)
		require.Empty(t, d.Revision.Content.Hash)
		require.Equal(t, decide.GapNone, b.gap(nodeA))
		require.Equal(t, decide.GapNone, b.gap(nodeB))
		require.True(t, stores.Scan[bool](b, "SELECT deleted FROM subjects"), "it is a tombstone again")
		require.Zero(t, stores.Scan[int](b, "SELECT count(*) FROM objects WHERE kind = 'instance'"))
		require.Equal(t, string(project), stores.Scan[string](b, "SELECT DISTINCT project FROM operations"))

		wake, err = b.ReleaseAgain(t.Context(), nodeA, press, gone.Version)
		require.NoError(t, err)
		require.Empty(t, wake)
		require.Zero(t, stores.Scan[int](b, "SELECT count(*) FROM outbox"))
	})

	t.Run("of what is being deleted does not bring it back to life", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		deployed := b.Deploy("1").Revision
		b.Turn(fleet.OperationDelete)
		b.MustEnd(b.MustClaim(run1, "2"), fleet.DeliveryFailed, stores.Because("stale"))
		b.RaiseEra()
		b.Report(nodeA, ahead("lost"))
		_, err := b.ReleaseAgain(t.Context(), nodeA, press, deployed.Version)
		require.NoError(t, err)
		require.Equal(t, fleet.ActionDelete, b.MustObserve(run1).Desired.Action)
	})

	t.Run("leaves alone what somebody waits for", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		deployed := b.Deploy("1").Revision
		b.Put(`{"a":2}`)
		wake, err := b.ReleaseAgain(t.Context(), nodeA, press, deployed.Version)
		require.NoError(t, err)
		require.Empty(t, wake)
		require.EqualValues(t, 2, b.MustObserve(run1).Desired.Version.Revision)
	})
}

// N81, N87, X28
func TestSettleAgain(t *testing.T) {
	t.Parallel()

	t.Run("of a delete that was applied after all removes the instance", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Turn(fleet.OperationDelete)
		d := b.MustClaim(run1, "2")
		b.Notify(d.ID, nodeA, "secret")
		_, err := b.Miss(t.Context(), fleet.Miss{
			Subject: stores.SubjectOf(run1), Delivery: d.ID, Node: nodeA, State: fleet.TargetFailed, Reason: fleet.Internal,
		})
		require.NoError(t, err)
		b.MustEnd(d, fleet.DeliveryFailed, stores.Because("internal"))
		require.Equal(t, fleet.SettledNotApplied, b.Delivery(d.ID).SettledAs)
		b.Report(nodeA, d.Revision)
		require.Equal(t, decide.GapUnrecorded, b.gap(nodeA))

		wake, err := b.SettleAgain(t.Context(), nodeA, press, d.Revision.Version)
		require.NoError(t, err)
		require.Equal(t, "instance.plant.press", wake)
		require.Equal(t, decide.GapNone, b.gap(nodeA), "the answer is waited for")
		a := decide.Instance(b.MustObserve(run1), decide.InstanceRun{}, time.Now())
		require.Equal(t, "ask_unsettled", a.Rule)
		seen, err := b.Settle(t.Context(), fleet.Settle{Subject: stores.SubjectOf(run1), Node: nodeA, Held: stores.Holding(d.Revision)})
		require.NoError(t, err)
		require.Equal(t, d.Revision, seen.Snapshot)
		require.Equal(t, fleet.SettledApplied, b.Delivery(d.ID).SettledAs)
		require.Equal(t, []string{"plant-b 2 due replicating"}, b.Owed())
		require.Zero(t, stores.Scan[int](b, "SELECT count(*) FROM objects WHERE kind = 'instance'"))
		require.Equal(t, 2, stores.Scan[int](b, "SELECT count(*) FROM revisions"))
	})

	t.Run("of the first revision deploys it", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.MustEnd(d, fleet.DeliveryFailed, stores.Because("internal"))
		require.Equal(t, decide.GapNone, b.gap(nodeA))
		b.Report(nodeA, d.Revision)
		require.Equal(t, decide.GapUnrecorded, b.gap(nodeA))
		_, err := b.SettleAgain(t.Context(), nodeA, press, d.Revision.Version)
		require.NoError(t, err)
		_, err = b.Settle(t.Context(), fleet.Settle{Subject: stores.SubjectOf(run1), Node: nodeA, Held: stores.Holding(d.Revision)})
		require.NoError(t, err)
		require.Equal(t, d.Revision, b.DeployedRevision())
	})

	t.Run("without an attempt has the active confirm it", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		_, err := b.SettleAgain(t.Context(), nodeA, press, fleet.Version{Era: 1, Revision: 1})
		require.NoError(t, err)
		require.Equal(t, []string{"plant-a 1 due reconcile"}, b.Owed())
	})

	t.Run("of what is not wanted any more changes nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		old := b.MustClaim(run1, "1")
		b.MustEnd(old, fleet.DeliveryFailed, stores.Because("internal"))
		b.Put(`{"a":2}`)
		wake, err := b.SettleAgain(t.Context(), nodeA, press, old.Revision.Version)
		require.NoError(t, err)
		require.Empty(t, wake)
		require.Equal(t, fleet.SettledNotApplied, b.Delivery(old.ID).SettledAs)
	})
}

// X4, N85, N101: what is refused for a role or an epoch stays owed; what is below the node's
// highest number is for the comparison to mend.
func TestStaleAnswer(t *testing.T) {
	t.Parallel()

	for name, higher := range map[string]bool{"by role or epoch": false, "because the node took a higher number": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Put(`{"a":1}`)
			b.Deploy("1")
			b.Put(`{"a":2}`)
			b.RaiseEra()
			if higher {
				b.Report(nodeA, ahead("lost"))
			}
			d := b.MustClaim(run1, "2")
			a := decide.InstanceAction{Do: decide.DoNotify}
			tries := 0
			for ; a.Do == decide.DoNotify; tries++ {
				b.Notify(d.ID, nodeA, strconv.Itoa(tries))
				seen, err := b.Miss(t.Context(), fleet.Miss{
					Subject: stores.SubjectOf(run1), Delivery: d.ID, Node: nodeA, State: fleet.TargetFailed, Reason: fleet.Stale,
				})
				require.NoError(t, err)
				require.Equal(t, higher, seen.Open.Active().Ahead)
				a = decide.Instance(seen, decide.InstanceRun{}, time.Now())
			}
			require.Equal(t, higher, tries == 1, "who is ahead stays so")
			require.Equal(t, decide.DoEnd, a.Do)
			require.Equal(t, !higher, a.Owe)
		})

		t.Run("of a standby "+name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Put(`{"a":1}`)
			d := b.MustClaim(run1, "1")
			b.MustRecord(d, nodeA)
			b.MustEnd(d, fleet.DeliveryFailed, stores.Because("not_replicated"))
			b.RaiseEra()
			if higher {
				b.Report(nodeB, ahead("lost"))
			}
			_, err := b.Miss(t.Context(), fleet.Miss{Subject: stores.SubjectOf(run1), Node: nodeB, State: fleet.TargetFailed, Reason: fleet.Stale})
			require.NoError(t, err)
			if higher {
				require.Empty(t, b.Owed())
				require.Equal(t, decide.GapAhead, b.gap(nodeB))
				return
			}
			require.Equal(t, []string{"plant-b 1 parked stale"}, b.Owed())
		})
	}
}
