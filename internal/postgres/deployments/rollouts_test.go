package deployments_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// running gives a deployment whose two replicas run "one", and releases another command.
func (b *bench) running(command string) *bench {
	b.T.Helper()
	b.putDeployment(commanded("one"))
	b.settles()
	b.putDeployment(commanded(command))
	return b
}

func commanded(command string) func(*deployments.DeploymentPut) {
	return asking(func(s *fleet.DeploymentSpec) { s.Process.Command = []string{command} })
}

func (b *bench) rollouts() []deployments.Rollout {
	b.T.Helper()
	all, err := b.ListRollouts(b.Ctx(), web, postgres.Place{}, 100)
	require.NoError(b.T, err)
	return all
}

// ends are the states of the rollouts, newest first.
func (b *bench) ends() (all []fleet.RolloutState) {
	b.T.Helper()
	for _, r := range b.rollouts() {
		all = append(all, r.State)
	}
	return all
}

func (b *bench) turnRollout(on fleet.RolloutEvent, number int64) (postgres.Started, error) {
	b.T.Helper()
	return b.TurnRollout(b.Ctx(), deployments.RolloutTurn{Write: stores.WriteOf(webKey), On: on, Number: number})
}

// versions counts the live replicas by process version.
func (b *bench) versions() map[int64]int {
	b.T.Helper()
	out := map[int64]int{}
	for _, r := range b.replicas() {
		if r.State.Live() {
			out[r.ProcessVersion]++
		}
	}
	return out
}

// revisions counts the live replicas by the revision that they run.
func (b *bench) revisions() map[int64]int {
	b.T.Helper()
	out := map[int64]int{}
	for _, r := range b.replicas() {
		if r.State.Live() {
			out[r.Revision]++
		}
	}
	return out
}

// failing has what is of a process version exit.
func (b *bench) failing(version int64) {
	b.T.Helper()
	for _, r := range b.replicas() {
		if r.ProcessVersion == version && r.State.Live() {
			b.tells(r.Node, exited(r.ID))
		}
	}
}

// stuck has the rollout be without progress for longer than it may, on nodes that were connected all the time.
func (b *bench) stuck() {
	b.Exec(`UPDATE connections SET active_at = active_at - interval '2 days'`)
	b.Exec(`UPDATE rollouts SET progress_at = now() - interval '1 day' WHERE ended_at IS NULL`)
}

// F53, F61, F64, F68, S122, X2: the stable revision stays the deployment's own until the new one runs everywhere.
func TestRolloutIsDeployed(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable().running("two")
	b.visits()
	seen := b.seen()
	require.EqualValues(t, 1, seen.Revision)
	require.EqualValues(t, 2, seen.Rollout.To.Revision)
	require.Equal(t, map[int64]int{1: 2, 2: 1}, b.versions(), "half of the target above it")
	v := b.viewed()
	require.EqualValues(t, []int64{1, 2}, []int64{v.Revision, v.Deploying})
	b.settles()
	require.Equal(t, map[int64]int{2: 2}, b.versions())
	require.Equal(t, []fleet.RolloutState{fleet.RolloutDeployed}, b.ends())
	v = b.viewed()
	require.EqualValues(t, []int64{2, 0}, []int64{v.Revision, v.Deploying})
	require.Nil(t, v.Rollout)
	require.Equal(t, []string{"converge succeeded", "converge succeeded"}, b.deploymentOperations())
}

// F76: the newest hundred rollouts of a deployment are kept.
func TestRolloutsAreKept(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable().running("two")
	b.settles()
	b.Exec(`INSERT INTO rollouts (deployment, number, uid, project, from_revision, to_revision, process_version, strategy, state, progress, deadline_at, created_by, ended_at)
		SELECT deployment, n, uid, project, from_revision, to_revision, process_version, strategy, state, progress, deadline_at, created_by, ended_at
		FROM rollouts, generate_series(2, 120) n`)
	b.putDeployment(commanded("three"))
	b.settles()
	all := b.rollouts()
	require.Len(t, all, 100)
	require.EqualValues(t, []int64{121, 22}, []int64{all[0].Number, all[99].Number})
}

// F63, F65, F71, S126, X8: a revision that does not get healthy is rolled back at its deadline, and not tried again until somebody asks;
// what works never ends for it (nomad 6864).
func TestRolloutReturns(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable().running("two")
	b.visits()
	b.failing(2)
	b.visits()
	require.Contains(t, b.rollouts()[0].Message, "exit status 1", "it says why")
	b.stuck()
	b.settles()
	require.Equal(t, map[int64]int{1: 2}, b.versions(), "what was stable never ended")
	r := b.rollouts()[0]
	require.Equal(t, []string{"FAILED", "progress_deadline"}, []string{string(r.State), r.Reason})
	require.Contains(t, r.Message, "exit status 1")
	require.Equal(t, []string{"converge succeeded", "converge failed"}, b.deploymentOperations())
	require.EqualValues(t, 3, b.seen().ProcessVersion, "what is created from now on lies above what failed")

	require.Nil(t, b.putDeployment(commanded("two")).Operation, "an unchanged PUT does not try again")
	b.settles()
	require.Len(t, b.rollouts(), 1)
	out, err := b.turnDeployment(fleet.OperationConverge)
	require.NoError(t, err)
	require.NotNil(t, out.Operation)
	b.settles()
	require.Equal(t, []fleet.RolloutState{fleet.RolloutDeployed, fleet.RolloutFailed}, b.ends())
	require.Equal(t, map[int64]int{4: 2}, b.versions())
}

// F62, F73, X3: each request while a rollout is under way.
func TestRequestsDuringARollout(t *testing.T) {
	t.Parallel()
	returned := []string{"converge succeeded", "converge cancelled"}
	for name, c := range map[string]struct {
		ask      func(*bench)
		ends     []fleet.RolloutState
		versions map[int64]int
		ops      []string
	}{
		"cancel": {func(b *bench) {
			out, err := b.turnRollout(fleet.RolloutCancel, 1)
			require.NoError(b.T, err)
			again, err := b.turnRollout(fleet.RolloutCancel, 0)
			require.NoError(b.T, err)
			require.Equal(b.T, out.Operation.ID, again.Operation.ID, "it joins")
		}, []fleet.RolloutState{fleet.RolloutCanceled}, map[int64]int{1: 2}, append(returned, "return succeeded")},
		"its operation is cancelled": {func(b *bench) {
			b.Exec(`UPDATE operations SET cancel_requested = true WHERE state = 'running'`)
		}, []fleet.RolloutState{fleet.RolloutCanceled}, map[int64]int{1: 2}, returned},
		"pause and resume": {func(b *bench) {
			for _, on := range []fleet.RolloutEvent{fleet.RolloutPause, fleet.RolloutPause} {
				_, err := b.turnRollout(on, 0)
				require.NoError(b.T, err)
			}
			for range 5 {
				b.visits()
				b.obey(nodeA)
				b.obey(nodeB)
			}
			require.Equal(b.T, map[int64]int{1: 1, 2: 1}, b.versions(), "it rests where it is")
			b.Exec(`UPDATE rollouts SET progress_at = now() - interval '1 hour'`)
			b.visits()
			_, err := b.turnRollout(fleet.RolloutResume, 0)
			require.NoError(b.T, err)
		}, []fleet.RolloutState{fleet.RolloutDeployed}, map[int64]int{2: 2}, []string{"converge succeeded", "converge succeeded"}},
		"scale": {func(b *bench) {
			_, err := b.turnDeployment(fleet.OperationScale, to(4))
			require.NoError(b.T, err)
		}, []fleet.RolloutState{fleet.RolloutDeployed}, map[int64]int{2: 4}, []string{"converge succeeded", "converge succeeded", "scale succeeded"}},
		"terms": {func(b *bench) {
			b.putDeployment(commanded("two"), asking(func(s *fleet.DeploymentSpec) { s.Process.StopSeconds = 3 }))
		}, []fleet.RolloutState{fleet.RolloutDeployed}, map[int64]int{2: 2}, []string{"converge succeeded", "converge superseded", "converge succeeded"}},
		"what was before": {
			func(b *bench) { b.putDeployment(commanded("one")) },
			[]fleet.RolloutState{fleet.RolloutSuperseded},
			map[int64]int{1: 2},
			[]string{"converge succeeded", "converge superseded", "converge succeeded"},
		},
		"a newer one": {
			func(b *bench) { b.putDeployment(commanded("three")) },
			[]fleet.RolloutState{fleet.RolloutDeployed, fleet.RolloutSuperseded},
			map[int64]int{3: 2},
			[]string{"converge succeeded", "converge superseded", "converge succeeded"},
		},
		"stop": {func(b *bench) {
			b.putDeployment(commanded("two"), asking(func(s *fleet.DeploymentSpec) { s.State = fleet.StateStopped }))
		}, []fleet.RolloutState{fleet.RolloutSuperseded}, map[int64]int{}, []string{"converge succeeded", "converge superseded", "converge succeeded"}},
		"delete": {func(b *bench) {
			_, err := b.turnDeployment(fleet.OperationDestroy)
			require.NoError(b.T, err)
		}, []fleet.RolloutState{fleet.RolloutSuperseded}, map[int64]int{}, []string{"converge succeeded", "converge superseded", "destroy succeeded"}},
		"restart": {func(b *bench) {
			_, err := b.turnDeployment(fleet.OperationRestart)
			require.NoError(b.T, err)
			_, err = b.turnRollout(fleet.RolloutCancel, 9)
			require.Equal(b.T, fleet.IllegalState, fleet.KindOf(err), "another rollout is not under way")
		}, []fleet.RolloutState{fleet.RolloutDeployed}, map[int64]int{3: 2}, []string{"converge succeeded", "converge succeeded", "restart succeeded"}},
		"stop first": {
			func(b *bench) {
				_, err := b.turnDeployment(fleet.OperationRestart, stopFirst)
				require.NoError(b.T, err)
			},
			[]fleet.RolloutState{fleet.RolloutDeployed, fleet.RolloutDeployed},
			map[int64]int{3: 2},
			[]string{"converge succeeded", "converge succeeded", "restart succeeded"},
		},
		"promote": {func(b *bench) {
			out, err := b.turnRollout(fleet.RolloutPromote, 0)
			require.NoError(b.T, err)
			require.Nil(b.T, out.Operation)
		}, []fleet.RolloutState{fleet.RolloutDeployed}, map[int64]int{2: 2}, []string{"converge succeeded", "converge succeeded"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t).deployable().running("two")
			b.visits()
			c.ask(b)
			b.settles()
			require.Equal(t, c.ends, b.ends())
			require.Equal(t, c.versions, b.versions())
			require.Equal(t, c.ops, b.deploymentOperations())
		})
	}
}

// F61, X4, X7: a restart right after the cancellation of a rollout that fails waits for its return, and restarts what worked, which never
// becomes fewer (cloud_controller_ng 3019).
func TestRestartAfterACancellation(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable().running("two")
	b.visits()
	b.failing(2)
	b.visits()
	_, err := b.turnRollout(fleet.RolloutCancel, 1)
	require.NoError(t, err)
	_, err = b.turnDeployment(fleet.OperationRestart)
	require.NoError(t, err)
	for n := 0; !b.visits().Done; n++ {
		require.Less(t, n, 30, "it does not settle")
		working := 0
		for _, r := range b.replicas() {
			if r.Revision == 1 && r.State == fleet.ReplicaHealthy {
				working++
			}
		}
		require.GreaterOrEqual(t, working, 2)
		b.obey(nodeA)
		b.obey(nodeB)
	}
	require.Equal(t, map[int64]int{1: 2}, b.revisions())
	require.Equal(t, map[int64]int{4: 2}, b.versions(), "they were restarted")
	require.Equal(t, []fleet.RolloutState{fleet.RolloutCanceled}, b.ends())
	require.Equal(t, []string{"converge succeeded", "converge cancelled", "return succeeded", "restart succeeded"}, b.deploymentOperations())
}

// F61, F63, X7: a rollback that was cancelled can be requested again: what runs counts, not what was requested last
// (cloud_controller_ng 4232).
func TestRollbackAfterItsCancellation(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable().running("two")
	b.settles()
	back := func() {
		t.Helper()
		out := b.putDeployment(commanded("one"), func(p *deployments.DeploymentPut) { p.Converge = true })
		require.NotNil(t, out.Operation)
		b.visits()
		require.Equal(t, fleet.RolloutDeploying, b.rollouts()[0].State)
	}
	back()
	_, err := b.turnRollout(fleet.RolloutCancel, 0)
	require.NoError(t, err)
	b.settles()
	require.Equal(t, map[int64]int{2: 2}, b.revisions())
	back()
	b.settles()
	require.Equal(t, []fleet.RolloutState{fleet.RolloutDeployed, fleet.RolloutCanceled, fleet.RolloutDeployed}, b.ends())
	require.NotContains(t, b.revisions(), int64(2))
}

// F61, X1: a start with another content after a stop that no visit has seen yet runs that content.
func TestReleaseAfterAnUnseenStop(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(commanded("one"))
	b.settles()
	b.putDeployment(commanded("one"), asking(func(s *fleet.DeploymentSpec) { s.State = fleet.StateStopped }))
	b.putDeployment(commanded("two"))
	b.settles()
	require.Equal(t, map[int64]int{3: 2}, b.versions())
	require.Equal(t, fleet.DeploymentRunning, b.seen().State)
	require.Equal(t, []fleet.RolloutState{fleet.RolloutDeployed}, b.ends())
}

// F53, X6: where the stable revision has no room for what it lacks, a smaller new one is rolled out nevertheless.
func TestRolloutWithoutRoomForTheStable(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Resources.CPU = 4 }))
	b.settles()
	b.tells(nodeB, exited(b.on(nodeB)[0].ID))
	b.Exec(`UPDATE nodes SET facts = jsonb_set(facts, '{resources,cpu}', '2') WHERE name = $1`, nodeB)
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Resources.CPU = 1 }))
	for range 20 {
		require.LessOrEqual(t, b.looks(), 20, "it does not look again and again")
		b.obey(nodeA)
		b.obey(nodeB)
	}
	require.Equal(t, map[int64]int{2: 2}, b.versions())
	require.Equal(t, []fleet.RolloutState{fleet.RolloutDeployed}, b.ends())
}

// looks counts the visits until there is no more to be looked at at once.
func (b *bench) looks() (n int) {
	b.T.Helper()
	for more := true; more && n <= 20; n++ {
		more = b.visitDeployment(run1).More
	}
	return n
}

// F63: a return restores the target that the release changed, unless somebody scaled.
func TestReturnRestoresTheTarget(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		during func(*bench)
		target int
	}{
		"released": {func(*bench) {}, 2},
		"released again": {func(b *bench) {
			b.putDeployment(commanded("three"), asking(func(s *fleet.DeploymentSpec) { s.Replicas.Min = 4 }))
		}, 2},
		"scaled": {func(b *bench) {
			_, err := b.turnDeployment(fleet.OperationScale, to(5))
			require.NoError(b.T, err)
		}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t).deployable()
			b.putDeployment(commanded("one"))
			b.settles()
			b.putDeployment(commanded("two"), asking(func(s *fleet.DeploymentSpec) { s.Replicas.Min = 3 }))
			require.Equal(t, 3, b.seen().Target)
			b.visits()
			c.during(b)
			_, err := b.turnRollout(fleet.RolloutCancel, 0)
			require.NoError(t, err)
			b.settles()
			require.Equal(t, c.target, b.seen().Target)
			require.Equal(t, c.target, b.viewed().Counts.Healthy)
		})
	}
}

// F54: what is created in the visit that turns a rollout round comes after what was rolled out.
func TestReturnRaisesTheVersion(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable().running("two")
	b.visits()
	for _, r := range b.replicas() {
		if r.ProcessVersion == 1 {
			b.tells(r.Node, exited(r.ID))
			break
		}
	}
	_, err := b.turnRollout(fleet.RolloutCancel, 0)
	require.NoError(t, err)
	b.settles()
	require.Equal(t, map[int64]int{1: 1, 3: 1}, b.versions())
}

// F75, X20: a server that knows no rollouts releases, or ends a declaration, over one that is under way: its word holds.
func TestOlderServerReleasesOverARollout(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable().running("two")
	b.visits()
	b.Exec(`INSERT INTO deployment_revisions (deployment, revision, uid, project, generation, process_version, spec, terms, definition, created_by)
		SELECT deployment, 3, uid, project, generation, 2, spec, terms, definition, 'old' FROM deployment_revisions WHERE revision = 1`)
	b.Exec(`UPDATE deployments SET revision = 3, last_revision = 3, process_version = 2`)
	b.settles()
	require.Equal(t, []fleet.RolloutState{fleet.RolloutSuperseded}, b.ends())
	require.EqualValues(t, 3, b.seen().Revision)
	require.Len(t, b.replicas(), 2)
}

// F62, S28: the bounds of a scale are those of the revision that is rolled out.
func TestScaleWithinTheNewBounds(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(commanded("one"))
	b.settles()
	b.putDeployment(commanded("two"), asking(func(s *fleet.DeploymentSpec) { s.Replicas.Min, s.Replicas.Max = 2, 6 }))
	b.visits()
	_, err := b.turnDeployment(fleet.OperationScale, to(1))
	require.Equal(t, fleet.Invalid, fleet.KindOf(err))
	_, err = b.turnDeployment(fleet.OperationScale, to(6))
	require.NoError(t, err)
	b.settles()
	require.Equal(t, map[int64]int{2: 6}, b.versions())
}

// F62, X6: a pause moves the deadline of what waits for the rollout.
func TestPauseMovesTheDeadline(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable().running("two")
	b.visits()
	_, err := b.turnRollout(fleet.RolloutPause, 0)
	require.NoError(t, err)
	b.Exec(`UPDATE rollouts SET since = since - interval '5 hours', deadline_at = now()`)
	b.Exec(`UPDATE operations SET deadline_at = now() WHERE state = 'running'`)
	_, err = b.turnRollout(fleet.RolloutResume, 0)
	require.NoError(t, err)
	all, err := b.ListOperations(b.Ctx(), postgres.OperationFilter{Deployment: web}, postgres.Place{}, 1)
	require.NoError(t, err)
	require.Greater(t, time.Until(all[0].Deadline), 4*time.Hour)
	require.Greater(t, time.Until(b.rollouts()[0].Deadline), 4*time.Hour)
}
