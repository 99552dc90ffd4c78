package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// startsIn has the rollout start what did not run, in a state of the deployment.
func startsIn(began, now fleet.DeploymentState) func(*fleet.DeploymentSeen) {
	return func(s *fleet.DeploymentSeen) { s.Rollout.BeganIn, s.Rollout.AtStart, s.State = began, 0, now }
}

// F61, S33, S107, S122: a start moves the deployment, creates the new revision alone, and counts its failures as those of what runs.
func TestStart(t *testing.T) {
	t.Parallel()
	const pending, provisioning, gaveUp = fleet.DeploymentPending, fleet.DeploymentProvisioning, fleet.DeploymentError
	late := func(s *fleet.DeploymentSeen) { s.Rollout.ProgressAt = noon.Add(-24 * time.Hour) }
	back := func(s *fleet.DeploymentSeen) {
		s.Rollout.State, s.Rollout.Reason = fleet.RolloutCanceling, decide.ReasonProgressDeadline
	}
	for name, c := range map[string]struct {
		seen                    fleet.DeploymentSeen
		events                  []fleet.DeploymentEvent
		create, stable, crashes int
	}{
		"it begins":                 {rolling(startsIn(pending, pending)), []fleet.DeploymentEvent{fleet.DeploymentBegun}, 4, 0, 0},
		"over what was given up":    {rolling(startsIn(gaveUp, gaveUp)), []fleet.DeploymentEvent{fleet.DeploymentUpdated, fleet.DeploymentBegun}, 4, 0, 0},
		"one runs":                  {rolling(startsIn(pending, provisioning), run(1, 2)), []fleet.DeploymentEvent{fleet.DeploymentAvailable}, 3, 0, 0},
		"one crashes":               {rolling(startsIn(pending, provisioning), run(1, 2, exited)), nil, 0, 0, 1},
		"it turns round":            {rolling(startsIn(pending, provisioning), late), nil, 0, 4, 0},
		"the stable one runs again": {rolling(startsIn(pending, provisioning), back, run(4, 1)), []fleet.DeploymentEvent{fleet.DeploymentAvailable}, 0, 0, 0},
		"nothing came back":         {rolling(startsIn(gaveUp, provisioning), back, late), []fleet.DeploymentEvent{fleet.DeploymentGivenUp}, 0, 0, 0},
	} {
		plan := decide.Deployment(c.seen)
		require.Equal(t, c.events, plan.Events, name)
		require.Equal(t, []int{c.create, c.stable, c.crashes}, []int{plan.Rollout.Create, plan.Create, plan.Rollout.Crashes}, name)
	}
}

// S36: a revision is proven once as many as are needed are healthy, and while any are wanted.
func TestProven(t *testing.T) {
	t.Parallel()
	target := func(n int) func(*fleet.DeploymentSeen) {
		return func(s *fleet.DeploymentSeen) { s.Target, s.Min = n, n }
	}
	for name, c := range map[string]struct {
		seen fleet.DeploymentSeen
		want bool
	}{
		"all run":           {deployment(target(2), run(2, 1)), true},
		"too few run":       {deployment(target(2), run(1, 1)), false},
		"none is to run":    {deployment(target(0)), false},
		"during a rollout":  {rolling(run(4, 1)), false},
		"it was given up":   {deployment(target(2), run(2, 1), func(s *fleet.DeploymentSeen) { s.State = fleet.DeploymentError }), false},
		"others run so far": {deployment(target(2), run(2, 0)), false},
	} {
		require.Equal(t, c.want, decide.Deployment(c.seen).Proven, name)
	}
}
