package deployments_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

var (
	downTo   = asking(func(s *fleet.DeploymentSpec) { s.Replicas.Min = 0 })
	withMost = asking(func(s *fleet.DeploymentSpec) { s.Recovery.GiveUp = 1 })
)

// start is how a deployment comes to start another revision, and its state then.
type start struct {
	state fleet.DeploymentState
	by    func(*bench)
}

// idle are the ways in which nothing is to run of a deployment whose stable revision is "one", and in which "two" starts then.
var idle = map[string]start{
	"stopped, and started by a release": {fleet.DeploymentProvisioning, func(b *bench) {
		b.putDeployment(commanded("one"), asking(halted))
		b.settles()
		b.putDeployment(commanded("two"))
	}},
	"released while stopped": {fleet.DeploymentProvisioning, func(b *bench) {
		b.putDeployment(commanded("two"), asking(halted))
		b.settles()
		b.putDeployment(commanded("two"))
	}},
	"released with a target of 0": {fleet.DeploymentRunning, func(b *bench) {
		b.scalesTo(0)
		b.putDeployment(commanded("two"), downTo)
		b.settles()
		b.scalesTo(2)
	}},
	"given up": {fleet.DeploymentProvisioning, func(b *bench) {
		b.failing(1)
		b.settles()
		require.Equal(b.T, fleet.DeploymentError, b.seen().State)
		b.putDeployment(commanded("two"))
	}},
}

func (b *bench) scalesTo(n int) {
	b.T.Helper()
	_, err := b.turnDeployment(fleet.OperationScale, to(n))
	require.NoError(b.T, err)
	if n == 0 {
		b.settles()
	}
}

// starts has the stable revision run, and then another one start.
func (b *bench) starts(how start) (began deployments.Rollout) {
	b.T.Helper()
	b.putDeployment(commanded("one"), downTo, withMost)
	b.settles()
	how.by(b)
	b.visits()
	r := b.rollouts()[0]
	require.EqualValues(b.T, 1, r.From, "it returns to what ran")
	require.Equal(b.T, how.state, b.seen().State)
	return r
}

// F61, F62, S33, S122, X2: what is released while nothing is to run starts as a rollout, and is the stable revision once it runs.
func TestStartIsARollout(t *testing.T) {
	t.Parallel()
	for name, how := range idle {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t).deployable()
			r := b.starts(how)
			require.Equal(t, map[int64]int{r.ProcessVersion: 2}, b.versions(), "nothing of the stable revision starts")
			b.settles()
			require.Equal(t, map[int64]int{r.ProcessVersion: 2}, b.versions())
			require.Equal(t, fleet.RolloutDeployed, b.ends()[0])
			v := b.viewed()
			require.Equal(t, []any{fleet.DeploymentRunning, r.To, int64(0)}, []any{v.State, v.Revision, v.Stable})
			require.NotContains(t, b.deploymentOperations(), "converge failed")
		})
	}
}

// F63, S127, X8: a start that fails returns to the revision that ran last, and the deployment runs again.
func TestStartReturns(t *testing.T) {
	t.Parallel()
	for name, how := range idle {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t).deployable()
			r := b.starts(how)
			b.failing(r.ProcessVersion)
			b.stuck()
			b.settles()
			require.Equal(t, fleet.RolloutFailed, b.ends()[0])
			v := b.viewed()
			require.Equal(t, []any{fleet.DeploymentRunning, int64(1), 2}, []any{v.State, v.Revision, v.Counts.Routable})
			_, err := b.turnDeployment(fleet.OperationConverge, func(t *deployments.DeploymentTurn) { t.Again = true })
			require.NoError(t, err, "and may be tried again")
			b.settles()
			require.Equal(t, fleet.RolloutDeployed, b.ends()[0])
		})
	}
}

// F63, S44: a deployment that was given up is so again where neither revision starts.
func TestStartOverWhatWasGivenUp(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.starts(idle["given up"])
	b.stuck()
	b.visits()
	b.stuck()
	b.settles()
	r := b.rollouts()[0]
	require.Equal(t, []string{"FAILED", "return_incomplete"}, []string{string(r.State), r.Reason})
	require.Equal(t, fleet.DeploymentError, b.seen().State)
}

// F61: a stop during a start, and the next start.
func TestStopDuringAStart(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.starts(idle["released while stopped"])
	b.putDeployment(commanded("two"), asking(halted))
	b.settles()
	require.Equal(t, []fleet.RolloutState{fleet.RolloutSuperseded}, b.ends())
	require.Empty(t, b.versions())
	require.EqualValues(t, 1, b.viewed().Stable)
	b.putDeployment(commanded("three"))
	b.settles()
	require.Equal(t, []fleet.RolloutState{fleet.RolloutDeployed, fleet.RolloutSuperseded}, b.ends())
	require.EqualValues(t, 1, b.rollouts()[0].From)
}

// F61, F73: a release during a start goes on from where that began.
func TestReleaseDuringAStart(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.starts(idle["given up"])
	b.putDeployment(commanded("three"))
	require.Equal(t, fleet.DeploymentError, b.seen().Rollout.BeganIn)
	b.settles()
	require.Equal(t, []fleet.RolloutState{fleet.RolloutDeployed, fleet.RolloutSuperseded}, b.ends())
	require.EqualValues(t, 1, b.rollouts()[0].From)
}

// F62, S126: a rollout whose target becomes 0 proves nothing: the stable revision stays that.
func TestRolloutIsUnproven(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(commanded("one"), downTo)
	b.settles()
	b.putDeployment(commanded("two"), downTo)
	b.visits()
	b.scalesTo(0)
	r := b.rollouts()[0]
	require.Equal(t, []string{"DEPLOYED", "unproven"}, []string{string(r.State), r.Reason})
	v := b.viewed()
	require.EqualValues(t, []int64{2, 1}, []int64{v.Revision, v.Stable})
	b.scalesTo(2)
	b.settles()
	require.Equal(t, []fleet.RolloutState{fleet.RolloutDeployed, fleet.RolloutDeployed}, b.ends())
	require.EqualValues(t, []int64{2, 0}, []int64{b.viewed().Revision, b.viewed().Stable})
}

// F75: the stable revision is kept for as long as a start may return to it.
func TestStableRevisionIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(commanded("one"))
	b.settles()
	b.putDeployment(commanded("two"), asking(halted))
	b.settles()
	b.Exec(`UPDATE deployment_revisions SET created_at = now() - interval '10 years'`)
	b.Exec(`UPDATE deployments SET last_revision = 500`)
	b.Exec(`DELETE FROM operations`)
	b.Collect(fleet.CollectDeployments)
	b.Exec(`UPDATE deployments SET last_revision = 2`)
	b.putDeployment(commanded("two"))
	b.settles()
	require.EqualValues(t, 1, b.rollouts()[0].From)
}
