//go:build slow

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workflows"
)

// F1, F2, F3, F4, F5, F6, F7, F41, F51, F52, F53, F61, F62, F63, F64, F68, F71, F72, F77, S13 to S19, S31 to S56, S75 to S84, S94, S105 to S107, S110 to S115, S121, S130, S135, X1 to X8, X25
func TestE2EDeployments(t *testing.T) {
	t.Parallel()
	s := startWith(t, 2, isolated)
	together(t, []part{
		{"life", s.replicasLive},
		{"replaced one by one", s.replicasReplaced},
		{"changed in place", s.replicasInPlace},
		{"rolled out", s.replicasRolledOut},
		{"rolled out in steps", s.replicasStepped},
		{"started anew", s.replicasStartedAnew},
		{"synced or not", s.replicasSynced},
		{"recreated", s.replicasRecreated},
		{"not ready", s.replicasNotReady},
		{"a site rolled out", s.siteRolledOut},
		{"deaf to SIGTERM", s.replicasDeaf},
		{"asked while it fails", s.replicasPressed},
		{"a release that crashes", s.releaseCrashes},
		{"says why", s.rolloutSaysWhy},
		{"from broken to good", s.stableBroken},
		{"surged", s.replicasSurged},
		{"workflow lost", s.workflowLost},
		{"changed by version", s.replicasVersioned},
		{"sick", s.replicasSick},
		{"slow", s.replicaStartsSlowly},
		{"never starts", s.replicasCrash},
		{"crashes while it runs", s.replicasCrashLater},
		{"no room", s.replicasWithoutRoom},
		{"declared over its end", s.redeclared},
		{"doors", s.deploymentDoors},
	})
	const away, lost = 15, 3 // seconds
	d := newService(t, s, "moved", 3, func(p *api.DeploymentPut) { p.Recovery.LostSeconds = away })
	d.deploy(t)
	t.Run("agent killed", d.agentKilled)
	t.Run("guardian killed", d.guardianKilled)
	t.Run("killed while it scales", d.regionKilled)
	t.Run("rollout killed", d.rolloutKilled)
	t.Run("node drained", d.nodeDrained)
	t.Run("node drained in a paused canary", d.canaryDrained)
	t.Run("region away", d.regionAway)
	d.put.Recovery.LostSeconds = lost
	requireSucceeded(t, d.ended(t, d.declare(t).ID))
	t.Run("node cut off", d.nodeCutOff)
	t.Run("node lost", d.nodeLost)
	d.destroy(t)
	requireSmall(t, s.histories(t))
}

// replicasLive is the life of a deployment from its first replica to the last.
func (s *stack) replicasLive(t *testing.T) {
	d := newService(t, s, "life", 3)
	all := d.deploy(t)
	sites := map[string]bool{}
	for _, r := range all {
		said := answersAt(t, r)
		require.Equal(t, []string{string(r.ID), r.Node, "1"}, []string{said["replica"], said["node"], said["epoch"]})
		sites[r.Site] = true
	}
	require.Len(t, sites, 2, "it is spread over the sites")
	status := d.status(t)
	require.Equal(t, fleet.DeploymentRunning, status.State)
	require.True(t, status.Available)
	require.Equal(t, api.ReplicaTotals{Desired: 3, Healthy: 3, Routable: 3}, status.Replicas)

	requireSucceeded(t, d.ended(t, d.scale(t, 5).ID))
	five := d.healthy(t, 5)
	require.Subset(t, ids(five), ids(all), "nothing that ran was touched")
	requireSucceeded(t, d.ended(t, d.scale(t, 2).ID))
	two := d.healthy(t, 2)
	require.NotContains(t, ids(two), five[0].ID, "the oldest goes first (S105)")

	kill9(t, two[0].PID)
	after := d.until(t, "the killed one is replaced", func(now []api.Replica) error {
		if len(now) != 2 || slices.Contains(ids(now), two[0].ID) || !allHealthy(now) {
			return errNotYet
		}
		return nil
	})
	require.Contains(t, ids(after), two[1].ID)
	require.Contains(t, d.decisions(t), fleet.ReasonExited, "its history says why (S135)")

	_, err := s.api.DeleteReplica(t.Context(), d.name, string(two[1].ID), api.Mutation{IdempotencyKey: rand.Text()})
	require.NoError(t, err)
	d.until(t, "the removed one is replaced (S115)", func(now []api.Replica) error {
		if len(now) != 2 || slices.Contains(ids(now), two[1].ID) || !allHealthy(now) {
			return errNotYet
		}
		return nil
	})
	require.False(t, alive(two[1].PID))

	d.put.State = fleet.StateStopped
	requireSucceeded(t, d.ended(t, d.declare(t).ID))
	require.Empty(t, d.replicas(t))
	require.Equal(t, fleet.DeploymentPending, d.status(t).State)
	d.put.State = fleet.StateStarted
	requireSucceeded(t, d.ended(t, d.declare(t).ID))
	d.healthy(t, 2) // the target outlives it
	d.destroy(t)
}

func allHealthy(all []api.Replica) bool {
	return !slices.ContainsFunc(all, func(r api.Replica) bool { return r.State != fleet.ReplicaHealthy || !alive(r.PID) })
}

// replicasReplaced changes what runs, and restarts it: new before old, so that as many as before
// stay healthy.
func (s *stack) replicasReplaced(t *testing.T) {
	d := newService(t, s, "replaced", 2)
	before := d.deploy(t)
	fewest := d.least(t)
	d.put.Env["GREETING"] = "good day"
	requireSucceeded(t, d.ended(t, d.declare(t).ID))
	after := d.healthy(t, 2)
	require.GreaterOrEqual(t, fewest(), 2)
	for _, r := range after {
		require.NotContains(t, ids(before), r.ID)
		said := answersAt(t, r)
		require.Equal(t, []string{"good day", "2"}, []string{said["greeting"], said["epoch"]})
	}

	most := 15
	d.put.Replicas.Max = &most
	requireSucceeded(t, d.ended(t, d.declare(t).ID))
	require.Equal(t, ids(after), ids(d.healthy(t, 2)), "what runs is the same: nothing is replaced")

	fewest = d.least(t)
	requireSucceeded(t, d.ended(t, d.restart(t).ID))
	last := d.healthy(t, 2)
	require.GreaterOrEqual(t, fewest(), 2)
	for _, r := range last {
		require.NotContains(t, ids(after), r.ID)
		require.Equal(t, "3", answersAt(t, r)["epoch"])
	}
	d.destroy(t)
}

// replicasSick fails the health path of one: it is restarted where it is, and regenerated when that
// does not help (S49, S54, S106).
func (s *stack) replicasSick(t *testing.T) {
	d := newService(t, s, "sick", 2, func(p *api.DeploymentPut) { p.Startup.Deadline = 5 })
	all := d.deploy(t)
	ill, well := all[0], all[1]
	heal := d.sick(t, ill.ID)
	d.until(t, "it is restarted in place", func(now []api.Replica) error {
		for _, r := range now {
			if r.ID == ill.ID && r.Restarts > 0 {
				return nil
			}
		}
		if !slices.Contains(ids(now), ill.ID) {
			return nil // and regenerated already
		}
		return errNotYet
	})
	after := d.until(t, "another takes its place", func(now []api.Replica) error {
		if len(now) != 2 || slices.Contains(ids(now), ill.ID) || !allHealthy(now) {
			return errNotYet
		}
		return nil
	})
	require.Contains(t, ids(after), well.ID, "the other is left alone")
	require.False(t, alive(ill.PID))
	require.Len(t, d.processesOf(t, ill.ID), 2, "it had its one restart")
	heal()
	d.destroy(t)
}

// replicaStartsSlowly: what takes longer than any number of probes is not killed before its
// deadline (S84).
func (s *stack) replicaStartsSlowly(t *testing.T) {
	d := newService(t, s, "slow", 1, func(p *api.DeploymentPut) {
		p.Env["SLOW"], p.Startup = "6s", &fleet.Startup{Deadline: 40}
		p.Health = probe(func(h *fleet.HealthCheck) { h.UnhealthyThreshold = 1 })
	})
	one := d.deploy(t)[0]
	require.Zero(t, one.Restarts)
	require.Equal(t, []int{one.PID}, d.processesOf(t, one.ID))
	d.destroy(t)
}

// replicasCrash can never start: it ends in ERROR with a reason, and its last output is one call
// away; an update goes on from there (S35, S44, S45, S94).
func (s *stack) replicasCrash(t *testing.T) {
	d := newService(t, s, "crashes", 1, func(p *api.DeploymentPut) { p.Env["CRASH"] = "no licence" })
	op := d.ended(t, d.declare(t).ID)
	require.Equal(t, fleet.OperationFailed, op.State, "%+v", op)
	require.Equal(t, "given_up", op.Reason)
	status := d.status(t)
	require.Equal(t, fleet.DeploymentError, status.State)
	require.Equal(t, "given_up", status.Synced.Reason)
	require.NotEmpty(t, status.Reason)
	require.False(t, status.Available)
	var e api.Explanation
	waitFor(t, "its output is there", func(ctx context.Context) (err error) {
		e, err = s.api.Explain(ctx, d.name)
		if err == nil && (e.Output == nil || !strings.Contains(e.Output.Text, "no licence")) {
			err = fmt.Errorf("%+v", e.Output)
		}
		return err
	})
	require.Equal(t, "program", e.Causes[0].Code)
	require.NotEmpty(t, e.Ended)
	require.Equal(t, fleet.ReasonExited, e.Output.Reason)
	require.NotEmpty(t, e.Nodes)
	require.Equal(t, 3, len(d.everRan(t)), "so often it is tried")
	_, err := s.api.Ask(t.Context(), fleet.DeploymentKey(fleet.DeploymentName(d.name)), "rollback", api.RollbackRequest{}, api.Mutation{})
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err), "nothing good was there before: %v", err)

	delete(d.put.Env, "CRASH")
	d.deploy(t)
	require.Equal(t, fleet.DeploymentRunning, d.status(t).State)
	d.destroy(t)
}

// replicasCrashLater ran, and crashes from now on: what fails is regenerated, at once first and
// then after pauses that grow (S107).
func (s *stack) replicasCrashLater(t *testing.T) {
	d := newService(t, s, "falls", 1, func(p *api.DeploymentPut) { p.Startup.Deadline, p.Recovery.Crashes, p.Recovery.GiveUp = 4, 1, 3 })
	d.deploy(t)
	heal := d.sick(t)
	waitFor(t, "it is given up", func(context.Context) error {
		if st := d.status(t); st.State != fleet.DeploymentError {
			return fmt.Errorf("%s %s, awaited %s", st.State, st.Reason, st.Awaited)
		}
		return nil
	})
	heal()
	requireSucceeded(t, d.ended(t, d.restart(t).ID))
	d.healthy(t, 1)
	d.destroy(t)
}

// replicasWithoutRoom: what fits nowhere says what is missing, and runs once there is room (S30, S95).
func (s *stack) replicasWithoutRoom(t *testing.T) {
	d := newService(t, s, "big", 1, func(p *api.DeploymentPut) {
		p.Placement.Pools = []fleet.PoolName{"empty"}
		p.Placement.Spread = fleet.SpreadNodes
	})
	_, err := s.api.PutPool(t.Context(), "empty", api.PoolPut{NodeLabels: map[string]string{"gpu": "h100"}}, api.Mutation{IdempotencyKey: rand.Text()})
	require.NoError(t, err)
	op := d.declare(t)
	waitFor(t, "it says why", func(ctx context.Context) error {
		e, err := s.api.Explain(ctx, d.name)
		if err == nil && (len(e.Causes) == 0 || e.Causes[0].Code != "pool_misconfigured") {
			err = fmt.Errorf("%+v %+v", e.Status, e.Causes)
		}
		return err
	})
	_, err = s.api.PutPool(t.Context(), "empty", api.PoolPut{Sites: []fleet.SiteName{"plant-1"}}, api.Mutation{IdempotencyKey: rand.Text()})
	require.NoError(t, err)
	requireSucceeded(t, d.ended(t, op.ID))
	require.Equal(t, "plant-1", d.healthy(t, 1)[0].Site)
	d.destroy(t)
}

// redeclared puts a deployment anew while it ends: nothing of the old one is left, and the new one
// runs (S43, S113).
func (s *stack) redeclared(t *testing.T) {
	d := newService(t, s, "phoenix", 2)
	before := d.deploy(t)
	first := d.delete(t)
	d.put.Env["GREETING"] = "again"
	second := d.declare(t)
	ended := d.ended(t, first.ID)
	require.Contains(t, []fleet.OperationState{fleet.OperationSucceeded, fleet.OperationSuperseded}, ended.State, "%+v", ended)
	requireSucceeded(t, d.ended(t, second.ID))
	after := d.until(t, "only new ones run", func(now []api.Replica) error {
		if len(now) != 2 || !allHealthy(now) || slices.ContainsFunc(ids(now), func(id fleet.ReplicaID) bool { return slices.Contains(ids(before), id) }) {
			return errNotYet
		}
		return nil
	})
	require.Equal(t, "again", answersAt(t, after[0])["greeting"])
	for _, r := range before {
		require.False(t, alive(r.PID))
	}
	d.destroy(t)
}

// deploymentDoors starts every door as tctl and temporal do.
func (s *stack) deploymentDoors(t *testing.T) {
	d := newService(t, s, "doors", 1)
	first := d.deploy(t)
	door := func(kind, input string) workflows.DoorResult {
		r := s.result(t, s.door(t, kind+"-"+rand.Text(), kind, input, 0))
		require.Equal(t, fleet.OperationSucceeded, r.State, "%s: %+v", kind, r)
		require.Equal(t, "temporal:"+starter, s.ended(t, string(r.Operation)).RequestedBy)
		return r
	}
	door("ConvergeDeployment", `{"deployment":"doors"}`)
	require.Equal(t, ids(first), ids(d.healthy(t, 1)), "what converged is left alone")
	door("ScaleDeployment", `{"deployment":"doors","replicas":2}`)
	two := d.healthy(t, 2)
	door("RestartDeployment", `{"deployment":"doors"}`)
	for _, r := range d.healthy(t, 2) {
		require.NotContains(t, ids(two), r.ID)
	}
	d.put.Strategy = api.Strategy{MinHealthyTime: new(3600.0)}
	d.greets(t, "held")
	d.under(t, "it rolls out", func(r api.Rollout) bool { return r.State == fleet.RolloutDeploying })
	door("RolloutDeployment", `{"deployment":"doors","verb":"pause"}`)
	d.under(t, "it is paused", func(r api.Rollout) bool { return r.State == fleet.RolloutPaused })
	door("RolloutDeployment", `{"deployment":"doors","revision":1}`)
	d.under(t, "it is superseded", func(r api.Rollout) bool { return r.State == fleet.RolloutSuperseded })
	all := d.pids(t)
	door("DestroyDeployment", `{"deployment":"doors"}`)
	d.gone(t)
	for _, pid := range all {
		require.False(t, alive(pid))
	}
}
