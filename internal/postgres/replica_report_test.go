package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// S17, S54: what a node says wakes the deployment when there is something to decide, and only then.
func TestReportWakes(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Replicas.Initial = 1 }))
	b.visits()
	all, err := b.ListReplicas(b.ctx(), postgres.ReplicaFilter{Deployment: web}, "", 10)
	require.NoError(t, err)
	require.Len(t, all, 1)
	for _, row := range []struct {
		what   string
		phase  fleet.ReplicaPhase
		health fleet.ReplicaHealth
		wakes  bool
	}{
		{"it runs", fleet.PhaseRunning, fleet.HealthNotChecked, false},
		{"it is healthy", fleet.PhaseRunning, fleet.HealthHealthy, true},
		{"it is still", fleet.PhaseRunning, fleet.HealthHealthy, false},
		{"its probes fail, its node restarts it", fleet.PhaseRunning, fleet.HealthUnhealthy, true},
		{"its node gave it up: another is to be made", fleet.PhaseFailed, fleet.HealthUnhealthy, true},
		{"that is known", fleet.PhaseFailed, fleet.HealthUnhealthy, false},
	} {
		wake := b.tells(fleet.NodeName(all[0].Node), fleet.ReplicaStatus{ID: all[0].ID, Phase: row.phase, Health: row.health})
		require.Equal(t, row.wakes, len(wake) == 1, "%s: %v", row.what, wake)
	}
}
