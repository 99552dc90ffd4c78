package deliveries_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// N98, N13, N17
func TestBatch(t *testing.T) {
	t.Parallel()

	t.Run("brings many instances to both nodes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		names := b.instances(3)
		b.fleetOf(1, names...)
		id := batchID(1)
		changes := b.changes(names, "new")
		out := b.release(releaseOf(id, changes...))
		require.Equal(t, 3, out.Claimed)
		require.Equal(t, []fleet.NodeName{nodeA, nodeB}, out.Nodes)
		require.Nil(t, b.tell(id, nodeB), "the active is first")
		told := b.tell(id, nodeA)
		items := b.items(id, nodeA)
		require.Len(t, items, 3)
		require.Equal(t, 3, told.Command.Count)
		require.Equal(t, fleet.BatchDigest(items), told.Command.Digest)
		require.Equal(t, fleet.RoleActive, told.Command.Role)
		require.Equal(t, map[fleet.Hash]string{changes[0].Content.Hash: `{"a":0,"to":"new"}`, changes[2].Content.Hash: `{"a":2,"to":"new"}`},
			b.bodiesOf(id, nodeA, changes[0].Content.Hash, changes[2].Content.Hash, stores.JSONOf("never").Hash))
		tokens, err := b.BatchTokens(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, tokens, 1)
		require.NoError(t, b.RecordBatch(t.Context(), id, nodeA, takenAll(items)))
		require.Equal(t, "delivering 1 0 1 ", b.target(names[0]))
		b.apply(id, nodeB)
		ended := b.endBatch(id)
		require.Equal(t, 3, ended.Succeeded)
		for _, name := range names {
			require.Equal(t, "succeeded 1 0 1 ", b.target(name))
			snap, _, err := b.Deployed(t.Context(), keyOf(name))
			require.NoError(t, err)
			require.EqualValues(t, 1, snap.Version.Revision)
		}
		require.Equal(t, []int64{0, 0, 6}, stores.Scan[[]int64](b, `SELECT ARRAY[(SELECT count(*) FROM pending), (SELECT count(*) FROM owed),
			(SELECT count(*) FROM node_held)]`))
		_, err = b.BatchTokens(t.Context(), id)
		stores.Refused(t, fleet.NotFound, err)
	})
}
