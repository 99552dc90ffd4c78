package postgres

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Request is what every request for operations has beside its subjects. Project is the caller's, "" for a
// caller who sees all.
type Request struct {
	Project     fleet.ProjectName
	Actor       string
	Door        Door
	Limit       time.Duration
	DryRun      bool
	Idempotency Idempotency
}

// ofSite says whether the caller may see a site; nil is one that is gone.
func (in Request) ofSite(site *fleet.Object) bool {
	return site != nil && (in.Project == "" || site.Project == in.Project)
}

// request opens operations in one transaction. find locks the objects of the request, in order, and reads what
// open needs. A door or an idempotency key that repeats a request is answered with the operations that it
// opened first; of any other request, open writes the mechanism's own rows and the operations.
func (s *Store) request(
	ctx context.Context, what string, in Request, find func(*db.Queries) error, open func(*db.Queries) ([]Operation, error),
) ([]Operation, error) {
	var out []Operation
	err := s.tx(ctx, what, func(q *db.Queries) (err error) {
		if err := find(q); err != nil {
			return err
		}
		if out, err = openedBefore(ctx, q, in); err != nil || out != nil {
			return err
		}
		if out, err = open(q); err != nil {
			return err
		}
		if in.DryRun {
			return errRollback
		}
		return rememberAll(ctx, q, in, out)
	})
	return out, err
}

// change writes one object under its lock and the shared locks of what it refers to, and opens at most one
// operation on it. A repeat is answered with the object as it is, and with the operation that the first opened.
func (s *Store) change(ctx context.Context, w Write, shared []fleet.ObjectKey, f func(*db.Queries, *Started) error) (Started, error) {
	var out Started
	var again bool
	locked := func(q *db.Queries) (err error) {
		out, again = Started{}, true
		if err := lock(ctx, q, []fleet.ObjectKey{w.Key}, shared...); err != nil {
			return err
		}
		if w.Idempotency.Key != "" {
			out.After, err = find(ctx, q, w.Key)
		}
		return err
	}
	ops, err := s.request(ctx, "change "+w.Key.String(), w.Request, locked, func(q *db.Queries) ([]Operation, error) {
		out, again = Started{}, false
		if err := f(q, &out); err != nil || out.Operation == nil {
			return nil, err
		}
		return []Operation{*out.Operation}, nil
	})
	if again {
		if out.After != nil && w.Project != "" && out.After.Project != w.Project { // another's, which took the name since
			out.After = nil
		}
		if len(ops) > 0 {
			out.Operation = &ops[0]
		}
	}
	return out, err
}

// only is the operation of a request that opens one.
func only(ops []Operation, err error) (Operation, error) {
	if err != nil || len(ops) == 0 {
		return Operation{}, err
	}
	return ops[0], nil
}

// newOperation is an operation to be opened. ID is "" where it is not known before.
type newOperation struct {
	ID             string
	Kind           fleet.OperationKind
	Site, Name     string
	Subject        string
	Project        fleet.ProjectName
	Revision       int64
	ProcessVersion int64 // that a converge or a restart waits for
	Target         int   // of a scale
	Forced         bool  // a failover
	DrainOf        fleet.NodeName
}

// openOperation writes an operation and the outbox row that wakes its entity.
func openOperation(ctx context.Context, q *db.Queries, in Request, n newOperation) (Operation, error) {
	o, err := insertOperation(ctx, q, in, n)
	if err != nil {
		return Operation{}, err
	}
	return o, putOutbox(ctx, q, n.Subject)
}

// insertOperation wakes no entity.
func insertOperation(ctx context.Context, q *db.Queries, in Request, n newOperation) (Operation, error) {
	if n.ID == "" {
		var err error
		if n.ID, err = NewID(); err != nil {
			return Operation{}, err
		}
	}
	row, err := q.InsertOperation(ctx, db.InsertOperationParams{
		ID: n.ID, Kind: string(n.Kind), Site: n.Site, Name: n.Name, Subject: n.Subject, Revision: n.Revision, Project: string(n.Project),
		RequestedBy: in.Actor, DoorWorkflow: in.Door.Workflow, DoorRun: in.Door.Run, Seconds: in.Limit.Seconds(),
		ProcessVersion: n.ProcessVersion, Target: waveNumber(n.Target), Forced: n.Forced, DrainOf: string(n.DrainOf),
	})
	return operationOf(row), failed("open the operation", err)
}

// openedBefore gives what the same door or the same key opened, nil when it opened nothing yet.
func openedBefore(ctx context.Context, q *db.Queries, in Request) ([]Operation, error) {
	if in.Door.Run != "" {
		op, err := q.OperationByDoor(ctx, db.OperationByDoorParams{DoorWorkflow: in.Door.Workflow, DoorRun: in.Door.Run})
		if noRows(err) {
			return nil, nil
		}
		return []Operation{operationOf(op)}, failed("read the operation of a door", err)
	}
	row, err := usedKey(ctx, q, in.Actor, in.Idempotency)
	if err != nil || row == nil {
		return nil, err
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

// usedKey is what an idempotency key was used for, nil when it is new. A key of another request is a conflict.
func usedKey(ctx context.Context, q *db.Queries, actor string, k Idempotency) (*db.Idempotency, error) {
	if k.Key == "" {
		return nil, nil
	}
	row, err := q.GetIdempotency(ctx, db.GetIdempotencyParams{Actor: actor, Key: k.Key})
	if noRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, failed("read idempotency key", err)
	}
	if !bytes.Equal(row.RequestHash, k.Hash) {
		return nil, otherRequest()
	}
	return &row, nil
}

// rememberAll keeps the ids of all that one key opened.
func rememberAll(ctx context.Context, q *db.Queries, in Request, ops []Operation) error {
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

// repeats says whether a caller of a project, "" for every project, may be answered with the operation of a key.
func repeats(project fleet.ProjectName, o Operation) bool {
	return project == "" || o.Project == project
}

func otherRequest() error {
	return fleet.Errorf(fleet.Conflict, "this key was used for another request").At("Idempotency-Key").
		WithHint("use a new key for a new request")
}

func keyUnderWay() error {
	return fleet.Errorf(fleet.Conflict, "a request with this key is under way").At("Idempotency-Key").
		WithHint("retry in a moment")
}

// Started is what a change of an instance came to. Operation is nil when nothing had to
// be started.
type Started struct {
	Written
	Operation *Operation
}

// Door is a workflow that waits for an operation.
type Door struct{ Workflow, Run string }

// operationOfDoor is what a door asked for before, nil when it is new, or no door.
func operationOfDoor(ctx context.Context, q *db.Queries, d Door) (*Operation, error) {
	if d.Run == "" {
		return nil, nil
	}
	row, err := q.OperationByDoor(ctx, db.OperationByDoorParams{DoorWorkflow: d.Workflow, DoorRun: d.Run})
	if noRows(err) {
		return nil, nil
	}
	o := operationOf(row)
	return &o, failed("read the operation of a door", err)
}
