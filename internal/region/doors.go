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
	ask := postgres.Request{Actor: by, Door: postgres.Door{Workflow: in.Workflow, Run: in.Run}, Limit: r.limit}
	op, err := r.open(ctx, ask, in)
	if err != nil {
		return activities.OperationView{}, err
	}
	if op == nil { // nothing was ever released: the delete is done
		return activities.OperationView{OperationEnd: fleet.OperationEnd{State: fleet.OperationSucceeded}}, nil
	}
	return r.view(ctx, *op)
}

func (r *requests) open(ctx context.Context, ask postgres.Request, in activities.DoorRequest) (*postgres.Operation, error) {
	switch in.Kind {
	case fleet.OperationReconcile:
		return one(r.store.AskReconcile(ctx, postgres.ReconcileRequest{Request: ask, Node: in.Node}))
	case fleet.OperationDrain:
		return r.drain(ctx, ask, in)
	case fleet.OperationFailover:
		ask.Limit = r.failover
		return one(r.store.AskFailover(ctx, postgres.FailoverRequest{
			Request: ask, Site: in.Site, To: in.Node, Force: in.Force, DrainOf: in.DrainOf,
		}))
	case fleet.OperationExecute:
		return r.execution(ctx, ask, in)
	case fleet.OperationFleet: // it runs what is declared, or joins the run that is under way
		return started(r.store.TurnFleet(ctx, postgres.FleetTurn{
			Write: postgres.Write{Key: fleet.FleetKey(in.Fleet), Actor: ask.Actor}, Door: ask.Door,
		}))
	case fleet.OperationConverge, fleet.OperationScale, fleet.OperationRestart, fleet.OperationDestroy:
		return r.deployment(ctx, ask, in)
	case fleet.OperationDeploy, fleet.OperationEnable, fleet.OperationDisable, fleet.OperationDelete, fleet.OperationRollback:
	}
	return r.instance(ctx, ask, in)
}

func one(op postgres.Operation, err error) (*postgres.Operation, error) { return &op, err }

func started(out postgres.Started, err error) (*postgres.Operation, error) { return out.Operation, err }

func (r *requests) instance(ctx context.Context, ask postgres.Request, in activities.DoorRequest) (*postgres.Operation, error) {
	key := fleet.InstanceKey(in.Site, in.Instance)
	t := postgres.InstanceTurn{Write: postgres.Write{Key: key, Actor: ask.Actor}, Kind: in.Kind, Limit: ask.Limit, Door: ask.Door}
	if in.Kind == fleet.OperationDeploy {
		change, err := r.specs.Unreleased(ctx, key, ask.Actor)
		if err != nil {
			return nil, err
		}
		t.Unreleased = change
	}
	return started(r.store.TurnInstance(ctx, t))
}

// drain empties a node, or joins the drain that is under way.
func (r *requests) drain(ctx context.Context, ask postgres.Request, in activities.DoorRequest) (*postgres.Operation, error) {
	order := fleet.DrainOrder{}
	if in.Drain != nil {
		order = *in.Drain
	}
	order, err := order.Checked(ask.Actor)
	if err != nil {
		return nil, err
	}
	return one(r.store.AskNodeDrain(ctx, postgres.DrainRequest{Request: ask, Node: in.Node, Order: order}))
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
