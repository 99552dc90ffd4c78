package deployments_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

// waiting declares mode versioned, a check, memory, and a greeting.
func waiting(greeting string, edits ...func(*fleet.DeploymentSpec)) func(*deployments.DeploymentPut) {
	return asking(func(s *fleet.DeploymentSpec) {
		s.Update, s.Resources.Memory, s.Process.Env = fleet.UpdateVersioned, 100, map[string]string{"GREETING": greeting}
		s.Process.Health = &fleet.HealthCheck{Type: fleet.HealthTCP, Interval: 10, Timeout: 5, UnhealthyThreshold: 3, HealthyThreshold: 2}
		s.Process.StopSeconds = 10
		for _, edit := range edits {
			edit(s)
		}
	})
}

func remembering(memory int64) func(*fleet.DeploymentSpec) {
	return func(s *fleet.DeploymentSpec) { s.Resources.Memory = memory }
}

func bounded(least int) func(*fleet.DeploymentSpec) {
	return func(s *fleet.DeploymentSpec) { s.Replicas.Min = least }
}

func keepsVersion(s *fleet.DeploymentSpec) { s.MemoryKeepsVersion = true }

func rollingOut(s *fleet.DeploymentSpec) { s.Update = "" }

func halted(s *fleet.DeploymentSpec) { s.State = fleet.StateStopped }

// greetings counts what the replicas of both nodes are to run by their greeting.
func (b *bench) greetings() map[string]int {
	b.T.Helper()
	out := map[string]int{}
	for _, n := range []fleet.NodeName{nodeA, nodeB} {
		for _, r := range b.set(n).Replicas {
			if !r.Run {
				continue
			}
			body, err := b.DefinitionOf(b.Ctx(), n, r.Definition)
			require.NoError(b.T, err)
			var d fleet.Definition
			require.NoError(b.T, json.Unmarshal(body, &d))
			out[d.Env["GREETING"]]++
		}
	}
	return out
}

// pending are the fields that wait for a restart.
func (b *bench) pending() (fields []string) {
	b.T.Helper()
	p := b.viewed().Pending
	if p == nil {
		return nil
	}
	all, err := declare.Pending(p.Applied, p.Spec)
	require.NoError(b.T, err)
	for _, c := range all {
		require.Equal(b.T, fleet.PathNeedsRestart, c.Path)
		fields = append(fields, c.Field)
	}
	return fields
}

func (b *bench) asks(kind fleet.OperationKind, edits ...func(*deployments.DeploymentTurn)) {
	b.T.Helper()
	_, err := b.turnDeployment(kind, edits...)
	require.NoError(b.T, err)
}

// F1, F2, F3, F4, F5, F6, F7, F11, F12, F13, F14, F15, F16, F17, F20, F41, F52, X2: what a deployment in mode versioned runs, and what waits, after each change.
func TestVersioned(t *testing.T) {
	t.Parallel()
	const greeting = "/process/env/GREETING"
	for name, c := range map[string]struct {
		do        func(*bench)
		greetings map[string]int
		version   int64
		pending   []string
	}{
		"what is no field of F5 waits": {func(b *bench) { b.putDeployment(waiting("two")) }, map[string]int{"one": 2}, 1, []string{greeting}},
		"a scale creates what is applied": {func(b *bench) {
			b.putDeployment(waiting("two"))
			b.asks(fleet.OperationScale, to(4))
		}, map[string]int{"one": 4}, 1, []string{greeting}},
		"a crash is replaced by what is applied": {func(b *bench) {
			b.putDeployment(waiting("two"))
			b.failing(1)
		}, map[string]int{"one": 2}, 1, []string{greeting}},
		"the restart applies it": {func(b *bench) {
			b.putDeployment(waiting("two"))
			b.asks(fleet.OperationRestart)
			require.Nil(b.T, b.pending(), "it is on its way")
		}, map[string]int{"two": 2}, 2, nil},
		"a restart with a stop first applies it": {func(b *bench) {
			b.putDeployment(waiting("two"))
			b.asks(fleet.OperationRestart, func(t *deployments.DeploymentTurn) { t.StopFirst = true })
			b.settles()
			require.Equal(b.T, []string{"converge succeeded", "converge succeeded", "converge succeeded"}, b.deploymentOperations())
		}, map[string]int{"two": 2}, 2, nil},
		"a restart during a rollout applies it after that": {func(b *bench) {
			b.putDeployment(waiting("one", remembering(200)))
			b.visits()
			b.putDeployment(waiting("two", remembering(200)))
			b.asks(fleet.OperationRestart)
		}, map[string]int{"two": 2}, 3, nil},
		"memory takes it along": {func(b *bench) {
			b.putDeployment(waiting("two"))
			b.putDeployment(waiting("two", remembering(200)))
		}, map[string]int{"two": 2}, 2, nil},
		"a stop and a start take it along": {func(b *bench) {
			b.putDeployment(waiting("two"))
			b.putDeployment(waiting("two", halted))
			b.settles()
			b.putDeployment(waiting("two"))
		}, map[string]int{"two": 2}, 4, nil},
		"what was before is restored": {func(b *bench) {
			b.putDeployment(waiting("two"))
			b.putDeployment(waiting("one"))
		}, map[string]int{"one": 2}, 1, nil},
		"an edit of what waits": {func(b *bench) {
			b.putDeployment(waiting("two"))
			b.putDeployment(waiting("three", func(s *fleet.DeploymentSpec) { s.Process.Args = []string{"x"} }))
		}, map[string]int{"one": 2}, 1, []string{"/process/args", greeting}},
		"the default mode rolls it out": {func(b *bench) {
			b.putDeployment(waiting("two"))
			b.putDeployment(waiting("two", rollingOut))
		}, map[string]int{"two": 2}, 2, nil},
		"replicas alone scale": {func(b *bench) { b.putDeployment(waiting("one", bounded(3))) }, map[string]int{"one": 3}, 1, nil},
		"replicas beside memory": {func(b *bench) {
			b.putDeployment(waiting("one", bounded(3), remembering(200)))
			require.EqualValues(b.T, 2, b.seen().Rollout.To.Revision)
		}, map[string]int{"one": 3}, 2, nil},
		"replicas beside what waits": {func(b *bench) { b.putDeployment(waiting("two", bounded(3))) }, map[string]int{"one": 3}, 1, []string{greeting}},
		"memory that keeps the version": {func(b *bench) {
			b.putDeployment(waiting("two", keepsVersion, remembering(200)))
		}, map[string]int{"one": 2}, 1, []string{greeting, "/resources/memory"}},
		"memory that is not declared keeps none": {func(b *bench) {
			b.putDeployment(waiting("two", keepsVersion, remembering(0)))
		}, map[string]int{"two": 2}, 2, nil},
		"a deploy applies nothing": {func(b *bench) {
			b.putDeployment(waiting("two"))
			b.asks(fleet.OperationConverge)
			require.Nil(b.T, b.putDeployment(waiting("two")).Operation, "it was released")
		}, map[string]int{"one": 2}, 1, []string{greeting}},
		"during a rollout it waits for the next restart": {func(b *bench) {
			b.putDeployment(waiting("one", remembering(200)))
			b.visits()
			b.putDeployment(waiting("two", remembering(200)))
			require.EqualValues(b.T, 3, b.seen().Rollout.To.Revision, "an edit joins")
		}, map[string]int{"one": 2}, 2, []string{greeting}},
		"a node is lost": {func(b *bench) {
			b.putDeployment(waiting("two"))
			b.disconnect(nodeB)
			b.Exec(`UPDATE connections SET ended_at = now() - interval '1 hour' WHERE node = $1`, nodeB)
			b.LinkSince("1 day")
			for range 5 {
				b.visits()
				b.obey(nodeA)
			}
			require.Equal(b.T, map[string]int{"one": 2}, b.greetings())
			require.Len(b.T, b.set(nodeA).Replicas, 2)
			b.connect(nodeB)
		}, map[string]int{"one": 2}, 1, []string{greeting}},
		"during a return it comes along": {func(b *bench) {
			b.putDeployment(waiting("one", remembering(200)))
			b.visits()
			_, err := b.turnRollout(fleet.RolloutCancel, 0)
			require.NoError(b.T, err)
			b.putDeployment(waiting("two", remembering(200)))
		}, map[string]int{"two": 2}, 3, nil},
		"a restart that fails returns": {func(b *bench) {
			b.putDeployment(waiting("two"))
			b.asks(fleet.OperationRestart)
			b.visits()
			b.failing(2)
			b.visits()
			b.stuck()
			b.settles()
			require.Equal(b.T, []fleet.RolloutState{fleet.RolloutFailed}, b.ends())
			require.Equal(b.T, []string{"converge succeeded", "converge succeeded", "converge failed"}, b.deploymentOperations())
		}, map[string]int{"one": 2}, 3, []string{greeting}},
		"nothing is waited for": {func(b *bench) {
			b.failing(1)
			out := b.putDeployment(waiting("two"))
			require.Equal(b.T, []string{"succeeded", "pending_restart"}, []string{string(out.Operation.State), out.Operation.Reason})
			out = b.putDeployment(waiting("two", bounded(3)))
			require.Equal(b.T, fleet.OperationRunning, out.Operation.State, "but for what holds at once")
		}, map[string]int{"one": 3}, 1, []string{greeting}},
		"a restart that failed is asked for again": {func(b *bench) {
			b.putDeployment(waiting("two"))
			b.asks(fleet.OperationRestart)
			b.visits()
			b.Exec(`UPDATE operations SET cancel_requested = true WHERE state = 'running'`)
			b.settles()
			require.Equal(b.T, map[string]int{"one": 2}, b.greetings(), "the rollout was cancelled with its operation")
			require.Equal(b.T, []string{greeting}, b.pending())
			b.asks(fleet.OperationRestart)
		}, map[string]int{"two": 2}, 4, nil},
		"of one that was given up the restart begins with it": {func(b *bench) {
			b.Exec(`UPDATE deployments SET state = 'ERROR'`)
			b.putDeployment(waiting("two"))
			require.Equal(b.T, []string{greeting}, b.pending())
			b.asks(fleet.OperationRestart)
			require.Len(b.T, b.rollouts(), 1, "it may return to what ran")
		}, map[string]int{"two": 2}, 3, nil},
		"with target 0 nothing waits": {func(b *bench) {
			b.asks(fleet.OperationScale, to(0))
			b.settles()
			b.putDeployment(waiting("two"))
			b.asks(fleet.OperationScale, to(2))
		}, map[string]int{"two": 2}, 4, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t).deployable()
			b.putDeployment(waiting("one"))
			b.settles()
			c.do(b)
			b.settles()
			require.Equal(t, c.greetings, b.greetings())
			require.Equal(t, c.version, b.seen().ProcessVersion)
			require.Equal(t, c.pending, b.pending())
			for _, o := range b.deploymentOperations() {
				require.NotContains(t, o, "running")
			}
		})
	}
}

// F13, F51: of one PUT, what can be done in place holds at once, also for replicas that are created later, and the
// rest waits. Its operation needs no node.
func TestVersionedInPlace(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(waiting("one"))
	b.settles()
	before := b.set(nodeA)
	b.putDeployment(waiting("two"))
	require.Equal(t, before.Version, b.set(nodeA).Version, "no news for a node")
	require.True(t, b.visits().Done)
	require.Equal(t, []string{"converge succeeded", "converge succeeded"}, b.deploymentOperations(), "it succeeds at once")

	b.putDeployment(waiting("two", func(s *fleet.DeploymentSpec) {
		s.Process.StopSeconds, s.Process.Health.Interval, s.Recovery.Restarts, s.Process.Health.Timeout = 7, 4, 9, 2
	}))
	b.asks(fleet.OperationScale, to(4))
	b.settles()
	require.Equal(t, map[string]int{"one": 4}, b.greetings())
	for _, r := range append(b.set(nodeA).Replicas, b.set(nodeB).Replicas...) {
		require.Equal(t, []any{7, float64(4), float64(2), 9}, []any{r.StopSeconds, r.Terms.Interval, r.Terms.Timeout, r.Terms.Recovery.Restarts})
	}
	require.Equal(t, 7, b.ran())
	v := b.viewed()
	require.Equal(t, []int64{4, 5, 3, 3}, []int64{v.Revision, v.Pending.Revision, v.Generation, v.Released})
	require.Equal(t, []string{"/process/env/GREETING"}, b.pending())

	b.asks(fleet.OperationRestart)
	b.settles()
	require.Equal(t, map[string]int{"two": 4}, b.greetings())
	require.Zero(t, b.set(nodeA).Replicas[0].Terms, "its definition has them")
	require.EqualValues(t, 5, b.viewed().Revision)
}

// F51: what a write compares with is what most replicas run, and what is applied.
func TestVersionedIsCompared(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	var ran *fleet.RunningSpec
	compared := func(p *deployments.DeploymentPut) {
		p.Compare = func(runs *fleet.RunningSpec, _ bool) ([]fleet.SpecChange, error) {
			ran = runs
			return nil, nil
		}
	}
	b.putDeployment(waiting("one"))
	b.settles()
	b.putDeployment(waiting("two"), compared)
	require.Equal(t, []any{ran.Definition, ran.Body}, []any{ran.Applied.Definition, ran.AppliedBody()})
	b.putDeployment(waiting("two", remembering(200)))
	b.putDeployment(waiting("three", remembering(200)), compared)
	require.NotEqual(t, ran.Definition, ran.Applied.Definition)
	require.Contains(t, string(ran.AppliedBody()), `"two"`)
	require.Contains(t, string(ran.Body), `"one"`)
}

// F18, S28: a scale before the first release is kept, and there is nothing to wait for.
func TestScaleBeforeTheFirstRelease(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 3} {
		b := setup(t).deployable()
		b.putDeployment(notReleased)
		_, err := b.turnDeployment(fleet.OperationScale, to(6))
		require.Equal(t, fleet.Invalid, fleet.KindOf(err), "the bounds of what was declared")
		out, err := b.turnDeployment(fleet.OperationScale, to(n))
		require.NoError(t, err)
		require.Equal(t, fleet.OperationSucceeded, out.Operation.State)
		door := func(d *deployments.DeploymentTurn) { d.Door = postgres.Door{Workflow: "scale-1", Run: "run-1"} }
		asked, err := b.turnDeployment(fleet.OperationScale, to(n), door)
		require.NoError(t, err)
		again, err := b.turnDeployment(fleet.OperationScale, to(n), door)
		require.NoError(t, err)
		require.Equal(t, asked.Operation, again.Operation)
		b.settles()
		require.Empty(t, b.replicas())
		b.putDeployment()
		b.settles()
		require.Len(t, b.replicas(), n)

		b.asks(fleet.OperationDestroy)
		b.settles()
		b.putDeployment()
		b.settles()
		require.Len(t, b.replicas(), 2, "another declaration begins as it says")
	}
	b := setup(t).deployable()
	b.putDeployment(notReleased, asking(halted))
	_, err := b.turnDeployment(fleet.OperationScale, to(1))
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
	_, err = b.turnDeployment(fleet.OperationRestart)
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
}
