package bodycache

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// N97, N98
func TestCache(t *testing.T) {
	t.Parallel()
	const all = 20 << 20

	t.Run("gives what it keeps and names the rest", func(t *testing.T) {
		t.Parallel()
		const largest = 64 << 10
		c := New[int](largest, all)
		c.Put(1, []byte("one"))
		c.Put(1, []byte("one"))
		c.Put(2, make([]byte, largest+1))
		kept, rest := c.Of([]int{2, 1, 3})
		require.Equal(t, map[int][]byte{1: []byte("one")}, kept)
		require.Equal(t, []int{2, 3}, rest)
		require.Equal(t, len("one")+over, c.size)
		body, known := c.Get(1)
		require.True(t, known)
		require.Equal(t, "one", string(body))
		_, known = c.Get(2)
		require.False(t, known)
	})

	t.Run("forgets the oldest before it grows too large, and holds no more than it counts", func(t *testing.T) {
		t.Parallel()
		const each = 4 << 10
		c := New[int](each, all)
		for n := range 2 * all / each {
			c.Put(n, make([]byte, each, 4*each))
			require.LessOrEqual(t, c.size, all)
		}
		require.Len(t, c.order, len(c.kept))
		require.Equal(t, all/(each+over), len(c.kept))
		held := 0
		for _, body := range c.kept {
			held += cap(body)
		}
		require.LessOrEqual(t, held, all)
		_, rest := c.Of([]int{0, 2*all/each - 1})
		require.Equal(t, []int{0}, rest)
	})
}
