//go:build slow

package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// What users of comparable systems report, on the real stack; docs/runtime.md has the table of all.

// replicasPressed: what is asked of a rollout that fails takes nothing from what runs well, whether that is a restart, a cancellation, a
// push after it, much at once, or the end (F61, F62, F63, F65, F68, F73, S32, X1, X3).
func (s *stack) replicasPressed(t *testing.T) {
	d := newService(t, s, "pressed", 3)
	held := api.Strategy{MinHealthyTime: new(3600.0)}
	d.put.Env["GREETING"] = "one"
	d.deploy(t)
	stable := d.answering(t, 3, "one")
	fewest := d.least(t)
	d.put.Env["CRASH"] = "no licence"
	op := d.greets(t, "two")
	r := d.under(t, "it says why it does not go on", func(r api.Rollout) bool { return strings.Contains(r.Message, "exit") })
	require.Equal(t, []any{fleet.RolloutDeploying, 0}, []any{r.State, r.Proven})
	require.NotNil(t, r.Until, "it says until when it waits for progress")
	require.NotNil(t, r.Deadline)
	require.True(t, r.Until.After(r.ProgressAt))
	restarted := d.restart(t)
	requireSucceeded(t, d.ended(t, d.verb(t, "cancel", api.RolloutRequest{}).Operation.ID))
	require.Equal(t, fleet.OperationCancelled, d.ended(t, op.ID).State)
	requireSucceeded(t, d.ended(t, restarted.ID))
	again := d.answering(t, 3, "one")
	require.False(t, slices.ContainsFunc(ids(again), func(id fleet.ReplicaID) bool { return slices.Contains(ids(stable), id) }), "they were restarted")
	require.GreaterOrEqual(t, fewest(), 3, "as many as there were to be answered all the time")

	delete(d.put.Env, "CRASH")
	d.put.Strategy = held
	d.greets(t, "three")
	d.under(t, "it is under way", func(r api.Rollout) bool { return r.State == fleet.RolloutDeploying && r.Wanted > 0 })
	d.verb(t, "cancel", api.RolloutRequest{})
	d.put.Env["GREETING"], d.put.Strategy = "four", api.Strategy{}
	out, err := d.api.PutDeployment(t.Context(), d.name, d.manifest(), api.Mutation{})
	require.NoError(t, err, "a push right after the cancellation")
	requireSucceeded(t, d.ended(t, out.Operation.ID))
	d.answering(t, 3, "four")

	d.put.Strategy = held
	d.greets(t, "five")
	d.allAtOnce(t)
	requireSucceeded(t, d.ended(t, d.scale(t, 3).ID))
	d.put.Strategy = api.Strategy{}
	requireSucceeded(t, d.ended(t, d.greets(t, "seven").ID))
	d.answering(t, 3, "seven")

	d.put.Strategy = held
	d.greets(t, "eight")
	d.healthy(t, 5)
	d.destroy(t)
}

// allAtOnce asks for all that there is to ask, together: each request is granted, or refused because of another, and none fails.
func (d *service) allAtOnce(t *testing.T) {
	t.Helper()
	four, other := 4, d.manifest()
	other.StopSeconds, other.Env = 3, map[string]string{"LEDGER": d.ledger, "SLOW": "0s", "GREETING": "six"}
	key := fleet.DeploymentKey(fleet.DeploymentName(d.name))
	ask := func(word string, in any) func() error {
		return func() error {
			_, err := d.api.Ask(t.Context(), key, word, in, api.Mutation{})
			return err
		}
	}
	var group sync.WaitGroup
	errs := make(chan error, 16)
	for _, one := range []func() error{
		ask("cancel", api.RolloutRequest{}), ask("pause", api.RolloutRequest{}), ask("resume", api.RolloutRequest{}), ask("promote", api.RolloutRequest{}),
		ask("retry", api.ActionRequest{}), ask("rollback", api.RollbackRequest{}), ask("restart", api.RestartRequest{}), ask("deploy", api.ActionRequest{}),
		ask("scale", api.ScaleRequest{Replicas: &four}),
		func() error { _, err := d.api.PutDeployment(t.Context(), d.name, other, api.Mutation{}); return err },
	} {
		group.Go(func() { errs <- one() })
	}
	group.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			require.Contains(t, []fleet.Kind{fleet.IllegalState, fleet.Conflict, fleet.Precondition}, fleet.KindOf(err), "%v", err)
		}
	}
}

// stableBroken: where the stable revision crashes and the next one does too, the rollout fails and nothing claims to be well. A good one
// takes the place of the broken one at once, past the pauses of its canary (F63, F65, F71, S112, S125, X8).
func (s *stack) stableBroken(t *testing.T) {
	d := newService(t, s, "broken", 2, func(p *api.DeploymentPut) {
		p.Startup.Deadline = 4
		p.Strategy = api.Strategy{ProgressDeadline: 5}
	})
	d.put.Env["GREETING"] = "one"
	d.deploy(t)
	heal := d.fails(t, "sick-one")
	waitFor(t, "what is stable is well no more", func(context.Context) error { return unless(!d.status(t).Available) })
	d.put.Env["CRASH"] = "no licence"
	op := d.ended(t, d.greets(t, "two").ID)
	require.Equal(t, []any{fleet.OperationFailed, "return_incomplete"}, []any{op.State, op.Reason}, "%+v", op)
	require.Equal(t, fleet.RolloutFailed, d.rollouts(t)[0].State)
	status := d.status(t)
	require.Equal(t, []any{fleet.DeploymentRunning, false}, []any{status.State, status.Available}, "%+v", status)

	delete(d.put.Env, "CRASH")
	d.put.Strategy = api.Strategy{Type: fleet.StrategyCanary, Steps: []api.CanaryStep{{Weight: 50, Pause: true}}}
	requireSucceeded(t, d.ended(t, d.greets(t, "three").ID))
	d.answering(t, 2, "three")
	require.True(t, d.status(t).Available)
	heal()
	d.destroy(t)
}

// workflowLost: the workflow of a deployment is terminated in the middle of its rollout, while it only waits. The sweep goes on with
// it, and no replica stays that nobody wants (F58, F65, S3, X1).
func (s *stack) workflowLost(t *testing.T) {
	d := newService(t, s, "lost", 2, func(p *api.DeploymentPut) {
		p.Strategy = api.Strategy{MinHealthyTime: new(3.0), MaxSurge: &api.Share{Count: 1}}
	})
	d.put.Env["GREETING"] = "one"
	d.deploy(t)
	op := d.greets(t, "two")
	d.healthy(t, 3)
	s.terminate(t, fleet.DeploymentSubject(fleet.DeploymentName(d.name)))
	r := d.under(t, "its rollout ends", func(r api.Rollout) bool { return r.EndedAt != nil })
	require.Equal(t, fleet.RolloutDeployed, r.State)
	d.alone(t, d.answering(t, 2, "two"))
	ended := d.ended(t, op.ID)
	require.Contains(t, []string{"converged", "workflow_terminated"}, ended.Reason, "by the sweep's next visit, or its look at operations: %+v", ended)
	d.destroy(t)
}

// planned is what a rollout to what is declared now would take.
func (d *service) planned(t *testing.T) api.PlanRollout {
	t.Helper()
	spec, err := json.Marshal(d.put)
	require.NoError(t, err)
	plan, err := d.api.Plan(t.Context(), api.PlanRequest{Objects: []api.Manifest{{Kind: "Deployment", Name: d.name, Spec: spec}}}, api.ReleaseAll)
	require.NoError(t, err)
	require.NotNil(t, plan.Objects[0].Rollout, "%+v", plan.Objects[0])
	return *plan.Objects[0].Rollout
}

// replicasSurged: a plan says beforehand what there is no room for, and the rollout goes on in the room that there is. With room, as many
// start at a time as the strategy says; a change of content and count is one rollout (F62, F69, F70, F71, S30, S95, S123).
func (s *stack) replicasSurged(t *testing.T) {
	narrow := func(most int) {
		t.Helper()
		_, err := s.api.PutPool(t.Context(), "narrow", api.PoolPut{Nodes: []api.NodeName{api.NodeName(pair("plant-1")[0])}, MaxReplicas: most}, api.Mutation{})
		require.NoError(t, err)
	}
	narrow(3)
	d := newService(t, s, "surged", 3, func(p *api.DeploymentPut) { p.Placement.Pools = []fleet.PoolName{"narrow"} })
	d.put.Env["GREETING"] = "one"
	d.deploy(t)
	d.put.Env["GREETING"] = "two"
	plan := d.planned(t)
	require.Equal(t, []int{3, 5, 2, 0}, []int{plan.Replicas, plan.Most, plan.Surge, *plan.Room}, "%+v", plan)
	require.Contains(t, plan.Why, "1 at the limit of their pool")
	fewest := d.least(t)
	requireSucceeded(t, d.ended(t, d.declare(t).ID))
	stable := d.answering(t, 3, "two")
	require.GreaterOrEqual(t, fewest(), 2)
	require.Contains(t, d.decisions(t), "old_before_new", "its history says why one was missing")

	narrow(20)
	fewest = d.least(t)
	least := 4
	d.put.Replicas.Min, d.put.Replicas.Initial, d.put.Strategy.MaxSurge = &least, &least, &api.Share{Percent: 100}
	d.put.Env["AWAIT"] = filepath.Join(d.ledger, "may-start")
	require.Equal(t, 4, *d.planned(t).Room)
	op := d.greets(t, "three")
	d.until(t, "four start at once", func(all []api.Replica) error {
		n := 0
		for _, r := range all {
			if starting(r) {
				n++
			}
		}
		return unless(n == 4)
	})
	require.Subset(t, ids(d.replicas(t)), ids(stable), "none is restarted to scale")
	require.NoError(t, os.WriteFile(d.put.Env["AWAIT"], nil, 0o600))
	requireSucceeded(t, d.ended(t, op.ID))
	d.answering(t, 4, "three")
	require.Len(t, d.rollouts(t), 2)
	require.GreaterOrEqual(t, fewest(), 3)
	d.destroy(t)
}
