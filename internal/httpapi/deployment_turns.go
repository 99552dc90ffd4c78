package httpapi

import (
	"context"

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
	started, err := s.turns.Turn(ctx, t, o)
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
