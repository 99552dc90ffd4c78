package workflows

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// SetInstanceStateInput names an instance and the state it is to have: enabled, disabled
// or deleted.
type SetInstanceStateInput struct {
	Site     fleet.SiteName     `json:"site"`
	Instance fleet.InstanceName `json:"instance"`
	State    string             `json:"state"`
}

// SetInstanceState enables, disables or deletes an instance, and waits for its nodes.
func SetInstanceState(ctx workflow.Context, in SetInstanceStateInput) (DoorResult, error) {
	req := activities.DoorRequest{Site: in.Site, Instance: in.Instance}
	switch in.State {
	case "enabled":
		req.Kind = fleet.OperationEnable
	case "disabled":
		req.Kind = fleet.OperationDisable
	case "deleted":
		req.Kind = fleet.OperationDelete
	default:
		return DoorResult{}, temporal.NewNonRetryableApplicationError(
			`state: allowed are "enabled", "disabled" and "deleted"`, string(fleet.Invalid), nil)
	}
	return door(ctx, req)
}
