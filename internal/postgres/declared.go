package postgres

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// GetObject reads one declared object.
func (s *Store) GetObject(ctx context.Context, k fleet.ObjectKey) (fleet.Object, error) {
	o, err := find(ctx, s.q, k)
	if err == nil && o == nil {
		err = fleet.NoObject(k)
	}
	if err != nil {
		return fleet.Object{}, err
	}
	return *o, nil
}

// ListObjects pages through the objects of one kind by name.
func (s *Store) ListObjects(ctx context.Context, kind fleet.ObjectKind, scope string, project fleet.ProjectName, after string, limit int32) ([]fleet.Object, error) {
	rows, err := s.q.ListObjects(ctx, db.ListObjectsParams{
		Kind: string(kind), Scope: scope, After: after, Project: string(project), MaxRows: limit,
	})
	if err != nil {
		return nil, failed("list "+string(kind)+"s", err)
	}
	out := make([]fleet.Object, len(rows))
	for i, r := range rows {
		out[i] = objectOf(r)
	}
	return out, nil
}

// declare writes an object that starts no work, once per idempotency key.
func (s *Store) declare(ctx context.Context, w Write, shared []fleet.ObjectKey, f func(q *db.Queries) (Written, error)) (Written, error) {
	var out Started
	err := s.tx(ctx, "write "+w.Key.String(), func(q *db.Queries) error {
		out = Started{}
		if err := lock(ctx, q, []fleet.ObjectKey{w.Key}, shared...); err != nil {
			return err
		}
		again, err := s.replayed(ctx, q, w, &out)
		if err != nil || again {
			return err
		}
		if out.Written, err = f(q); err != nil {
			return err
		}
		if w.DryRun {
			return errRollback
		}
		return remember(ctx, q, w, &out)
	})
	return out.Written, err
}

// PutSite declares a site and its nodes. Whom it declares active is whom the lease begins
// with, so that instances can be released before any node ran; from then on votes move it.
func (s *Store) PutSite(ctx context.Context, w Write, spec fleet.SiteSpec) (Written, error) {
	return s.declare(ctx, w, nil, func(q *db.Queries) (Written, error) {
		if err := keepOne(ctx, q, w.Key.Name, spec); err != nil {
			return Written{}, err
		}
		out, err := s.write(ctx, q, w, spec)
		if err != nil {
			return out, err
		}
		if err := setNodes(ctx, q, w, out.After, spec); err != nil {
			return out, err
		}
		return out, tellSite(ctx, q, w.Key.Name)
	})
}

func setNodes(ctx context.Context, q *db.Queries, w Write, site *fleet.Object, spec fleet.SiteSpec) error {
	before, err := q.PairNodes(ctx, w.Key.Name)
	if err != nil {
		return failed("read the nodes", err)
	}
	keep := []string{}
	for _, n := range spec.Nodes {
		keep = append(keep, string(n.Name))
		written, err := q.UpsertNode(ctx, db.UpsertNodeParams{Name: string(n.Name), Site: w.Key.Name, Role: string(n.Role)})
		if err != nil {
			return failed("write node", err)
		}
		if written == 0 {
			return fleet.Errorf(fleet.Conflict, "node %s belongs to another site", n.Name).At("/nodes").
				WithHint("names of nodes are unique in a region")
		}
	}
	if err := setLease(ctx, q, w, site, declaredPair{before, spec}); err != nil {
		return err
	}
	return failed("remove nodes", q.RemoveNodesExcept(ctx, db.RemoveNodesExceptParams{Site: w.Key.Name, Keep: keep}))
}

// keepOne refuses to remove all voting nodes at once. They could keep deciding, alone or as a
// pair, and those that are declared instead know nothing of it: a revocation says that they are gone.
func keepOne(ctx context.Context, q *db.Queries, site string, spec fleet.SiteSpec) error {
	before, err := q.PairNodes(ctx, site)
	if err != nil {
		return failed("read the nodes", err)
	}
	var valid []string
	for _, n := range before {
		if spec.Votes(fleet.NodeName(n.Name)) {
			return nil
		}
		if n.EnrolledAt != nil && n.RevokedAt == nil {
			valid = append(valid, n.Name)
		}
	}
	switch {
	case len(valid) == 0:
		return nil
	case len(before) == 1:
		return fleet.Errorf(fleet.IllegalState, "node %s is the only voter of site %s, and its key is still valid", valid[0], site).At("/nodes").
			WithHint("if it is gone for good: holdfast node revoke " + valid[0] + ", then apply this; else declare both, holdfast failover " + site + " --to the other, and then remove it")
	}
	return fleet.Errorf(fleet.IllegalState, "no current voter of site %s would remain, and the key of %s is still valid", site, strings.Join(valid, " and of ")).At("/nodes").
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

func setLease(ctx context.Context, q *db.Queries, w Write, site *fleet.Object, d declaredPair) error {
	if len(d.spec.Nodes) == 0 {
		return failed("drop the lease", q.DropLease(ctx, w.Key.Name))
	}
	active := d.spec.Active()
	was, err := q.FindLease(ctx, w.Key.Name)
	if err != nil && !noRows(err) {
		return failed("read the lease", err)
	}
	first := noRows(err) || was.Dropped
	// A holder that was only declared never had votes: it is removed with its declaration.
	orphaned := !first && unvoted(was) && !d.spec.Votes(fleet.NodeName(was.Holder))
	if first || orphaned {
		moved, err := q.GrantLease(ctx, db.GrantLeaseParams{Site: w.Key.Name, Holder: string(active)})
		if err != nil || moved == 0 {
			return failed("write the lease", err)
		}
		if err := handOwed(ctx, q, fleet.SiteName(w.Key.Name), active); err != nil || was.Site == "" {
			return err
		}
		return leaseEvent(ctx, q, site, &was, w.Actor)
	}
	if d.grew() {
		return failed("write the vote", q.JoinVote(ctx, db.JoinVoteParams{Site: w.Key.Name, Node: d.before[0].Name}))
	}
	return nil
}

func unvoted(l db.SiteLease) bool {
	return l.Counter == 0 && l.Ttl.Microseconds == 0 && l.PromisedTo == "" && !l.Lost
}

// PutTemplate declares a template and keeps its generation for the specs that pin it.
// Each composition is pinned to the generation that it has now.
func (s *Store) PutTemplate(ctx context.Context, w Write, spec fleet.TemplateSpec) (Written, error) {
	var shared []fleet.ObjectKey
	for _, c := range spec.Compositions {
		shared = append(shared, fleet.ObjectKey{Kind: fleet.KindTemplate, Name: string(c.Name)})
	}
	return s.declare(ctx, w, shared, func(q *db.Queries) (Written, error) {
		for i, c := range spec.Compositions {
			o, err := find(ctx, q, fleet.ObjectKey{Kind: fleet.KindTemplate, Name: string(c.Name)})
			if err != nil || o == nil {
				return Written{}, orNotFound(err, "template", string(c.Name), "declare it first: PUT /api/v1/templates/"+string(c.Name))
			}
			spec.Compositions[i].Generation = o.Generation
		}
		if err := hold(ctx, q, spec.Bodies()...); err != nil {
			return Written{}, err
		}
		out, err := s.write(ctx, q, w, spec)
		if err != nil {
			return out, err
		}
		err = q.InsertTemplateGeneration(ctx, db.InsertTemplateGenerationParams{
			Name: w.Key.Name, Generation: out.After.Generation, Spec: out.After.Spec,
		})
		return out, failed("keep the template's generation", err)
	})
}

// TemplateSpec reads one generation of a template; 0 is the current one, whose number is
// given back.
func (s *Store) TemplateSpec(ctx context.Context, name fleet.TemplateName, generation int64) (fleet.TemplateSpec, int64, error) {
	var spec fleet.TemplateSpec
	if generation == 0 {
		o, err := find(ctx, s.q, fleet.ObjectKey{Kind: fleet.KindTemplate, Name: string(name)})
		if err != nil || o == nil {
			return spec, 0, orNotFound(err, "template", string(name), "holdfast get templates")
		}
		generation = o.Generation
	}
	p := db.GetTemplateGenerationParams{Name: string(name), Generation: generation}
	raw, err := s.q.GetTemplateGeneration(ctx, p)
	if err != nil {
		return spec, 0, missingTemplate(err, name, "/templateGeneration")
	}
	return spec, generation, failed("read the template", json.Unmarshal(raw, &spec))
}

func missingTemplate(err error, name fleet.TemplateName, field string) error {
	if !noRows(err) {
		return failed("read template "+string(name), err)
	}
	return fleet.Errorf(fleet.NotFound, "this generation of template %s not found", name).At(field).
		WithHint("holdfast get templates")
}

// DeleteDeclared deletes an object that no node has to confirm: an unused project or
// template, a site without instances, a fleet change that is not under way.
func (s *Store) DeleteDeclared(ctx context.Context, w Write) (Written, error) {
	return s.declare(ctx, w, nil, func(q *db.Queries) (Written, error) {
		o, err := find(ctx, q, w.Key)
		if err != nil || o == nil {
			return Written{}, orNotFound(err, string(w.Key.Kind), w.Key.Name, "holdfast get "+string(w.Key.Kind)+"s")
		}
		if err := checkMatch(w, o); err != nil {
			return Written{}, err
		}
		if err := unused(ctx, q, w.Key); err != nil {
			return Written{}, err
		}
		if w.Key.Kind == fleet.KindSite {
			if err := setNodes(ctx, q, w, o, fleet.SiteSpec{}); err != nil {
				return Written{}, err
			}
		}
		return Written{Before: o, Changed: true}, remove(ctx, q, w.Actor, o)
	})
}

func unused(ctx context.Context, q *db.Queries, k fleet.ObjectKey) error {
	var n int64
	var err error
	switch k.Kind {
	case fleet.KindSite:
		if err := emptyOfReplicas(ctx, q, k); err != nil {
			return err
		}
		n, err = q.CountObjectsIn(ctx, db.CountObjectsInParams{Kind: string(fleet.KindInstance), Scope: k.Name})
	case fleet.KindTemplate:
		n, err = q.InstancesOfTemplate(ctx, k.Name)
	case fleet.KindFleet:
		return notUnderWay(ctx, q, k)
	case fleet.KindPool:
		return unnamed(ctx, q, "pools", k)
	case fleet.KindDeployment:
		return fleet.Errorf(fleet.Invalid, "%s cannot be deleted this way: it ends with its replicas", k).WithHint("destroy it")
	case fleet.KindProject:
		return unusedProject(ctx, q, k)
	case fleet.KindInstance:
	}
	if err != nil || n == 0 {
		return failed("look for uses", err)
	}
	return fleet.Errorf(fleet.IllegalState, "%d instances still use %s", n, k).WithHint("delete or change them first")
}

// emptyOfReplicas refuses to delete a site that deployments name, or whose nodes run replicas: what ran
// there would end before it runs elsewhere. Nodes that were revoked run none that count.
func emptyOfReplicas(ctx context.Context, q *db.Queries, site fleet.ObjectKey) error {
	if err := unnamed(ctx, q, "sites", site); err != nil {
		return err
	}
	n, err := q.CountReplicasAt(ctx, site.Name)
	if err != nil || n == 0 {
		return failed("count the replicas of a site", err)
	}
	return fleet.Errorf(fleet.IllegalState, "%d replicas run on nodes of %s", n, site).
		WithHint("drain its nodes first; one that is gone for good: holdfast node revoke NODE")
}
