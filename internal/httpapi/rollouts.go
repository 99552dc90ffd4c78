package httpapi

import (
	"cmp"
	"context"
	"fmt"
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
	return s.startRollback(ctx, deployments.DeploymentTurn{Write: w, Reason: in.Reason}, o, in.Revision)
}

func (s *server) startRollback(ctx context.Context, t deployments.DeploymentTurn, o fleet.Object, revision int64) (postgres.Started, error) {
	to, err := s.rollbackTo(ctx, fleet.DeploymentName(o.Name), revision)
	if err != nil {
		return s.store.Repeated(ctx, t.Write, err)
	}
	t.Reason = cmp.Or(t.Reason, fmt.Sprintf("back to revision %d", to.Revision))
	back := func(o fleet.Object) (postgres.Started, error) {
		p, err := s.releaseOf(ctx, t, o, to.Spec)
		if err != nil {
			return postgres.Started{}, err
		}
		return s.store.PutDeployment(ctx, *p)
	}
	if revision == 0 { // after another write, the one before may be another
		return back(o)
	}
	return s.ofNewest(ctx, t.Write, o, back)
}

// rollbackTo is the revision to go back to.
func (s *server) rollbackTo(ctx context.Context, name fleet.DeploymentName, revision int64) (none deployments.DeploymentRevision, err error) {
	if revision < 0 {
		return none, fleet.Errorf(fleet.Invalid, "invalid revision: want 1 or more").At("/revision")
	}
	if revision == 0 {
		if revision, err = s.store.RevisionBefore(ctx, name); err != nil {
			return none, err
		}
	}
	rows, err := s.store.ListDeploymentRevisions(ctx, name, postgres.Place{ID: strconv.FormatInt(revision+1, 10)}, 1)
	if err != nil {
		return none, err
	}
	if len(rows) == 0 || rows[0].Revision != revision {
		return none, fleet.Errorf(fleet.NotFound, "deployment %s has no revision %d", name, revision).At("/revision").
			WithHint("see its revisions: holdfast get revisions --deployment " + string(name))
	}
	return rows[0], nil
}
