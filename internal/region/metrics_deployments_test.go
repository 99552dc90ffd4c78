package region

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/workflows"
)

// S93: what a visit ends and what the sweep ends is counted alike, and every event of a replica.
func TestDeploymentMetrics(t *testing.T) {
	t.Parallel()
	m := &metrics{turned: newTurned(), said: newSaid()}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.turned, m.said)
	late := fleet.OperationEnded{Kind: fleet.OperationScale, State: fleet.OperationFailed, Reason: "deadline"}
	m.visited(fleet.DeploymentVisited{Ended: []fleet.OperationEnded{late}})
	m.closed([]fleet.OperationEnded{late, {Kind: fleet.OperationRestart, State: fleet.OperationFailed, Reason: "workflow_terminated"}})
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

// asked is a TurnDeployment whose answer is known.
type asked struct {
	unreleased
	out postgres.Started
}

func (a asked) TurnDeployment(context.Context, deployments.DeploymentTurn) (postgres.Started, error) {
	return a.out, nil
}

// S93: what has ended when its door is answered is counted there, once.
func TestDoorsEndIsCounted(t *testing.T) {
	t.Parallel()
	done := postgres.Operation{ID: "o", Kind: fleet.OperationDestroy, State: fleet.OperationSucceeded, Reason: "destroyed"}
	running := postgres.Operation{ID: "o", Kind: fleet.OperationDestroy, State: fleet.OperationRunning}
	first := postgres.Written{Changed: true}
	for name, row := range map[string]struct {
		out  postgres.Started
		want []fleet.OperationEnded
	}{
		"it ended at once":    {postgres.Started{Written: first, Operation: &done}, []fleet.OperationEnded{{Kind: done.Kind, State: done.State, Reason: done.Reason}}},
		"the door asks again": {postgres.Started{Operation: &done}, nil},
		"a visit ends it":     {postgres.Started{Written: first, Operation: &running}, nil},
	} {
		var told []fleet.OperationEnded
		r := &requests{specs: asked{out: row.out}, closed: func(all []fleet.OperationEnded) { told = append(told, all...) }}
		v, err := r.Request(t.Context(), activities.DoorRequest{Kind: fleet.OperationDestroy, Input: workflows.DeploymentDoorInput{Deployment: "web"}}, "door")
		require.NoError(t, err, name)
		require.Equal(t, row.out.Operation.State, v.State, name)
		require.Equal(t, row.want, told, name)
	}
}
