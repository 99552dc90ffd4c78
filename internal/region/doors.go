package region

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/copies"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
	"github.com/holdfast-io/holdfast/internal/postgres/modules"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/postgres/policies"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/workflows"
)

// requests lets doors write through the one write path.
type requests struct {
	store *store.Store
	specs unreleased
	limit time.Duration
	// modules refuses an input that no provider takes.
	modules inputChecker
	// failoverLimit is the time that a failover has.
	failoverLimit time.Duration
	closed        func([]fleet.OperationEnded) // gets the ended operations of deployments
}

// unreleased releases a spec that was written with ?deploy=false.
type unreleased interface {
	// UnreleasedInstance makes the change of an instance; nil when there is none.
	UnreleasedInstance(ctx context.Context, w postgres.Write) (*deliveries.InstanceChange, error)
	// TurnDeployment asks something of a deployment; to converge releases what was only written.
	TurnDeployment(ctx context.Context, t deployments.DeploymentTurn) (postgres.Started, error)
	// RollBackDeployment releases the whole spec of an earlier revision once more.
	RollBackDeployment(ctx context.Context, t deployments.DeploymentTurn, revision int64) (postgres.Started, error)
}

// Request opens the operation that a door asks for, once per door run.
func (r *requests) Request(ctx context.Context, in activities.DoorRequest, by string) (activities.OperationView, error) {
	ask := postgres.Request{Actor: by, Door: postgres.Door{Workflow: in.Workflow, Run: in.Run}, Limit: r.limit}
	open, known := r.verbs()[in.Kind]
	if !known {
		return activities.OperationView{}, fleet.Errorf(fleet.Invalid, "no door requests operations of the kind %q", in.Kind)
	}
	op, err := open(ctx, ask, in)
	if err != nil {
		return activities.OperationView{}, err
	}
	if op == nil { // nothing was ever released: the delete is done
		return activities.OperationView{OperationEnd: fleet.OperationEnd{State: fleet.OperationSucceeded}}, nil
	}
	return r.view(ctx, *op)
}

// verb opens the operation that a door requests; nil is one that has nothing to do.
type verb func(ctx context.Context, ask postgres.Request, in activities.DoorRequest) (*postgres.Operation, error)

// verbs has a row for each kind of operation that a door requests.
func (r *requests) verbs() map[fleet.OperationKind]verb {
	return map[fleet.OperationKind]verb{
		fleet.OperationDeploy:      asking(r.instance),
		fleet.OperationEnable:      asking(r.instance),
		fleet.OperationDisable:     asking(r.instance),
		fleet.OperationDelete:      asking(r.instance),
		fleet.OperationFleet:       asking(r.fleet),
		fleet.OperationConverge:    asking(r.deployment),
		fleet.OperationScale:       asking(r.scale),
		fleet.OperationRestart:     asking(r.restart),
		fleet.OperationTurn:        asking(r.rollout),
		fleet.OperationDestroy:     asking(r.deployment),
		fleet.OperationReconcile:   asking(r.reconcile),
		fleet.OperationDrain:       asking(r.drain),
		fleet.OperationFailover:    asking(r.failover),
		fleet.OperationExecute:     asking(r.execution),
		fleet.OperationApplyPolicy: asking(r.policy),
		fleet.OperationSync:        asking(r.sync),
		fleet.OperationHandOver:    asking(r.handOver),
	}
}

// asking reads the input of a door's workflow, which the door has validated. A local activity gets the value itself,
// any other what JSON makes of it.
func asking[T any](open func(context.Context, postgres.Request, fleet.OperationKind, T) (*postgres.Operation, error)) verb {
	return func(ctx context.Context, ask postgres.Request, in activities.DoorRequest) (*postgres.Operation, error) {
		var input T
		text, err := json.Marshal(in.Input)
		if err == nil {
			err = json.Unmarshal(text, &input)
		}
		if err != nil {
			return nil, fleet.Errorf(fleet.Invalid, "read the input of the door: %w", err)
		}
		return open(ctx, ask, in.Kind, input)
	}
}

func one(op postgres.Operation, err error) (*postgres.Operation, error) { return &op, err }

func started(out postgres.Started, err error) (*postgres.Operation, error) { return out.Operation, err }

func (r *requests) instance(ctx context.Context, ask postgres.Request, kind fleet.OperationKind, in workflows.DeployInstanceInput) (*postgres.Operation, error) {
	key := fleet.InstanceKey(in.Site, in.Instance)
	t := deliveries.InstanceTurn{Write: postgres.Write{Request: ask, Key: key}, Kind: kind}
	if kind == fleet.OperationDeploy {
		change, err := r.specs.UnreleasedInstance(ctx, postgres.Write{Key: key, Request: postgres.Request{Actor: ask.Actor, Limit: r.limit}})
		if err != nil {
			return nil, err
		}
		t.Unreleased = change
	}
	return started(r.store.TurnInstance(ctx, t))
}

// fleet runs what is declared, or joins the run that is under way.
func (r *requests) fleet(ctx context.Context, ask postgres.Request, _ fleet.OperationKind, in workflows.DeployFleetInput) (*postgres.Operation, error) {
	return started(r.store.TurnFleet(ctx, fleets.FleetTurn{Write: postgres.Write{Request: ask, Key: fleet.FleetKey(in.Fleet)}}))
}

func (r *requests) deployment(ctx context.Context, ask postgres.Request, kind fleet.OperationKind, in workflows.DeploymentDoorInput) (*postgres.Operation, error) {
	return r.turn(ctx, deployments.DeploymentTurn{Write: postgres.Write{Request: ask, Key: fleet.DeploymentKey(in.Deployment)}, Kind: kind})
}

func (r *requests) restart(ctx context.Context, ask postgres.Request, kind fleet.OperationKind, in workflows.RestartDeploymentInput) (*postgres.Operation, error) {
	return r.turn(ctx, deployments.DeploymentTurn{
		Write: postgres.Write{Request: ask, Key: fleet.DeploymentKey(in.Deployment)}, Kind: kind, StopFirst: in.StopFirst,
	})
}

func (r *requests) scale(ctx context.Context, ask postgres.Request, kind fleet.OperationKind, in workflows.ScaleDeploymentInput) (*postgres.Operation, error) {
	return r.turn(ctx, deployments.DeploymentTurn{
		Write: postgres.Write{Request: ask, Key: fleet.DeploymentKey(in.Deployment)}, Kind: kind, Replicas: in.Replicas,
	})
}

// rollout asks something of a rollout, or has one begin.
func (r *requests) rollout(ctx context.Context, ask postgres.Request, _ fleet.OperationKind, in workflows.RolloutDeploymentInput) (*postgres.Operation, error) {
	w := postgres.Write{Request: ask, Key: fleet.DeploymentKey(in.Deployment)}
	if on := workflows.RolloutVerbs()[in.Verb]; on != "" {
		return started(r.store.TurnRollout(ctx, deployments.RolloutTurn{Write: w, On: on, Number: in.Rollout, Step: in.Step, Reason: in.Reason}))
	}
	if in.Verb == "retry" {
		return r.turn(ctx, deployments.DeploymentTurn{Write: w, Kind: fleet.OperationConverge, Again: true, Reason: in.Reason})
	}
	return started(r.specs.RollBackDeployment(ctx, deployments.DeploymentTurn{Write: w, Reason: in.Reason}, in.Revision))
}

func (r *requests) turn(ctx context.Context, t deployments.DeploymentTurn) (*postgres.Operation, error) {
	out, err := r.specs.TurnDeployment(ctx, t)
	if op := out.Operation; err == nil && out.Changed && op.State.Ended() { // no visit ends it, and a repeat changes nothing
		r.closed([]fleet.OperationEnded{{Kind: op.Kind, State: op.State, Reason: op.Reason}})
	}
	return out.Operation, err
}

func (r *requests) reconcile(ctx context.Context, ask postgres.Request, _ fleet.OperationKind, in workflows.ReconcileNodeInput) (*postgres.Operation, error) {
	return one(r.store.AskReconcile(ctx, nodes.ReconcileRequest{Request: ask, Node: in.Node}))
}

// drain empties a node, or joins the drain that is under way.
func (r *requests) drain(ctx context.Context, ask postgres.Request, _ fleet.OperationKind, in workflows.DrainNodeInput) (*postgres.Operation, error) {
	order, err := fleet.DrainOrder{Reason: in.Reason, DeadlineSeconds: in.DeadlineSeconds, Force: in.Force}.Checked(ask.Actor)
	if err != nil {
		return nil, err
	}
	return one(r.store.AskNodeDrain(ctx, nodes.DrainRequest{Request: ask, Node: in.Node, Order: order}))
}

func (r *requests) failover(ctx context.Context, ask postgres.Request, _ fleet.OperationKind, in workflows.FailoverSiteInput) (*postgres.Operation, error) {
	ask.Limit = r.failoverLimit
	return one(r.store.AskFailover(ctx, nodes.FailoverRequest{
		Request: ask, Site: in.Site, To: in.To, Force: in.Force, DrainOf: in.DrainOf,
	}))
}

func (r *requests) execution(ctx context.Context, ask postgres.Request, _ fleet.OperationKind, in workflows.ExecuteModuleInput) (*postgres.Operation, error) {
	module, err := fleet.ParseModule("/module", in.Module)
	if err != nil {
		return nil, err
	}
	if len(in.Input) == 0 {
		in.Input = []byte("{}")
	}
	if err := r.modules.Check(ctx, module, in.Input); err != nil {
		return nil, err
	}
	ask.Project, ask.Limit = fleet.DefaultProject, fleet.ExecutionLimit(in.TimeoutSeconds)
	return one(r.store.AskExecution(ctx, modules.ExecutionRequest{Request: ask, Module: module, Input: in.Input}))
}

func (r *requests) policy(ctx context.Context, ask postgres.Request, _ fleet.OperationKind, in workflows.ApplyRegionPolicyInput) (*postgres.Operation, error) {
	holder, err := fleet.ParseHolder("/holder", in.Holder)
	if err != nil {
		return nil, err
	}
	return one(r.store.AskPolicy(ctx, policies.PolicyRequest{Request: ask, Holder: holder}))
}

func (r *requests) sync(ctx context.Context, ask postgres.Request, _ fleet.OperationKind, in workflows.SyncRegionInput) (*postgres.Operation, error) {
	return one(r.store.AskSync(ctx, copies.SyncRequest{Request: ask, Peer: in.Peer, Accept: in.AcceptRemovals}))
}

func (r *requests) handOver(ctx context.Context, ask postgres.Request, _ fleet.OperationKind, in workflows.HandOverRegionInput) (*postgres.Operation, error) {
	holder, err := fleet.ParseHolder("/holder", in.Holder)
	if err != nil {
		return nil, err
	}
	return one(r.store.AskHandOver(ctx, policies.HandOverRequest{
		Request: ask, Holder: holder, Region: fleet.RegionName(in.Region), To: fleet.RegionName(in.To), Force: in.Force,
	}))
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

func endOf(ctx context.Context, s *store.Store, op postgres.Operation) (fleet.OperationEnd, error) {
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
	store *store.Store
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
