package httpapi

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

// F68: the public status of a rollout in each of its states, with when it changed, when a replica was proven last, what failed, and the
// step of a canary.
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
	changed, progress := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	canary := fleet.Strategy{Type: fleet.StrategyCanary, Steps: []fleet.CanaryStep{{Weight: 10}, {Weight: 50}}}
	for _, state := range fleet.RolloutStates() {
		require.Contains(t, want, state)
		v := rolloutView(deployments.Rollout{
			State: state, Step: 1, Strategy: canary, StateSince: changed, ProgressAt: progress, Failure: "exit status 1",
		})
		require.Equal(t, want[state], v.Status)
		require.Equal(t, []any{changed, progress, "exit status 1", 2, 3}, []any{v.Since, v.ProgressAt, v.Failure, v.Step, v.Steps})
	}
	require.Len(t, fleet.RolloutStates(), len(want))
}
