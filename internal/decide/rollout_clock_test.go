package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// F74, X8: the time without progress stops for an image or a definition alone, not for preStart commands, and whatever stops
// or moves it is named, with the replica that it waits for.
func TestRolloutClock(t *testing.T) {
	t.Parallel()
	began, soon := noon.Add(-time.Minute), noon.Add(9*time.Minute)
	in := func(phase fleet.ReplicaPhase, more ...change) func(*fleet.DeploymentSeen) {
		return run(2, 2, append([]change{func(r *fleet.ReplicaSeen) {
			r.State, r.Phase, r.Since = fleet.ReplicaStarting, phase, noon.Add(-30*time.Second)
		}}, more...)...)
	}
	most := func(n int, by fleet.RolloutClock) func(*fleet.DeploymentSeen) {
		return func(s *fleet.DeploymentSeen) { s.Rollout.Most, s.Rollout.Clock = n, by }
	}
	failing := func(r *fleet.ReplicaSeen) { r.Failing = "GET /health on n1:80: connection refused, 3 times since then" }
	const starts, nodeOf = fleet.ReplicaStarting, "replica 000000000005 on node n5: "
	for name, c := range map[string]struct {
		seen  fleet.DeploymentSeen
		clock fleet.RolloutClock
		until time.Time
		says  string
	}{
		"it began":                      {rolling(run(4, 1), run(2, 2, state(starts))), fleet.ClockBegan, soon, ""},
		"an image is pulled":            {rolling(run(4, 1), in(fleet.PhasePreparing)), fleet.ClockPreparing, time.Time{}, "does not run while a replica downloads its definition or pulls its image"},
		"preStart commands run":         {rolling(run(4, 1), in(fleet.PhasePreStart)), fleet.ClockBegan, soon, nodeOf + "its preStart commands have not ended"},
		"a start is retried":            {rolling(run(4, 1), in(fleet.PhaseLaunching)), fleet.ClockBegan, soon, ""},
		"its check fails":               {rolling(run(4, 1), in(fleet.PhaseRunning, failing)), fleet.ClockBegan, soon, nodeOf + "GET /health on n1:80: connection refused, 3 times since then"},
		"its node is not connected":     {rolling(run(4, 1), run(2, 2, state(starts), unheard(time.Second))), fleet.ClockNotConnected, time.Time{}, "does not run while the node of a new replica is not connected"},
		"its node reconnected":          {rolling(run(4, 1), run(2, 2, state(starts), heardSince(time.Second))), fleet.ClockReconnected, noon.Add(10*time.Minute - time.Second), "from when the node of a new replica reconnected"},
		"the region was away":           {rolling(run(4, 1), run(2, 2, state(starts)), func(s *fleet.DeploymentSeen) { s.Rollout.There = noon.Add(-time.Second) }), fleet.ClockRegionBack, noon.Add(10*time.Minute - time.Second), "from when the region was back"},
		"one more is proven":            {rolling(run(3, 1), run(1, 2), run(1, 2, state(starts))), fleet.ClockProven, noon.Add(10 * time.Minute), ""},
		"that was the last progress":    {rolling(run(3, 1), run(1, 2), run(1, 2, state(starts)), most(1, fleet.ClockProven)), fleet.ClockProven, soon, ""},
		"only old replicas have to end": {rolling(run(2, 1), run(4, 2), most(4, "")), fleet.ClockOldReplicas, time.Time{}, ""},
		"it is paused": {rolling(run(4, 1), func(s *fleet.DeploymentSeen) {
			s.Rollout.State, s.Rollout.Since = fleet.RolloutPaused, began
		}), fleet.ClockPaused, began.Add(fleet.DefaultPauseDeadline), "is paused, until"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := decide.Deployment(c.seen).Rollout
			require.Equal(t, c.clock, p.Clock, p.Message)
			require.Equal(t, c.until, p.Until, p.Message)
			require.Contains(t, p.Message, c.says)
		})
	}
}

// X8, F74: a rollout that ends for its deadline says what held it up.
func TestRolloutFailsWithItsCause(t *testing.T) {
	t.Parallel()
	late := func(s *fleet.DeploymentSeen) { s.Rollout.ProgressAt = noon.Add(-time.Hour) }
	commands := func(r *fleet.ReplicaSeen) {
		r.State, r.Phase, r.Since = fleet.ReplicaStarting, fleet.PhasePreStart, noon
	}
	p := decide.Deployment(rolling(run(4, 1), run(2, 2, commands), late))
	require.Equal(t, decide.ReasonProgressDeadline, p.Rule)
	require.Equal(t, "replica 000000000005 on node n5: its preStart commands have not ended", p.Rollout.Failure)
	require.Contains(t, p.Rollout.Message, p.Rollout.Failure)
	refused := func(r *fleet.ReplicaSeen) { r.Unready, r.Failing = true, "readiness: GET /ready on n1:80: status 503" }
	p = decide.Deployment(rolling(run(4, 1), run(2, 2, refused), late))
	require.Equal(t, "2 replicas are healthy and not ready: the readiness check does not pass; replica 000000000005 on node n5: readiness: GET /ready on n1:80: status 503", p.Rollout.Failure)
}
