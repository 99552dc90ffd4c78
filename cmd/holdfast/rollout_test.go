package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// S123: a plan says what a rollout takes.
func TestRolloutInAPlan(t *testing.T) {
	t.Parallel()
	one, two := 1, 2
	r := api.PlanRollout{Strategy: fleet.StrategyCanary, Steps: 5, Replicas: 4, Most: 6, Surge: 2, Peak: api.ResourceTotal{CPU: 3}, Room: &two}
	require.Contains(t, rolloutText(r), "canary in 5 steps, replaces 4 replicas, up to 6 at a time with ")
	require.Contains(t, rolloutText(r), "there is room for the 2 above the target")
	r.Room, r.Why = &one, "1 of 1 nodes match, and none has room"
	require.Contains(t, rolloutText(r), "there is room for 1 of the 2 above the target: 1 of 1 nodes")
	r.Room, r.Peak = nil, api.ResourceTotal{}
	require.NotContains(t, rolloutText(r), "room")
	require.NotContains(t, rolloutText(r), "cores", "it declares none")
}

// F68: a rollout says for how long a new replica must be routable to be proven.
func TestRolloutShowsItsMinHealthyTime(t *testing.T) {
	t.Parallel()
	at := slices.Index(rolloutHeader, "MIN HEALTHY")
	c := &cli{process: newShell(t, nil).process(nil, nil, nil)}
	for seconds, want := range map[float64]string{10: "10s", 0.5: "0.5s", 0: "0s"} {
		require.Equal(t, want, c.rolloutItem("web", api.Rollout{MinHealthyTime: seconds}).cells[at])
	}
}

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
