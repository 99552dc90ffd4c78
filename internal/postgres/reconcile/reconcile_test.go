package reconcile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func (b *bench) compareOne(node fleet.NodeName) fleet.Comparison {
	b.T.Helper()
	page, next, err := b.ComparePage(b.Ctx(), node, "", 10)
	require.NoError(b.T, err)
	require.Len(b.T, page, 1)
	require.Empty(b.T, next)
	return page[0]
}

// N54, N56, X28
func TestComparePage(t *testing.T) {
	t.Parallel()

	t.Run("sets what is deployed against what the node said", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.Deploy("1")
		page, _, err := b.ComparePage(t.Context(), nodeB, "", 10)
		require.NoError(t, err)
		require.Empty(t, page, "what is level is not given back (X12)")
		b.Exec("UPDATE node_held SET hash = sha256('x') WHERE node = $1", nodeB)
		c := b.compareOne(nodeB)
		require.Equal(t, press, c.Instance)
		require.Equal(t, d.Revision.Version, c.Snapshot.Version)
		require.Equal(t, d.Revision.Version, c.Held.Version)
		require.Equal(t, d.Revision.Content.Hash, c.Snapshot.Content.Hash)
		require.False(t, c.Expected)
		require.Equal(t, decide.GapAhead, decide.Reconcile(c), "one number with two contents")
	})

	t.Run("expects a difference while something is open, unknown or owed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Exec("UPDATE node_held SET revision = 0")
		b.Put(`{"a":2}`)
		require.False(t, b.compareOne(nodeA).Expected)
		d := b.MustClaim(run1, "2")
		require.True(t, b.compareOne(nodeA).Expected, "open")
		b.Notify(d.ID, nodeA, "a")
		b.MustEnd(d, fleet.DeliveryUnknown, stores.Because("no_answer"))
		require.True(t, b.compareOne(nodeA).Expected, "unknown")
		_, err := b.Settle(t.Context(), fleet.Settle{Subject: stores.SubjectOf(run1), Node: nodeA, Held: fleet.Held{}})
		require.NoError(t, err)
		require.False(t, b.compareOne(nodeA).Expected)
		_, err = b.Owe(t.Context(), nodeB, press, b.DeployedRevision().Version)
		require.NoError(t, err)
		require.True(t, b.compareOne(nodeB).Expected, "owed")
		require.False(t, b.compareOne(nodeA).Expected, "owed to the other")
	})

	t.Run("goes page by page, and not into other sites", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.PutSite("other", "other-a", "")
		for i := range 5 {
			b.Put(`{"a":1}`, stores.Named(fmt.Sprintf("n%d", i)))
		}
		b.Put(`{"a":1}`, func(c *deliveries.InstanceChange) { c.Key.Scope = "other" })
		b.Exec(`INSERT INTO snapshots SELECT site, name, revision, 'x', 1 FROM revisions`)
		var names []fleet.InstanceName
		after, pages := "", 0
		for {
			page, next, err := b.ComparePage(t.Context(), nodeA, after, 2)
			require.NoError(t, err)
			for _, c := range page {
				names = append(names, c.Instance)
				require.False(t, c.Held.Known)
			}
			pages++
			if next == "" {
				break
			}
			after = next
		}
		require.Equal(t, 3, pages)
		require.Equal(t, []fleet.InstanceName{"n0", "n1", "n2", "n3", "n4"}, names)
	})

	t.Run("has nothing for a worker, and no unknown node", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		spec := stores.TwoNodes(nodeA, nodeB)
		spec.Nodes = append(spec.Nodes, fleet.SiteNode{Name: "plant-w", Role: fleet.RoleWorker})
		_, err := b.Declare(t.Context(), stores.WriteOf(stores.SiteKey), spec)
		require.NoError(t, err)
		page, next, err := b.ComparePage(t.Context(), "plant-w", "", 10)
		require.NoError(t, err)
		require.Empty(t, page)
		require.Empty(t, next)
		_, _, err = b.ComparePage(t.Context(), "stranger", "", 10)
		stores.Refused(t, fleet.NotFound, err)
	})
}

// N55
func TestOwe(t *testing.T) {
	t.Parallel()

	t.Run("writes what the node should hold, due now, with the wake", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.Deploy("1")
		for range 2 {
			wake, err := b.Owe(t.Context(), nodeB, press, d.Revision.Version)
			require.NoError(t, err)
			require.Equal(t, "instance.plant.press", wake)
			require.Equal(t, []string{"plant-b 1 due reconcile"}, b.Owed())
		}
		require.Positive(t, stores.Scan[int](b, "SELECT count(*) FROM outbox"))
		seen := b.MustObserve(run1)
		require.Len(t, seen.Owed, 1)
		require.Zero(t, seen.Asked)
	})

	t.Run("of what is not the deployed revision any more changes nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		old := b.Deploy("1")
		b.Put(`{"a":2}`)
		b.Deploy("2")
		_, err := b.Owe(t.Context(), nodeB, press, old.Revision.Version)
		require.NoError(t, err)
		require.Empty(t, b.Owed())
		require.Zero(t, stores.Scan[int](b, "SELECT count(*) FROM outbox"))
	})
}

func TestReleaseAgain(t *testing.T) {
	t.Parallel()

	t.Run("numbers the deployed content anew, not the desired one", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`, stores.Running("press"))
		deployed := b.Deploy("1").Revision
		b.Put(`{"a":2}`)
		b.MustEnd(b.MustClaim(run1, "2"), fleet.DeliveryFailed, stores.Because("apply_failed"))
		_, err := b.ReleaseAgain(t.Context(), nodeA, press, deployed.Version)
		require.NoError(t, err)
		seen := b.MustObserve(run1)
		require.EqualValues(t, 3, seen.Desired.Version.Revision)
		require.True(t, seen.Desired.Same(deployed))
		require.Equal(t, 1, seen.Asked)
		require.Contains(t, stores.Scan[string](b, "SELECT reason FROM revisions WHERE revision = 3"), string(nodeA))
	})

	t.Run("of what is not the deployed revision any more changes nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		old := b.Deploy("1")
		b.Put(`{"a":2}`)
		b.Deploy("2")
		_, err := b.ReleaseAgain(t.Context(), nodeA, press, old.Revision.Version)
		require.NoError(t, err)
		require.Equal(t, 2, stores.Scan[int](b, "SELECT count(*) FROM revisions"))
		require.Zero(t, stores.Scan[int](b, "SELECT count(*) FROM outbox"))
	})

	t.Run("of a delete deletes again", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Turn(fleet.OperationDelete)
		gone := b.Deploy("2").Revision
		b.Put(`{"a":2}`, stores.Unreleased)
		_, err := b.ReleaseAgain(t.Context(), nodeA, press, gone.Version)
		require.NoError(t, err)
		again := b.MustObserve(run1).Desired
		require.EqualValues(t, 3, again.Version.Revision)
		require.True(t, again.Same(gone))
	})
}

// Whether a node holds what is deployed, and whether it refuses it, has one answer: the queries give that of the decisions.
func TestHoldsIsApplied(t *testing.T) {
	t.Parallel()
	b := stores.Bare(t)
	hashes := []fleet.Hash{"", fleet.Hash(strings.Repeat("a", 64)), fleet.Hash(strings.Repeat("b", 64))}
	stored := func(h fleet.Hash) []byte { return postgres.HashBytes(h) }
	rapid.Check(t, func(rt *rapid.T) {
		revision := func(of string) fleet.Revision {
			return fleet.Revision{
				Version: fleet.Version{Era: rapid.Int64Range(1, 2).Draw(rt, of+" era"), Revision: rapid.Int64Range(1, 3).Draw(rt, of+" revision")},
				Content: fleet.Content{Hash: rapid.SampledFrom(hashes).Draw(rt, of+" hash")},
			}
		}
		held, want := revision("held"), revision("want")
		answer := stores.Scan[bool](b, "SELECT holds($1, $2, $3, $4, $5, $6)", held.Version.Era, held.Version.Revision, stored(held.Content.Hash),
			want.Version.Era, want.Version.Revision, stored(want.Content.Hash))
		require.Equal(rt, decide.Applied(fleet.Held{Revision: held, Known: true}, want), answer)
		refuses := stores.Scan[bool](b, "SELECT refuses($1, $2, $3, $4)", held.Version.Era, held.Version.Revision, want.Version.Era, want.Version.Revision)
		require.Equal(rt, held.Version.Newer(want.Version), refuses)
	})
}
