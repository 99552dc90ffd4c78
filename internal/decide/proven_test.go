package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// drained is on a node whose drain has its deadline in so long.
func drained(in time.Duration) change {
	return func(r *fleet.ReplicaSeen) { r.Leave, r.LeaveBy = true, noon.Add(in) }
}

func surge(n int) changed {
	return func(s *fleet.DeploymentSeen) { s.Strategy.MaxSurge = &fleet.Share{Count: n} }
}

// routableFor is routable for so long.
func routableFor(ago time.Duration) change {
	return func(r *fleet.ReplicaSeen) { r.CreatedAt, r.Since = noon.Add(-ago-time.Second), noon.Add(-ago) }
}

// F53, F72, S105: whatever ends a replica that works for another waits until that is proven; what replaces nothing waits for nothing.
func TestProof(t *testing.T) {
	t.Parallel()
	newer := func(s *fleet.DeploymentSeen) { s.Revision, s.ProcessVersion, s.Began, s.BeganVersion = 2, 2, 2, 2 }
	isNew := version(2)
	isBack := func(s *fleet.DeploymentSeen) {
		s.Rollout.State, s.Rollout.Reason = fleet.RolloutCanceling, decide.ReasonCancelled
	}
	for name, c := range map[string]struct {
		seen      fleet.DeploymentSeen
		create    int
		terminate string
		next      time.Duration // of the next visit, 0 for any
	}{
		"a restart begins with the surge": {deployment(newer, target(3, 1), has(replica(1), replica(2), replica(3))), 2, "", 0},
		"it waits for a proof": {
			deployment(newer, target(3, 1), has(replica(1), replica(2), replica(3), replica(4, isNew, routableFor(4*time.Second)), replica(5, isNew, routableFor(time.Second)))),
			0, "", 6 * time.Second,
		},
		"as many end as are proven, and it goes on": {
			deployment(newer, target(3, 1), has(replica(1), replica(2), replica(3), replica(4, isNew), replica(5, isNew, routableFor(time.Second)))), 1, "1", 0,
		},
		"its proof was taken back":    {deployment(newer, target(2, 1), has(replica(1), replica(2), replica(3, isNew, unready))), 0, "", 0},
		"one that failed adds none":   {deployment(newer, target(3, 1), has(replica(1), replica(2), replica(3), replica(4, isNew, state(fleet.ReplicaUnhealthy)))), 0, "", 0},
		"a smaller surge":             {deployment(newer, surge(1), target(3, 1), has(replica(1), replica(2), replica(3))), 1, "", 0},
		"without a surge, one":        {deployment(newer, surge(0), target(3, 1), has(replica(1), replica(2), replica(3))), 1, "", 0},
		"a declared 0 waits for none": {deployment(newer, proof(0), target(1, 1), has(replica(1), replica(2, isNew, routableFor(0)))), 0, "1", 0},
		"slow checks need longer": {
			deployment(newer, func(s *fleet.DeploymentSeen) { s.Shows = time.Minute }, target(1, 1), has(replica(1), replica(2, isNew, routableFor(30*time.Second)))),
			0, "", 30 * time.Second,
		},
		"a lost node's replica waits too": {deployment(target(2, 1), has(replica(1, unheard(time.Hour)), replica(2), replica(3, routableFor(time.Second)))), 0, "", 9 * time.Second},
		"its node reconnected, and has yet to report": {
			deployment(newer, target(1, 1), has(replica(1), replica(2, isNew, heardSince(time.Second)))), 0, "", 4 * time.Second,
		},
		"it has reported":                 {deployment(newer, target(1, 1), has(replica(1), replica(2, isNew, heardSince(5*time.Second)))), 0, "1", 0},
		"and ends then":                   {deployment(target(2, 1), has(replica(1, unheard(time.Hour)), replica(2), replica(3))), 0, "1", 0},
		"a drain waits while it has time": {deployment(target(1, 1), has(replica(1, drained(30*time.Second)), replica(2, routableFor(time.Second)))), 0, "", 9 * time.Second},
		"not until it fails":              {deployment(target(1, 1), has(replica(1, drained(20*time.Second)), replica(2, routableFor(time.Second)))), 0, "", 5 * time.Second},
		"it has no time left":             {deployment(target(1, 1), has(replica(1, drained(15*time.Second)), replica(2, routableFor(time.Second)))), 0, "1", 0},
		"but nothing ends for none":       {deployment(target(1, 1), has(replica(1, drained(time.Second)), replica(2, state(fleet.ReplicaStarting)))), 0, "", 0},
		"the next one starts during a proof": {
			deployment(target(2, 1), has(replica(1, drained(30*time.Second)), replica(2, drained(30*time.Second)), replica(3, routableFor(time.Second)))), 1, "", 0,
		},
		"without a drain it does not": {
			deployment(target(2, 1), has(replica(1, leave), replica(2, leave), replica(3, routableFor(time.Second)))), 0, "", 0,
		},
		"a new one that has to leave its node proves nothing either": {
			deployment(newer, target(2, 1), has(replica(1), replica(2), replica(3, isNew, leave, routableFor(time.Second)))), 1, "3", 0,
		},
		"nor does an old one that is not ready": {
			deployment(newer, target(2, 1), has(replica(1, unready), replica(2), replica(3, isNew, leave, routableFor(time.Second)))), 0, "", 9 * time.Second,
		},
		"a new one whose drain has no time left is relied on by none": {
			rolling(target(2, 1), run(1, 1), run(1, 2), run(1, 2, drained(time.Second)), run(1, 2, routableFor(time.Second))), 0, "3", 0,
		},
		"a surplus stays while a drain ends one for what is not proven": {
			deployment(target(1, 1), has(replica(1, drained(time.Second)), replica(2, routableFor(2*time.Second)), replica(3, routableFor(time.Second)))), 0, "1", 0,
		},
		"a scale ends the unproven first, of these the newest": {
			deployment(target(2, 1), has(replica(1), replica(2), replica(3, routableFor(2*time.Second)), replica(4, routableFor(time.Second)))), 0, "43", 0,
		},
		"a scale waits for none":         {deployment(target(1, 1), has(replica(1, routableFor(time.Second)), replica(2, routableFor(2*time.Second)))), 0, "1", 0},
		"what failed is replaced":        {deployment(target(2, 1), has(replica(1, routableFor(time.Second)), replica(2, exited))), 1, "2", 0},
		"a first release waits for none": {deployment(at(fleet.DeploymentProvisioning), target(1, 1), has(replica(1, routableFor(0)))), 0, "", 0},
		"a return waits for none":        {rolling(isBack, target(2, 1), run(2, 1, routableFor(0)), run(1, 2)), 0, "3", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := decide.Deployment(c.seen)
			require.Equal(t, []any{c.create, c.terminate}, []any{p.Create, ids(p.Terminate)}, "%s: %s", p.Rule, p.Message)
			if c.next > 0 {
				require.Equal(t, noon.Add(c.next), p.Next)
				require.Contains(t, p.Awaited, "to be proven")
			}
		})
	}
}

func proof(seconds float64) changed {
	return func(s *fleet.DeploymentSeen) { s.Strategy.MinHealthyTime = &seconds }
}

// F53: where an old replica has to end first, the last new one is proven, and one has made up for what failed.
func TestProofWithoutRoom(t *testing.T) {
	t.Parallel()
	newer := func(s *fleet.DeploymentSeen) { s.Revision, s.ProcessVersion, s.Began, s.BeganVersion = 2, 2, 2, 2 }
	isNew := version(2)
	for name, c := range map[string]struct {
		seen fleet.DeploymentSeen
		ends string
	}{
		"none is new":                    {deployment(newer, target(2, 1), has(replica(1), replica(2))), "1"},
		"the last one is proven":         {deployment(newer, target(2, 1), has(replica(1), replica(2, isNew))), "1"},
		"it is not":                      {deployment(newer, target(2, 1), has(replica(1), replica(2, isNew, routableFor(time.Second)))), ""},
		"the last one failed":            {deployment(newer, crashes(1, -time.Second), target(2, 1), has(replica(1))), ""},
		"another has made up for it":     {deployment(newer, crashes(1, -time.Minute), target(3, 1), has(replica(1), replica(2, isNew, routableFor(20*time.Second)))), "1"},
		"its drain has no time left":     {deployment(target(1, 1), has(replica(1, drained(time.Second)))), "1"},
		"as many are there as are to be": {deployment(crashes(1, -time.Hour), target(2, 1), has(replica(1, leave), replica(2, routableFor(2*time.Hour)))), "1"},
	} {
		got := decide.Places{Placed: decide.Placed{Missing: 1, Reason: decide.NoRoom, Message: "no room", Yield: []fleet.ReplicaID{replica(1).ID}}}
		plan := decide.Deployment(c.seen)
		require.Positive(t, plan.Create, name)
		require.Equal(t, c.ends, ids(decide.WithPlaces(plan, c.seen, got).Terminate), name)
	}
}

// F61, F71, F72: three waves of failures of new replicas that had been healthy return a rollout; others count for nothing.
func TestRolloutKeepsFailing(t *testing.T) {
	t.Parallel()
	worked := func(ago time.Duration) change {
		return func(r *fleet.ReplicaSeen) { r.Worked = noon.Add(-ago) }
	}
	failures := func(n int, ago time.Duration) changed {
		return func(s *fleet.DeploymentSeen) { s.Rollout.Failures, s.Rollout.FailedAt = n, noon.Add(-ago) }
	}
	unwell := state(fleet.ReplicaUnhealthy)
	paused := func(s *fleet.DeploymentSeen) { s.Rollout.State, s.Rollout.Want = fleet.RolloutPaused, 2 }
	healthyFor := func(ago time.Duration) change { return func(r *fleet.ReplicaSeen) { r.Since = noon.Add(-ago) } }
	for name, c := range map[string]struct {
		seen     fleet.DeploymentSeen
		failures int
		rule     string
	}{
		"one exits":                    {rolling(run(4, 1), run(1, 2, exited, worked(time.Minute))), 1, "rolling_out"},
		"one was never healthy":        {rolling(run(4, 1), run(1, 2, exited)), 0, "rolling_out"},
		"one answers 500":              {rolling(run(4, 1), run(1, 2, unwell, worked(time.Minute))), 1, "rolling_out"},
		"it does so still":             {rolling(run(4, 1), run(1, 2, unwell, worked(time.Minute)), failures(1, time.Second)), 1, "rolling_out"},
		"another of its wave":          {rolling(run(4, 1), run(1, 2, exited, worked(time.Minute)), failures(2, time.Second)), 2, "rolling_out"},
		"a third time":                 {rolling(run(4, 1), run(1, 2, exited, worked(time.Second)), failures(2, time.Second)), 3, decide.ReasonKeepsFailing},
		"also in a pause":              {rolling(run(4, 1), run(1, 2, exited, worked(time.Second)), failures(2, time.Second), inState(fleet.RolloutPaused)), 3, decide.ReasonKeepsFailing},
		"its node was stopped":         {rolling(run(4, 1), run(1, 2, nodeStopped, worked(time.Second)), failures(2, time.Minute)), 2, "rolling_out"},
		"its node was lost":            {rolling(run(4, 1), run(1, 2, back(time.Second), worked(time.Second)), failures(2, time.Minute)), 2, "rolling_out"},
		"a stable one exits":           {rolling(run(3, 1), run(1, 1, exited, worked(time.Second)), failures(2, time.Minute)), 2, "rolling_out"},
		"forgotten after resetSeconds": {rolling(run(2, 1), run(2, 2, healthyFor(10*time.Minute)), failures(2, time.Hour), paused), 0, "paused"},
		"remembered for as long":       {rolling(run(2, 1), run(2, 2, healthyFor(9*time.Minute)), failures(2, time.Hour), paused), 2, "paused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := decide.Deployment(c.seen)
			require.Equal(t, []any{c.failures, c.rule}, []any{p.Rollout.Failures, p.Rule}, p.Message)
			if c.rule == decide.ReasonKeepsFailing {
				require.Equal(t, []fleet.RolloutEvent{fleet.RolloutExpire}, p.Rollout.Events)
				require.Equal(t, decide.ReasonKeepsFailing, p.Rollout.Reason)
			}
		})
	}
}

// F31, F61: a recreation and a start create all at once, and are DEPLOYED once all are proven: until then they can return.
func TestRecreationIsProven(t *testing.T) {
	t.Parallel()
	for name, begins := range map[string]changed{"a recreation": recreating(2), "a start": startsIn(fleet.DeploymentPending, fleet.DeploymentProvisioning)} {
		require.Equal(t, 4, decide.Deployment(rolling(begins)).Rollout.Create, name)
		require.NotEqual(t, "deployed", decide.Deployment(rolling(begins, run(4, 2, routableFor(9*time.Second)))).Rule, name)
		require.Equal(t, "deployed", decide.Deployment(rolling(begins, run(4, 2, routableFor(10*time.Second)))).Rule, name)
	}
}

// F53, F71: when a proven replica fails, nothing ends until as many are proven again, and stable ones come before new ones.
func TestProofIsTakenBack(t *testing.T) {
	t.Parallel()
	one := strategy(fleet.Strategy{MaxSurge: &fleet.Share{Count: 1}})
	for name, c := range map[string]struct {
		seen           fleet.DeploymentSeen
		create, stable int
		ends           string
	}{
		"it exits":           {rolling(one, run(2, 1), run(1, 2, exited), run(1, 2)), 0, 1, "3"},
		"it turns unhealthy": {rolling(one, run(2, 1), run(1, 2, state(fleet.ReplicaUnhealthy)), run(1, 2)), 0, 1, ""},
		"the next visit":     {rolling(one, run(2, 1), run(1, 1, state(fleet.ReplicaStarting)), run(1, 2)), 1, 0, ""},
		"it starts again":    {rolling(one, run(2, 1), run(1, 2, routableFor(time.Second)), run(1, 2)), 0, 1, ""},
	} {
		p := decide.Deployment(c.seen)
		require.Equal(t, []any{c.create, c.stable, c.ends}, []any{p.Rollout.Create, p.Create, ids(p.Terminate)}, name)
	}
}
