package fleet_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X8: what the checks came to is said once, however often a message is completed.
func TestExplainedOnce(t *testing.T) {
	t.Parallel()
	const checks = "GET /health on n1:80: status 401 Unauthorized, expected 200 to 399, 198 times since 2026-01-01T12:00:00Z"
	once := fleet.Explained(fleet.ReasonStartupDeadline, "it was not healthy in time", checks)
	require.Equal(t, "it was not healthy in time: "+checks, once)
	require.Equal(t, once, fleet.Explained(fleet.ReasonStartupDeadline, once, checks))
	require.Equal(t, checks, fleet.Explained(fleet.ReasonProbesFailed, "", checks))
	require.Equal(t, "it exited", fleet.Explained(fleet.ReasonExited, "it exited", checks))
}
