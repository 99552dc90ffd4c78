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
	const each = packedAll/4 - 256 // with what a kept body takes besides its bytes
	for i := range 6 {
		p.Put(key(i), make([]byte, each))
		p.Put(key(i), make([]byte, each)) // known: nothing is counted twice
	}
	for i := range 6 {
		_, kept := p.Get(key(i))
		require.Equal(t, i >= 2, kept, i)
	}
	_, other := p.Get(packedKey{key(5).hash, codingGzip})
	require.False(t, other, "another coding is another body")
}
