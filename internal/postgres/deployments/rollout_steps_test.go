package deployments_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func stopFirst(t *deployments.DeploymentTurn) { t.StopFirst = true }

// stepped has a canary of four replicas under way: a paused step of a quarter, and one of half that lasts for an hour.
func (b *bench) stepped() *bench {
	b.T.Helper()
	b.putDeployment(commanded("one"), inSteps)
	b.settles()
	b.putDeployment(commanded("two"), inSteps)
	return b
}

func inSteps(p *deployments.DeploymentPut) {
	p.Spec.Replicas = fleet.ReplicaBounds{Min: 1, Max: 10, Initial: 4}
	p.Spec.Strategy = atOnce(fleet.Strategy{Type: fleet.StrategyCanary, Steps: []fleet.CanaryStep{{Weight: 25, Pause: true}, {Weight: 50, Interval: 3600}}})
}

func (b *bench) goesOn() {
	b.T.Helper()
	for range 10 {
		b.visits()
		b.obey(nodeA)
		b.obey(nodeB)
	}
	b.visits()
}

// atStep is the state of the rollout, its step counted from 1, and how many run of which version.
func (b *bench) atStep() (fleet.RolloutState, int, map[int64]int) {
	b.T.Helper()
	b.goesOn()
	r := b.rollouts()[0]
	return r.State, r.Step + 1, b.versions()
}

func (b *bench) askStep(on fleet.RolloutEvent, step int) {
	b.T.Helper()
	_, err := b.TurnRollout(b.Ctx(), deployments.RolloutTurn{Write: stores.WriteOf(webKey), On: on, Number: 1, Step: step})
	require.NoError(b.T, err)
}

// F62, F67, F69, S125, X3: a canary waits at its steps, follows the target, and a late request changes nothing.
func TestCanaryWaitsAtItsSteps(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable().stepped()
	b.visits()
	require.Equal(t, fleet.RolloutPrepaused, b.rollouts()[0].State)
	requireStep := func(state fleet.RolloutState, step int, versions map[int64]int) {
		t.Helper()
		s, n, v := b.atStep()
		require.Equal(t, []any{state, step, versions}, []any{s, n, v}, b.rollouts()[0].Message)
	}
	requireStep(fleet.RolloutPaused, 1, map[int64]int{1: 3, 2: 1})
	_, err := b.turnDeployment(fleet.OperationScale, to(8))
	require.NoError(t, err)
	requireStep(fleet.RolloutPaused, 1, map[int64]int{1: 6, 2: 2})
	b.askStep(fleet.RolloutResume, 1)
	requireStep(fleet.RolloutDeploying, 2, map[int64]int{1: 4, 2: 4})
	b.askStep(fleet.RolloutResume, 1) // it is late
	requireStep(fleet.RolloutDeploying, 2, map[int64]int{1: 4, 2: 4})
	_, err = b.turnDeployment(fleet.OperationScale, to(2))
	require.NoError(t, err)
	requireStep(fleet.RolloutDeploying, 2, map[int64]int{1: 1, 2: 1})
	b.Exec(`UPDATE rollouts SET step_at = now() - interval '2 hours'`)
	requireStep(fleet.RolloutDeployed, 3, map[int64]int{2: 2})
	require.Equal(t, []string{"converge succeeded", "converge succeeded", "scale succeeded", "scale succeeded"}, b.deploymentOperations())
}

// F67, S125: a canary waits at its pause also after a rollout that failed, and what ends of the stable revision meanwhile is replaced by
// the stable one (nomad 6939).
func TestCanaryWaitsAfterAFailure(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable().stepped()
	b.visits()
	b.failing(2)
	b.stuck()
	b.settles()
	require.Equal(t, fleet.RolloutFailed, b.rollouts()[0].State)
	b.putDeployment(commanded("three"), inSteps)
	requireStep := func(during string) {
		t.Helper()
		state, step, _ := b.atStep()
		require.Equal(t, []any{fleet.RolloutPaused, 1, map[int64]int{1: 3, 3: 1}}, []any{state, step, b.revisions()}, during)
	}
	requireStep("its first step")
	for _, of := range []int64{1, 3} {
		is := func(r deployments.Replica) bool { return r.Revision == of }
		r := b.replicas()[slices.IndexFunc(b.replicas(), is)]
		b.tells(r.Node, exited(r.ID))
		requireStep("one exits")
		require.False(t, slices.ContainsFunc(b.replicas(), func(now deployments.Replica) bool { return now.ID == r.ID }))
	}
}

// F62, S110, S125: a drain moves each replica as its own revision: in the pause of a canary, which can be promoted afterwards (nomad 17842),
// and the stable one after a canary that failed (nomad 5619).
func TestDrainBesideACanary(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before func(*bench)
		runs   map[int64]int
		after  func(*bench)
	}{
		"in its pause": {(*bench).goesOn, map[int64]int{1: 3, 2: 1}, func(b *bench) {
			require.Equal(b.T, fleet.RolloutPaused, b.rollouts()[0].State)
			b.askStep(fleet.RolloutPromote, 0)
			b.settles()
			require.Equal(b.T, fleet.RolloutDeployed, b.rollouts()[0].State)
			require.Equal(b.T, map[int64]int{2: 4}, b.revisions())
		}},
		"after it failed": {func(b *bench) {
			b.failing(2)
			b.stuck()
			b.settles()
		}, map[int64]int{1: 4}, func(b *bench) { require.Equal(b.T, []fleet.RolloutState{fleet.RolloutFailed}, b.ends()) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t).deployable().stepped()
			b.visits()
			leaves := b.replicas()[slices.IndexFunc(b.replicas(), func(r deployments.Replica) bool { return r.Revision == 2 })].Node
			live := func(r deployments.Replica) bool { return r.State.Live() }
			c.before(b)
			require.True(t, slices.ContainsFunc(b.on(leaves), live))
			b.MustDrain(stores.DrainOf(leaves, 60))
			b.goesOn()
			require.False(t, slices.ContainsFunc(b.on(leaves), live))
			require.Equal(t, c.runs, b.revisions())
			c.after(b)
		})
	}
}

// S125, X6: a step without a pause goes on by itself, also after one of its replicas had to be replaced (nomad 8150), and when there was no
// room for it at first (nomad 20308).
func TestCanaryGoesOnByItself(t *testing.T) {
	t.Parallel()
	by := func(steps ...fleet.CanaryStep) func(*deployments.DeploymentPut) {
		return func(p *deployments.DeploymentPut) {
			p.Spec.Replicas = fleet.ReplicaBounds{Min: 1, Max: 8, Initial: 8}
			p.Spec.Strategy = atOnce(fleet.Strategy{Type: fleet.StrategyCanary, Steps: steps, WhenFull: fleet.FullWait})
		}
	}
	b := setup(t).deployable()
	b.putDeployment(commanded("one"), by())
	b.settles()
	b.putDeployment(commanded("two"), by(fleet.CanaryStep{Weight: 25, Interval: 3600}))
	state, step, versions := b.atStep()
	require.Equal(t, []any{fleet.RolloutDeploying, 1, map[int64]int{1: 8}}, []any{state, step, versions}, "both nodes are full")
	require.True(t, b.rollouts()[0].ProgressAt.Before(b.rollouts()[0].Until), "it does not wait for ever")
	b.disconnect(nodeA)
	b.connect(nodeA, func(r *fleet.Registration) { r.Facts.Resources.CPU = 8 })
	_, _, versions = b.atStep()
	require.Equal(t, map[int64]int{1: 6, 2: 2}, versions, "there is room")
	b.failing(2)
	state, step, versions = b.atStep()
	require.Equal(t, []any{fleet.RolloutDeploying, 1, map[int64]int{1: 6, 2: 2}}, []any{state, step, versions}, "they were replaced")
	b.Exec(`UPDATE rollouts SET step_at = now() - interval '2 hours'`)
	b.settles()
	require.Equal(t, []any{fleet.RolloutDeployed, map[int64]int{2: 8}}, []any{b.rollouts()[0].State, b.versions()})
}

// S125: past all steps at once; and without steps in front of a stable revision of which too few run.
func TestCanaryPromoted(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable().stepped()
	b.goesOn()
	b.askStep(fleet.RolloutPromote, 0)
	state, _, versions := b.atStep()
	require.Equal(t, []any{fleet.RolloutDeployed, map[int64]int{2: 4}}, []any{state, versions})

	b.failing(2)
	four := asking(func(s *fleet.DeploymentSpec) {
		s.Replicas = fleet.ReplicaBounds{Min: 1, Max: 10, Initial: 4}
		s.Strategy = atOnce(fleet.Strategy{Type: fleet.StrategyCanary, Steps: []fleet.CanaryStep{{Weight: 25, Pause: true}}})
	})
	b.putDeployment(commanded("three"), four)
	state, _, _ = b.atStep()
	require.Equal(t, fleet.RolloutDeployed, state, "none of it ran")
}

// F23, F31, F32, F33, F59: a restart that stops first ends all replicas before it creates one, and starts again what it stopped where a node
// does not confirm it.
func TestRestartStopsFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		during func(*bench)
		ends   string
		end    fleet.RolloutState
		runs   map[int64]int
	}{
		"confirmed": {func(*bench) {}, "restart succeeded", fleet.RolloutDeployed, map[int64]int{2: 2}},
		"not confirmed": {func(b *bench) {
			b.disconnect(nodeA)
			b.late()
			r := b.rollouts()[0]
			require.Equal(b.T, fleet.RolloutCanceling, r.State)
			require.Contains(b.T, r.Message, "replicas may run on these nodes: "+string(nodeA))
			b.connect(nodeA)
		}, "restart failed", fleet.RolloutFailed, map[int64]int{3: 2}},
		"cancelled": {func(b *bench) {
			_, err := b.turnRollout(fleet.RolloutCancel, 0)
			require.NoError(b.T, err)
		}, "restart cancelled", fleet.RolloutCanceled, map[int64]int{3: 2}},
		"superseded": {func(b *bench) { b.putDeployment(commanded("two")) }, "restart superseded", fleet.RolloutSuperseded, map[int64]int{3: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t).deployable()
			b.putDeployment(commanded("one"))
			b.settles()
			_, err := b.turnDeployment(fleet.OperationRestart, stopFirst)
			require.NoError(t, err)
			b.visits()
			require.Empty(t, b.versions(), "all end, and none is created")
			c.during(b)
			b.settles()
			require.Equal(t, c.runs, b.versions())
			require.Contains(t, b.deploymentOperations(), c.ends)
			require.Contains(t, b.ends(), c.end)
		})
	}
}

// F33: with a node that is not connected, nothing is stopped.
func TestRestartStopsNothingBesideALostNode(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(commanded("one"))
	b.settles()
	b.disconnect(nodeB)
	op, err := b.turnDeployment(fleet.OperationRestart, stopFirst)
	require.NoError(t, err)
	b.visits()
	b.connect(nodeB)
	b.settles()
	require.Equal(t, map[int64]int{1: 2}, b.versions(), "they run on")
	require.Equal(t, "restart failed", b.deploymentOperations()[1])
	o, err := b.GetOperation(b.Ctx(), op.Operation.ID)
	require.NoError(t, err)
	require.Equal(t, "not_connected", o.Reason)
	require.Contains(t, o.Message, "replicas may run on these nodes: "+string(nodeB))
	_, err = b.turnDeployment(fleet.OperationScale, to(0))
	require.NoError(t, err)
	b.settles()
	_, err = b.turnDeployment(fleet.OperationRestart, stopFirst)
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err), "nothing runs")
}

// F63, X3: what a rollback restores, and what is left to retry.
func TestRevisionBefore(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(commanded("one"))
	b.settles()
	_, err := b.RevisionBefore(b.Ctx(), web)
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
	b.putDeployment(commanded("two"))
	before := func() int64 {
		n, err := b.RevisionBefore(b.Ctx(), web)
		require.NoError(t, err)
		return n
	}
	require.EqualValues(t, 1, before(), "the stable one")
	b.settles()
	require.EqualValues(t, 1, before(), "that before")
	again := func(t *deployments.DeploymentTurn) { t.Again = true }
	_, err = b.turnDeployment(fleet.OperationConverge, again)
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err), "nothing to retry")
	b.putDeployment(commanded("three"))
	b.visits()
	b.failing(3)
	b.stuck()
	b.settles()
	_, err = b.RevisionBefore(b.Ctx(), web)
	var refused *fleet.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, []string{
		string(fleet.IllegalState), "deployment web is already at revision 2: the rollout of revision 3 did not end DEPLOYED",
		"roll revision 3 out again: holdfast rollout retry web; or name an earlier one: holdfast rollout rollback web --revision N",
	}, []string{string(refused.Kind), refused.Message, refused.Hint}, "it would release what runs")
	_, err = b.turnDeployment(fleet.OperationConverge, again)
	require.NoError(t, err)
	b.settles()
	require.Equal(t, fleet.RolloutDeployed, b.ends()[0])
	require.EqualValues(t, 2, before(), "that before")
	_, err = b.turnDeployment(fleet.OperationRestart, stopFirst)
	require.NoError(t, err)
	require.EqualValues(t, 2, before(), "a restart brings no other content")
	b.settles()
	require.EqualValues(t, 2, before(), "nor has it")
	b.putDeployment(commanded("two"))
	b.settles()
	require.EqualValues(t, 3, before(), "the newest of other content")
	b.putDeployment(commanded("two"), func(p *deployments.DeploymentPut) { p.Spec.State = fleet.StateStopped })
	require.EqualValues(t, 4, before(), "what ran until it was stopped")
}

// F51, F63: a rollback withdraws what waits for a restart.
func TestRevisionBeforeWhatWaits(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(waiting("one"))
	b.settles()
	b.putDeployment(waiting("two"))
	v := b.viewed()
	require.NotNil(t, v.Pending)
	n, err := b.RevisionBefore(b.Ctx(), web)
	require.NoError(t, err)
	require.Equal(t, v.Revision, n)
}

// X13: a door that turns a rollout is answered with an operation that has ended, and turns it once.
func TestDoorTurnsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable().stepped()
	b.goesOn()
	w := stores.WriteOf(webKey)
	w.Door = postgres.Door{Workflow: "person", Run: "run"}
	for range 2 {
		out, err := b.TurnRollout(b.Ctx(), deployments.RolloutTurn{Write: w, On: fleet.RolloutResume})
		require.NoError(t, err)
		require.Equal(t, fleet.OperationSucceeded, out.Operation.State)
		_, step, _ := b.atStep()
		require.Equal(t, 2, step)
	}
}
