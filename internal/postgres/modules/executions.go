package modules

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// executionKept is how long input and output stay after the end.
const executionKept = 24 * time.Hour

// ExecutionRequest asks for a durable execution. Modules belong to no project: the operation is seen in that of
// the caller.
type ExecutionRequest struct {
	postgres.Request
	Module fleet.ModuleRef
	Input  []byte
}

// AskExecution opens the operation of an execution, with its input.
func (s *Store) AskExecution(ctx context.Context, in ExecutionRequest) (postgres.Operation, error) {
	return postgres.Only(s.Request(ctx, in.Request, func(*db.Queries) error { return nil }, func(q *db.Queries) ([]postgres.Operation, error) {
		op, err := openExecution(ctx, q, in)
		return []postgres.Operation{op}, err
	}))
}

func openExecution(ctx context.Context, q *db.Queries, in ExecutionRequest) (postgres.Operation, error) {
	id, err := postgres.NewID()
	if err != nil {
		return postgres.Operation{}, err
	}
	err = q.InsertExecution(ctx, db.InsertExecutionParams{
		ID: id, Namespace: string(in.Module.Namespace), Module: string(in.Module.Name), Input: in.Input,
		InputHash: hashOf(in.Input), Seconds: (in.Limit + executionKept).Seconds(),
	})
	if err != nil {
		return postgres.Operation{}, err
	}
	return postgres.OpenOperation(ctx, q, in.Request, postgres.NewOperation{
		ID: id, Kind: fleet.OperationExecute, Name: in.Module.String(), Subject: fleet.ExecutionSubject(fleet.OperationID(id)), Project: in.Project,
	})
}

func hashOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// ServeExecution takes a durable execution over for a workflow run, and with that its outbox
// row. One that has ended is illegal_state.
func (s *Store) ServeExecution(ctx context.Context, id fleet.OperationID, run, build string) (postgres.Operation, error) {
	var out postgres.Operation
	ended := false
	err := s.Tx(ctx, func(q *db.Queries) error {
		if err := q.TakeOutbox(ctx, []string{fleet.ExecutionSubject(id)}); err != nil {
			return err
		}
		row, err := q.ServeExecution(ctx, db.ServeExecutionParams{ID: string(id), Run: run, Build: build})
		if ended = postgres.NoRows(err); ended {
			return nil // its outbox row goes all the same: else it is repeated for ever
		}
		out = postgres.OperationOf(row)
		return err
	})
	if err == nil && ended {
		err = fleet.Errorf(fleet.IllegalState, "execution %s has ended or does not exist", id)
	}
	return out, err
}

// ExecutionInput reads what a durable execution is to be given.
func (s *Store) ExecutionInput(ctx context.Context, id fleet.OperationID) (fleet.Execution, error) {
	row, err := s.Q.GetExecution(ctx, string(id))
	if postgres.NoRows(err) {
		return fleet.Execution{}, fleet.Errorf(fleet.Gone, "the input of execution %s is no longer stored", id)
	}
	return fleet.Execution{
		ID: row.ID, Module: fleet.ModuleRef{Namespace: fleet.ModuleNamespace(row.ModuleNamespace), Name: fleet.ModuleName(row.Module)}, Input: row.Input,
	}, err
}

// ExecutionOutput is what became of an execution, as far as it is kept.
type ExecutionOutput struct {
	Output  []byte
	Hash    fleet.Hash // "" when there is no output
	Failure string     // what the module said
}

// ExecutionOutput reads the output of an execution; gone when it is not kept any more.
func (s *Store) ExecutionOutput(ctx context.Context, id string) (ExecutionOutput, error) {
	row, err := s.Q.GetExecution(ctx, id)
	if postgres.NoRows(err) {
		return ExecutionOutput{}, fleet.Errorf(fleet.Gone, "input and output of execution %s are no longer stored", id).
			WithHint("they stay for " + executionKept.String() + " after the end")
	}
	out := ExecutionOutput{Output: row.Output, Failure: row.Failure}
	if row.OutputHash != nil {
		out.Hash = fleet.Hash(*row.OutputHash)
	}
	return out, err
}

// NoteExecution says why a durable execution waits (X8).
func (s *Store) NoteExecution(ctx context.Context, id fleet.OperationID, reason, message string) error {
	_, err := s.Q.NoteExecution(ctx, db.NoteExecutionParams{ID: string(id), Reason: reason, Message: message})
	return err
}

// EndExecution ends a durable execution, once: what ended it first stays.
func (s *Store) EndExecution(ctx context.Context, e fleet.ExecutionEnd) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		n, err := q.EndOperation(ctx, db.EndOperationParams{
			ID: string(e.Operation), State: string(e.State), Reason: e.Reason, Message: e.Message,
		})
		if err != nil || n == 0 {
			return err
		}
		p := db.EndExecutionParams{
			ID: string(e.Operation), Output: e.Output, Failure: e.Failure, Connection: string(e.Connection), Seconds: executionKept.Seconds(),
		}
		if e.Output != nil {
			hash := hashOf(e.Output)
			p.OutputHash = &hash
		}
		if err := q.EndExecution(ctx, p); err != nil {
			return err
		}
		return q.NotifyOperation(ctx, string(e.Operation))
	})
}

// DirectExecution is one that a caller waits for and that has a key: the same key again is
// the same execution.
type DirectExecution struct {
	Module      fleet.ModuleRef
	Input       []byte
	Actor       string
	Idempotency postgres.Idempotency
}

// ClaimExecution gives the id of a key, and its output when it has answered before. The id
// outlives a server: what died in mid-call is asked again under the same.
func (s *Store) ClaimExecution(ctx context.Context, in DirectExecution) (id string, output []byte, err error) {
	if id, err = postgres.NewID(); err != nil {
		return "", nil, err
	}
	err = s.Tx(ctx, func(q *db.Queries) error {
		if err := q.CommitLater(ctx); err != nil {
			return err
		}
		row, err := q.ClaimExecutionKey(ctx, db.ClaimExecutionKeyParams{
			Actor: in.Actor, Key: in.Idempotency.Key, RequestHash: in.Idempotency.Hash, ID: id,
		})
		if err != nil {
			return err
		}
		if !bytes.Equal(row.RequestHash, in.Idempotency.Hash) {
			return postgres.OtherRequest()
		}
		if row.OperationID == id {
			return nil
		}
		id = row.OperationID
		kept, err := q.GetExecution(ctx, id)
		if postgres.NoRows(err) {
			return nil
		}
		output = kept.Output
		return err
	})
	return id, output, err
}

// KeepExecution keeps the answer of a direct execution for its key.
func (s *Store) KeepExecution(ctx context.Context, in DirectExecution, id string, output []byte) error {
	hash := hashOf(output)
	return s.Tx(ctx, func(q *db.Queries) error {
		if err := q.CommitLater(ctx); err != nil {
			return err
		}
		return q.KeepExecution(ctx, db.KeepExecutionParams{
			ID: id, Namespace: string(in.Module.Namespace), Module: string(in.Module.Name), InputHash: hashOf(in.Input),
			Output: output, OutputHash: &hash, Seconds: executionKept.Seconds(),
		})
	})
}
