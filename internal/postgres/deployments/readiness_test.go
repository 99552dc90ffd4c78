package deployments_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

// ready has the deployment declare a readiness check.
func ready(p *deployments.DeploymentPut) {
	p.Spec.Process.Readiness = &fleet.HealthCheck{Type: fleet.HealthTCP, Interval: 1, Timeout: 0.5, UnhealthyThreshold: 3, HealthyThreshold: 2}
}

// runsChecks says whether the agents of the nodes run readiness checks.
func (b *bench) runsChecks(nodes ...fleet.NodeName) {
	b.T.Helper()
	b.Exec(`UPDATE nodes SET facts = jsonb_set(facts, '{readiness}', to_jsonb(name = ANY($1::text[])))`, nodes)
}

func unready(id fleet.ReplicaID) fleet.ReplicaStatus {
	s := healthy(id)
	s.Unready = true
	return s
}

// are has what is live of a process version be as a node says.
func (b *bench) are(said func(fleet.ReplicaID) fleet.ReplicaStatus, version int64) {
	b.T.Helper()
	for _, r := range b.replicas() {
		if r.ProcessVersion == version && r.State.Live() {
			b.tells(r.Node, said(r.ID))
		}
	}
}

func (b *bench) routables() (n int) {
	b.T.Helper()
	for _, r := range b.replicas() {
		if r.Routable {
			n++
		}
	}
	return n
}

// F72, F77, F79: the state stays HEALTHY and the deployment as it is; views and the next visit see what is routable.
func TestReadinessIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.runsChecks(nodeA, nodeB)
	b.putDeployment(ready)
	b.settles()
	all := b.replicas()
	require.Equal(t, 2, b.routables())
	require.Equal(t, 2, b.viewed().Counts.Routable)
	require.Zero(t, b.seen().Replicas[0].ReadySince, "it was never unready")

	require.Equal(t, []string{webSub}, b.tells(all[0].Node, unready(all[0].ID)))
	require.Empty(t, b.tells(all[0].Node, unready(all[0].ID)), "nothing new")
	b.visits()
	require.Equal(t, []any{2, 1}, []any{b.viewed().Counts.Healthy, b.viewed().Counts.Routable})
	require.Equal(t, []any{fleet.ReplicaHealthy, false}, []any{b.replica(all[0].ID).State, b.replica(all[0].ID).Routable})
	require.Equal(t, []string{string(fleet.DeploymentRunning), "2 of 2 replicas are healthy, 1 not ready"}, []string{string(b.viewed().State), b.viewed().Message})
	require.Len(t, b.replicas(), 2, "nothing takes its place")

	require.Equal(t, []string{webSub}, b.tells(all[0].Node, healthy(all[0].ID)))
	require.Equal(t, 2, b.routables())
	for _, r := range b.seen().Replicas {
		require.Equal(t, r.ID == all[0].ID, !r.ReadySince.IsZero())
	}
}

// F53, F71, F72: a revision that is healthy and never ready takes the place of nothing, and is rolled back.
func TestRolloutWaitsForReadiness(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.runsChecks(nodeA, nodeB)
	b.running("two")
	for range 3 {
		b.are(unready, 2)
		b.visits()
	}
	require.Equal(t, map[int64]int{1: 2, 2: 1}, b.versions(), "both stable ones stay")
	require.Zero(t, b.rollouts()[0].Proven)
	b.stuck()
	b.settles()
	require.Equal(t, map[int64]int{1: 2}, b.versions())
	require.Equal(t, []fleet.RolloutState{fleet.RolloutFailed}, b.ends())

	b.putDeployment(commanded("three"))
	b.visits()
	b.are(unready, 4)
	b.visits()
	b.are(healthy, 4)
	b.settles()
	require.Equal(t, map[int64]int{4: 2}, b.versions(), "once ready, it is deployed")
}

// F72: agents of a build without readiness checks get no replica that has one, and explanations say so.
func TestReadinessNeedsItsNodes(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(ready)
	b.visits()
	require.Empty(t, b.replicas())
	v := b.viewed()
	require.Equal(t, decide.ReadinessMissing, v.Reason)
	require.Contains(t, v.Message, "2 whose agents are of a build without readiness checks")

	b.runsChecks(nodeB)
	b.settles()
	require.Len(t, b.on(nodeB), 2)
	require.Empty(t, b.on(nodeA))
	b.putDeployment()
	b.settles()
	require.NotEmpty(t, b.on(nodeA), "without a check any node will do")
}

// F13, F51: the numbers of a readiness check reach running replicas; the check itself needs new ones.
func TestReadinessTerms(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.runsChecks(nodeA, nodeB)
	b.putDeployment(ready)
	b.settles()
	b.putDeployment(ready, func(p *deployments.DeploymentPut) { p.Spec.Process.Readiness.Interval = 7 })
	b.settles()
	require.Equal(t, map[int64]int{1: 2}, b.versions())
	set, err := b.NodeReplicas(b.Ctx(), nodeA)
	require.NoError(t, err)
	require.Equal(t, fleet.CheckTerms{Interval: 7, Timeout: 0.5, UnhealthyThreshold: 3, HealthyThreshold: 2}, set.Replicas[0].Terms.Readiness)
	b.putDeployment()
	b.settles()
	require.Equal(t, map[int64]int{2: 2}, b.versions())
}

// F25: a report of readiness that was lost is found by the next digest, once.
func TestReadinessDrift(t *testing.T) {
	t.Parallel()
	b := settled(t)
	unready := func(r *fleet.ReplicasReport) { r.Replicas[0].Unready = true }
	b.digests(nodeA, unready)
	drift, asked := b.drift()
	require.Equal(t, fleet.Drift{fleet.DriftState: 1}, drift)
	require.Equal(t, []fleet.NodeName{nodeA}, asked)
	report := b.believes(nodeA)
	unready(&report)
	report.Complete = true
	_, err := b.ReplicasReported(b.Ctx(), report)
	require.NoError(t, err)
	require.False(t, b.replica(report.Replicas[0].ID).Routable)
	b.digests(nodeA, unready)
	b.none("it is known now")
	b.digests(nodeA)
	drift, _ = b.drift()
	require.Equal(t, fleet.Drift{fleet.DriftState: 1}, drift, "it is ready again")
}
