package serve

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N97: no caller has more than its share, and the first of all always goes on.
func TestMemory(t *testing.T) {
	t.Parallel()
	m := NewMemory(10, 6, 20*time.Millisecond)
	first, second, other := m.Begin("a"), m.Begin("a"), m.Begin("b")
	require.NoError(t, first.Grow(t.Context(), 4))
	require.NoError(t, second.Grow(t.Context(), 2))
	require.Equal(t, fleet.Unavailable, fleet.KindOf(second.Grow(t.Context(), 1)), "the share of a")
	require.NoError(t, other.Grow(t.Context(), 4))
	require.Equal(t, fleet.Unavailable, fleet.KindOf(other.Grow(t.Context(), 1)), "the whole")
	require.NoError(t, first.Grow(t.Context(), 20))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, other.Grow(gone, 1))
	m.patience = time.Hour
	waits := make(chan error)
	go func() { waits <- other.Grow(t.Context(), 2) }()
	first.End()
	require.NoError(t, <-waits)
	second.End()
	other.End()
	other.End()
	require.Zero(t, m.used)
	require.Empty(t, m.by)
}
