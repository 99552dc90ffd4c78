package httpapi

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
	m := newReading(10, 6, 20*time.Millisecond)
	first, second, other := m.begin("a"), m.begin("a"), m.begin("b")
	require.NoError(t, first.grow(t.Context(), 4))
	require.NoError(t, second.grow(t.Context(), 2))
	require.Equal(t, fleet.Unavailable, fleet.KindOf(second.grow(t.Context(), 1)), "the share of a")
	require.NoError(t, other.grow(t.Context(), 4))
	require.Equal(t, fleet.Unavailable, fleet.KindOf(other.grow(t.Context(), 1)), "the whole")
	require.NoError(t, first.grow(t.Context(), 20))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, other.grow(gone, 1))
	m.patience = time.Hour
	waits := make(chan error)
	go func() { waits <- other.grow(t.Context(), 2) }()
	first.end()
	require.NoError(t, <-waits)
	second.end()
	other.end()
	other.end()
	require.Zero(t, m.used)
	require.Empty(t, m.by)
}
