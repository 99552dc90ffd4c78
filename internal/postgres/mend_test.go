package postgres_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// report is what a node says of the press, at its start or later.
func (b *bench) report(node fleet.NodeName, r fleet.Revision) {
	b.t.Helper()
	_, err := b.HeldBy(b.ctx(), nodes.NodeReport{Node: node, Instances: []fleet.NodeInstance{{Instance: press, Held: holding(r)}}})
	require.NoError(b.t, err)
}

func ahead(content string) fleet.Revision {
	return fleet.Revision{Version: fleet.Version{Era: 1, Revision: 7}, Content: jsonOf(content)}
}

func (b *bench) gap(node fleet.NodeName) decide.NodeGap {
	b.t.Helper()
	page, _, err := b.ComparePage(b.ctx(), node, "", 10)
	require.NoError(b.t, err)
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
		b.put(`{"a":1}`)
		b.deploy("1")
		b.turn(fleet.OperationDelete)
		gone := b.deploy("2").Revision
		require.Zero(t, scan[int](b, "SELECT count(*) FROM objects WHERE kind = 'instance'"))
		b.raiseEra()
		b.report(nodeA, ahead("lost"))
		require.Equal(t, decide.GapAhead, b.gap(nodeA))

		wake, err := b.ReleaseAgain(t.Context(), nodeA, press, gone.Version)
		require.NoError(t, err)
		require.Equal(t, "instance.plant.press", wake)
		wake, err = b.ReleaseAgain(t.Context(), nodeA, press, gone.Version)
		require.NoError(t, err)
		require.Empty(t, wake, "it is on its way")

		d := b.deploy("3")
		require.Equal(t, fleet.Version{Era: 2, Revision: 3}, d.Revision.Version)
		require.Equal(t, fleet.ActionDelete, d.Revision.Action)
		require.Empty(t, d.Revision.Content.Hash)
		require.Equal(t, decide.GapNone, b.gap(nodeA))
		require.Equal(t, decide.GapNone, b.gap(nodeB))
		require.True(t, scan[bool](b, "SELECT deleted FROM subjects"), "it is a tombstone again")
		require.Zero(t, scan[int](b, "SELECT count(*) FROM objects WHERE kind = 'instance'"))
		require.Equal(t, string(project), scan[string](b, "SELECT DISTINCT project FROM operations"))

		wake, err = b.ReleaseAgain(t.Context(), nodeA, press, gone.Version)
		require.NoError(t, err)
		require.Empty(t, wake)
		require.Zero(t, scan[int](b, "SELECT count(*) FROM outbox"))
	})

	t.Run("of what is being deleted does not bring it back to life", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		deployed := b.deploy("1").Revision
		b.turn(fleet.OperationDelete)
		b.end(b.claim(run1, "2"), fleet.DeliveryFailed, because("stale"))
		b.raiseEra()
		b.report(nodeA, ahead("lost"))
		_, err := b.ReleaseAgain(t.Context(), nodeA, press, deployed.Version)
		require.NoError(t, err)
		require.Equal(t, fleet.ActionDelete, b.observe(run1).Desired.Action)
	})

	t.Run("leaves alone what somebody waits for", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		deployed := b.deploy("1").Revision
		b.put(`{"a":2}`)
		wake, err := b.ReleaseAgain(t.Context(), nodeA, press, deployed.Version)
		require.NoError(t, err)
		require.Empty(t, wake)
		require.EqualValues(t, 2, b.observe(run1).Desired.Version.Revision)
	})
}

// N81, N87, X28
func TestSettleAgain(t *testing.T) {
	t.Parallel()

	t.Run("of a delete that was applied after all removes the instance", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		b.deploy("1")
		b.turn(fleet.OperationDelete)
		d := b.claim(run1, "2")
		b.notify(d.ID, nodeA, "secret")
		_, err := b.Miss(t.Context(), fleet.Miss{
			Subject: subject(run1), Delivery: d.ID, Node: nodeA, State: fleet.TargetFailed, Reason: fleet.Internal,
		})
		require.NoError(t, err)
		b.end(d, fleet.DeliveryFailed, because("internal"))
		require.Equal(t, fleet.SettledNotApplied, b.delivery(d.ID).SettledAs)
		b.report(nodeA, d.Revision)
		require.Equal(t, decide.GapUnrecorded, b.gap(nodeA))

		wake, err := b.SettleAgain(t.Context(), nodeA, press, d.Revision.Version)
		require.NoError(t, err)
		require.Equal(t, "instance.plant.press", wake)
		require.Equal(t, decide.GapNone, b.gap(nodeA), "the answer is waited for")
		a := decide.Instance(b.observe(run1), decide.InstanceRun{}, time.Now())
		require.Equal(t, "ask_unsettled", a.Rule)
		seen, err := b.Settle(t.Context(), fleet.Settle{Subject: subject(run1), Node: nodeA, Held: holding(d.Revision)})
		require.NoError(t, err)
		require.Equal(t, d.Revision, seen.Snapshot)
		require.Equal(t, fleet.SettledApplied, b.delivery(d.ID).SettledAs)
		require.Equal(t, []string{"plant-b 2 due replicating"}, b.owed())
		require.Zero(t, scan[int](b, "SELECT count(*) FROM objects WHERE kind = 'instance'"))
		require.Equal(t, 2, scan[int](b, "SELECT count(*) FROM revisions"))
	})

	t.Run("of the first revision deploys it", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		d := b.claim(run1, "1")
		b.end(d, fleet.DeliveryFailed, because("internal"))
		require.Equal(t, decide.GapNone, b.gap(nodeA))
		b.report(nodeA, d.Revision)
		require.Equal(t, decide.GapUnrecorded, b.gap(nodeA))
		_, err := b.SettleAgain(t.Context(), nodeA, press, d.Revision.Version)
		require.NoError(t, err)
		_, err = b.Settle(t.Context(), fleet.Settle{Subject: subject(run1), Node: nodeA, Held: holding(d.Revision)})
		require.NoError(t, err)
		require.Equal(t, d.Revision, b.deployed())
	})

	t.Run("without an attempt has the active confirm it", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		_, err := b.SettleAgain(t.Context(), nodeA, press, fleet.Version{Era: 1, Revision: 1})
		require.NoError(t, err)
		require.Equal(t, []string{"plant-a 1 due reconcile"}, b.owed())
	})

	t.Run("of what is not wanted any more changes nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"a":1}`)
		old := b.claim(run1, "1")
		b.end(old, fleet.DeliveryFailed, because("internal"))
		b.put(`{"a":2}`)
		wake, err := b.SettleAgain(t.Context(), nodeA, press, old.Revision.Version)
		require.NoError(t, err)
		require.Empty(t, wake)
		require.Equal(t, fleet.SettledNotApplied, b.delivery(old.ID).SettledAs)
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
			b.put(`{"a":1}`)
			b.deploy("1")
			b.put(`{"a":2}`)
			b.raiseEra()
			if higher {
				b.report(nodeA, ahead("lost"))
			}
			d := b.claim(run1, "2")
			a := decide.InstanceAction{Do: decide.DoNotify}
			tries := 0
			for ; a.Do == decide.DoNotify; tries++ {
				b.notify(d.ID, nodeA, strconv.Itoa(tries))
				seen, err := b.Miss(t.Context(), fleet.Miss{
					Subject: subject(run1), Delivery: d.ID, Node: nodeA, State: fleet.TargetFailed, Reason: fleet.Stale,
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
			b.put(`{"a":1}`)
			d := b.claim(run1, "1")
			b.record(d, nodeA)
			b.end(d, fleet.DeliveryFailed, because("not_replicated"))
			b.raiseEra()
			if higher {
				b.report(nodeB, ahead("lost"))
			}
			_, err := b.Miss(t.Context(), fleet.Miss{Subject: subject(run1), Node: nodeB, State: fleet.TargetFailed, Reason: fleet.Stale})
			require.NoError(t, err)
			if higher {
				require.Empty(t, b.owed())
				require.Equal(t, decide.GapAhead, b.gap(nodeB))
				return
			}
			require.Equal(t, []string{"plant-b 1 parked stale"}, b.owed())
		})
	}
}
