package region

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
	"github.com/holdfast-io/holdfast/internal/store"
)

// composer makes the new content of many instances.
type composer interface {
	FleetChanges(ctx context.Context, spec fleet.FleetSpec, targets []fleets.FleetTarget) ([]deliveries.BatchChange, error)
}

// batchMaker composes and releases the batches of fleet changes.
type batchMaker struct {
	store *store.Store
	specs composer
}

// composedAtOnce is how many instances are composed before their bytes are counted.
const composedAtOnce = 100

// Next writes the next batch of a site, unless its change has stopped.
func (b *batchMaker) Next(ctx context.Context, in activities.NextBatch, tokenHash []byte) (activities.BatchMade, *fleet.BatchNotify, error) {
	made, err := b.store.FindBatch(ctx, in.ID())
	if err != nil || made != nil { // the same as the first time
		return batchMade(in.Size, made), nil, err
	}
	run, err := b.store.GetFleetRun(ctx, in.Fleet, in.FleetRun)
	if err != nil || run.Wave != in.Wave || !decide.FleetGoesOn(run.State, run.Cancel, run.PerWave[in.Wave], run.Spec.ErrorThreshold) {
		return activities.BatchMade{}, nil, err
	}
	open, err := b.mayGoOn(ctx, in, run.Spec.Windows)
	if err != nil || !open {
		return activities.BatchMade{Closed: !open}, nil, err
	}
	most := min(in.Size, fleet.MaxBatchItems)
	page := fleets.FleetPage{
		Fleet: in.Fleet, Run: in.FleetRun, Wave: in.Wave, Site: in.Site, State: fleet.FleetTargetWaiting, Limit: most + 1,
	}
	if in.Mode == decide.SiteSwitch {
		page.State = fleet.FleetTargetStaged
	}
	targets, err := b.store.FleetTargets(ctx, page)
	if err != nil || len(targets) == 0 {
		return activities.BatchMade{}, nil, err
	}
	all := len(targets)
	changes, err := b.compose(ctx, run.Spec, targets[:min(most, all)])
	if err != nil {
		return activities.BatchMade{}, nil, err
	}
	released, err := b.store.ReleaseBatch(ctx, deliveries.BatchRelease{
		ID: in.ID(), Site: in.Site, Fleet: in.Fleet, FleetRun: in.FleetRun, Stage: in.Mode == decide.SiteStage,
		Workflow: in.Workflow, Run: in.Run, Actor: run.RequestedBy, Reason: "fleet change " + string(in.Fleet),
		Deadline: in.Total, TTL: in.TTL, TokenHash: tokenHash, Items: changes,
	})
	out := batchMade(len(changes), &released)
	out.Last = len(changes) == all
	return out, released.Notify, err
}

// mayGoOn checks the site's window by the same clock as the entity.
func (b *batchMaker) mayGoOn(ctx context.Context, in activities.NextBatch, windows []fleet.Window) (bool, error) {
	if len(windows) == 0 {
		return true, nil
	}
	now, err := b.store.Now(ctx)
	return err == nil && decide.SiteMayGoOn(in.Mode, windows, in.Site, now, time.LoadLocation), err
}

func batchMade(looked int, r *deliveries.BatchReleased) activities.BatchMade {
	if r == nil {
		return activities.BatchMade{}
	}
	return activities.BatchMade{Looked: looked, Claimed: r.Claimed, Nodes: r.Nodes}
}

// compose takes as many targets as fit into the bytes of one batch, but at least one part.
func (b *batchMaker) compose(ctx context.Context, spec fleet.FleetSpec, targets []fleets.FleetTarget) ([]deliveries.BatchChange, error) {
	var out []deliveries.BatchChange
	var bytes int64
	for len(targets) > 0 {
		n := min(composedAtOnce, len(targets))
		part, err := b.specs.FleetChanges(ctx, spec, targets[:n])
		if err != nil {
			return nil, err
		}
		for _, c := range part {
			if c.Content.Size <= fleet.MaxBatchBody {
				bytes += c.Content.Size
			}
			if bytes > fleet.MaxBatchBytes {
				return out, nil
			}
			out = append(out, c)
		}
		targets = targets[n:]
	}
	return out, nil
}
