package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// stepping has a canary of 25 % with a pause, and of 50 % for a minute.
func stepping(step int, reached time.Duration) func(*fleet.DeploymentSeen) {
	return func(s *fleet.DeploymentSeen) {
		s.Rollout.Strategy = fleet.Strategy{Type: fleet.StrategyCanary, Steps: []fleet.CanaryStep{{Weight: 25, Pause: true}, {Weight: 50, Interval: 60}}}
		s.Rollout.Step, s.Rollout.State = step, fleet.RolloutDeploying
		if reached > 0 {
			s.Rollout.StepAt = noon.Add(-reached)
		}
	}
}

func inState(to fleet.RolloutState) func(*fleet.DeploymentSeen) {
	return func(s *fleet.DeploymentSeen) { s.Rollout.State = to }
}

func recreating(step int) func(*fleet.DeploymentSeen) {
	return func(s *fleet.DeploymentSeen) {
		s.Rollout.Strategy.Type, s.Rollout.Step = fleet.StrategyRecreate, step
	}
}

// F31, F32, F33, F37, F69, S125: what each step of a canary and of a recreation creates and ends, and when it goes on.
func TestRolloutGoesStepByStep(t *testing.T) {
	t.Parallel()
	target := func(n int) func(*fleet.DeploymentSeen) { return func(s *fleet.DeploymentSeen) { s.Target = n } }
	late := func(s *fleet.DeploymentSeen) { s.Rollout.ProgressAt = noon.Add(-time.Hour) }
	back := func(step int) func(*fleet.DeploymentSeen) {
		return func(s *fleet.DeploymentSeen) {
			s.Rollout.State, s.Rollout.Reason, s.Rollout.Step = fleet.RolloutCanceling, decide.ReasonProgressDeadline, step
		}
	}
	most := func(n int) func(*fleet.DeploymentSeen) { return func(s *fleet.DeploymentSeen) { s.Rollout.Most = n } }
	unconfirmed := func(s *fleet.DeploymentSeen) {
		s.Unconfirmed = []fleet.UnconfirmedNode{{Node: "node-1", ProcessVersion: 1}}
	}
	for name, c := range map[string]struct {
		seen   fleet.DeploymentSeen
		rule   string
		create int // of the new revision
		stable int // created
		ends   int
		step   int
	}{
		"a canary that will pause says so":        {rolling(run(4, 1), stepping(0, 0)), "prepaused", 1, 0, 0, 0},
		"it brings its share":                     {rolling(run(4, 1), stepping(0, 0), inState(fleet.RolloutPrepaused)), "rolling_out", 1, 0, 0, 0},
		"proven, it pauses":                       {rolling(run(4, 1), run(1, 2), stepping(0, 0), inState(fleet.RolloutPrepaused)), "step_paused", 0, 0, 1, 0},
		"paused, it stays":                        {rolling(run(3, 1), run(1, 2), stepping(0, time.Hour), inState(fleet.RolloutPaused), late), "paused", 0, 0, 0, 0},
		"paused, it follows a higher target":      {rolling(run(3, 1), run(1, 2), stepping(0, time.Hour), inState(fleet.RolloutPaused), target(8)), "paused", 1, 4, 0, 0},
		"paused, it follows a lower target":       {rolling(run(6, 1), run(2, 2), stepping(0, time.Hour), inState(fleet.RolloutPaused)), "paused", 0, 0, 4, 0},
		"a step with an interval is reached":      {rolling(run(2, 1), run(2, 2), stepping(1, 0)), "step_reached", 0, 0, 0, 1},
		"it waits, and no clock runs":             {rolling(run(2, 1), run(2, 2), stepping(1, 59*time.Second), late), "rolling_out", 0, 0, 0, 1},
		"its interval is over":                    {rolling(run(2, 1), run(2, 2), stepping(1, time.Minute)), "next_step", 2, 0, 0, 2},
		"but not while a canary is bad":           {rolling(run(2, 1), run(1, 2), run(1, 2, state(fleet.ReplicaUnhealthy)), stepping(1, time.Hour)), "rolling_out", 0, 1, 0, 1},
		"bad for too long, it returns":            {rolling(run(2, 1), run(1, 2), run(1, 2, state(fleet.ReplicaUnhealthy)), stepping(1, time.Hour), late, most(2)), decide.ReasonProgressDeadline, 0, 2, 1, 1},
		"one stable replica stays until the last": {rolling(run(1, 1), run(1, 2), stepping(0, 0), target(1), inState(fleet.RolloutPrepaused)), "step_paused", 0, 0, 0, 0},
		"a recreation ends all":                   {rolling(run(4, 1), recreating(0)), "stopping", 0, 0, 4, 1},
		"nothing, with a node away":               {rolling(run(3, 1), run(1, 1, unheard(time.Second)), recreating(0)), decide.ReasonNotConnected, 0, 0, 0, 1},
		"nothing, with one that has not said":     {rolling(run(4, 1), recreating(0), unconfirmed), decide.ReasonNotConnected, 0, 0, 0, 1},
		"it waits for all":                        {rolling(run(4, 1, state(fleet.ReplicaTerminating)), recreating(1), late), "rolling_out", 0, 0, 0, 1},
		"all have ended":                          {rolling(recreating(1)), "stopped", 4, 0, 0, 2},
		"one has not said so":                     {rolling(recreating(1), unconfirmed), decide.ReasonNotConfirmed, 0, 0, 0, 1},
		"the new ones start":                      {rolling(recreating(2)), "rolling_out", 4, 0, 0, 2},
		"they do not":                             {rolling(run(4, 2, state(fleet.ReplicaStarting)), recreating(2), late), decide.ReasonProgressDeadline, 0, 0, 4, 1},
		"back, they end first":                    {rolling(run(4, 2, state(fleet.ReplicaTerminating)), recreating(1), back(1)), "returning", 0, 0, 0, 1},
		"back, then the stable ones start":        {rolling(recreating(1), back(1)), "stopped", 0, 4, 0, 2},
		"paused before it stopped anything":       {rolling(run(4, 1), recreating(0), inState(fleet.RolloutPaused)), "paused", 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := decide.Deployment(c.seen)
			require.Equal(t, c.rule, p.Rule, p.Message)
			require.Equal(t, []int{c.create, c.stable, c.ends, c.step}, []int{p.Rollout.Create, p.Create, len(p.Terminate), p.Rollout.Step}, "%s: %+v", p.Message, p.Rollout)
		})
	}
}

// F67, X3: what each request makes of each state and step.
func TestTurn(t *testing.T) {
	t.Parallel()
	at := func(state fleet.RolloutState, step int, reached bool) fleet.RolloutSeen {
		r := fleet.RolloutSeen{State: state, Step: step, Strategy: fleet.Strategy{Type: fleet.StrategyCanary, Steps: []fleet.CanaryStep{{Weight: 10}, {Weight: 20}}}}
		if reached {
			r.StepAt = noon
		}
		return r
	}
	for name, c := range map[string]struct {
		is      fleet.RolloutSeen
		on      fleet.RolloutEvent
		becomes fleet.RolloutSeen
		changes bool
	}{
		"paused on its way":          {at(fleet.RolloutPrepaused, 1, false), fleet.RolloutPause, at(fleet.RolloutPaused, 1, false), true},
		"paused in an interval":      {at(fleet.RolloutDeploying, 1, true), fleet.RolloutPause, at(fleet.RolloutPaused, 1, true), true},
		"paused twice":               {at(fleet.RolloutPaused, 1, true), fleet.RolloutPause, at(fleet.RolloutPaused, 1, true), false},
		"resumed on its way":         {at(fleet.RolloutPaused, 1, false), fleet.RolloutResume, at(fleet.RolloutDeploying, 1, false), true},
		"resumed at the step":        {at(fleet.RolloutPaused, 0, true), fleet.RolloutResume, at(fleet.RolloutDeploying, 1, false), true},
		"resumed in an interval":     {at(fleet.RolloutDeploying, 0, true), fleet.RolloutResume, at(fleet.RolloutDeploying, 1, false), true},
		"resumed, though it goes on": {at(fleet.RolloutDeploying, 0, false), fleet.RolloutResume, at(fleet.RolloutDeploying, 0, false), false},
		"promoted at a step":         {at(fleet.RolloutPaused, 0, true), fleet.RolloutPromote, at(fleet.RolloutDeploying, 2, false), true},
		"promoted on its way":        {at(fleet.RolloutPrepaused, 0, false), fleet.RolloutPromote, at(fleet.RolloutDeploying, 2, false), true},
		"promoted in the last":       {at(fleet.RolloutDeploying, 2, false), fleet.RolloutPromote, at(fleet.RolloutDeploying, 2, false), false},
		"promoted, paused in it":     {at(fleet.RolloutPaused, 2, false), fleet.RolloutPromote, at(fleet.RolloutDeploying, 2, false), true},
	} {
		now, changes, err := decide.Turn(c.is, c.on, 0)
		require.NoError(t, err, name)
		require.Equal(t, []any{c.becomes, c.changes}, []any{now, changes}, name)
	}
	for _, on := range []fleet.RolloutEvent{fleet.RolloutPause, fleet.RolloutResume, fleet.RolloutPromote} {
		_, _, err := decide.Turn(at(fleet.RolloutCanceling, 0, false), on, 0)
		require.Equal(t, fleet.IllegalState, fleet.KindOf(err), on)
	}
	for step, changes := range map[int]bool{0: true, 1: true, 2: false, 3: false} {
		_, changed, err := decide.Turn(at(fleet.RolloutPaused, 0, true), fleet.RolloutResume, step)
		require.NoError(t, err)
		require.Equal(t, changes, changed, "a request that means step %d", step)
	}
	require.Equal(t, 2, decide.FirstStep(at("", 0, false).Strategy, 0, 1), "too few are routable")
	require.Zero(t, decide.FirstStep(at("", 0, false).Strategy, 1, 1))
}

// X8: until when a pause waits is said, and shown as the end of its wait.
func TestPauseSaysUntilWhen(t *testing.T) {
	t.Parallel()
	seen := rolling(run(3, 1), run(1, 2), stepping(0, time.Hour), inState(fleet.RolloutPaused))
	by := seen.Rollout.Since.Add(fleet.DefaultPauseDeadline)
	plan := decide.Deployment(seen)
	require.Equal(t, by, plan.Rollout.Until)
	require.Equal(t, by, plan.Next)
	require.Contains(t, plan.Message, "paused, until "+by.UTC().Format(time.RFC3339)+" at most")
	seen = rolling(run(3, 1), run(1, 2), stepping(0, time.Hour))
	require.NotEqual(t, by, decide.Deployment(seen).Rollout.Until)
}

// S126: what a rollout is at.
func TestRolloutPhase(t *testing.T) {
	t.Parallel()
	canary := fleet.Strategy{Type: fleet.StrategyCanary, Steps: []fleet.CanaryStep{{Weight: 50, Pause: true}}}
	recreate := fleet.Strategy{Type: fleet.StrategyRecreate}
	for want, c := range map[fleet.RolloutPhase]struct {
		seen   fleet.RolloutSeen
		proven int
	}{
		"":                      {fleet.RolloutSeen{State: fleet.RolloutDeployed, Want: 2}, 2},
		fleet.PhaseInitializing: {fleet.RolloutSeen{State: fleet.RolloutDeploying}, 0},
		fleet.PhaseProvisioning: {fleet.RolloutSeen{State: fleet.RolloutPrepaused, Want: 2, Strategy: canary}, 1},
		fleet.PhaseProvisioned:  {fleet.RolloutSeen{State: fleet.RolloutPaused, Want: 2, Strategy: canary}, 2},
		fleet.PhasePromoting:    {fleet.RolloutSeen{State: fleet.RolloutDeploying, Step: 1, Want: 4, Strategy: canary}, 2},
		fleet.PhaseDraining:     {fleet.RolloutSeen{State: fleet.RolloutDeploying, Want: 4}, 4},
		fleet.PhaseRollingBack:  {fleet.RolloutSeen{State: fleet.RolloutCanceling, Want: 2}, 1},
	} {
		require.Equal(t, want, decide.RolloutPhase(c.seen, c.proven))
	}
	require.Equal(t, fleet.PhaseDraining, decide.RolloutPhase(fleet.RolloutSeen{State: fleet.RolloutDeploying, Step: 1, Strategy: recreate}, 0))
	require.Equal(t, fleet.PhaseProvisioning, decide.RolloutPhase(fleet.RolloutSeen{State: fleet.RolloutDeploying, Step: 2, Want: 2, Strategy: recreate}, 0))
}
