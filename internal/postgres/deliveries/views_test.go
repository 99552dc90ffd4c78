package deliveries_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func TestViewInstances(t *testing.T) {
	t.Parallel()

	t.Run("takes as many queries for 200 as for one", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		var names []string
		for i := range 200 {
			names = append(names, fmt.Sprintf("i-%03d", i))
			b.Put(`{}`, stores.Named(names[i]))
		}
		n := b.CountQueries()
		one, err := b.ViewInstances(t.Context(), plant, names[7])
		require.NoError(t, err)
		forOne := n.Swap(0)
		require.NotZero(t, forOne)
		all, err := b.ViewInstances(t.Context(), plant, names...)
		require.NoError(t, err)
		require.Equal(t, forOne, n.Load())
		require.Len(t, all, 200)
		require.Equal(t, one[names[7]], all[names[7]])
	})

	t.Run("keeps apart what is of each", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"b":1}`, stores.Named("later"))
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Put(`{"a":2}`)
		second := b.MustClaim(run1, "2")
		v, err := b.ViewInstances(t.Context(), plant, string(press), "later", "never")
		require.NoError(t, err)
		at := v[string(press)]
		require.EqualValues(t, 1, at.Snapshot.Revision)
		require.EqualValues(t, 1, at.SnapshotGeneration)
		require.Equal(t, stores.JSONOf(`{"a":1}`), at.Snapshot.Content)
		require.False(t, at.Recorded.IsZero())
		require.EqualValues(t, 2, at.Desired.Revision)
		require.EqualValues(t, 2, at.DesiredGeneration)
		require.Equal(t, second.ID, at.Last.ID)
		require.EqualValues(t, 1, at.Nodes[0].Version.Revision)

		later := v["later"]
		require.EqualValues(t, 1, later.Desired.Revision)
		require.True(t, later.Snapshot.IsZero())
		require.True(t, later.Recorded.IsZero())
		require.Nil(t, later.Last)
		require.Len(t, later.Nodes, 2)
		require.Zero(t, later.Nodes[0].Version)

		never := v["never"]
		require.True(t, never.Desired.IsZero())
		require.Equal(t, nodeA, never.Lease.Holder)
	})
}

// N103
func TestHeldByTargets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Put(`{"a":1}`)
	first := b.MustClaim(run1, "1")
	b.MustRecord(first, nodeA)
	held, err := b.HeldByTargets(t.Context(), string(first.ID))
	require.NoError(t, err)
	require.Equal(t, map[string]map[fleet.NodeName]deliveries.TargetHeld{
		string(first.ID): {nodeA: {Revision: 1, Generation: 1, Hash: stores.JSONOf(`{"a":1}`).Hash}},
	}, held, "who never reported is missing")
}
