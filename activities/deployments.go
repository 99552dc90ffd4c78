package activities

import (
	"context"
	"log/slog"

	"go.temporal.io/sdk/activity"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// deploymentStore is a region's record of deployments.
type deploymentStore interface {
	// Visit attaches the entity's run, takes over what was asked for, looks at the deployment,
	// decides and carries it out, in one step that may be repeated.
	Visit(ctx context.Context, in fleet.DeploymentVisit) (fleet.DeploymentVisited, error)
	// Due gives a page of the deployments of a shard that have something to do, by name.
	Due(ctx context.Context, shard, shards int, after string, limit int32) ([]fleet.DeploymentName, error)
	// Compare compares the digests of a shard's nodes with their rows, and requests complete reports of those that
	// differ.
	Compare(ctx context.Context, shard, shards int) error
}

// Deployments is what the entities of deployments do at the store, and their sweep.
type Deployments struct {
	Store    deploymentStore
	Doors    doorTeller
	Entities waker
	Build    string
	Log      *slog.Logger
	// Failpoint is for tests, nil in production: it is called before each visit and, once that is
	// committed, after it.
	Failpoint func(name string)
}

// VisitDeployment looks, decides and acts, and tells the doors of what ended.
func (d *Deployments) VisitDeployment(ctx context.Context, in fleet.DeploymentVisit) (fleet.DeploymentVisited, error) {
	if err := fleet.ValidateName("/deployment", string(in.Deployment)); err != nil {
		return fleet.DeploymentVisited{}, fail(ctx, err)
	}
	in.Build = d.Build
	d.failpoint("before_visit")
	out, err := d.Store.Visit(ctx, in)
	if err != nil {
		return out, fail(ctx, err)
	}
	d.failpoint("after_visit")
	if out.Untold > 0 {
		if err := d.Doors.TellDoors(ctx, fleet.DeploymentSubject(in.Deployment)); err != nil {
			d.Log.WarnContext(ctx, "doors are told by the next sweep", "deployment", in.Deployment, "error", err)
		}
	}
	return out, nil
}

func (d *Deployments) failpoint(name string) {
	if d.Failpoint != nil {
		d.Failpoint(name)
	}
}

// SyncRuntime compares what the nodes of a shard run with their rows (F24), and wakes the deployments of the shard that
// have something to do, which it counts. Each takes one query a page (X12).
func (d *Deployments) SyncRuntime(ctx context.Context, shard, shards int) (int, error) {
	if err := d.Store.Compare(ctx, shard, shards); err != nil {
		return 0, fail(ctx, err)
	}
	woken, after := 0, ""
	for {
		page, err := d.Store.Due(ctx, shard, shards, after, pageOfActions)
		if err != nil {
			return woken, fail(ctx, err)
		}
		for _, name := range page {
			if err := d.Entities.Wake(ctx, fleet.DeploymentSubject(name)); err != nil {
				return woken, fail(ctx, err)
			}
			woken++
			activity.RecordHeartbeat(ctx)
		}
		if len(page) < pageOfActions {
			return woken, nil
		}
		after = string(page[len(page)-1])
	}
}
