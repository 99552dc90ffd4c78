package deployments

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// DeploymentShard is a part of the deployments. Those that were looked at within Settle are left
// alone.
type DeploymentShard struct {
	Shard, Shards int
	Settle        time.Duration
}

// DeploymentsDue gives a page of the deployments of a shard that have something to do, by name,
// after one.
func (s *Store) DeploymentsDue(ctx context.Context, in DeploymentShard, after string, limit int32) ([]fleet.DeploymentName, error) {
	rows, err := s.Q.DeploymentsDue(ctx, db.DeploymentsDueParams{
		After: after, Shards: int64(in.Shards), Shard: int64(in.Shard), OlderSeconds: in.Settle.Seconds(), MaxRows: limit,
	})
	out := make([]fleet.DeploymentName, len(rows))
	for i, name := range rows {
		out[i] = fleet.DeploymentName(name)
	}
	return out, err
}

// CountDeployments counts those that have not ended.
func (s *Store) CountDeployments(ctx context.Context) (int, error) {
	n, err := s.Q.CountDeployments(ctx)
	return int(n), err
}

// CountRuntime counts deployments, and replicas that have not ended, by state.
func (s *Store) CountRuntime(ctx context.Context) (map[fleet.DeploymentState]int64, map[fleet.ReplicaState]int64, error) {
	deployments, replicas := map[fleet.DeploymentState]int64{}, map[fleet.ReplicaState]int64{}
	rows, err := s.Q.CountDeploymentStates(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		deployments[fleet.DeploymentState(r.State)] = r.Count
	}
	found, err := s.Q.CountReplicaStates(ctx)
	for _, r := range found {
		replicas[fleet.ReplicaState(r.State)] = r.Count
	}
	return deployments, replicas, err
}
