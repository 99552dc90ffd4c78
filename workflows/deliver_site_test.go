package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workers"
	"github.com/holdfast-io/holdfast/workflows"
)

// gathered is a site where batches of these sizes wait, one after the other.
type gathered struct {
	waits   []int
	looks   int
	told    int
	ended   int
	onEmpty func()
	// enrols is how often a node's notify is prepared before it has enrolled, and takes how long each batch waits for node b.
	enrols map[fleet.NodeName]int
	takes  []time.Duration
}

func (g *gathered) Gather(context.Context, activities.GatherBatch) (activities.BatchMade, error) {
	g.looks++
	if len(g.waits) == 0 {
		if g.onEmpty != nil {
			g.onEmpty()
			g.onEmpty = nil
		}
		return activities.BatchMade{}, nil
	}
	n := g.waits[0]
	g.waits = g.waits[1:]
	return activities.BatchMade{Looked: n, Claimed: n, Nodes: []fleet.NodeName{"a", "b"}}, nil
}

func (g *gathered) PrepareBatch(_ context.Context, in fleet.BatchPrepare) (*fleet.BatchNotify, error) {
	if in.Node == "b" {
		g.takes = append(g.takes, in.Take)
	}
	if g.enrols[in.Node] > 0 {
		g.enrols[in.Node]--
		return &fleet.BatchNotify{Wait: time.Minute}, nil
	}
	if in.Node == "b" && g.enrols != nil {
		return nil, nil
	}
	return &fleet.BatchNotify{Command: fleet.BatchCommand{BatchID: in.ID, Count: 1}}, nil
}

func (g *gathered) MissBatch(context.Context, fleet.BatchMiss) error { return nil }

func (g *gathered) EndBatch(context.Context, fleet.BatchID) (fleet.BatchEnded, error) {
	g.ended++
	return fleet.BatchEnded{Succeeded: 1}, nil
}

func (g *gathered) RefreshBatch(context.Context, fleet.BatchCommand) (fleet.BatchOutcome, error) {
	g.told++
	return fleet.BatchOutcome{Applied: 1}, nil
}

// N98
func TestDeliverSite(t *testing.T) {
	t.Parallel()
	setup := func(g *gathered) *testsuite.TestWorkflowEnvironment {
		env := emptyEnv()
		for name, w := range workers.Workflows() {
			env.RegisterWorkflowWithOptions(w, workflow.RegisterOptions{Name: name})
		}
		env.RegisterActivity(&activities.Batches{Gatherer: g, Store: g, Tokens: silent{}, Signer: silent{}, Doors: silent{}})
		env.RegisterActivityWithOptions(g.RefreshBatch, activity.RegisterOptions{Name: "RefreshBatch"})
		return env
	}
	t.Run("delivers what waits, batch by batch, and ends when nothing does", func(t *testing.T) {
		t.Parallel()
		g := &gathered{waits: []int{1, 7, 500}}
		env := setup(g)
		env.ExecuteWorkflow(workflows.TypeDeliverSite, workflows.DeliverSiteInput{Site: "plant-1"})
		require.NoError(t, env.GetWorkflowError())
		require.Equal(t, 3, g.ended)
		require.Equal(t, 6, g.told, "one activity for each node and batch")
		require.Equal(t, 4, g.looks)
	})
	t.Run("waits for a node that has not enrolled, and less with the next batch (X8)", func(t *testing.T) {
		t.Parallel()
		g := &gathered{waits: []int{1, 1}, enrols: map[fleet.NodeName]int{"a": 1, "b": 2}} // b never enrols
		env := setup(g)
		began := env.Now()
		env.ExecuteWorkflow(workflows.TypeDeliverSite, workflows.DeliverSiteInput{Site: "plant-1"})
		require.NoError(t, env.GetWorkflowError())
		require.Equal(t, 2, g.ended)
		require.Equal(t, 2, g.told, "only a is told")
		require.GreaterOrEqual(t, env.Now().Sub(began), 3*time.Minute)
		require.Equal(t, []time.Duration{2 * time.Minute, 2 * time.Minute, 2 * time.Minute, 5 * time.Second}, g.takes)
	})
	t.Run("looks again when somebody came while it found nothing", func(t *testing.T) {
		t.Parallel()
		g := &gathered{}
		env := setup(g)
		g.onEmpty = func() {
			g.waits = []int{3}
			env.SignalWorkflow(workflows.SignalWake, nil)
		}
		env.ExecuteWorkflow(workflows.TypeDeliverSite, workflows.DeliverSiteInput{Site: "plant-1"})
		require.NoError(t, env.GetWorkflowError())
		require.Equal(t, 1, g.ended)
	})
}
