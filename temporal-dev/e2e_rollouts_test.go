//go:build slow

package main

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// under waits until its newest rollout is as wanted.
func (d *service) under(t *testing.T, what string, so func(api.Rollout) bool) (r api.Rollout) {
	t.Helper()
	waitFor(t, what, func(context.Context) error {
		if all := d.rollouts(t); len(all) > 0 {
			r = all[0]
		}
		if !so(r) {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	return r
}

func (d *service) verb(t *testing.T, word string, in api.RolloutRequest) api.Accepted {
	t.Helper()
	return d.ask(t, word, in)
}

// replicasRolledOut: a good revision replaces the stable one without a gap, a broken one is rolled back, and what is asked meanwhile
// is done (F53, F61, F62, F63, F64, F68, F71, S123).
func (s *stack) replicasRolledOut(t *testing.T) {
	d := newService(t, s, "rolled", 3, func(p *api.DeploymentPut) {
		p.Startup.Deadline = 5
		p.Strategy = api.Strategy{ProgressDeadline: 8}
	})
	d.put.Env["GREETING"] = "one"
	d.deploy(t)
	fewest := d.least(t)
	requireSucceeded(t, d.ended(t, d.greets(t, "two").ID))
	stable := d.answering(t, 3, "two")
	r := d.rollouts(t)[0]
	require.Equal(t, []any{fleet.RolloutDeployed, api.RolloutStatus{Value: "FINALIZED", Reason: "DEPLOYED"}}, []any{r.State, r.Status})

	d.put.Env["CRASH"] = "no licence"
	op := d.ended(t, d.greets(t, "three").ID)
	require.Equal(t, []any{fleet.OperationFailed, "progress_deadline"}, []any{op.State, op.Reason}, "%+v", op)
	require.Contains(t, op.Message, "exit")
	require.Equal(t, ids(stable), ids(d.answering(t, 3, "two")), "what was stable is as it was")
	require.Equal(t, fleet.RolloutFailed, d.rollouts(t)[0].State)
	tried := len(d.everRan(t))
	out, err := d.api.PutDeployment(t.Context(), d.name, d.manifest(), api.Mutation{})
	require.NoError(t, err)
	require.Nil(t, out.Operation, "an unchanged PUT does not try again")
	require.Equal(t, fleet.DeploymentRunning, d.status(t).State)
	requireSucceeded(t, d.ended(t, d.scale(t, 4).ID))
	require.Len(t, d.everRan(t), tried+1, "only the one of the stable revision was created")

	delete(d.put.Env, "CRASH")
	d.put.Strategy.MinHealthyTime, d.put.Strategy.MaxSurge = new(2.0), &api.Share{Count: 1}
	op = d.greets(t, "four")
	d.under(t, "one is proven", func(r api.Rollout) bool { return r.State == fleet.RolloutDeploying && r.Proven > 0 })
	d.verb(t, "pause", api.RolloutRequest{})
	paused := d.under(t, "it is paused", func(r api.Rollout) bool { return r.State == fleet.RolloutPaused })
	requireSucceeded(t, d.ended(t, d.scale(t, 5).ID))
	d.verb(t, "resume", api.RolloutRequest{Rollout: paused.Number})
	back := d.ended(t, d.verb(t, "cancel", api.RolloutRequest{Rollout: paused.Number}).Operation.ID)
	requireSucceeded(t, back)
	require.Equal(t, fleet.OperationCancelled, d.ended(t, op.ID).State)
	d.answering(t, 5, "two")

	again, err := d.api.DeployDeployment(t.Context(), d.name, api.ActionRequest{}, api.Mutation{})
	require.NoError(t, err)
	requireSucceeded(t, d.ended(t, again.Operation.ID))
	d.answering(t, 5, "four")
	require.GreaterOrEqual(t, fewest(), 3, "as many as there were to be answered all the time")
	d.destroy(t)
}

// replicasStartedAnew: what was released while it was stopped starts as a rollout, and returns to what ran before if it fails (F61, F63, S122).
func (s *stack) replicasStartedAnew(t *testing.T) {
	d := newService(t, s, "anew", 2, func(p *api.DeploymentPut) {
		p.Startup.Deadline = 5
		p.Strategy = api.Strategy{ProgressDeadline: 6}
	})
	d.put.Env["GREETING"] = "one"
	d.deploy(t)
	declares := func(state api.DesiredState) api.Operation {
		d.put.State = state
		return d.ended(t, d.declare(t).ID)
	}
	d.put.Env["CRASH"] = "no licence"
	requireSucceeded(t, declares(fleet.StateStopped))
	now := d.status(t)
	require.Equal(t, []int64{2, 1}, []int64{now.Revision, now.StableRevision})
	op := declares(fleet.StateStarted)
	require.Equal(t, []any{fleet.OperationFailed, "progress_deadline"}, []any{op.State, op.Reason}, "%+v", op)
	d.answering(t, 2, "one")
	now = d.status(t)
	require.Equal(t, []any{fleet.DeploymentRunning, int64(1)}, []any{now.State, now.Revision})

	requireSucceeded(t, declares(fleet.StateStopped))
	delete(d.put.Env, "CRASH")
	d.put.Env["GREETING"] = "two"
	requireSucceeded(t, declares(fleet.StateStarted))
	d.answering(t, 2, "two")
	states := []fleet.RolloutState{d.rollouts(t)[0].State, d.rollouts(t)[1].State}
	require.Equal(t, []fleet.RolloutState{fleet.RolloutDeployed, fleet.RolloutFailed}, states)
	d.destroy(t)
}

// greetings counts the answers of its replicas once there are as many as wanted, all healthy.
func (d *service) greetings(t *testing.T, n int) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, r := range d.healthy(t, n) {
		out[answersAt(t, r)["greeting"]]++
	}
	return out
}

// replicasStepped: a canary brings its shares, waits, follows a scale, and goes on as it is told; a rollback restores the whole spec
// (F62, F63, F67, F68, F69, S125).
func (s *stack) replicasStepped(t *testing.T) {
	d := newService(t, s, "stepped", 3, func(p *api.DeploymentPut) {
		p.Startup.Deadline = 5
		p.Strategy = api.Strategy{Type: fleet.StrategyCanary, ProgressDeadline: 8, Steps: []api.CanaryStep{{Weight: 20, Pause: true}, {Weight: 50, Interval: 600}, {Weight: 80}}}
	})
	d.put.Env["GREETING"] = "one"
	d.deploy(t)
	fewest := d.least(t)
	op := d.greets(t, "two")
	paused := func(r api.Rollout) bool { return r.State == fleet.RolloutPaused }
	first := d.under(t, "the first step is paused", paused)
	require.Equal(t, []int{1, 4, 1, 1}, []int{first.Step, first.Steps, first.Wanted, first.Proven}, "%+v", first)
	require.Equal(t, map[string]int{"one": 2, "two": 1}, d.greetings(t, 3))
	requireSucceeded(t, d.ended(t, d.scale(t, 6).ID))
	d.until(t, "the step is of the target", func([]api.Replica) error {
		if got := d.greetings(t, 6); got["two"] != 2 || got["one"] != 4 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	d.verb(t, "resume", api.RolloutRequest{Rollout: first.Number, Step: 1})
	second := d.under(t, "the second step waits", func(r api.Rollout) bool { return r.Step == 2 && r.Proven == 3 })
	d.verb(t, "resume", api.RolloutRequest{Rollout: first.Number, Step: 1}) // it was late
	require.Equal(t, second.Step, d.rollouts(t)[0].Step)
	d.verb(t, "promote", api.RolloutRequest{})
	requireSucceeded(t, d.ended(t, op.ID))
	d.answering(t, 6, "two")

	d.put.Env["CRASH"] = "no licence"
	broken := d.ended(t, d.greets(t, "three").ID)
	require.Equal(t, []any{fleet.OperationFailed, "progress_deadline"}, []any{broken.State, broken.Reason}, "%+v", broken)
	d.answering(t, 6, "two")
	_, err := d.api.Ask(t.Context(), fleet.DeploymentKey(fleet.DeploymentName(d.name)), "rollback", api.RollbackRequest{}, api.Mutation{})
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err), "it would release what runs already: %v", err)
	back := d.ask(t, "rollback", api.RollbackRequest{Revision: 2})
	requireSucceeded(t, d.ended(t, back.Operation.ID))
	_, err = d.api.Ask(t.Context(), fleet.DeploymentKey(fleet.DeploymentName(d.name)), "retry", api.ActionRequest{}, api.Mutation{})
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err), "nothing is left to retry: %v", err)
	back = d.ask(t, "rollback", api.RollbackRequest{Revision: 1})
	d.under(t, "it is paused on the way back", paused)
	d.verb(t, "promote", api.RolloutRequest{})
	requireSucceeded(t, d.ended(t, back.Operation.ID))
	d.answering(t, 6, "one")
	require.GreaterOrEqual(t, fewest(), 3, "as many as there were to be answered all the time")
	d.destroy(t)
}

func (d *service) ask(t *testing.T, word string, in any) api.Accepted {
	t.Helper()
	out, err := d.api.Ask(t.Context(), fleet.DeploymentKey(fleet.DeploymentName(d.name)), word, in, api.Mutation{})
	require.NoError(t, err)
	return out
}

// neverTogether: the last replicas were created after all others had ended.
func (d *service) neverTogether(t *testing.T, now []api.Replica) {
	t.Helper()
	l, err := d.api.Replicas(t.Context(), api.ReplicaQuery{Deployment: d.name, Ended: true})
	require.NoError(t, err)
	for _, old := range l.Items {
		if slices.Contains(ids(now), old.ID) {
			continue
		}
		for _, r := range now {
			require.False(t, old.EndedAt == nil || r.CreatedAt.Before(*old.EndedAt), "%s was created before %s had ended", r.ID, old.ID)
		}
	}
}

// replicasRecreated: all old replicas end before the first new one starts, by the strategy and by a restart, which waits for the end
// of a rollout (F31, F32, F33, F37, F59, F60).
func (s *stack) replicasRecreated(t *testing.T) {
	d := newService(t, s, "recreated", 2, func(p *api.DeploymentPut) {
		p.Startup.Deadline = 5
		p.Strategy = api.Strategy{Type: fleet.StrategyRecreate, ProgressDeadline: 8}
	})
	d.put.Env["GREETING"] = "one"
	d.deploy(t)
	op := d.greets(t, "two")
	restarted := d.ask(t, "restart", api.RestartRequest{Mode: api.RestartStopFirst})
	requireSucceeded(t, d.ended(t, op.ID))
	requireSucceeded(t, d.ended(t, restarted.Operation.ID))
	now := d.answering(t, 2, "two")
	d.neverTogether(t, now)
	rows := d.rollouts(t)
	require.Equal(t, []int64{2, 2, 1, 2}, []int64{rows[0].FromRevision, rows[0].ToRevision, rows[1].FromRevision, rows[1].ToRevision}, "%+v", rows)

	d.put.Env["CRASH"] = "no licence"
	op = d.ended(t, d.greets(t, "three").ID)
	require.Equal(t, []any{fleet.OperationFailed, "progress_deadline"}, []any{op.State, op.Reason}, "%+v", op)
	d.neverTogether(t, d.answering(t, 2, "two"))
	d.destroy(t)
}

// routable waits until so many of its healthy replicas are routable.
func (d *service) routable(t *testing.T, healthy, n int) []api.Replica {
	t.Helper()
	return d.until(t, fmt.Sprintf("%d of %d routable", n, healthy), func(all []api.Replica) error {
		well, may := 0, 0
		for _, r := range all {
			if r.State == fleet.ReplicaHealthy {
				well++
			}
			if r.Routable {
				may++
			}
		}
		if well != healthy || may != n {
			return errNotYet
		}
		return nil
	})
}

// replicasNotReady: a replica that is not ready stays as it is, and a revision that never gets ready takes the place of nothing
// (F53, F72, F77).
func (s *stack) replicasNotReady(t *testing.T) {
	d := newService(t, s, "unready", 2, func(p *api.DeploymentPut) {
		p.Startup.Deadline = 5
		p.Strategy = api.Strategy{ProgressDeadline: 8}
		p.Readiness = probe()
		p.Readiness.Path = "/ready"
	})
	d.put.Env["GREETING"] = "one"
	d.deploy(t)
	stable := d.routable(t, 2, 2)
	heal := d.fails(t, "busy-"+string(stable[0].ID))
	d.routable(t, 2, 1)
	status := d.status(t)
	require.Equal(t, []any{fleet.DeploymentRunning, true, 2, 1}, []any{status.State, status.Available, status.Replicas.Healthy, status.Replicas.Routable})
	d.answering(t, 2, "one")
	heal()
	d.as(t, stable, d.routable(t, 2, 2))

	heal = d.fails(t, "busy-two")
	op := d.greets(t, "two")
	d.routable(t, 3, 2)
	for _, r := range stable {
		require.Equal(t, "one", answersAt(t, r)["greeting"], "a healthy replica that is not ready takes the place of none")
	}
	op = d.ended(t, op.ID)
	require.Equal(t, []any{fleet.OperationFailed, "progress_deadline"}, []any{op.State, op.Reason}, "%+v", op)
	require.Contains(t, op.Message, "1 replica is healthy and not ready")
	require.Equal(t, fleet.RolloutFailed, d.rollouts(t)[0].State)
	d.as(t, stable, d.answering(t, 2, "one"))

	heal()
	again, err := d.api.DeployDeployment(t.Context(), d.name, api.ActionRequest{}, api.Mutation{})
	require.NoError(t, err)
	requireSucceeded(t, d.ended(t, again.Operation.ID))
	d.answering(t, 2, "two")
	d.routable(t, 2, 2)
	d.destroy(t)
}

// as wants the same replicas with the same processes, never started again.
func (d *service) as(t *testing.T, before, now []api.Replica) {
	t.Helper()
	require.Equal(t, ids(before), ids(now))
	for i, r := range now {
		require.Equal(t, []int{before[i].PID, 0}, []int{r.PID, r.Restarts})
	}
}

// rolloutKilled kills processes of the region in a rollout: it goes on, and nothing runs twice (F58, F59, X1).
func (d *service) rolloutKilled(t *testing.T) {
	one := &api.Share{Count: 1}
	defer func() { d.put.Strategy = api.Strategy{} }()
	for name, strategy := range map[string]api.Strategy{
		serverName:   {Type: fleet.StrategyCanary, MinHealthyTime: new(1.0), MaxSurge: one, Steps: []api.CanaryStep{{Weight: 30, Interval: 1}, {Weight: 60}}},
		temporalName: {Type: fleet.StrategyRecreate, MinHealthyTime: new(1.0)},
		postgresName: {MinHealthyTime: new(1.0), MaxSurge: one},
	} {
		t.Run(name, func(t *testing.T) {
			d.put.Strategy = strategy
			op := d.greets(t, "while "+name+" is killed")
			d.under(t, "it has begun", func(r api.Rollout) bool { return r.State == fleet.RolloutDeploying && r.Wanted > 0 })
			d.kill(t, name)
			requireSucceeded(t, d.ended(t, op.ID))
			d.alone(t, d.answering(t, 3, "while "+name+" is killed"))
		})
	}
}
