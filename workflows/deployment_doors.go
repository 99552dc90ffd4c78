package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// DeploymentDoorInput names a deployment: {"deployment":"web"}.
type DeploymentDoorInput struct {
	Deployment fleet.DeploymentName `json:"deployment"`
}

// ScaleDeploymentInput names a deployment and its new target: {"deployment":"web","replicas":5}.
type ScaleDeploymentInput struct {
	Deployment fleet.DeploymentName `json:"deployment"`
	Replicas   *int                 `json:"replicas"`
}

// ConvergeDeployment has what was declared last run, as many times as is wanted, and waits for it:
// what was only written is released. One that was given up begins anew.
func ConvergeDeployment(ctx workflow.Context, in DeploymentDoorInput) (DoorResult, error) {
	return door(ctx, activities.DoorRequest{Kind: fleet.OperationConverge, Deployment: in.Deployment})
}

// ScaleDeployment sets the target of a deployment within its bounds, and waits until as many run.
func ScaleDeployment(ctx workflow.Context, in ScaleDeploymentInput) (DoorResult, error) {
	return door(ctx, activities.DoorRequest{Kind: fleet.OperationScale, Deployment: in.Deployment, Replicas: in.Replicas})
}

// RestartDeployment replaces all replicas of a deployment, new before old, and waits for it.
func RestartDeployment(ctx workflow.Context, in DeploymentDoorInput) (DoorResult, error) {
	return door(ctx, activities.DoorRequest{Kind: fleet.OperationRestart, Deployment: in.Deployment})
}

// DestroyDeployment deletes a deployment, and waits until nothing of it runs.
func DestroyDeployment(ctx workflow.Context, in DeploymentDoorInput) (DoorResult, error) {
	return door(ctx, activities.DoorRequest{Kind: fleet.OperationDestroy, Deployment: in.Deployment})
}
