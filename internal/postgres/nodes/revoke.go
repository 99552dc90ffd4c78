package nodes

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// RevokeNode takes a node's key back: what was signed with it, sealed to it or opened under it
// is void from the commit on. The node comes back only by enrolling anew.
func (s *Store) RevokeNode(ctx context.Context, node fleet.NodeName) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		n, err := q.RevokeNode(ctx, string(node))
		if err == nil && n == 0 {
			return fleet.Errorf(fleet.IllegalState, "node %s is not enrolled", node).WithHint("there is no key to revoke")
		}
		if err != nil {
			return err
		}
		for _, void := range []func(context.Context, string) error{
			q.VoidFetchTokensOfNode, q.VoidReconcilesOfNode, q.VoidJoinTokensOfNode,
		} {
			if err := void(ctx, string(node)); err != nil {
				return err
			}
		}
		return tellRevoked(ctx, q, string(node))
	})
}

// tellRevoked has the node's streams ended, and its peer trust the key no more.
func tellRevoked(ctx context.Context, q *db.Queries, node string) error {
	at, err := q.GetNode(ctx, node)
	if err != nil {
		return err
	}
	live, err := q.LiveConnectionsOfNode(ctx, node)
	if err != nil {
		return err
	}
	for _, id := range live {
		if err := postgres.TellLink(ctx, q, fleet.ConnectionID(id), fleet.Revoked); err != nil {
			return err
		}
	}
	deployments, err := q.DeploymentsOnNodes(ctx, []string{node})
	if err != nil {
		return err
	}
	if err := postgres.PutOutbox(ctx, q, postgres.DeploymentSubjects(deployments)...); err != nil {
		return err
	}
	return postgres.TellSite(ctx, q, at.Site)
}
