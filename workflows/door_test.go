package workflows_test

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workflows"
)

// X23: a door runs under any id that the region does not reserve. Under a reserved one it would get the wakes of an
// entity, so it ends before it requests anything, names the reserved forms, and leaves no signal unread.
func TestDoorsUnderIDs(t *testing.T) {
	t.Parallel()
	web, three := workflows.DeploymentDoorInput{Deployment: "web"}, 3
	const execution = "execution.0123456789abcdef0123456789abcdef"
	reserved := []string{
		"instance.plant-1.press-7", "node.plant-1-a", "drain.plant-1-a", "site.plant-1", "fleet.press-v7", "deployment.web",
		"deployment.api", "deliver.plant-1", "fleet.press-v7.1.2.plant-1", execution,
		"region.eu", "policy.project.p1",
		"deployment.", "deployment.web.monday", "instance.press-7",
	}
	inputs := map[string]any{
		workflows.TypeDeployInstance:     workflows.DeployInstanceInput{Site: "plant-1", Instance: "press-7"},
		workflows.TypeSetInstanceState:   workflows.SetInstanceStateInput{Site: "plant-1", Instance: "press-7", State: "enabled"},
		workflows.TypeReconcileNode:      workflows.ReconcileNodeInput{Node: "plant-1-a"},
		workflows.TypeDrainNode:          workflows.DrainNodeInput{Node: "plant-1-a"},
		workflows.TypeFailoverSite:       workflows.FailoverSiteInput{Site: "plant-1"},
		workflows.TypeDeployFleet:        workflows.DeployFleetInput{Fleet: "press-v7"},
		workflows.TypeConvergeDeployment: web,
		workflows.TypeScaleDeployment:    workflows.ScaleDeploymentInput{Deployment: "web", Replicas: &three},
		workflows.TypeRestartDeployment:  workflows.RestartDeploymentInput{Deployment: "web"},
		workflows.TypeRolloutDeployment:  workflows.RolloutDeploymentInput{Deployment: "web", Verb: "pause"},
		workflows.TypeDestroyDeployment:  web,
		workflows.TypeSyncRegion:         workflows.SyncRegionInput{Peer: "us"},
		workflows.TypeApplyRegionPolicy:  workflows.ApplyRegionPolicyInput{Holder: "project/p1"},
		workflows.TypeHandOverRegion:     workflows.HandOverRegionInput{Holder: "project/p1", To: "us"},
		workflows.TypeExecuteModule:      workflows.ExecuteModuleInput{Module: "acme.vision.Detect"},
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(workflows.Doors())), slices.Collect(maps.Keys(inputs)), "a door has no input here")
	for kind, in := range inputs {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			under := func(id string, requests fakeRequests) error {
				b := newEnv(t, nodeApplier{}, requests)
				b.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: id, TaskQueue: workflows.QueueServers})
				b.RegisterDelayedCallback(func() { b.SignalWorkflow(workflows.SignalWake, nil) }, 0)
				b.ExecuteWorkflow(kind, in)
				return b.GetWorkflowError()
			}
			for _, id := range reserved {
				var refused *temporal.ApplicationError
				require.ErrorAs(t, under(id, fakeRequests{err: errors.New("it was requested")}), &refused, id)
				require.Equal(t, string(fleet.Invalid), refused.Type(), id)
				require.ErrorContains(t, refused, strconv.Quote(id))
				for _, k := range fleet.EntityKinds() {
					require.ErrorContains(t, refused, k.Prefix+".…")
				}
			}
			for _, id := range []string{"web", "deployment", "deployments.web", "my.deployment.web", "3c1f0a52-6b8e-4d7c-9f21-aa0e5d7f4b11"} {
				require.NoError(t, under(id, fakeRequests{subject: "deployment.web", first: fleet.OperationSucceeded}), id)
			}
		})
	}
}
