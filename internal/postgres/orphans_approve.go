package postgres

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// OrphanApproval lets a node drop what waits there, as it is held now: Names, or all that is
// listed when there are none. Why goes into the audit trail.
type OrphanApproval struct {
	ReconcileRequest
	Names []fleet.InstanceName
	Why   string
}

// ApproveOrphans approves, and opens the reconcile that drops. A name that is not listed
// refuses the whole request; one that was approved before stays so.
func (s *Store) ApproveOrphans(ctx context.Context, in OrphanApproval) (Operation, error) {
	var out Operation
	err := s.tx(ctx, "approve orphans of "+string(in.Node), func(q *db.Queries) error {
		out = Operation{}
		nodes, site, err := lockNodes(ctx, q, in.ReconcileRequest)
		if err != nil {
			return err
		}
		before, err := askedBefore(ctx, q, in.ReconcileRequest)
		if err != nil {
			return err
		}
		if len(before) > 0 {
			out = before[0]
			return nil
		}
		if site == nil || in.Project != "" && site.Project != in.Project {
			return in.missing()
		}
		if out, err = openReconcile(ctx, q, in.ReconcileRequest, nodes[0], site.Project); err != nil {
			return err
		}
		if err := approve(ctx, q, in, site, out); err != nil {
			return err
		}
		if in.DryRun {
			return errRollback
		}
		return rememberAll(ctx, q, in.ReconcileRequest, []Operation{out})
	})
	return out, err
}

func approve(ctx context.Context, q *db.Queries, in OrphanApproval, site *fleet.Object, op Operation) error {
	names := make([]string, len(in.Names))
	for i, n := range in.Names {
		names[i] = string(n)
	}
	listed, err := q.LockOrphans(ctx, db.LockOrphansParams{Node: string(in.Node), Every: in.Names == nil, Names: names})
	if err != nil {
		return failed("read what is listed", err)
	}
	if err := allListed(in.Node, names, listed); err != nil {
		return err
	}
	approved, err := q.ApproveOrphans(ctx, db.ApproveOrphansParams{Node: string(in.Node), Actor: &in.Actor, Names: listed})
	if err != nil {
		return failed("approve orphans", err)
	}
	slices.SortFunc(approved, func(a, b db.Orphan) int { return strings.Compare(a.Name, b.Name) })
	for page := range slices.Chunk(approved, approvedPerEvent) {
		if err := approvedEvent(ctx, q, in, site, op, page); err != nil {
			return err
		}
	}
	return nil
}

// namesTold bounds the names in one message.
const namesTold = 10

// allListed refuses what does not wait there, by name.
func allListed(node fleet.NodeName, names, listed []string) error {
	hint := "holdfast orphans list " + string(node)
	if len(listed) == 0 && len(names) == 0 {
		return fleet.Errorf(fleet.IllegalState, "no orphan waits on node %s", node).WithHint(hint)
	}
	var missing []string
	for _, n := range names {
		if !slices.Contains(listed, n) {
			missing = append(missing, n)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	told := strings.Join(missing[:min(len(missing), namesTold)], ", ")
	if more := len(missing) - namesTold; more > 0 {
		return fleet.Errorf(fleet.NotFound, "not listed on node %s: %s and %d more", node, told, more).At("/instances").WithHint(hint)
	}
	return fleet.Errorf(fleet.NotFound, "not listed on node %s: %s", node, told).At("/instances").WithHint(hint)
}

// approvedPerEvent bounds one event; the approval of more makes several.
const approvedPerEvent = 100

// approvedOrphan is what an operator let go, as the feed keeps it.
type approvedOrphan struct {
	Instance     string     `json:"instance"`
	Era          int64      `json:"era"`
	Revision     int64      `json:"revision"`
	RevisionHash fleet.Hash `json:"revisionHash,omitempty"`
	Reason       string     `json:"reason"`
}

// approvedEvent writes who let what go: the rows are gone once the node has dropped them. A
// node has no uid of its own; the event carries that of the site which declares it.
func approvedEvent(ctx context.Context, q *db.Queries, in OrphanApproval, site *fleet.Object, op Operation, page []db.Orphan) error {
	orphans := make([]approvedOrphan, len(page))
	for i, o := range page {
		orphans[i] = approvedOrphan{o.Name, o.Era, o.Revision, hashText(o.Hash), o.Reason}
	}
	after, err := json.Marshal(struct {
		Approved  []approvedOrphan  `json:"approvedOrphans"`
		Operation fleet.OperationID `json:"operation"`
		Why       string            `json:"why,omitempty"`
	}{orphans, op.ID, in.Why})
	if err != nil {
		return failed("write the event", err)
	}
	return failed("append event", q.AppendStatusEvent(ctx, db.AppendStatusEventParams{
		Type: "status", Kind: string(KindNode), Project: string(site.Project), Scope: site.Name, Name: string(in.Node),
		Uid: site.UID, Generation: site.Generation, Actor: in.Actor, After: after,
	}))
}
