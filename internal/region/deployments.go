package region

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// deploymentSteps are the visits of deployments at the store.
type deploymentSteps struct {
	store  *postgres.Store
	settle time.Duration // the sweep skips what was visited within it
	done   func(fleet.DeploymentVisited)
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
	return d.store.DeploymentsDue(ctx, postgres.DeploymentShard{Shard: shard, Shards: shards, Settle: d.settle}, after, limit)
}

// deployment writes what a door requests of a deployment.
func (r *requests) deployment(ctx context.Context, ask postgres.Request, in activities.DoorRequest) (*postgres.Operation, error) {
	out, err := r.specs.TurnDeployment(ctx, postgres.DeploymentTurn{
		Write: postgres.Write{Key: fleet.DeploymentKey(in.Deployment), Actor: ask.Actor}, Kind: in.Kind, Replicas: in.Replicas, Door: ask.Door,
	})
	if op := out.Operation; err == nil && out.Changed && op.State.Ended() { // no visit ends it, and a repeat changes nothing
		r.closed([]fleet.OperationEnded{{Kind: op.Kind, State: op.State, Reason: op.Reason}})
	}
	return out.Operation, err
}
