package nodes

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// ReconcileRequest asks for a comparison of a node, or of each node of a site's pair. The operation belongs to
// the project of the site.
type ReconcileRequest struct {
	postgres.Request
	Node fleet.NodeName
	Site fleet.SiteName // instead of a node
}

// AskReconcile opens an operation for the comparison of a node.
func (s *Store) AskReconcile(ctx context.Context, in ReconcileRequest) (postgres.Operation, error) {
	return postgres.Only(s.AskReconciles(ctx, in))
}

// AskReconciles opens one operation for each node of a site's pair, all or none.
func (s *Store) AskReconciles(ctx context.Context, in ReconcileRequest) ([]postgres.Operation, error) {
	var nodes []db.Node
	var site *fleet.Object
	return s.Request(ctx, in.Request, func(q *db.Queries) (err error) {
		nodes, site, err = LockNodes(ctx, q, in)
		return err
	}, func(q *db.Queries) ([]postgres.Operation, error) {
		if !in.OfSite(site) {
			return nil, in.Missing()
		}
		if len(nodes) == 0 {
			return nil, fleet.Errorf(fleet.IllegalState, "no node of site %s holds instances", in.Site).At("site")
		}
		out := make([]postgres.Operation, len(nodes))
		for i, n := range nodes {
			var err error
			if out[i], err = OpenReconcile(ctx, q, in.Request, n, site.Project); err != nil {
				return nil, err
			}
		}
		return out, nil
	})
}

// Missing is the error when there is no such node or site.
func (in ReconcileRequest) Missing() error {
	if in.Site != "" {
		return postgres.OrNotFound(nil, "site", string(in.Site), "holdfast get sites")
	}
	return postgres.OrNotFound(nil, "node", string(in.Node), "holdfast get nodes")
}

// LockNodes reads the nodes that are asked for and takes their locks, so that the same key
// at the same moment is answered once. Site is nil when it is gone.
func LockNodes(ctx context.Context, q *db.Queries, in ReconcileRequest) ([]db.Node, *fleet.Object, error) {
	nodes, err := nodesOf(ctx, q, in)
	if err != nil {
		return nil, nil, err
	}
	at := fleet.ObjectKey{Kind: fleet.KindSite, Name: string(in.Site)}
	keys := make([]fleet.ObjectKey, len(nodes))
	for i, n := range nodes {
		keys[i], at.Name = postgres.NodeKey(n), n.Site
	}
	if err := postgres.Lock(ctx, q, keys, at); err != nil {
		return nil, nil, err
	}
	site, err := postgres.Find(ctx, q, at)
	return nodes, site, err
}

func nodesOf(ctx context.Context, q *db.Queries, in ReconcileRequest) ([]db.Node, error) {
	if in.Site != "" {
		nodes, err := q.PairNodes(ctx, string(in.Site))
		return nodes, err
	}
	n, err := q.GetNode(ctx, string(in.Node))
	if postgres.NoRows(err) || err == nil && n.RemovedAt != nil {
		return nil, in.Missing()
	}
	return []db.Node{n}, err
}

// OpenReconcile opens the comparison of a node in the transaction of a request.
func OpenReconcile(ctx context.Context, q *db.Queries, in postgres.Request, n db.Node, project fleet.ProjectName) (postgres.Operation, error) {
	return postgres.OpenOperation(ctx, q, in, postgres.NewOperation{
		Kind: fleet.OperationReconcile, Site: n.Site, Name: n.Name, Subject: fleet.NodeSubject(fleet.NodeName(n.Name)), Project: project,
	})
}
