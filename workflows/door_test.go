package workflows_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workflows"
)

// X23: a door runs under its entity's id or any that is no entity's; under that of another it would get that
// one's wakes, and is refused before it asks for anything.
func TestDoorsUnderIDs(t *testing.T) {
	t.Parallel()
	web, three := workflows.DeploymentDoorInput{Deployment: "web"}, 3
	const execution = "execution.0123456789abcdef0123456789abcdef"
	entities := []string{
		"instance.plant-1.press-7", "node.plant-1-a", "drain.plant-1-a", "site.plant-1", "fleet.press-v7", "deployment.web",
		"deployment.api", "deliver.plant-1", "fleet.press-v7.1.2.plant-1", execution,
	}
	for kind, door := range map[string]struct {
		in  any
		own string
	}{
		workflows.TypeDeployInstance:     {workflows.DeployInstanceInput{Site: "plant-1", Instance: "press-7"}, "instance.plant-1.press-7"},
		workflows.TypeSetInstanceState:   {workflows.SetInstanceStateInput{Site: "plant-1", Instance: "press-7", State: "enabled"}, "instance.plant-1.press-7"},
		workflows.TypeReconcileNode:      {workflows.ReconcileNodeInput{Node: "plant-1-a"}, "node.plant-1-a"},
		workflows.TypeDrainNode:          {workflows.DrainNodeInput{Node: "plant-1-a"}, "drain.plant-1-a"},
		workflows.TypeFailoverSite:       {workflows.FailoverSiteInput{Site: "plant-1"}, "site.plant-1"},
		workflows.TypeDeployFleet:        {workflows.DeployFleetInput{Fleet: "press-v7"}, "fleet.press-v7"},
		workflows.TypeConvergeDeployment: {web, "deployment.web"},
		workflows.TypeScaleDeployment:    {workflows.ScaleDeploymentInput{Deployment: "web", Replicas: &three}, "deployment.web"},
		workflows.TypeRestartDeployment:  {web, "deployment.web"},
		workflows.TypeDestroyDeployment:  {web, "deployment.web"},
		workflows.TypeExecuteModule:      {workflows.ExecuteModuleInput{Module: "acme.vision.Detect"}, ""},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			under := func(id string) error {
				b := newEnv(t, nodeApplier{}, fakeRequests{subject: door.own, first: fleet.OperationSucceeded})
				b.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: id, TaskQueue: workflows.QueueServers})
				b.ExecuteWorkflow(kind, door.in)
				return b.GetWorkflowError()
			}
			for _, id := range entities {
				if id == door.own {
					continue
				}
				var refused *temporal.ApplicationError
				require.ErrorAs(t, under(id), &refused, id)
				require.Equal(t, string(fleet.Invalid), refused.Type(), id)
				require.ErrorContains(t, refused, door.own)
				require.ErrorContains(t, refused, id)
			}
			for _, id := range []string{"web", "deployment", "deployment.", "deployment.web.monday", "3c1f0a52-6b8e-4d7c-9f21-aa0e5d7f4b11"} {
				require.NoError(t, under(id), id)
			}
		})
	}
}
