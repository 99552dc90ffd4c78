package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X4: what no node says is refused before anything is written.
func TestReportIsRefused(t *testing.T) {
	t.Parallel()
	line := func(change func(*fleet.ReplicaStatus)) fleet.ReplicasReport {
		s := fleet.ReplicaStatus{
			ID: "0123456789ab", Phase: fleet.PhaseRunning, Health: fleet.HealthHealthy, Endpoint: "10.0.0.1:80",
			Ports: map[string]int{"http": 80}, PID: 7, Age: time.Second,
		}
		change(&s)
		return fleet.ReplicasReport{Node: "plant-1-a", Set: fleet.SetVersion{Era: 1, Number: 3}, Replicas: []fleet.ReplicaStatus{s}}
	}
	require.NoError(t, line(func(*fleet.ReplicaStatus) {}).Validate())
	for name, change := range map[string]func(*fleet.ReplicaStatus){
		"an id that is none":     func(s *fleet.ReplicaStatus) { s.ID = "web-1" },
		"an unknown phase":       func(s *fleet.ReplicaStatus) { s.Phase = "dancing" },
		"no phase":               func(s *fleet.ReplicaStatus) { s.Phase = "" },
		"a health of readers":    func(s *fleet.ReplicaStatus) { s.Health = fleet.HealthDegraded },
		"a negative count":       func(s *fleet.ReplicaStatus) { s.Restarts = -1 },
		"an age from the future": func(s *fleet.ReplicaStatus) { s.Age = -time.Second },
		"a long reason":          func(s *fleet.ReplicaStatus) { s.Reason = strings.Repeat("x", 65) },
		"a long message":         func(s *fleet.ReplicaStatus) { s.Message = strings.Repeat("x", fleet.MaxReplicaMessage+1) },
		"a zero byte":            func(s *fleet.ReplicaStatus) { s.Message = "a\x00b" },
		"a path":                 func(s *fleet.ReplicaStatus) { s.Deployment = "../web" },
		"a negative revision":    func(s *fleet.ReplicaStatus) { s.Revision = -1 },
		"a long endpoint":        func(s *fleet.ReplicaStatus) { s.Endpoint = strings.Repeat("x", 301) },
		"a port that is none":    func(s *fleet.ReplicaStatus) { s.Ports = map[string]int{"http": 1 << 16} },
	} {
		require.Error(t, line(change).Validate(), name)
	}
	twice := line(func(*fleet.ReplicaStatus) {})
	twice.Replicas = append(twice.Replicas, twice.Replicas[0])
	require.ErrorContains(t, twice.Validate(), "twice")
	many := fleet.ReplicasReport{Node: "plant-1-a"}
	for i := range fleet.MaxReportedReplicas + 1 {
		many.Replicas = append(many.Replicas, fleet.ReplicaStatus{
			ID: fleet.ReplicaID(fmt.Sprintf("%012x", i)), Phase: fleet.PhaseExited, Health: fleet.HealthNotChecked,
		})
	}
	require.Equal(t, fleet.TooLarge, fleet.KindOf(many.Validate()))
	many.Replicas = many.Replicas[1:]
	require.NoError(t, many.Validate())
}
