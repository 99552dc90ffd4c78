package postgres

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N97, N98
func TestRecentBodies(t *testing.T) {
	t.Parallel()
	name := func(n int) fleet.Hash { return fleet.Hash(fmt.Sprintf("%064x", n)) }

	t.Run("gives what it keeps and names the rest", func(t *testing.T) {
		t.Parallel()
		var r recentBodies
		r.Put(name(1), []byte("one"))
		r.Put(name(1), []byte("one"))
		r.Put(name(2), make([]byte, recentEach+1))
		kept, rest := r.Of([]fleet.Hash{name(2), name(1), name(3)})
		require.Equal(t, map[fleet.Hash][]byte{name(1): []byte("one")}, kept)
		require.Equal(t, []fleet.Hash{name(2), name(3)}, rest)
		require.Equal(t, len("one")+recentOver, r.size)
	})

	t.Run("forgets the oldest before it grows too large, and holds no more than it counts", func(t *testing.T) {
		t.Parallel()
		var r recentBodies
		const each = 4 << 10
		for n := range 2 * recentAll / each {
			r.Put(name(n), make([]byte, each, 4*each))
			require.LessOrEqual(t, r.size, recentAll)
		}
		require.Len(t, r.order, len(r.kept))
		require.Equal(t, recentAll/(each+recentOver), len(r.kept))
		held := 0
		for _, body := range r.kept {
			held += cap(body)
		}
		require.LessOrEqual(t, held, recentAll)
		_, rest := r.Of([]fleet.Hash{name(0), name(2*recentAll/each - 1)})
		require.Equal(t, []fleet.Hash{name(0)}, rest)
	})
}
