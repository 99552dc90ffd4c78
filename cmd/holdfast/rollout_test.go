package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// F68: a watch of a rollout ends with it, and says by its code how.
func TestWatchEndsWithTheRollout(t *testing.T) {
	t.Parallel()
	over, err := rolloutOver(view{})
	require.False(t, over)
	require.NoError(t, err)
	for state, code := range map[fleet.RolloutState]int{
		fleet.RolloutDeploying: -1, fleet.RolloutPrepaused: -1, fleet.RolloutPaused: -1, fleet.RolloutCanceling: -1,
		fleet.RolloutDeployed: exitOK, fleet.RolloutSuperseded: exitConflict, fleet.RolloutFailed: exitOperationFailed, fleet.RolloutCanceled: exitOperationFailed,
	} {
		over, err := rolloutOver(view{items: []item{{value: api.Rollout{State: state}}}})
		require.Equal(t, code >= 0, over, state)
		if over {
			require.Equal(t, code, exitCodeOf(err), state)
		}
	}
}
