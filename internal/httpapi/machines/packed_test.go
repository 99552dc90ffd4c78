package machines

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N97: what is kept compressed stays bounded, the oldest going first.
func TestPacked(t *testing.T) {
	t.Parallel()
	p := newPacked()
	key := func(i int) packedKey { return packedKey{fleet.Hash(rune('a' + i)), codingZstd} }
	const each = packedAll / 4
	for i := range 6 {
		p.put(key(i), make([]byte, each))
		p.put(key(i), make([]byte, each)) // known: nothing is counted twice
	}
	for i := range 6 {
		_, kept := p.get(key(i))
		require.Equal(t, i >= 2, kept, i)
	}
	require.Equal(t, packedAll, p.size)
	_, other := p.get(packedKey{key(5).hash, codingGzip})
	require.False(t, other, "another coding is another body")
}
