package httpapi

import (
	"context"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
)

type changeInstanceInput struct {
	InstanceParams
	ObjectParams
	serve.InProject
}

func turnsInstance(kind fleet.OperationKind) mounter {
	return turns[changeInstanceInput](func(s *server, ctx context.Context, w postgres.Write, in api.ActionRequest) (postgres.Started, error) {
		return s.turnInstance(ctx, deliveries.InstanceTurn{Write: w, Kind: kind, Reason: in.Reason})
	})
}

func (s *server) rollbackInstance(ctx context.Context, w postgres.Write, in api.RollbackRequest) (postgres.Started, error) {
	if in.Revision < 0 {
		return postgres.Started{}, fleet.Errorf(fleet.Invalid, "invalid revision: want 1 or more").At("/revision")
	}
	return s.turnInstance(ctx, deliveries.InstanceTurn{Write: w, Kind: fleet.OperationRollback, Reason: in.Reason, Revision: in.Revision})
}

func (s *server) turnInstance(ctx context.Context, t deliveries.InstanceTurn) (_ postgres.Started, err error) {
	if err := declare.CheckTexts(nil, t.Reason); err != nil {
		return postgres.Started{}, err
	}
	if t.Kind == fleet.OperationDeploy {
		if t.Unreleased, err = s.unreleased(ctx, t); err != nil {
			return postgres.Started{}, err
		}
	}
	started, err := s.store.TurnInstance(ctx, t)
	if fleet.KindOf(err) == fleet.NotFound {
		if _, missing := s.visible(ctx, t.Key); missing != nil { // says nothing of the site
			err = missing
		}
	}
	return started, err
}

// unreleased makes the change that a deploy releases when the spec was only written so far.
func (s *server) unreleased(ctx context.Context, t deliveries.InstanceTurn) (*deliveries.InstanceChange, error) {
	o, err := s.visible(ctx, t.Key)
	if err != nil {
		return nil, err
	}
	c, err := s.turns.Unreleased(ctx, t.Write, serve.CallOf(ctx).Project, o)
	if c != nil {
		c.Reason = t.Reason
	}
	return c, err
}
