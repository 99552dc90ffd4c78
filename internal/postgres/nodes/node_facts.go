package nodes

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
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
			return err
		}
		p.Names, p.Facts = append(p.Names, string(r.Node)), append(p.Facts, facts)
	}
	if len(p.Names) == 0 {
		return nil
	}
	return q.SetNodeFacts(ctx, p)
}

// WakeDeploymentsOn writes the outbox rows that wake the deployments with replicas on any of the
// nodes, and gives their subjects.
func (s *Store) WakeDeploymentsOn(ctx context.Context, nodes []fleet.NodeName) ([]string, error) {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = string(n)
	}
	var out []string
	err := s.Tx(ctx, func(q *db.Queries) error {
		found, err := q.DeploymentsOnNodes(ctx, names)
		if err != nil {
			return err
		}
		out = postgres.DeploymentSubjects(found)
		return postgres.PutOutbox(ctx, q, out...)
	})
	return out, err
}
