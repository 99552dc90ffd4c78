package deployments

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// NodeReplicas gives the set of a node: all that it is to run, and by name all that it is to end. Version 0 is of a node
// that never had any.
func (s *Store) NodeReplicas(ctx context.Context, node fleet.NodeName) (fleet.NodeReplicas, error) {
	out := fleet.NodeReplicas{Replicas: []fleet.NodeReplica{}}
	var err error
	if out.Era, out.Version, err = s.NodeSetVersion(ctx, node); err != nil {
		return out, err
	}
	rows, err := s.Q.NodeReplicas(ctx, db.NodeReplicasParams{Node: string(node), MaxRows: fleet.MaxNodeReplicas})
	if err != nil {
		return out, err
	}
	for _, r := range rows {
		line := fleet.NodeReplica{
			ID: fleet.ReplicaID(r.ID), Deployment: fleet.DeploymentName(r.Deployment), Revision: r.Revision, ProcessVersion: r.ProcessVersion,
			Definition: postgres.HashText(r.Definition), Run: r.Live, StopSeconds: int(r.StopSeconds), Project: fleet.ProjectName(r.Project),
		}
		if err := json.Unmarshal(r.Terms, &line.Terms); err != nil {
			return out, postgres.Unreadable("the terms of a replica", err)
		}
		out.Replicas = append(out.Replicas, line)
	}
	out.Count = len(out.Replicas)
	return out, nil
}

// NodeSetVersion gives the number of a node's set, 0 where it never had any.
func (s *Store) NodeSetVersion(ctx context.Context, node fleet.NodeName) (era, version int64, err error) {
	r, err := s.Q.NodeSet(ctx, string(node))
	return r.Era, r.Version, err
}

// NodeSetVersions gives the numbers of the sets of the nodes whose streams a server holds. A node
// that never had one is not in it.
func (s *Store) NodeSetVersions(ctx context.Context, server string) (map[fleet.ConnectionID]fleet.NodeReplicas, error) {
	rows, err := s.Q.NodeSetVersions(ctx, server)
	out := make(map[fleet.ConnectionID]fleet.NodeReplicas, len(rows))
	for _, r := range rows {
		out[fleet.ConnectionID(r.ID)] = fleet.NodeReplicas{Era: r.Era, Version: r.Version}
	}
	return out, err
}

// DefinitionOf gives a definition to a node in whose set it is; any other is not_found.
func (s *Store) DefinitionOf(ctx context.Context, node fleet.NodeName, h fleet.Hash) ([]byte, error) {
	has, err := s.Q.NodeHasDefinition(ctx, db.NodeHasDefinitionParams{Node: string(node), Definition: postgres.HashBytes(h)})
	if err != nil {
		return nil, err
	}
	if !has {
		return nil, postgres.OrNotFound(nil, "definition", string(h), "fetch the node's set of replicas again")
	}
	kept, rest := s.Recent.Of([]fleet.Hash{h})
	if len(rest) == 0 {
		return kept[h], nil
	}
	body, err := readSmall(ctx, s.Q, h)
	if err == nil {
		s.Recent.Put(h, body)
	}
	return body, err
}

// EvictReplicas ends all replicas of a node, whether they run elsewhere or not: for a drain that is
// forced. Their deployments look for other places.
func (s *Store) EvictReplicas(ctx context.Context, node fleet.NodeName) error {
	rows, err := s.Q.LiveReplicasOn(ctx, string(node))
	if err != nil {
		return err
	}
	of := map[fleet.DeploymentName][]fleet.ReplicaStep{}
	for _, r := range rows {
		name := fleet.DeploymentName(r.Deployment)
		of[name] = append(of[name], fleet.ReplicaStep{ID: fleet.ReplicaID(r.ID), Reason: "drained", Message: "its node was emptied by force"})
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if err := s.terminateReplicas(ctx, name, of[name]); err != nil {
			return err
		}
	}
	return nil
}

// terminateReplicas ends replicas of one deployment that it did not choose itself.
func (s *Store) terminateReplicas(ctx context.Context, name fleet.DeploymentName, steps []fleet.ReplicaStep) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		if err := postgres.Lock(ctx, q, []fleet.ObjectKey{fleet.DeploymentKey(name)}); err != nil {
			return err
		}
		w, err := visited(ctx, q, name)
		if err != nil || w == nil {
			return err
		}
		c := carrying{deploymentWork: w, plan: fleet.DeploymentPlan{Terminate: steps}}
		if err := c.hold(ctx); err != nil {
			return err
		}
		return c.endByHand(ctx)
	})
}
