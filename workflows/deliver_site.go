package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// DeliverSiteInput names a site. The deadlines travel along, as of an instance.
type DeliverSiteInput struct {
	Site   fleet.SiteName `json:"site"`
	Limits DeliveryLimits `json:"limits,omitzero"`
}

// DeliverSite takes over what many requests wait for at one site, in batches, where a run
// for each would cost more than the deliveries (docs/batches.md). It takes small configs
// that start nothing; what it leaves has its own entity woken.
func DeliverSite(ctx workflow.Context, in DeliverSiteInput) error {
	talk := newBatchTalk(in.Limits)
	wake := workflow.GetSignalChannel(ctx, SignalWake)
	began := workflow.Now(ctx)
	for n := 1; ; n++ {
		drain(wake)
		next, err := gather(ctx, in.Site, talk.limits, n)
		if err != nil {
			return err
		}
		if next.Claimed > 0 {
			workflow.SetCurrentDetails(ctx, fmt.Sprintf("**deliver** %d instances of %s, batch %s", next.Claimed, in.Site, next.ID))
			if _, err := talk.deliver(ctx, next); err != nil {
				return err
			}
		} else if !wake.ReceiveAsync(nil) {
			return nil
		}
		// Well before its run's timeout, which takes a run away whose worker is gone.
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() || workflow.Now(ctx).Sub(began) > talk.limits.Total {
			return workflow.NewContinueAsNewError(ctx, TypeDeliverSite, in)
		}
	}
}

// gather claims what waits at the site now.
func gather(ctx workflow.Context, site fleet.SiteName, limits DeliveryLimits, number int) (activities.BatchNext, error) {
	info := workflow.GetInfo(ctx).WorkflowExecution
	var out activities.BatchNext
	err := insist(ctx, batches.GatherBatch, activities.GatherBatch{
		Site: site, Workflow: info.ID, Run: info.RunID, Number: number,
		Total: limits.Total, TTL: limits.PendingTTL, Tries: limits.Tries,
	}, &out)
	return out, err
}
