package postgres_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/testkit"
)

// X23: it is the same at every server, whoever asked first.
func TestSecret(t *testing.T) {
	t.Parallel()
	store := testkit.Store(t)
	seen := make([][]byte, 8)
	var all sync.WaitGroup
	for i := range seen {
		all.Go(func() { seen[i], _ = store.Secret(t.Context(), "a", 32) })
	}
	all.Wait()
	for _, secret := range seen {
		require.Len(t, secret, 32)
		require.Equal(t, seen[0], secret)
	}
	other, err := store.Secret(t.Context(), "b", 32)
	require.NoError(t, err)
	require.NotEqual(t, seen[0], other)
}
