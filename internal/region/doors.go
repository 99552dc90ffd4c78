package region

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/workflows"
)

// requests lets doors write through the one write path.
type requests struct {
	store *postgres.Store
	specs unreleased
	limit time.Duration
	// modules refuses an input that no provider takes.
	modules inputChecker
	// failover is the limit of one.
	failover time.Duration
	closed   func([]fleet.OperationEnded) // is told of what was asked of deployments
}

// unreleased releases a spec that was written with ?deploy=false.
type unreleased interface {
	// Unreleased makes the revision of an instance's; nil when there is none.
	Unreleased(ctx context.Context, key fleet.ObjectKey, actor string) (*postgres.InstanceChange, error)
	// TurnDeployment asks something of a deployment; to converge releases what was only written.
	TurnDeployment(ctx context.Context, t postgres.DeploymentTurn) (postgres.Started, error)
}

// Request opens the operation that a door asks for, once per door run.
func (r *requests) Request(ctx context.Context, in activities.DoorRequest, by string) (activities.OperationView, error) {
	if in.Kind == fleet.OperationReconcile {
		op, err := r.store.AskReconcile(ctx, postgres.ReconcileRequest{
			Request: postgres.Request{Actor: by, Door: postgres.Door{Workflow: in.Workflow, Run: in.Run}, Limit: r.limit},
			Node:    in.Node,
		})
		if err != nil {
			return activities.OperationView{}, err
		}
		return r.view(ctx, op)
	}
	if in.Kind == fleet.OperationDrain {
		return r.drain(ctx, in, by)
	}
	if in.Kind == fleet.OperationFailover {
		op, err := r.store.AskFailover(ctx, postgres.FailoverRequest{
			Request: postgres.Request{Actor: by, Door: postgres.Door{Workflow: in.Workflow, Run: in.Run}, Limit: r.failover},
			Site:    in.Site,
			To:      in.Node,
			Force:   in.Force,
			DrainOf: in.DrainOf,
		})
		if err != nil {
			return activities.OperationView{}, err
		}
		return r.view(ctx, op)
	}
	if in.Kind == fleet.OperationFleet {
		return r.fleet(ctx, in, by)
	}
	if in.Kind == fleet.OperationExecute {
		return r.execution(ctx, in, by)
	}
	if in.Deployment != "" {
		return r.deployment(ctx, in, by)
	}
	key := fleet.InstanceKey(in.Site, in.Instance)
	t := postgres.InstanceTurn{
		Write: postgres.Write{Key: key, Actor: by}, Kind: in.Kind, Limit: r.limit,
		Door: postgres.Door{Workflow: in.Workflow, Run: in.Run},
	}
	if in.Kind == fleet.OperationDeploy {
		change, err := r.specs.Unreleased(ctx, key, by)
		if err != nil {
			return activities.OperationView{}, err
		}
		t.Unreleased = change
	}
	out, err := r.store.TurnInstance(ctx, t)
	if err != nil {
		return activities.OperationView{}, err
	}
	if out.Operation == nil { // nothing was ever released: the delete is done
		return activities.OperationView{OperationEnd: fleet.OperationEnd{State: fleet.OperationSucceeded}}, nil
	}
	return r.view(ctx, *out.Operation)
}

// drain empties a node, or joins the drain that is under way.
func (r *requests) drain(ctx context.Context, in activities.DoorRequest, by string) (activities.OperationView, error) {
	order := fleet.DrainOrder{}
	if in.Drain != nil {
		order = *in.Drain
	}
	order, err := order.Checked(by)
	if err != nil {
		return activities.OperationView{}, err
	}
	op, err := r.store.AskNodeDrain(ctx, postgres.DrainRequest{
		Request: postgres.Request{Actor: by, Door: postgres.Door{Workflow: in.Workflow, Run: in.Run}},
		Node:    in.Node,
		Order:   order,
	})
	if err != nil {
		return activities.OperationView{}, err
	}
	return r.view(ctx, op)
}

// fleet runs a declared fleet change, or joins the run that is under way.
func (r *requests) fleet(ctx context.Context, in activities.DoorRequest, by string) (activities.OperationView, error) {
	out, err := r.store.TurnFleet(ctx, postgres.FleetTurn{
		Write: postgres.Write{Key: fleet.ObjectKey{Kind: fleet.KindFleet, Name: string(in.Fleet)}, Actor: by},
		Door:  postgres.Door{Workflow: in.Workflow, Run: in.Run},
	})
	if err != nil {
		return activities.OperationView{}, err
	}
	return r.view(ctx, *out.Operation)
}

// Operation reads one operation.
func (r *requests) Operation(ctx context.Context, id fleet.OperationID) (activities.OperationView, error) {
	op, err := r.store.GetOperation(ctx, id)
	if err != nil {
		return activities.OperationView{}, err
	}
	return r.view(ctx, op)
}

func (r *requests) view(ctx context.Context, op postgres.Operation) (activities.OperationView, error) {
	end, err := endOf(ctx, r.store, op)
	return activities.OperationView{
		OperationEnd: end, Subject: op.Subject, SecondsLeft: time.Until(op.Deadline).Seconds(),
	}, err
}

func endOf(ctx context.Context, s *postgres.Store, op postgres.Operation) (fleet.OperationEnd, error) {
	end := fleet.OperationEnd{Operation: op.ID, State: op.State, Reason: op.Reason, Message: op.Message}
	if op.EndedAt != nil {
		end.EndedAt = *op.EndedAt
	}
	if op.Instance == "" { // of a node, or of a fleet change
		return end, nil
	}
	rev, err := s.RevisionOf(ctx, fleet.InstanceKey(op.Site, op.Instance), op.Revision)
	end.Revision, end.Hash = rev.Version, rev.Content.Hash
	return end, err
}

// tellers tell doors how their operations ended.
type tellers struct {
	store *postgres.Store
	flows *workflows.Client
}

const doorsAtOnce = 100

// TellDoors tells the doors of a subject, or all with "".
func (t *tellers) TellDoors(ctx context.Context, subject string) error {
	_, err := t.tell(ctx, subject)
	return err
}

func (t *tellers) tell(ctx context.Context, subject string) (int, error) {
	ops, err := t.store.UntoldDoors(ctx, subject, doorsAtOnce)
	if err != nil {
		return 0, err
	}
	for i, op := range ops {
		end, err := endOf(ctx, t.store, op)
		if err != nil {
			return i, err
		}
		if err := t.flows.OperationEnded(ctx, op.Door.Workflow, op.Door.Run, end); err != nil {
			return i, err
		}
		if err := t.store.DoorTold(ctx, op.ID); err != nil {
			return i, err
		}
	}
	return len(ops), nil
}
