package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
)

type turnInput struct {
	InstanceParams
	MutationParams
}

func (s *server) mountTurns() {
	for _, t := range []struct {
		kind    fleet.OperationKind
		summary string
	}{
		{fleet.OperationDeploy, "Bring the desired revision to the site's nodes"},
		{fleet.OperationEnable, "Have the instance run"},
		{fleet.OperationDisable, "Stop the instance; its nodes keep the config"},
		{fleet.OperationRollback, "Release an earlier revision's content under a new number"},
	} {
		op := serve.Endpoint(http.MethodPost, instancePath+"/"+string(t.kind), string(t.kind)+"-instance", t.summary)
		s.mountTurn(op, t.kind)
		if t.kind == fleet.OperationRollback {
			serve.Takes[api.RollbackRequest](s.Server, op)
		} else {
			serve.Takes[api.ActionRequest](s.Server, op)
		}
	}
	s.mountTurn(serve.Endpoint(http.MethodDelete, instancePath, "delete-instance", "Delete an instance from all its nodes"), fleet.OperationDelete)
}

func (s *server) mountTurn(op huma.Operation, kind fleet.OperationKind) {
	op.DefaultStatus = http.StatusAccepted
	serve.Register(s.Server, serve.ForOperators, op, func(ctx context.Context, in *turnInput) (*acceptedOutput, error) {
		return s.turn(ctx, kind, in)
	})
}

func (s *server) turn(ctx context.Context, kind fleet.OperationKind, in *turnInput) (*acceptedOutput, error) {
	key, err := in.key()
	if err != nil {
		return nil, err
	}
	t := deliveries.InstanceTurn{Kind: kind}
	raw, err := s.readTurn(ctx, &t)
	if err != nil {
		return nil, err
	}
	if t.Write, err = s.write(ctx, key, in.MutationParams, raw); err != nil {
		return nil, err
	}
	if kind == fleet.OperationDeploy {
		if t.Unreleased, err = s.unreleased(ctx, t); err != nil {
			return nil, err
		}
	}
	started, err := s.store.TurnInstance(ctx, t)
	if fleet.KindOf(err) == fleet.NotFound {
		if _, missing := s.visible(ctx, key); missing != nil { // says nothing of the site
			err = missing
		}
	}
	if err != nil {
		return nil, err
	}
	return s.startedOutput(ctx, started, in.MutationParams), nil
}

// readTurn reads the body of an action, which none needs to have.
func (s *server) readTurn(ctx context.Context, t *deliveries.InstanceTurn) (raw []byte, err error) {
	if t.Kind == fleet.OperationRollback {
		var in api.RollbackRequest
		raw, err = s.ReadOptional(ctx, &in)
		t.Revision, t.Reason = in.Revision, in.Reason
	} else {
		var in api.ActionRequest
		raw, err = s.ReadOptional(ctx, &in)
		t.Reason = in.Reason
	}
	if err == nil && t.Revision < 0 {
		err = fleet.Errorf(fleet.Invalid, "invalid revision: want 1 or more").At("/revision")
	}
	if err == nil {
		err = declare.CheckTexts(nil, t.Reason)
	}
	return raw, err
}

// unreleased makes the change that a deploy releases when the spec was only written so far.
func (s *server) unreleased(ctx context.Context, t deliveries.InstanceTurn) (*deliveries.InstanceChange, error) {
	o, err := s.visible(ctx, t.Key)
	if err != nil {
		return nil, err
	}
	if o.DeletingSince != nil {
		return nil, nil // the store refuses the deploy
	}
	c := &deliveries.InstanceChange{Write: t.Write, Release: true, Reason: t.Reason}
	c.Project, c.Labels = o.Project, o.Labels
	if err := json.Unmarshal(o.Spec, &c.Spec); err != nil {
		return nil, fleet.Errorf(fleet.Internal, "read the spec of %s: %w", t.Key, err)
	}
	if c.RunJSON, c.RunHash, err = declare.RunSection(c.Spec.Run, c.Project); err != nil {
		return nil, err
	}
	return c, s.resolve(ctx, c)
}
