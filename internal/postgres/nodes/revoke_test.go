package nodes_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// C87: a key that was revoked is of no use any more.
func TestRevokeNode(t *testing.T) {
	t.Parallel()
	t.Run("voids the key for good, and twice is once", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		speaker, keys, err := b.Store.Speaker(t.Context(), nodeA)
		require.NoError(t, err)
		listed := b.Node(nodeA)
		require.Equal(t, []any{listed.Name, listed.Site, listed.Role, listed.SigningKey}, []any{speaker.Name, speaker.Site, speaker.Role, speaker.SigningKey})
		known, err := b.Store.NodeKeys(t.Context(), nodeA)
		require.NoError(t, err)
		require.Equal(t, known, keys)
		require.NoError(t, b.Store.RevokeNode(t.Context(), nodeA))
		rows, err := b.Store.ListNodes(t.Context(), nodes.NodeFilter{Name: nodeA}, "", 1)
		require.NoError(t, err)
		require.NotNil(t, rows[0].RevokedAt)
		require.Empty(t, rows[0].SigningKey)
		require.NoError(t, b.Store.RevokeNode(t.Context(), nodeA))
		again, err := b.Store.ListNodes(t.Context(), nodes.NodeFilter{Name: nodeA}, "", 1)
		require.NoError(t, err)
		require.Equal(t, rows[0].RevokedAt, again[0].RevokedAt)
		_, err = b.Store.NodeKeys(t.Context(), nodeA)
		require.Equal(t, fleet.NotFound, fleet.KindOf(err))
		for _, name := range []fleet.NodeName{nodeA, "unknown"} {
			_, _, err = b.Store.Speaker(t.Context(), name)
			require.Equal(t, fleet.NotFound, fleet.KindOf(err), name)
		}
	})
	t.Run("is refused for a node that has no key", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.Equal(t, fleet.IllegalState, fleet.KindOf(b.Store.RevokeNode(t.Context(), "unknown")))
	})
}
