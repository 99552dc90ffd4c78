package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// DeployFleetInput names a fleet change: {"fleet":"press-v7"}.
type DeployFleetInput struct {
	Fleet fleet.FleetName `json:"fleet"`
}

// DeployFleet runs a declared fleet change, or joins the run that is under way, and waits
// for it.
func DeployFleet(ctx workflow.Context, in DeployFleetInput) (DoorResult, error) {
	return door(ctx, activities.DoorRequest{Kind: fleet.OperationFleet, Fleet: in.Fleet})
}
