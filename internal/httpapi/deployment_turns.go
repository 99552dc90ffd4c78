package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

type turnDeploymentInput struct {
	NameParam
	MutationParams
}

// deploymentTurns are the verbs of a deployment and what they ask for.
var deploymentTurns = []struct {
	verb    string
	kind    fleet.OperationKind
	summary string
}{
	{"deploy", fleet.OperationConverge, "Run what is declared, as it was written last"},
	{"restart", fleet.OperationRestart, "Replace every replica by a new one, one by one"},
	{"scale", fleet.OperationScale, "Set how many replicas there are to be"},
}

func (s *server) mountDeploymentTurns() {
	for _, t := range deploymentTurns {
		op := serve.Endpoint(http.MethodPost, deploymentPath+"/"+t.verb, t.verb+"-deployment", t.summary)
		s.mountDeploymentTurn(op, t.kind)
		if t.kind == fleet.OperationScale {
			serve.Takes[api.ScaleRequest](s.Server, op)
		} else {
			serve.Takes[api.ActionRequest](s.Server, op)
		}
	}
	s.mountDeploymentTurn(serve.Endpoint(http.MethodDelete, deploymentPath, "delete-deployment", "End all replicas of a deployment, and then delete it"), fleet.OperationDestroy)
}

func (s *server) mountDeploymentTurn(op huma.Operation, kind fleet.OperationKind) {
	op.DefaultStatus = http.StatusAccepted
	serve.Register(s.Server, serve.ForOperators, op, func(ctx context.Context, in *turnDeploymentInput) (*acceptedOutput, error) {
		return s.turnDeployment(ctx, kind, in)
	})
}

func (s *server) turnDeployment(ctx context.Context, kind fleet.OperationKind, in *turnDeploymentInput) (*acceptedOutput, error) {
	key := deploymentKey(in.Name)
	if err := fleet.ValidateName("name", in.Name); err != nil {
		return nil, err
	}
	t := deployments.DeploymentTurn{Kind: kind}
	raw, err := s.readDeploymentTurn(ctx, &t)
	if err != nil {
		return nil, err
	}
	if t.Write, err = s.write(ctx, key, in.MutationParams, raw); err != nil {
		return nil, err
	}
	o, missing := s.visible(ctx, key)
	// A repeat of a delete that succeeded finds no object, and is the store's to answer.
	if missing != nil && (kind != fleet.OperationDestroy || in.IdempotencyKey == "") {
		return nil, missing
	}
	started, err := s.startTurn(ctx, t, o)
	if fleet.KindOf(err) == fleet.NotFound && missing != nil {
		return nil, missing
	}
	if err != nil {
		return nil, err
	}
	return s.startedOutput(ctx, started, in.MutationParams), nil
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

// readDeploymentTurn reads the body of an action; only a scale needs to have one.
func (s *server) readDeploymentTurn(ctx context.Context, t *deployments.DeploymentTurn) (raw []byte, err error) {
	if t.Kind != fleet.OperationScale {
		var in api.ActionRequest
		raw, err = s.ReadOptional(ctx, &in)
		t.Reason = in.Reason
	} else {
		var in api.ScaleRequest
		raw, err = s.ReadJSON(ctx, &in)
		t.Reason, t.Replicas = in.Reason, in.Replicas
		if err == nil {
			err = checkReplicas(in.Replicas)
		}
	}
	if err == nil {
		err = declare.CheckTexts(nil, t.Reason)
	}
	return raw, err
}

// startTurn asks the store; a deploy of what was only written so far releases it.
func (s *server) startTurn(ctx context.Context, t deployments.DeploymentTurn, o fleet.Object) (postgres.Started, error) {
	var spec fleet.DeploymentSpec
	if o.Spec != nil {
		if err := json.Unmarshal(o.Spec, &spec); err != nil {
			return postgres.Started{}, fleet.Errorf(fleet.Internal, "read the spec of %s: %w", t.Key, err)
		}
	}
	if t.Kind == fleet.OperationConverge && o.UID != "" && o.DeletingSince == nil {
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
