package postgres

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// ReconcileRequest asks for a comparison of a node, or of each node of a site's pair. Project
// is the caller's, "" for one who sees all: the operation belongs to that of the site.
type ReconcileRequest struct {
	Node        fleet.NodeName
	Site        fleet.SiteName // instead of a node
	Project     fleet.ProjectName
	Actor       string
	Door        Door
	Limit       time.Duration
	DryRun      bool
	Idempotency Idempotency
}

// AskReconcile opens an operation for the comparison of a node, with the outbox row of its
// entity. A door that asks twice is answered with its operation, and so is a key.
func (s *Store) AskReconcile(ctx context.Context, in ReconcileRequest) (Operation, error) {
	ops, err := s.AskReconciles(ctx, in)
	if err != nil {
		return Operation{}, err
	}
	return ops[0], nil
}

// AskReconciles opens one operation for each node of a site's pair, all or none.
func (s *Store) AskReconciles(ctx context.Context, in ReconcileRequest) ([]Operation, error) {
	var out []Operation
	err := s.tx(ctx, "ask for a reconcile", func(q *db.Queries) error {
		out = nil
		nodes, site, err := lockNodes(ctx, q, in)
		if err != nil {
			return err
		}
		if out, err = askedBefore(ctx, q, in); err != nil || len(out) > 0 {
			return err
		}
		if site == nil || in.Project != "" && site.Project != in.Project {
			return in.missing()
		}
		for _, n := range nodes {
			op, err := openReconcile(ctx, q, in, n, site.Project)
			if err != nil {
				return err
			}
			out = append(out, op)
		}
		if len(out) == 0 {
			return fleet.Errorf(fleet.IllegalState, "no node of site %s holds instances", in.Site).At("site")
		}
		if in.DryRun {
			return errRollback
		}
		return rememberAll(ctx, q, in, out)
	})
	return out, err
}

func (in ReconcileRequest) missing() error {
	if in.Site != "" {
		return orNotFound(nil, "site", string(in.Site), "holdfast get sites")
	}
	return orNotFound(nil, "node", string(in.Node), "holdfast get nodes")
}

// KindNode is the kind of a node in events and locks. Nobody declares one by itself: its site
// does.
const KindNode fleet.ObjectKind = "node"

func nodeKey(n db.Node) fleet.ObjectKey {
	return fleet.ObjectKey{Kind: KindNode, Scope: n.Site, Name: n.Name}
}

// lockNodes reads the nodes that are asked for and takes their locks, so that the same key
// at the same moment is answered once. Site is nil when it is gone.
func lockNodes(ctx context.Context, q *db.Queries, in ReconcileRequest) ([]db.Node, *fleet.Object, error) {
	nodes, err := nodesOf(ctx, q, in)
	if err != nil {
		return nil, nil, err
	}
	at := fleet.ObjectKey{Kind: fleet.KindSite, Name: string(in.Site)}
	keys := make([]fleet.ObjectKey, len(nodes))
	for i, n := range nodes {
		keys[i], at.Name = nodeKey(n), n.Site
	}
	if err := lock(ctx, q, keys, at); err != nil {
		return nil, nil, err
	}
	site, err := find(ctx, q, at)
	return nodes, site, err
}

func nodesOf(ctx context.Context, q *db.Queries, in ReconcileRequest) ([]db.Node, error) {
	if in.Site != "" {
		nodes, err := q.PairNodes(ctx, string(in.Site))
		return nodes, failed("read the nodes", err)
	}
	n, err := q.GetNode(ctx, string(in.Node))
	if noRows(err) || err == nil && n.RemovedAt != nil {
		return nil, in.missing()
	}
	return []db.Node{n}, failed("read the node", err)
}

// askedBefore gives what the same door or the same key opened.
func askedBefore(ctx context.Context, q *db.Queries, in ReconcileRequest) ([]Operation, error) {
	if in.Door.Run != "" {
		op, err := q.OperationByDoor(ctx, db.OperationByDoorParams{DoorWorkflow: in.Door.Workflow, DoorRun: in.Door.Run})
		if noRows(err) {
			return nil, nil
		}
		return []Operation{operationOf(op)}, failed("read the operation of a door", err)
	}
	if in.Idempotency.Key == "" {
		return nil, nil
	}
	row, err := q.GetIdempotency(ctx, db.GetIdempotencyParams{Actor: in.Actor, Key: in.Idempotency.Key})
	if noRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, failed("read idempotency key", err)
	}
	if !bytes.Equal(row.RequestHash, in.Idempotency.Hash) {
		return nil, otherRequest()
	}
	rows, err := q.GetOperations(ctx, strings.Fields(row.OperationID))
	out := make([]Operation, len(rows))
	for i, r := range rows {
		if out[i] = operationOf(r); !repeats(in.Project, out[i]) {
			return nil, otherRequest()
		}
	}
	return out, failed("read operations", err)
}

// rememberAll keeps the ids of all that one key opened.
func rememberAll(ctx context.Context, q *db.Queries, in ReconcileRequest, ops []Operation) error {
	if in.Idempotency.Key == "" {
		return nil
	}
	ids := make([]string, len(ops))
	for i, o := range ops {
		ids[i] = string(o.ID)
	}
	n, err := q.InsertIdempotency(ctx, db.InsertIdempotencyParams{
		Actor: in.Actor, Key: in.Idempotency.Key, RequestHash: in.Idempotency.Hash, OperationID: strings.Join(ids, " "),
	})
	if err == nil && n == 0 {
		return keyUnderWay()
	}
	return failed("store idempotency key", err)
}

func openReconcile(ctx context.Context, q *db.Queries, in ReconcileRequest, n db.Node, project fleet.ProjectName) (Operation, error) {
	id, err := NewID()
	if err != nil {
		return Operation{}, err
	}
	subject := fleet.NodeSubject(fleet.NodeName(n.Name))
	row, err := q.InsertOperation(ctx, db.InsertOperationParams{
		ID: id, Kind: string(fleet.OperationReconcile), Site: n.Site, Name: n.Name, Subject: subject, Project: string(project),
		RequestedBy: in.Actor, DoorWorkflow: in.Door.Workflow, DoorRun: in.Door.Run, Seconds: in.Limit.Seconds(),
	})
	if err != nil {
		return Operation{}, failed("open the operation", err)
	}
	return operationOf(row), putOutbox(ctx, q, subject)
}
