package httpapi

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

func turnsDeployment(kind fleet.OperationKind) mounter {
	return turns[changeObjectInput](func(s *server, ctx context.Context, w postgres.Write, in api.ActionRequest) (postgres.Started, error) {
		return s.turnDeployment(ctx, deployments.DeploymentTurn{Write: w, Kind: kind, Reason: in.Reason})
	})
}

func (s *server) restartDeployment(ctx context.Context, w postgres.Write, in api.RestartRequest) (postgres.Started, error) {
	switch in.Mode {
	case "", api.RestartRolling, api.RestartStopFirst:
	default:
		return postgres.Started{}, fleet.Errorf(fleet.Invalid, "unknown mode %.40q; use rolling or stop_first", in.Mode).At("/mode")
	}
	return s.turnDeployment(ctx, deployments.DeploymentTurn{Write: w, Kind: fleet.OperationRestart, StopFirst: in.Mode == api.RestartStopFirst, Reason: in.Reason})
}

// retryDeployment rolls the newest released revision out again; what was only written stays so.
func (s *server) retryDeployment(ctx context.Context, w postgres.Write, in api.ActionRequest) (postgres.Started, error) {
	return s.turnDeployment(ctx, deployments.DeploymentTurn{Write: w, Kind: fleet.OperationConverge, Again: true, Reason: in.Reason})
}

func (s *server) scaleDeployment(ctx context.Context, w postgres.Write, in api.ScaleRequest) (postgres.Started, error) {
	if err := checkReplicas(in.Replicas); err != nil {
		return postgres.Started{}, err
	}
	return s.turnDeployment(ctx, deployments.DeploymentTurn{Write: w, Kind: fleet.OperationScale, Reason: in.Reason, Replicas: in.Replicas})
}

func (s *server) turnDeployment(ctx context.Context, t deployments.DeploymentTurn) (postgres.Started, error) {
	if err := declare.CheckTexts(nil, t.Reason); err != nil {
		return postgres.Started{}, err
	}
	o, missing := s.visible(ctx, t.Key)
	// A repeat of a delete that succeeded finds no object, and is the store's to answer.
	if missing != nil && (t.Kind != fleet.OperationDestroy || t.Idempotency.Key == "") {
		return postgres.Started{}, missing
	}
	started, err := s.startTurn(ctx, t, o)
	if fleet.KindOf(err) == fleet.NotFound && missing != nil {
		return started, missing
	}
	return started, err
}

func checkReplicas(n *int) error {
	var wrong *fleet.Error
	switch {
	case n == nil:
		wrong = fleet.Errorf(fleet.Invalid, "replicas is required: give a whole number, 0 or more")
	case *n < 0:
		wrong = fleet.Errorf(fleet.Invalid, "%d replicas requested; the least is 0", *n)
	default:
		return nil
	}
	return wrong.At("/replicas").WithHint("the bounds are replicas.min and replicas.max of its spec")
}

// readAgain is how often a change that is bound to what was read is made anew of what is there by then.
const readAgain = 5

// ofNewest makes a change that is bound to the object that was read. If another write came between, it is made of the newer
// object, unless the caller named a version.
func (s *server) ofNewest(ctx context.Context, w postgres.Write, o fleet.Object, change func(fleet.Object) (postgres.Started, error)) (postgres.Started, error) {
	for range readAgain {
		started, err := change(o)
		if w.IfMatch != 0 || fleet.KindOf(err) != fleet.Precondition {
			return started, err
		}
		uid := o.UID
		if o, err = s.store.GetObject(ctx, w.Key); err != nil {
			return postgres.Started{}, err
		}
		if o.UID != uid { // the caller may not see another one
			return postgres.Started{}, fleet.Errorf(fleet.Precondition, "%s was declared anew", w.Key).WithHint("read it again and repeat the change")
		}
	}
	return change(o)
}

// startTurn asks the store; a deploy of what was only written so far releases it.
func (s *server) startTurn(ctx context.Context, t deployments.DeploymentTurn, o fleet.Object) (postgres.Started, error) {
	return s.ofNewest(ctx, t.Write, o, func(o fleet.Object) (postgres.Started, error) { return s.turnObject(ctx, t, o) })
}

func (s *server) turnObject(ctx context.Context, t deployments.DeploymentTurn, o fleet.Object) (postgres.Started, error) {
	var spec fleet.DeploymentSpec
	if o.Spec != nil {
		if err := json.Unmarshal(o.Spec, &spec); err != nil {
			return postgres.Started{}, fleet.Errorf(fleet.Internal, "read the spec of %s: %w", t.Key, err)
		}
	}
	if t.Kind == fleet.OperationConverge && !t.Again && o.UID != "" && o.DeletingSince == nil {
		p, err := s.unreleasedDeployment(ctx, t, o, spec)
		if err != nil {
			return postgres.Started{}, err
		}
		if p != nil {
			return s.store.PutDeployment(ctx, *p)
		}
	}
	return s.store.TurnDeployment(ctx, t)
}

// unreleasedDeployment is the change that releases a spec which was only written so far; nil
// when there is nothing to release. It is bound to the spec that was read.
func (s *server) unreleasedDeployment(ctx context.Context, t deployments.DeploymentTurn, o fleet.Object, spec fleet.DeploymentSpec) (*deployments.DeploymentPut, error) {
	views, err := s.store.ViewDeployments(ctx, o.Name)
	if err != nil {
		return nil, err
	}
	if v := views[o.Name]; v.UID == o.UID && v.Revision > 0 && v.Generation == o.Generation {
		return nil, nil
	}
	return s.releaseOf(ctx, t, o, spec)
}

// releaseOf is the change that releases a spec of an object, bound to the object that was read.
func (s *server) releaseOf(ctx context.Context, t deployments.DeploymentTurn, o fleet.Object, spec fleet.DeploymentSpec) (*deployments.DeploymentPut, error) {
	made, err := s.remake(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err := s.keepDeployment(ctx, o.Project, made); err != nil {
		return nil, err
	}
	w := t.Write
	w.Project, w.Labels, w.IfMatch = o.Project, o.Labels, cmp.Or(t.IfMatch, o.ResourceVersion)
	p := deploymentPut(made, w)
	p.Deploy, p.Converge, p.Reason, p.Door = true, true, t.Reason, t.Door
	return &p, nil
}
