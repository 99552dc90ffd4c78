package postgres

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// setNodeFacts keeps what nodes tell of their machines; one that tells nothing runs no replicas.
func setNodeFacts(ctx context.Context, q *db.Queries, all []fleet.Registration) error {
	var p db.SetNodeFactsParams
	for _, r := range all {
		if r.Node == "" {
			continue
		}
		facts, err := json.Marshal(r.Facts)
		if err != nil {
			return failed("write what a node has", err)
		}
		p.Names, p.Facts = append(p.Names, string(r.Node)), append(p.Facts, facts)
	}
	if len(p.Names) == 0 {
		return nil
	}
	return failed("keep what nodes have", q.SetNodeFacts(ctx, p))
}

// DeploymentsOn lists the subjects of deployments that have replicas on any of the nodes.
func (s *Store) DeploymentsOn(ctx context.Context, nodes []fleet.NodeName) ([]string, error) {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = string(n)
	}
	found, err := s.q.DeploymentsOnNodes(ctx, names)
	out := make([]string, len(found))
	for i, name := range found {
		out[i] = fleet.DeploymentSubject(fleet.DeploymentName(name))
	}
	return out, failed("look for the nodes' deployments", err)
}
