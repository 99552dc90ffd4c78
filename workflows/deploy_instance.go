package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// DeployInstanceInput names an instance: {"site":"plant-1","instance":"press-7"}.
type DeployInstanceInput struct {
	Site     fleet.SiteName     `json:"site"`
	Instance fleet.InstanceName `json:"instance"`
}

// DeployInstance delivers the desired revision of an instance, and waits for it.
func DeployInstance(ctx workflow.Context, in DeployInstanceInput) (DoorResult, error) {
	return door(ctx, activities.DoorRequest{Kind: fleet.OperationDeploy, Site: in.Site, Instance: in.Instance})
}
