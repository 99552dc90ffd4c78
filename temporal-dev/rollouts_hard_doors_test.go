//go:build slow

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	drillCall  = 10 * time.Second
	drillEvery = 200 * time.Millisecond // between two calls, or looks
)

// call repeats a request with its key at either server until one answers, and now and then once more: the answer must be the same.
func (a *actor) call(ask func(context.Context, drillServer, api.Mutation) (api.Accepted, error)) error {
	m := api.Mutation{IdempotencyKey: rand.Text()}
	out, err := a.insist(ask, m)
	if err != nil {
		return err
	}
	if out.Operation != nil {
		a.acknowledged[out.Operation.ID] = true
	}
	if a.draw.IntN(4) > 0 {
		return nil
	}
	again, err := a.insist(ask, m)
	if err != nil || (out.Operation == nil) != (again.Operation == nil) || out.Operation != nil && out.Operation.ID != again.Operation.ID {
		a.accuse("%s: a repeated request was answered with %+v, %v, and the first time with %+v", a.name, again.Operation, err, out.Operation)
	}
	a.note(a.done, "repeated after its answer")
	return nil
}

func (a *actor) insist(ask func(context.Context, drillServer, api.Mutation) (api.Accepted, error), m api.Mutation) (out api.Accepted, err error) {
	late := pollEvery(context.WithoutCancel(a.t.Context()), drillEvery, *drillSettle, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, drillCall)
		defer cancel()
		if out, err = ask(ctx, a.servers[a.draw.IntN(len(a.servers))], m); err != nil && fleet.KindOf(err).Retryable() {
			a.note(a.done, "repeated without an answer")
			return err
		}
		return nil
	})
	if late != nil {
		return out, late
	}
	return out, err
}

// ask asks a verb of the deployment.
func (a *actor) ask(verb string, in any) error {
	return a.call(func(ctx context.Context, s drillServer, m api.Mutation) (api.Accepted, error) {
		return s.api.Ask(ctx, fleet.DeploymentKey(fleet.DeploymentName(a.name)), verb, in, m)
	})
}

// read asks either server until one answers.
func (a *actor) read(what string, ask func(context.Context, *api.Client) error) {
	_, err := a.insist(func(ctx context.Context, s drillServer, _ api.Mutation) (none api.Accepted, err error) {
		return none, ask(ctx, s.api)
	}, api.Mutation{})
	if err != nil {
		a.accuse("%s: %v", what, err)
	}
}

// row reads the database until it answers.
func (a *actor) row(query string, args []any, into ...any) (found bool) {
	err := pollEvery(context.WithoutCancel(a.t.Context()), drillEvery, *drillSettle, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, drillCall)
		defer cancel()
		err := a.pg.QueryRow(ctx, query, args...).Scan(into...)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		found = err == nil
		return err
	})
	if err != nil {
		a.accuse("%s: %v", query, err)
	}
	return found
}

// door starts one, once, and returns when its operation is there, or it was refused.
func (a *actor) door(kind string, input any) error {
	text, err := json.Marshal(input)
	if err != nil {
		return err
	}
	id := a.name + "-" + rand.Text()
	in := doorRequest(id, kind, string(text))
	in.WorkflowIdReusePolicy = enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE
	err = a.temporally(func(ctx context.Context) error {
		_, err := a.temporal.StartWorkflowExecution(ctx, in)
		var already *serviceerror.WorkflowExecutionAlreadyStarted
		if errors.As(serviceerror.FromStatus(status.Convert(err)), &already) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	a.note(a.done, "door "+kind)
	op := ""
	err = a.temporally(func(ctx context.Context) error {
		ended := a.runOf(ctx, id) // before the operation: it is there when its door has ended
		err := a.pg.QueryRow(ctx, `SELECT id FROM operations WHERE door_workflow = $1`, id).Scan(&op)
		if errors.Is(err, pgx.ErrNoRows) && ended == enumspb.WORKFLOW_EXECUTION_STATUS_FAILED {
			return nil
		}
		return err
	})
	a.doors[id] = op
	switch {
	case err != nil:
		return err
	case op == "":
		return fleet.Errorf(fleet.IllegalState, "door %s was refused", id)
	}
	a.acknowledged[op] = true
	return nil
}

func (a *actor) temporally(try func(context.Context) error) error {
	return pollEvery(context.WithoutCancel(a.t.Context()), drillEvery, *drillSettle, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, drillCall)
		defer cancel()
		return try(ctx)
	})
}
