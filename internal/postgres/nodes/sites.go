package nodes

import (
	"context"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// SiteWritten declares the nodes of a site. The declared active node is the one that the lease begins
// with, so that instances can be released before any node ran; from then on votes move it.
func SiteWritten(ctx context.Context, q *db.Queries, w postgres.Write, spec fleet.SiteSpec, out postgres.Written) error {
	if err := SetNodes(ctx, q, w, out.After, spec); err != nil {
		return err
	}
	return postgres.TellSite(ctx, q, w.Key.Name)
}

// SetNodes writes the nodes of a site as its spec names them, and its lease.
func SetNodes(ctx context.Context, q *db.Queries, w postgres.Write, site *fleet.Object, spec fleet.SiteSpec) error {
	before, err := q.PairNodes(ctx, w.Key.Name)
	if err != nil {
		return err
	}
	keep := []string{}
	for _, n := range spec.Nodes {
		keep = append(keep, string(n.Name))
		written, err := q.UpsertNode(ctx, db.UpsertNodeParams{Name: string(n.Name), Site: w.Key.Name, Role: string(n.Role)})
		if err != nil {
			return err
		}
		if written == 0 {
			return fleet.Errorf(fleet.Conflict, "node %s belongs to another site", n.Name).At("/nodes").
				WithHint("names of nodes are unique in a region")
		}
	}
	if err := setLease(ctx, q, w, site, declaredPair{before, spec}); err != nil {
		return err
	}
	return q.RemoveNodesExcept(ctx, db.RemoveNodesExceptParams{Site: w.Key.Name, Keep: keep})
}

// KeepOne refuses to remove all voting nodes at once. They could keep deciding, alone or as a
// pair, and those that are declared instead know nothing of it: a revocation says that they are gone.
func KeepOne(ctx context.Context, q *db.Queries, w postgres.Write, spec fleet.SiteSpec) (fleet.SiteSpec, error) {
	before, err := q.PairNodes(ctx, w.Key.Name)
	if err != nil {
		return spec, err
	}
	var valid []string
	for _, n := range before {
		if spec.Votes(fleet.NodeName(n.Name)) {
			return spec, nil
		}
		if n.EnrolledAt != nil && n.RevokedAt == nil {
			valid = append(valid, n.Name)
		}
	}
	switch {
	case len(valid) == 0:
		return spec, nil
	case len(before) == 1:
		return spec, fleet.Errorf(fleet.IllegalState, "node %s is the only voter of site %s, and its key is still valid", valid[0], w.Key.Name).At("/nodes").
			WithHint("if it is gone for good: holdfast node revoke " + valid[0] + ", then apply this; else declare both, holdfast failover " + w.Key.Name + " --to the other, and then remove it")
	}
	return spec, fleet.Errorf(fleet.IllegalState, "no current voter of site %s would remain, and the key of %s is still valid", w.Key.Name, strings.Join(valid, " and of ")).At("/nodes").
		WithHint("replace one node, wait until the new one is up, then replace the other; for a node that is gone for good: holdfast node revoke " + valid[0])
}

// declaredPair are the nodes that voted until now, and what is declared.
type declaredPair struct {
	before []db.Node
	spec   fleet.SiteSpec
}

// grew says that the region has got a vote that it did not have: of a site whose only node may
// have granted epochs that no other node knows.
func (d declaredPair) grew() bool {
	return len(d.before) == 1 && d.before[0].EnrolledAt != nil && d.spec.HasStandby()
}

func setLease(ctx context.Context, q *db.Queries, w postgres.Write, site *fleet.Object, d declaredPair) error {
	if len(d.spec.Nodes) == 0 {
		return q.DropLease(ctx, w.Key.Name)
	}
	active := d.spec.Active()
	was, err := q.FindLease(ctx, w.Key.Name)
	if err != nil && !postgres.NoRows(err) {
		return err
	}
	first := postgres.NoRows(err) || was.Dropped
	// A holder that was only declared never had votes: it is removed with its declaration.
	orphaned := !first && unvoted(was) && !d.spec.Votes(fleet.NodeName(was.Holder))
	if first || orphaned {
		moved, err := q.GrantLease(ctx, db.GrantLeaseParams{Site: w.Key.Name, Holder: string(active)})
		if err != nil || moved == 0 {
			return err
		}
		if err := handOwed(ctx, q, fleet.SiteName(w.Key.Name), active); err != nil || was.Site == "" {
			return err
		}
		return leaseEvent(ctx, q, site, &was, w.Actor)
	}
	if d.grew() {
		return q.JoinVote(ctx, db.JoinVoteParams{Site: w.Key.Name, Node: d.before[0].Name})
	}
	return nil
}

func unvoted(l db.SiteLease) bool {
	return l.Counter == 0 && l.Ttl.Microseconds == 0 && l.PromisedTo == "" && !l.Lost
}

// UnusedSite refuses to delete a site with instances, or whose nodes run replicas.
func UnusedSite(ctx context.Context, q *db.Queries, key fleet.ObjectKey) error {
	if err := emptyOfReplicas(ctx, q, key); err != nil {
		return err
	}
	n, err := q.CountObjectsIn(ctx, db.CountObjectsInParams{Kind: string(fleet.KindInstance), Scope: key.Name})
	return postgres.UsedBy(n, err, key)
}

// emptyOfReplicas refuses to delete a site that deployments name, or whose nodes run replicas: what ran
// there would end before it runs elsewhere. Nodes that were revoked run none that count.
func emptyOfReplicas(ctx context.Context, q *db.Queries, site fleet.ObjectKey) error {
	if err := postgres.Unnamed(ctx, q, "sites", site); err != nil {
		return err
	}
	n, err := q.CountReplicasAt(ctx, site.Name)
	if err != nil || n == 0 {
		return err
	}
	return fleet.Errorf(fleet.IllegalState, "%d replicas run on nodes of %s", n, site).
		WithHint("drain its nodes first; one that is gone for good: holdfast node revoke NODE")
}
