package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// rolling is a deployment of revision 1 with a rollout of revision 2, process version 2, under way.
func rolling(change ...func(*fleet.DeploymentSeen)) fleet.DeploymentSeen {
	return deployment(append([]func(*fleet.DeploymentSeen){func(s *fleet.DeploymentSeen) {
		s.Target = 4
		s.Rollout = &fleet.RolloutSeen{
			Number: 1, State: fleet.RolloutDeploying, Since: noon.Add(-time.Minute), ProgressAt: noon.Add(-time.Minute), Progress: 10 * time.Minute, Deadline: noon.Add(time.Hour), AtStart: 4,
			To: fleet.RevisionLine{Revision: 2, ProcessVersion: 2, Startup: time.Minute, Stop: 10 * time.Second},
		}
	}}, change...)...)
}

// run adds healthy replicas of a process version.
func run(n int, of int64, with ...change) func(*fleet.DeploymentSeen) {
	return func(s *fleet.DeploymentSeen) {
		for range n {
			s.Replicas = append(s.Replicas, replica(len(s.Replicas)+1, append([]change{version(of)}, with...)...))
		}
	}
}

func strategy(of fleet.Strategy) func(*fleet.DeploymentSeen) {
	return func(s *fleet.DeploymentSeen) { s.Rollout.Strategy = of }
}

// F35, F36, F53, F64, F69, F70, F71, F73, F74, S123, S126: how many of the new revision are created, and how many of which end, at each stage.
func TestRolloutSteps(t *testing.T) {
	t.Parallel()
	preparing := func(ago time.Duration) change {
		return func(r *fleet.ReplicaSeen) {
			r.State, r.Phase, r.Since = fleet.ReplicaStarting, fleet.PhasePreparing, noon.Add(-ago)
		}
	}
	late := func(s *fleet.DeploymentSeen) { s.Rollout.ProgressAt = noon.Add(-time.Hour) }
	back := func(s *fleet.DeploymentSeen) {
		s.Rollout.State, s.Rollout.Reason = fleet.RolloutCanceling, decide.ReasonProgressDeadline
	}
	one := &fleet.Share{Count: 1}
	for name, c := range map[string]struct {
		seen   fleet.DeploymentSeen
		rule   string
		create int // of the new revision
		stable int // created
		ends   int
	}{
		"it begins with the surge":              {rolling(run(4, 1)), "rolling_out", 2, 0, 0},
		"as many as are proven end":             {rolling(run(4, 1), run(2, 2)), "rolling_out", 0, 0, 2},
		"then more are created":                 {rolling(run(2, 1), run(2, 2)), "rolling_out", 2, 0, 0},
		"all others end":                        {rolling(run(2, 1), run(4, 2)), "rolling_out", 0, 0, 2},
		"it is deployed":                        {rolling(run(4, 2)), "deployed", 0, 0, 0},
		"one is bad: none is added":             {rolling(run(4, 1), run(1, 2, state(fleet.ReplicaUnhealthy))), "rolling_out", 0, 0, 0},
		"some may be missing":                   {rolling(run(4, 1), strategy(fleet.Strategy{MaxSurge: one, MaxUnavailable: one})), "rolling_out", 1, 0, 1},
		"only some are on their way":            {rolling(run(4, 1), strategy(fleet.Strategy{MaxInFlight: 1})), "rolling_out", 1, 0, 0},
		"they are not healthy for long enough":  {rolling(run(4, 1), run(2, 2, justNow), strategy(fleet.Strategy{MinHealthyTime: new(60.0)})), "rolling_out", 0, 0, 0},
		"a crash of the stable one is repaired": {rolling(run(3, 1), run(2, 2, justNow), strategy(fleet.Strategy{MinHealthyTime: new(60.0)})), "rolling_out", 0, 1, 0},
		"what is in between ends first":         {rolling(run(2, 1), run(2, 7), run(2, 2)), "rolling_out", 0, 0, 2},
		"without progress it returns":           {rolling(run(4, 1), run(2, 2, state(fleet.ReplicaStarting)), late), decide.ReasonProgressDeadline, 0, 0, 2},
		"an image is prepared":                  {rolling(run(4, 1), run(2, 2, preparing(time.Minute)), late), "rolling_out", 0, 0, 0},
		"but not for ever":                      {rolling(run(4, 1), run(2, 2, preparing(time.Hour)), late), decide.ReasonProgressDeadline, 0, 0, 2},
		"its nodes were just heard again":       {rolling(run(4, 1), run(2, 2, state(fleet.ReplicaStarting), heardSince(time.Minute)), late), "rolling_out", 0, 0, 0},
		"the stable one comes back":             {rolling(run(2, 1), run(2, 2), back), "returning", 0, 2, 0},
		"it replaces what is in between":        {rolling(run(2, 1), run(2, 7), back), "returning", 0, 2, 0},
		"what is in between ends then":          {rolling(run(4, 1), run(2, 7), back), "returning", 0, 0, 2},
		"what it leaves ends as that does":      {rolling(run(4, 1), run(2, 2), back), "returning", 0, 0, 2},
		"it has returned":                       {rolling(run(4, 1), back), "returned", 0, 0, 0},
		"it does not come back":                 {rolling(run(2, 1), run(2, 2), back, late, func(s *fleet.DeploymentSeen) { s.Rollout.Most = 2 }), decide.ReasonReturnIncomplete, 0, 2, 0},
		"a node on its way is not heard":        {rolling(run(4, 1), run(2, 2, state(fleet.ReplicaStarting), unheard(time.Second)), late), "rolling_out", 0, 0, 0},
		"the region was away": {rolling(run(4, 1), run(2, 2, state(fleet.ReplicaStarting)), late, func(s *fleet.DeploymentSeen) {
			s.Rollout.There = noon.Add(-time.Second)
		}), "rolling_out", 0, 0, 0},
		"it is paused for too long": {rolling(run(4, 1), func(s *fleet.DeploymentSeen) {
			s.Rollout.State, s.Rollout.Since = fleet.RolloutPaused, noon.Add(-fleet.DefaultPauseDeadline)
		}), decide.ReasonPauseDeadline, 0, 0, 0},
		"it is over at last": {rolling(run(4, 1), run(2, 2), func(s *fleet.DeploymentSeen) { s.Rollout.Deadline = noon }), decide.ReasonRolloutDeadline, 0, 0, 2},
		"it is paused": {rolling(run(3, 1), run(1, 2), late, func(s *fleet.DeploymentSeen) {
			s.Rollout.State, s.Rollout.Want = fleet.RolloutPaused, 1
		}), "paused", 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := decide.Deployment(c.seen)
			require.Equal(t, c.rule, p.Rule, p.Message)
			require.Equal(t, []int{c.create, c.stable, c.ends}, []int{p.Rollout.Create, p.Create, len(p.Terminate)}, "%+v", p)
			for _, s := range p.Terminate {
				of := c.seen.Replicas[int(s.ID[len(s.ID)-1]-'1')].ProcessVersion
				require.True(t, name != "what is in between ends first" || of == 7)
			}
		})
	}
}

// F61: stopped or deleted, or no longer RUNNING, a deployment has no rollout.
func TestRolloutIsOvertaken(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*fleet.DeploymentSeen){
		"deleted":   func(s *fleet.DeploymentSeen) { s.Deleting = true },
		"stopped":   func(s *fleet.DeploymentSeen) { s.Stopped = true },
		"given up":  func(s *fleet.DeploymentSeen) { s.State = fleet.DeploymentError },
		"begun now": func(s *fleet.DeploymentSeen) { s.State = fleet.DeploymentPending },
	} {
		p := decide.Deployment(rolling(run(4, 1), run(2, 2), change))
		require.Equal(t, []fleet.RolloutEvent{fleet.RolloutSupersede}, p.Rollout.Events, name)
		require.True(t, p.More)
	}
}

// X8: a rollout says how many replicas are proven of the revision that is to run, and how many are healthy of both.
func TestRolloutSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	back := func(s *fleet.DeploymentSeen) {
		s.Rollout.State, s.Rollout.Reason = fleet.RolloutCanceling, decide.ReasonProgressDeadline
	}
	for name, c := range map[string]struct {
		seen fleet.DeploymentSeen
		says string
	}{
		"it goes on":         {rolling(run(4, 1), run(2, 2)), "revision 2 replaces revision 1: 2 of 4 replicas are proven, 6 are healthy"},
		"a canary is held":   {rolling(run(3, 1), run(1, 2), stepping(0, time.Hour), inState(fleet.RolloutPaused)), "reached; resume or promote it: 1 of 4 replicas are proven, 4 are healthy"},
		"new ones are young": {rolling(run(4, 1), run(2, 2, justNow), strategy(fleet.Strategy{MinHealthyTime: new(60.0)})), "0 of 4 replicas are proven, 6 are healthy"},
		"a node is away":     {rolling(run(3, 1), run(1, 1, unheard(time.Second)), run(1, 2, state(fleet.ReplicaStarting))), "0 of 4 replicas are proven, 3 are healthy"},
		"it returns":         {rolling(run(3, 1), run(2, 2), back), "it returns from revision 2 to revision 1, because of progress_deadline: 3 of 4 replicas are proven, 5 are healthy"},
	} {
		require.Contains(t, decide.Deployment(c.seen).Message, c.says, name)
	}
}
