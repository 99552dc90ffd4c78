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

// OfSite says whether the caller may see a site; nil is one that is gone.
func (in Request) OfSite(site *fleet.Object) bool {
	return site != nil && (in.Project == "" || site.Project == in.Project)
}

// Request opens operations in one transaction. find locks the objects of the request, in order, and reads what
// open needs. A door or an idempotency key that repeats a request is answered with the operations that it
// opened first; of any other request, open writes the mechanism's own rows and the operations. Most keys are new: a request with one is
// taken for a repeat only if it is refused, or its key cannot be stored.
func (s *Store) Request(
	ctx context.Context, in Request, find func(*db.Queries) error, open func(*db.Queries) ([]Operation, error),
) ([]Operation, error) {
	var out []Operation
	look := in.Door.Run != "" || in.DryRun
	first := !look && in.Idempotency.Key != ""
	run := func(q *db.Queries) (err error) {
		if err := find(q); err != nil {
			return err
		}
		if look {
			if out, err = openedBefore(ctx, q, in); err != nil || out != nil {
				return err
			}
		}
		look = true
		if out, err = open(q); err != nil {
			return err
		}
		if in.DryRun {
			return ErrRollback
		}
		return rememberAll(ctx, q, in, out)
	}
	err := s.Tx(ctx, run)
	if first && err != nil && fleet.KindOf(err) != fleet.Unavailable {
		err = s.Tx(ctx, run)
	}
	return out, err
}

// Change writes one object under its lock and the shared locks of what it refers to, and opens at most one
// operation on it. A repeat is answered with the object as it is, and with the operation that the first opened.
func (s *Store) Change(ctx context.Context, w Write, shared []fleet.ObjectKey, f func(*db.Queries, *Started) error) (Started, error) {
	var out Started
	var again bool
	locked := func(q *db.Queries) error {
		again = true
		return Lock(ctx, q, []fleet.ObjectKey{w.Key}, shared...)
	}
	ops, err := s.Request(ctx, w.Request, locked, func(q *db.Queries) ([]Operation, error) {
		out, again = Started{}, false
		if err := f(q, &out); err != nil || out.Operation == nil {
			return nil, err
		}
		return []Operation{*out.Operation}, nil
	})
	if err != nil || !again {
		return out, err
	}
	o, err := s.FindNamed(ctx, s.Q, w.named())
	if err != nil {
		return Started{}, err
	}
	out = Started{}
	if o != nil && (w.Project == "" || o.Project == w.Project) { // else another's, which took the name since
		out.After = o
	}
	if len(ops) > 0 {
		out.Operation = &ops[0]
	}
	return out, nil
}

// Repeated answers a change that was carried out before, although what it needed is found no more; any other it refuses.
func (s *Store) Repeated(ctx context.Context, w Write, refusal error) (Started, error) {
	return s.Change(ctx, w, nil, func(*db.Queries, *Started) error { return refusal })
}

// Only is the operation of a request that opens one.
func Only(ops []Operation, err error) (Operation, error) {
	if err != nil || len(ops) == 0 {
		return Operation{}, err
	}
	return ops[0], nil
}

// NewOperation is an operation to be opened. ID is "" where it is not known before.
type NewOperation struct {
	ID             string
	Kind           fleet.OperationKind
	Site, Name     string
	Subject        string
	Project        fleet.ProjectName
	Revision       int64
	ProcessVersion int64 // that a converge or a restart waits for
	Target         int   // of a scale
	Forced         bool  // a failover
	StopFirst      bool  // a restart
	DrainOf        fleet.NodeName
}

// OpenOperation writes an operation and the outbox row that wakes its entity.
func OpenOperation(ctx context.Context, q *db.Queries, in Request, n NewOperation) (Operation, error) {
	o, err := InsertOperation(ctx, q, in, n)
	if err != nil {
		return Operation{}, err
	}
	return o, PutOutbox(ctx, q, n.Subject)
}

// InsertOperation wakes no entity.
func InsertOperation(ctx context.Context, q *db.Queries, in Request, n NewOperation) (Operation, error) {
	if n.ID == "" {
		var err error
		if n.ID, err = NewID(); err != nil {
			return Operation{}, err
		}
	}
	row, err := q.InsertOperation(ctx, db.InsertOperationParams{
		ID: n.ID, Kind: string(n.Kind), Site: n.Site, Name: n.Name, Subject: n.Subject, Revision: n.Revision, Project: string(n.Project),
		RequestedBy: in.Actor, DoorWorkflow: in.Door.Workflow, DoorRun: in.Door.Run, Seconds: in.Limit.Seconds(),
		ProcessVersion: n.ProcessVersion, Target: WaveNumber(n.Target), Forced: n.Forced, StopFirst: n.StopFirst, DrainOf: string(n.DrainOf),
	})
	return OperationOf(row), err
}

// openedBefore gives what the same door or the same key opened, nil when it opened nothing yet.
func openedBefore(ctx context.Context, q *db.Queries, in Request) ([]Operation, error) {
	if in.Door.Run != "" {
		op, err := q.OperationByDoor(ctx, db.OperationByDoorParams{DoorWorkflow: in.Door.Workflow, DoorRun: in.Door.Run})
		if NoRows(err) {
			return nil, nil
		}
		return []Operation{OperationOf(op)}, err
	}
	row, err := usedKey(ctx, q, in.Actor, in.Idempotency)
	if err != nil || row == nil {
		return nil, err
	}
	rows, err := q.GetOperations(ctx, strings.Fields(row.OperationID))
	out := make([]Operation, len(rows))
	for i, r := range rows {
		if out[i] = OperationOf(r); !repeats(in.Project, out[i]) {
			return nil, OtherRequest()
		}
	}
	return out, err
}

// usedKey is what an idempotency key was used for, nil when it is new. A key of another request is a conflict.
func usedKey(ctx context.Context, q *db.Queries, actor string, k Idempotency) (*db.Idempotency, error) {
	if k.Key == "" {
		return nil, nil
	}
	row, err := q.GetIdempotency(ctx, db.GetIdempotencyParams{Actor: actor, Key: k.Key})
	if NoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(row.RequestHash, k.Hash) {
		return nil, OtherRequest()
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
	return q.InsertIdempotency(ctx, db.InsertIdempotencyParams{
		Actor: in.Actor, Key: in.Idempotency.Key, RequestHash: in.Idempotency.Hash, OperationID: strings.Join(ids, " "),
	})
}

// repeats says whether a caller of a project, "" for every project, may be answered with the operation of a key.
func repeats(project fleet.ProjectName, o Operation) bool {
	return project == "" || o.Project == project
}

// OtherRequest is the error of an idempotency key that came with another request.
func OtherRequest() error {
	return fleet.Errorf(fleet.Conflict, "this key was used for another request").At("Idempotency-Key").
		WithHint("use a new key for a new request")
}

// Started is what a change of an instance came to. Operation is nil when nothing had to
// be started.
type Started struct {
	Written
	Operation *Operation
	// Changes are the fields of a deployment that a PUT found to differ from what runs. A repeat under an idempotency
	// key has none.
	Changes []fleet.SpecChange
}

// Door is a workflow that waits for an operation.
type Door struct{ Workflow, Run string }

// OperationOfDoor is what a door asked for before, nil when it is new, or no door.
func OperationOfDoor(ctx context.Context, q *db.Queries, d Door) (*Operation, error) {
	if d.Run == "" {
		return nil, nil
	}
	row, err := q.OperationByDoor(ctx, db.OperationByDoorParams{DoorWorkflow: d.Workflow, DoorRun: d.Run})
	if NoRows(err) {
		return nil, nil
	}
	o := OperationOf(row)
	return &o, err
}
