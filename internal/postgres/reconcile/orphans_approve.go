package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// OrphanApproval lets a node drop what waits there, as it is held now: what is named, or all that is
// listed. With a Project these are the replicas of its deployments. Why goes into the audit trail.
type OrphanApproval struct {
	postgres.Request
	Node      fleet.NodeName
	All       bool
	Instances []fleet.InstanceName
	Replicas  []fleet.ReplicaID
	Why       string
}

// ApproveOrphans approves. Instances are dropped by the reconcile that it opens, replicas by the node's
// next set, which names them: of replicas alone there is no operation. What is named and not listed
// refuses the whole request; what was approved before stays so.
func (s *Store) ApproveOrphans(ctx context.Context, in OrphanApproval) (*postgres.Operation, error) {
	of := nodes.ReconcileRequest{Node: in.Node}
	var found []db.Node
	var site *fleet.Object
	ops, err := s.Request(ctx, in.Request, func(q *db.Queries) (err error) {
		found, site, err = nodes.LockNodes(ctx, q, of)
		return err
	}, func(q *db.Queries) ([]postgres.Operation, error) {
		if !in.OfSite(site) {
			return nil, of.Missing()
		}
		a := approving{OrphanApproval: in, q: q, node: found[0], site: site}
		err := a.approve(ctx)
		return a.operations, err
	})
	if err != nil || len(ops) == 0 {
		return nil, err
	}
	return &ops[0], nil
}

// approving is an approval that is being carried out.
type approving struct {
	OrphanApproval
	q          *db.Queries
	node       db.Node
	site       *fleet.Object
	operations []postgres.Operation
	approved   []approvedOrphan
}

func (a *approving) approve(ctx context.Context) error {
	every := a.All && a.Project == "" // instances are let go by who sees all
	instances, err := a.q.LockOrphans(ctx, db.LockOrphansParams{Node: a.node.Name, Every: every, Names: texts(a.Instances)})
	if err != nil {
		return err
	}
	replicas, err := a.q.LockOrphanReplicas(ctx, db.LockOrphanReplicasParams{
		Node: a.node.Name, Every: a.All, Ids: texts(a.Replicas), Project: string(a.Project),
	})
	if err != nil {
		return err
	}
	if err := a.allListed(instances, replicas); err != nil {
		return err
	}
	for _, do := range []func() error{
		func() error { return a.instances(ctx, instances) },
		func() error { return a.replicas(ctx, replicas) },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	for page := range slices.Chunk(a.approved, approvedPerEvent) {
		if err := a.event(ctx, page); err != nil {
			return err
		}
	}
	return nil
}

// texts gives names as they are bound, never nil.
func texts[T ~string](names []T) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = string(n)
	}
	return out
}

// instances approves, and has the node compared.
func (a *approving) instances(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	op, err := nodes.OpenReconcile(ctx, a.q, a.Request, a.node, a.site.Project)
	if err != nil {
		return err
	}
	a.operations = []postgres.Operation{op}
	approved, err := a.q.ApproveOrphans(ctx, db.ApproveOrphansParams{Node: a.node.Name, Actor: &a.Actor, Names: names})
	slices.SortFunc(approved, func(x, y db.Orphan) int { return strings.Compare(x.Name, y.Name) })
	for _, o := range approved {
		a.approved = append(a.approved, approvedOrphan{Instance: o.Name, Era: o.Era, Revision: o.Revision, RevisionHash: postgres.HashText(o.Hash), Reason: o.Reason})
	}
	return err
}

// replicas approves, and names them to the node as those that it is to end.
func (a *approving) replicas(ctx context.Context, listed []db.LockOrphanReplicasRow) error {
	bury := db.BuryUnlistedParams{Node: a.node.Name}
	for _, o := range listed {
		if o.ApprovedAt == nil {
			bury.Ids, bury.Deployments = append(bury.Ids, o.Replica), append(bury.Deployments, o.KnownOf)
			bury.Phases = append(bury.Phases, o.Phase)
			a.approved = append(a.approved, approvedOrphan{Replica: o.Replica, Deployment: o.Deployment, Revision: o.Revision, Reason: o.Reason})
		}
	}
	if len(bury.Ids) == 0 {
		return nil
	}
	if err := a.q.ApproveOrphanReplicas(ctx, db.ApproveOrphanReplicasParams{Node: a.node.Name, Actor: &a.Actor, Ids: bury.Ids}); err != nil {
		return err
	}
	versions, err := deployments.RaiseSets(ctx, a.q, []string{a.node.Name})
	if err != nil {
		return err
	}
	bury.Listed = versions[a.node.Name]
	if err := a.q.BuryUnlisted(ctx, bury); err != nil {
		return err
	}
	return deployments.TellSets(ctx, a.q, versions)
}

// namesTold bounds the names in one message.
const namesTold = 10

// allListed refuses what does not wait there, by name.
func (a *approving) allListed(instances []string, replicas []db.LockOrphanReplicasRow) error {
	hint := "holdfast orphans list " + a.node.Name
	if a.All {
		if len(instances)+len(replicas) > 0 {
			return nil
		}
		return fleet.Errorf(fleet.IllegalState, "node %s has no orphans", a.node.Name).WithHint(hint)
	}
	there := make(map[string]bool, len(instances)+len(replicas))
	for _, n := range instances {
		there[n] = true
	}
	for _, o := range replicas {
		there[Orphan{Replica: fleet.ReplicaID(o.Replica)}.Ref()] = true
	}
	var missing []string
	at := "/replicas"
	for _, n := range a.Instances {
		if !there[string(n)] {
			missing, at = append(missing, string(n)), "/instances"
		}
	}
	for _, id := range a.Replicas {
		if ref := (Orphan{Replica: id}).Ref(); !there[ref] {
			missing = append(missing, ref)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	listed := strings.Join(missing[:min(len(missing), namesTold)], ", ")
	if more := len(missing) - namesTold; more > 0 {
		listed += fmt.Sprintf(" and %d more", more)
	}
	return fleet.Errorf(fleet.NotFound, "not listed on node %s: %s", a.node.Name, listed).At(at).WithHint(hint)
}

// approvedPerEvent bounds one event; the approval of more makes several.
const approvedPerEvent = 100

// approvedOrphan is what an operator let go, as the feed keeps it: an instance, or a replica.
type approvedOrphan struct {
	Instance     string     `json:"instance,omitempty"`
	Replica      string     `json:"replica,omitempty"`
	Deployment   string     `json:"deployment,omitempty"`
	Era          int64      `json:"era,omitempty"`
	Revision     int64      `json:"revision"`
	RevisionHash fleet.Hash `json:"revisionHash,omitempty"`
	Reason       string     `json:"reason"`
}

// event writes who let what go: the rows are gone once the node has dropped them. A node has no uid
// itself; the event carries that of the site which declares it.
func (a *approving) event(ctx context.Context, page []approvedOrphan) error {
	type approval struct {
		Approved  []approvedOrphan  `json:"approvedOrphans"`
		Operation fleet.OperationID `json:"operation,omitempty"`
		Why       string            `json:"why,omitempty"`
	}
	after := approval{Approved: page, Why: a.Why}
	for _, op := range a.operations {
		after.Operation = op.ID
	}
	return postgres.AppendStatus(ctx, a.q, db.AppendEventParams{
		Kind: string(postgres.KindNode), Project: string(a.site.Project), Scope: a.site.Name, Name: a.node.Name,
		Uid: a.site.UID, Generation: a.site.Generation, Actor: a.Actor,
	}, approval{Approved: []approvedOrphan{}}, after) // of these none was approved before
}
