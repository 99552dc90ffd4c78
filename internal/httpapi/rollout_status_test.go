package httpapi

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

// F68: the public status of a rollout in each of its states.
func TestRolloutStatus(t *testing.T) {
	t.Parallel()
	want := map[fleet.RolloutState]api.RolloutStatus{
		fleet.RolloutDeploying:  {Value: "ACTIVE", Reason: "DEPLOYING"},
		fleet.RolloutPrepaused:  {Value: "ACTIVE", Reason: "PREPAUSED"},
		fleet.RolloutPaused:     {Value: "ACTIVE", Reason: "PAUSED"},
		fleet.RolloutCanceling:  {Value: "ACTIVE", Reason: "CANCELING"},
		fleet.RolloutDeployed:   {Value: "FINALIZED", Reason: "DEPLOYED"},
		fleet.RolloutCanceled:   {Value: "FINALIZED", Reason: "CANCELED"},
		fleet.RolloutFailed:     {Value: "FINALIZED", Reason: "FAILED"},
		fleet.RolloutSuperseded: {Value: "FINALIZED", Reason: "SUPERSEDED"},
	}
	for _, state := range fleet.RolloutStates() {
		require.Contains(t, want, state)
		require.Equal(t, want[state], rolloutView(deployments.Rollout{State: state}).Status)
	}
	require.Len(t, fleet.RolloutStates(), len(want))
}
