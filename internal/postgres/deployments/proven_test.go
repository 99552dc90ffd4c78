package deployments_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// proves has replicas be proven as they are by default.
func proves(p *deployments.DeploymentPut) { p.Spec.Strategy.MinHealthyTime = nil }

// aged lets replicas be as they are for longer, on nodes that are connected for longer, as no test waits for a proof.
func (b *bench) aged(by time.Duration) {
	b.T.Helper()
	b.Exec(`UPDATE replicas SET since = since - $1::interval WHERE ended_at IS NULL`, by)
	b.Exec(`UPDATE connections SET active_at = active_at - $1::interval`, by)
}

// F53, F72, X8: what is declared, what its checks need, and since when a replica is routable reach the decision, and people.
func TestProofIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(proves, commanded("one"))
	b.settles()
	b.aged(time.Hour)
	b.putDeployment(proves, commanded("two"))
	b.visits()
	b.are(healthy, 2)
	next := b.visits()
	require.Equal(t, map[int64]int{1: 2, 2: 1}, b.versions(), "nothing ends for one that is not proven")
	require.InDelta(t, 10, next.Next.Sub(next.At).Seconds(), 1, "it looks again once that is")
	require.Equal(t, []any{fleet.DefaultMinHealthy, 0}, []any{b.rollouts()[0].MinHealthy, b.rollouts()[0].Proven})
	for _, r := range b.replicas() {
		require.Equal(t, r.ProcessVersion == 2, r.ProvenAt != nil, "%s", r.ID)
		require.True(t, r.ProvenAt == nil || r.ProvenAt.Equal(r.Since.Add(10*time.Second)))
	}
	b.aged(10 * time.Second)
	b.visits()
	require.Equal(t, map[int64]int{1: 1, 2: 1}, b.versions(), "then as many end")

	slow := &fleet.HealthCheck{Type: fleet.HealthTCP, Interval: 20, Timeout: 5, UnhealthyThreshold: 4, HealthyThreshold: 1}
	b.putDeployment(proves, commanded("three"), asking(func(s *fleet.DeploymentSpec) { s.Process.Health = slow }))
	require.Equal(t, 80*time.Second, b.seen().Rollout.To.Shows)
	require.Equal(t, 80*time.Second, b.rollouts()[0].MinHealthy)
	require.Equal(t, 5*time.Second, fleet.Strategy{ProgressDeadline: 10}.MinHealthy(80*time.Second))
}

// F61, F71, X2: failures of replicas that had been healthy are counted on their rollout, each wave once, and return it.
func TestRolloutThatKeepsFailing(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(proves, commanded("one"))
	b.settles()
	b.aged(time.Hour)
	b.putDeployment(proves, commanded("two"))
	for n := range 3 {
		b.visits()
		require.Equal(t, n, b.seen().Rollout.Failures)
		b.are(healthy, 2)
		b.visits()
		b.failing(2)
	}
	b.visits()
	b.obey(nodeA)
	b.obey(nodeB)
	b.settles()
	require.Equal(t, map[int64]int{1: 2}, b.versions(), "what was stable never ended")
	r := b.rollouts()[0]
	require.Equal(t, []string{"FAILED", decide.ReasonKeepsFailing}, []string{string(r.State), r.Reason})
	require.Contains(t, r.Message, "exit status 1")
	require.Equal(t, []string{"converge succeeded", "converge failed"}, b.deploymentOperations())
}

// F61: of a process that was healthy it is kept when that started; what was never healthy has none.
func TestWhatWorkedIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment()
	b.visits()
	all := b.seen().Replicas
	a, never := all[0], all[1]
	of := func(id fleet.ReplicaID) fleet.ReplicaSeen {
		for _, r := range b.seen().Replicas {
			if r.ID == id {
				return r
			}
		}
		return fleet.ReplicaSeen{}
	}
	b.tells(never.Node, exited(never.ID))
	require.Zero(t, of(never.ID).Worked)
	b.tells(a.Node, healthy(a.ID))
	require.Equal(t, a.CreatedAt, of(a.ID).Worked)
	unwell, starts, again := healthy(a.ID), healthy(a.ID), healthy(a.ID)
	unwell.Health = fleet.HealthUnhealthy
	starts.Health, starts.Restarts, again.Restarts = fleet.HealthNotChecked, 1, 1
	b.tells(a.Node, unwell)
	b.tells(a.Node, healthy(a.ID))
	require.Equal(t, a.CreatedAt, of(a.ID).Worked, "it is the same process")
	b.tells(a.Node, unwell)
	b.tells(a.Node, starts)
	since := of(a.ID).Since
	b.tells(a.Node, again)
	require.Equal(t, since, of(a.ID).Worked)
	again.Restarts = 2
	b.tells(a.Node, again)
	require.Equal(t, of(a.ID).Since, of(a.ID).Worked, "it was healthy again before its node reported")
	b.Exec(`UPDATE replicas SET worked = NULL`)
	since = of(a.ID).Since
	b.tells(a.Node, unwell)
	require.Equal(t, since, of(a.ID).Worked, "a server of the build before did not keep it")
}

// F53: until when a drain moves what runs reaches the decision, while it is under way.
func TestDrainHasItsDeadline(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment()
	b.settles()
	require.Zero(t, b.seen().Replicas[0].LeaveBy)
	b.MustDrain(stores.DrainOf(nodeA, 60))
	by := stores.Scan[time.Time](b, `SELECT deadline FROM node_drains`)
	for _, r := range b.seen().Replicas {
		require.True(t, r.Node != nodeA && r.LeaveBy.IsZero() || r.Node == nodeA && r.LeaveBy.Equal(by), "%s: %s", r.Node, r.LeaveBy)
	}
	b.Exec(`UPDATE node_drains SET phase = 'ended', ended_at = now(), rule = 'replicas_not_moved'`)
	for _, r := range b.seen().Replicas {
		require.Equal(t, []bool{r.Node == nodeA, true}, []bool{r.Leave, r.LeaveBy.IsZero()}, "it moves, and has its time")
	}
}

// S17, S123: a restart has time for the proof of each replica that it replaces.
func TestRestartHasTimeForProofs(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	limit := func(seconds float64) time.Duration {
		b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Strategy.MinHealthyTime = &seconds }))
		b.settles()
		out, err := b.turnDeployment(fleet.OperationRestart)
		require.NoError(t, err)
		return out.Operation.Deadline.Sub(out.Operation.CreatedAt)
	}
	require.Equal(t, 3*time.Minute, (limit(60) - limit(0)).Round(time.Second))
}
