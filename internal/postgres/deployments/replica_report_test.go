package deployments_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

// S17, S54: what a node says wakes the deployment when there is something to decide, and only then.
func TestReportWakes(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Replicas.Initial = 1 }))
	b.visits()
	all, err := b.ListReplicas(b.Ctx(), deployments.ReplicaFilter{Deployment: web}, "", 10)
	require.NoError(t, err)
	require.Len(t, all, 1)
	for _, row := range []struct {
		what   string
		phase  fleet.ReplicaPhase
		health fleet.ReplicaHealth
		reason string
		wakes  bool
	}{
		{"it runs", fleet.PhaseRunning, fleet.HealthNotChecked, "", false},
		{"it is healthy", fleet.PhaseRunning, fleet.HealthHealthy, "", true},
		{"it is still", fleet.PhaseRunning, fleet.HealthHealthy, "", false},
		{"its probes fail, its node restarts it", fleet.PhaseRunning, fleet.HealthUnhealthy, "", true},
		{"it says why", fleet.PhaseRunning, fleet.HealthUnhealthy, fleet.ReasonProbesFailed, true},
		{"that is known too", fleet.PhaseRunning, fleet.HealthUnhealthy, fleet.ReasonProbesFailed, false},
		{"its node gave it up: another is to be made", fleet.PhaseFailed, fleet.HealthUnhealthy, fleet.ReasonProbesFailed, true},
		{"that is known", fleet.PhaseFailed, fleet.HealthUnhealthy, fleet.ReasonProbesFailed, false},
	} {
		wake := b.tells(fleet.NodeName(all[0].Node), fleet.ReplicaStatus{ID: all[0].ID, Phase: row.phase, Health: row.health, Reason: row.reason})
		require.Equal(t, row.wakes, len(wake) == 1, "%s: %v", row.what, wake)
	}
}

// S48, S84, X8: the first success of what starts is due its start-up after its process began to run, not after
// its image began to be pulled, and by the word of its node: a report may be late.
func TestStartupDeadline(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) {
		s.Replicas.Initial, s.Process.Startup = 1, &fleet.Startup{Deadline: 90}
	}))
	b.visits()
	all, err := b.ListReplicas(b.Ctx(), deployments.ReplicaFilter{Deployment: web}, "", 10)
	require.NoError(t, err)
	id, node := all[0].ID, all[0].Node
	b.Exec(`UPDATE replicas SET since = since - interval '1 hour' WHERE id = $1`, id)
	due := func() *time.Time {
		listed, err := b.ListReplicas(b.Ctx(), deployments.ReplicaFilter{Deployment: web}, "", 10)
		require.NoError(t, err)
		one, err := b.GetReplica(b.Ctx(), id)
		require.NoError(t, err)
		require.Equal(t, listed[0].StartupDeadline, one.StartupDeadline)
		return one.StartupDeadline
	}
	require.Nil(t, due(), "its node said nothing yet")
	var before *time.Time
	for _, row := range []struct {
		what     string
		phase    fleet.ReplicaPhase
		health   fleet.ReplicaHealth
		restarts int
		age      time.Duration
		left     time.Duration // 0 for no deadline
	}{
		{"it is prepared", fleet.PhasePreparing, fleet.HealthNotChecked, 0, time.Minute, 0},
		{"it runs, and was told late", fleet.PhaseRunning, fleet.HealthNotChecked, 0, 20 * time.Second, 70 * time.Second},
		{"that is known", fleet.PhaseRunning, fleet.HealthNotChecked, 0, 0, 70 * time.Second},
		{"it was started again", fleet.PhaseRunning, fleet.HealthNotChecked, 1, 0, 90 * time.Second},
		{"its image is pulled again", fleet.PhasePreparing, fleet.HealthNotChecked, 2, 0, 0},
		{"its preStart commands run, and were told late", fleet.PhasePreStart, fleet.HealthNotChecked, 2, 30 * time.Second, 60 * time.Second},
		{"its process runs, in the same time", fleet.PhaseRunning, fleet.HealthNotChecked, 2, 0, 60 * time.Second},
		{"its start is retried", fleet.PhaseLaunching, fleet.HealthNotChecked, 2, 0, 0},
		{"it runs at last", fleet.PhaseRunning, fleet.HealthNotChecked, 2, 0, 90 * time.Second},
		{"it is healthy", fleet.PhaseRunning, fleet.HealthHealthy, 2, 0, 0},
		{"its probes fail", fleet.PhaseRunning, fleet.HealthUnhealthy, 2, 0, 0},
	} {
		b.tells(node, fleet.ReplicaStatus{ID: id, Phase: row.phase, Health: row.health, Restarts: row.restarts, Age: row.age})
		at := due()
		one, err := b.GetReplica(b.Ctx(), id)
		require.NoError(t, err)
		require.Equal(t, row.phase, one.Phase, row.what)
		if row.left == 0 {
			require.Nil(t, at, row.what)
			continue
		}
		require.NotNil(t, at, row.what)
		require.WithinDuration(t, time.Now().Add(row.left), *at, 15*time.Second, row.what)
		if row.what == "that is known" {
			require.Equal(t, before, at, row.what)
		}
		before = at
	}
}

// S48, X8, X11: why a check fails is kept with the replica, and in the reason of what failed by it. It wakes nothing.
func TestWhyChecksFail(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Replicas.Initial = 1 }))
	b.visits()
	of := b.replicas()[0]
	refused := func(times int) *fleet.ReportedFailure {
		return &fleet.ReportedFailure{CheckFailure: fleet.CheckFailure{
			Check: "GET /health on 10.0.0.1:8000", Cause: "connection refused", Listens: "it listens on 8080", Times: times,
		}, Age: time.Minute}
	}
	b.tells(of.Node, fleet.ReplicaStatus{ID: of.ID, Phase: fleet.PhaseRunning, Health: fleet.HealthNotChecked})
	for times := range 3 {
		wake := b.tells(of.Node, fleet.ReplicaStatus{ID: of.ID, Phase: fleet.PhaseRunning, Health: fleet.HealthNotChecked, HealthFailure: refused(times + 1)})
		require.Empty(t, wake)
	}
	is := b.replicas()[0].Failing
	require.Nil(t, is.Readiness)
	require.Equal(t, 3, is.Health.Times)
	require.WithinDuration(t, time.Now().Add(-time.Minute), is.Health.Since, 15*time.Second)

	wake := b.tells(of.Node, fleet.ReplicaStatus{
		ID: of.ID, Phase: fleet.PhaseFailed, Health: fleet.HealthNotChecked, Reason: fleet.ReasonStartupDeadline, Message: "it was not healthy before its startup deadline", HealthFailure: refused(4),
	})
	require.Len(t, wake, 1)
	why := `it was not healthy before its startup deadline: GET /health on 10\.0\.0\.1:8000: connection refused, 4 times since \S+; it listens on 8080`
	require.Regexp(t, "^"+why+"$", b.replicas()[0].Message)
	b.visits()
	require.Regexp(t, why, b.viewed().Message, "the attempt failed for that")
	history, err := b.ListDeploymentHistory(b.Ctx(), web, postgres.Place{}, 100)
	require.NoError(t, err)
	var told []string
	for _, line := range history {
		if line.Actor == "node" {
			told = append(told, line.Message)
		}
	}
	require.Contains(t, told, "it was not healthy before its startup deadline: connection refused", "those of one wave are one line")
	ended, err := b.GetReplica(b.Ctx(), of.ID)
	require.NoError(t, err)
	require.Equal(t, 4, ended.Failing.Health.Times, "it is kept with what ended")
}

// S17, S53, X13: a node that ended its replicas leaves at once, and with it what it ran: that is no failure
// of its own, and what was to end has ended.
func TestNodeStopped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.connect(nodeA)
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Replicas.Initial = 3 }))
	b.visits()
	b.obey(nodeA)
	all, err := b.ListReplicas(b.Ctx(), deployments.ReplicaFilter{Deployment: web}, "", 10)
	require.NoError(t, err)
	require.Len(t, all, 3)
	b.Exec(`UPDATE replicas SET state = 'TERMINATING', stop_by = now() WHERE id = $1`, all[0].ID)
	b.Exec(`UPDATE replicas SET state = 'UNHEALTHY', phase = 'exited', reason = 'exited' WHERE id = $1`, all[1].ID)

	heard, err := b.NodeStopped(b.Ctx(), id, "node:"+string(nodeB))
	require.Equal(t, fleet.Denied, fleet.KindOf(err))
	require.Empty(t, heard)
	for _, woken := range [][]string{{webSub}, nil} {
		heard, err = b.NodeStopped(b.Ctx(), id, "node:"+string(nodeA))
		require.NoError(t, err)
		require.Equal(t, woken, heard.Wake)
		connection, err := b.GetConnection(b.Ctx(), id)
		require.NoError(t, err)
		require.Equal(t, fleet.Deregistered, connection.Reason)
		now := map[fleet.ReplicaID]deployments.Replica{}
		rows, err := b.ListReplicas(b.Ctx(), deployments.ReplicaFilter{Deployment: web, Ended: true}, "", 10)
		require.NoError(t, err)
		for _, r := range rows {
			now[r.ID] = r
		}
		require.Equal(t, fleet.ReplicaTerminated, now[all[0].ID].State)
		require.Equal(t, fleet.ReasonExited, now[all[1].ID].Reason, "it ended before, of something else")
		left := now[all[2].ID]
		require.Equal(t, []any{fleet.ReplicaUnhealthy, fleet.PhaseStopped, fleet.ReasonNodeStopped}, []any{left.State, left.Phase, left.Reason})
		require.Nil(t, left.FailedAt)
	}
}
