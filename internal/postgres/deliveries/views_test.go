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

// N103: the bytes of a node that has them all are all, also if it held them already or they came compressed.
func TestFetchedOfTargets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Put(`{"a":1}`)
	shown := func(d *fleet.DeliverySeen) (fetched []int64) {
		for _, target := range b.Delivery(d.ID).Targets {
			require.EqualValues(t, 7, target.Total)
			fetched = append(fetched, target.Fetched)
		}
		return fetched
	}

	first := b.MustClaim(run1, "1")
	require.NoError(t, b.Progress(t.Context(), nodeA, string(first.ID), 3, 7, minute))
	b.MustMiss(first.ID, nodeA, fleet.TargetFailed, fleet.Communication)
	require.Equal(t, []int64{3, 0}, shown(first))
	b.MustMiss(first.ID, nodeA, fleet.TargetFailed, fleet.ApplyFailed)
	require.Equal(t, []int64{7, 0}, shown(first))
	b.MustRecord(first, nodeA)
	require.Equal(t, []int64{7, 0}, shown(first))
	r := stores.RecordOf(first.ID, nodeB, first.Revision)
	r.Response.Fetched = 31
	_, err := b.Record(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, []int64{7, 7}, shown(first))
}
