package httpapi

import (
	"context"
	"strconv"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

type rolloutsOutput struct{ Body api.List[api.Rollout] }

// turnsRollout is a verb about the rollout of a deployment.
func turnsRollout(on fleet.RolloutEvent) mounter {
	return turns[changeObjectInput](func(s *server, ctx context.Context, w postgres.Write, in api.RolloutRequest) (postgres.Started, error) {
		if err := declare.CheckTexts(nil, in.Reason); err != nil {
			return postgres.Started{}, err
		}
		if in.Rollout < 0 || in.Step < 0 {
			return postgres.Started{}, fleet.Errorf(fleet.Invalid, "invalid number: use 1 or more, or 0 for the current rollout and step").At("/rollout")
		}
		if _, err := s.visible(ctx, w.Key); err != nil {
			return postgres.Started{}, err
		}
		out, err := s.store.TurnRollout(ctx, deployments.RolloutTurn{Write: w, On: on, Number: in.Rollout, Step: in.Step, Reason: in.Reason})
		if err == nil && out.Operation == nil && !w.DryRun {
			s.wake(ctx, fleet.DeploymentSubject(fleet.DeploymentName(w.Key.Name)))
		}
		return out, err
	})
}

func (s *server) listRollouts(ctx context.Context, in *deploymentListInput) (*rolloutsOutput, error) {
	if _, err := s.deploymentSeen(ctx, in.Name); err != nil {
		return nil, err
	}
	after, err := numberPlace(in.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListRollouts(ctx, fleet.DeploymentName(in.Name), after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, func(r deployments.Rollout) string { return strconv.FormatInt(r.Number, 10) })
	out := &rolloutsOutput{Body: api.List[api.Rollout]{Items: make([]api.Rollout, len(cut.Items)), Next: cut.Next}}
	for i, r := range cut.Items {
		out.Body.Items[i] = rolloutView(r)
	}
	return out, nil
}

func rolloutView(r deployments.Rollout) api.Rollout {
	value := "FINALIZED"
	if r.State.Active() {
		value = "ACTIVE"
	}
	step, steps := 0, len(r.Strategy.Plan())
	if steps > 0 {
		step, steps = r.Step+1, steps+1
	}
	return api.Rollout{
		Step: step, Steps: steps,
		Number: r.Number, State: r.State, Status: api.RolloutStatus{Value: value, Reason: string(r.State)}, FromRevision: r.From, ToRevision: r.To,
		ProcessVersion: r.ProcessVersion, Phase: r.Phase, Failure: r.Failure, Reason: r.Reason, Message: r.Message, Wanted: r.Want, Proven: r.Proven, MinHealthyTime: r.MinHealthy.Seconds(), Strategy: r.Strategy,
		ProgressAt: r.ProgressAt, Until: timeOrNil(r.Until), Clock: r.Clock, Deadline: timeOrNil(r.Deadline), CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt,
		Since: r.StateSince, EndedAt: timeOrNil(r.EndedAt),
	}
}

// rollbackDeployment writes the whole spec of an earlier revision once more, and releases it (F63).
func (s *server) rollbackDeployment(ctx context.Context, w postgres.Write, in api.RollbackRequest) (postgres.Started, error) {
	if err := declare.CheckTexts(nil, in.Reason); err != nil {
		return postgres.Started{}, err
	}
	o, err := s.visible(ctx, w.Key)
	if err != nil {
		return postgres.Started{}, err
	}
	return s.turns.RollBack(ctx, deployments.DeploymentTurn{Write: w, Reason: in.Reason}, o, in.Revision)
}
