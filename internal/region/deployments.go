package region

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/store"
)

// deploymentSteps are the visits of deployments at the store.
type deploymentSteps struct {
	store  *store.Store
	settle time.Duration // the sweep skips what was visited within it
	done   func(fleet.DeploymentVisited)
	// drifted gets what a comparison found, compared how long one of a shard took.
	drifted  func(fleet.Drift)
	compared func(time.Duration)
}

// Visit reads, decides and acts in one transaction.
func (d *deploymentSteps) Visit(ctx context.Context, in fleet.DeploymentVisit) (fleet.DeploymentVisited, error) {
	out, err := d.store.VisitDeployment(ctx, in)
	if err == nil {
		d.done(out)
	}
	return out, err
}

// Due returns a page of a shard.
func (d *deploymentSteps) Due(ctx context.Context, shard, shards int, after string, limit int32) ([]fleet.DeploymentName, error) {
	return d.store.DeploymentsDue(ctx, deployments.DeploymentShard{Shard: shard, Shards: shards, Settle: d.settle}, after, limit)
}

// nodesAtOnce bounds what a comparison reads at once: at most so many nodes, with their replicas.
const nodesAtOnce = 100

// Compare compares the digests of a shard's nodes, a page at a time.
func (d *deploymentSteps) Compare(ctx context.Context, shard, shards int) error {
	began, after := time.Now(), ""
	for {
		out, err := d.store.CompareDigests(ctx, deployments.NodeShard{Shard: shard, Shards: shards}, after, nodesAtOnce)
		if err != nil {
			return err
		}
		d.drifted(out.Drift)
		if after = out.Last; after == "" {
			d.compared(time.Since(began))
			return nil
		}
	}
}
