package region

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// S93: what a visit ends and what the sweep ends is counted alike, and every event of a replica.
func TestDeploymentMetrics(t *testing.T) {
	t.Parallel()
	m := &metrics{turned: newTurned(), said: newSaid()}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.turned, m.said)
	late := postgres.OperationEnded{Kind: fleet.OperationScale, State: fleet.OperationFailed, Reason: "deadline"}
	m.visited(postgres.DeploymentVisited{Ended: []postgres.OperationEnded{late}})
	m.closed([]postgres.OperationEnded{late, {Kind: fleet.OperationRestart, State: fleet.OperationFailed, Reason: "workflow_terminated"}})
	countedReplicas{said: m.said}.count([]fleet.ReplicaEvent{fleet.ReplicaFailed, fleet.ReplicaFailed, fleet.ReplicaPassed})

	families, err := registry.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, x := range f.GetMetric() {
			key := ""
			for _, l := range x.GetLabel() {
				key += l.GetValue() + " "
			}
			if n := x.GetCounter().GetValue(); n > 0 {
				got[key] = n
			}
		}
	}
	require.Equal(t, map[string]float64{
		"scale deadline failed ": 2, "restart workflow_terminated failed ": 1, "failed ": 2, "passed ": 1,
	}, got)
}
