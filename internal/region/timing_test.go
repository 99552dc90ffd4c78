package region

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N20, N66, C84: what a region runs with that is told nothing.
func TestDefaultTiming(t *testing.T) {
	t.Parallel()
	timing := DefaultTiming()
	require.Equal(t, 5*time.Minute, timing.Delivery.PendingTTL)
	require.Equal(t, 32, timing.TokenBytes)
	require.Equal(t, fleet.DefaultLinkTiming(), timing.Link)
	require.Equal(t, timing.Delivery.PendingTTL, FastTiming().Delivery.PendingTTL)
	require.Equal(t, timing.TokenBytes, FastTiming().TokenBytes)
	require.NoError(t, FastTiming().Link.Validate())
}
