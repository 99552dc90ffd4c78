package deployments

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// RolloutTurn asks something of the rollout of a deployment: to pause, resume, promote or cancel it.
type RolloutTurn struct {
	postgres.Write
	On fleet.RolloutEvent
	// Number is of the rollout that is meant, 0 for whichever is under way; Step of its step, counted from 1, 0 for whichever.
	Number int64
	Step   int
	Reason string
}

// TurnRollout carries a RolloutTurn out. What the rollout is already, or was asked before, changes nothing; a rollout that has
// ended is illegal_state.
func (s *Store) TurnRollout(ctx context.Context, t RolloutTurn) (postgres.Started, error) {
	return s.Change(ctx, t.Write, nil, func(q *db.Queries, out *postgres.Started) error {
		w, err := s.declaredDeployment(ctx, q, t.Write)
		if err != nil {
			return err
		}
		if err := s.MayTurn(ctx, q, w.object); err != nil {
			return err
		}
		out.Written = postgres.Written{Before: w.object, After: w.object}
		out.Operation, err = w.turnRollout(ctx, t)
		return err
	})
}

func (w *deploymentWork) turnRollout(ctx context.Context, t RolloutTurn) (*postgres.Operation, error) {
	r, err := w.activeRollout(ctx)
	if err != nil {
		return nil, err
	}
	if r == nil || t.Number != 0 && t.Number != r.Number {
		return nil, w.noRollout(t.Number)
	}
	if t.On == fleet.RolloutCancel {
		return w.askReturn(ctx, t, r)
	}
	if err := w.turnStep(ctx, t, r); err != nil || t.Door.Run == "" {
		return nil, err
	}
	return w.insertEnded(ctx, t.Door, postgres.NewOperation{Kind: fleet.OperationTurn, Revision: r.ToRevision}, fleet.OperationFinish{Reason: string(t.On)})
}

// turnStep writes what a request makes of the state and the step.
func (w *deploymentWork) turnStep(ctx context.Context, t RolloutTurn, r *db.Rollout) error {
	seen := fleet.RolloutSeen{State: fleet.RolloutState(r.State), Step: int(r.Step), StepAt: timeOf(r.StepAt)}
	if err := json.Unmarshal(r.Strategy, &seen.Strategy); err != nil {
		return postgres.Unreadable("a strategy", err)
	}
	now, changes, err := decide.Turn(seen, t.On, t.Step)
	if err != nil || !changes {
		return err
	}
	to := now.State
	p := db.TurnRolloutParams{
		Deployment: r.Deployment, Number: r.Number, State: string(to), Active: true, Reason: r.Reason, Message: r.Message,
		Step: postgres.WaveNumber(now.Step), StepAt: orNull(now.StepAt),
	}
	if err := w.q.TurnRollout(ctx, p); err != nil {
		return err
	}
	if err := w.write(ctx, w.row.Uid, rolloutLine(r, to, t.Reason, t.Actor)); err != nil {
		return err
	}
	return postgres.PutOutbox(ctx, w.q, w.subject())
}

// askReturn opens the operation by which the next visit turns the rollout round, or gives the one that is open.
func (w *deploymentWork) askReturn(ctx context.Context, t RolloutTurn, r *db.Rollout) (*postgres.Operation, error) {
	if t.Door.Run == "" {
		open, err := w.openOf(ctx, fleet.OperationReturn, r.ToRevision)
		if err != nil || open != nil {
			return open, err
		}
	}
	line := historyLine{reason: "rollout_cancelled", message: withReason(fmt.Sprintf("rollout %d to revision %d", r.Number, r.ToRevision), t.Reason), actor: t.Actor}
	if err := w.write(ctx, w.row.Uid, line); err != nil {
		return nil, err
	}
	return w.open(ctx, t.Door, postgres.NewOperation{Kind: fleet.OperationReturn, Revision: r.ToRevision, ProcessVersion: r.ProcessVersion})
}

func (w *deploymentWork) noRollout(number int64) error {
	err := fleet.Errorf(fleet.IllegalState, "deployment %s has no rollout under way", w.row.Name)
	if number != 0 {
		err = fleet.Errorf(fleet.IllegalState, "rollout %d of deployment %s is not under way", number, w.row.Name)
	}
	return err.WithHint("see its rollouts: holdfast rollout history " + w.row.Name)
}

// Rollout is the way of a deployment from its stable revision to a newer one.
type Rollout struct {
	Number         int64
	State          fleet.RolloutState
	From, To       int64
	ProcessVersion int64
	Strategy       fleet.Strategy
	// MinHealthy is how long a replica must be routable to be proven.
	MinHealthy time.Duration
	// Reason is why it returns, Message says how far it is, or how it ended.
	Reason, Message string
	Phase           fleet.RolloutPhase
	Failure         string // the newest of a replica of the new revision
	// Step counts from 0.
	Step, Want, Proven int
	ProgressAt         time.Time
	Clock              fleet.RolloutClock
	// Until is when it is given up without progress, or in a pause if nobody resumes it; Deadline when at the latest. Zero where no
	// clock runs.
	Until, Deadline                time.Time
	CreatedBy                      string
	CreatedAt, StateSince, EndedAt time.Time
}

func rolloutOf(r db.Rollout) (Rollout, error) {
	out := Rollout{
		Number: r.Number, State: fleet.RolloutState(r.State), From: r.FromRevision, To: r.ToRevision, ProcessVersion: r.ProcessVersion,
		Reason: r.Reason, Message: r.Message, Step: int(r.Step), Want: int(r.Want), Proven: int(r.Proven), ProgressAt: r.ProgressAt, Clock: fleet.RolloutClock(r.Clock), CreatedBy: r.CreatedBy,
		CreatedAt: r.CreatedAt, StateSince: r.Since, EndedAt: timeOf(r.EndedAt), Failure: r.Failure,
	}
	if out.State.Active() {
		out.Until = timeOf(r.Until)
	}
	if out.State.Active() && out.State != fleet.RolloutPaused {
		out.Deadline = r.DeadlineAt
	}
	if err := json.Unmarshal(r.Strategy, &out.Strategy); err != nil {
		return out, postgres.Unreadable("the strategy of a rollout", err)
	}
	if out.MinHealthy = out.Strategy.MinHealthy(0); r.MinHealthy != nil {
		out.MinHealthy = postgres.SecondsOf(*r.MinHealthy)
	}
	out.Phase = decide.RolloutPhase(fleet.RolloutSeen{State: out.State, Strategy: out.Strategy, Step: out.Step, Want: out.Want}, out.Proven)
	return out, nil
}

// ListRollouts gives the rollouts of a deployment newest first, after the place of one, whose id is its number.
func (s *Store) ListRollouts(ctx context.Context, name fleet.DeploymentName, after postgres.Place, limit int32) ([]Rollout, error) {
	rows, err := s.Q.ListRollouts(ctx, db.ListRolloutsParams{Deployment: string(name), Before: numbered(after), MaxRows: limit})
	if err != nil {
		return nil, err
	}
	out := make([]Rollout, len(rows))
	for i, r := range rows {
		if out[i], err = rolloutOf(r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// RevisionBefore is the revision that a rollback without one restores.
func (s *Store) RevisionBefore(ctx context.Context, name fleet.DeploymentName) (int64, error) {
	seen, err := s.Q.SeeRollback(ctx, string(name))
	if err != nil && !postgres.NoRows(err) {
		return 0, err
	}
	to, rule := decide.Rollback(decide.RollbackSeen{
		Own: seen.Own, Newest: seen.Newest, Stable: seen.Stable, Before: seen.Before, RollsOut: seen.RollsOut, Waits: seen.Waits, Idle: seen.Idle,
	})
	switch {
	case to > 0:
		return to, nil
	case rule == decide.RollbackNeedsRevision:
		return 0, fleet.Errorf(fleet.IllegalState, "deployment %s is already at revision %d: the rollout of revision %d did not end DEPLOYED", name, seen.Own, seen.Newest).
			At("/revision").WithHint(fmt.Sprintf("roll revision %d out again: holdfast rollout retry %s; or name an earlier one: holdfast rollout rollback %s --revision N", seen.Newest, name, name))
	}
	return 0, fleet.Errorf(fleet.IllegalState, "deployment %s has no earlier revision that ran", name).At("/revision").
		WithHint("name one; see its rollouts: holdfast rollout history " + string(name))
}

// addRollouts adds the newest rollouts to what is known of deployments.
func (s *Store) addRollouts(ctx context.Context, names []string, views map[string]DeploymentView) error {
	rows, err := s.Q.NewestRollouts(ctx, names)
	if err != nil {
		return err
	}
	for _, row := range rows {
		r, err := rolloutOf(row)
		if err != nil {
			return err
		}
		v := views[row.Deployment]
		if v.LastRollout = &r; r.State.Active() {
			v.Rollout, v.Deploying = &r, r.To
		}
		views[row.Deployment] = v
	}
	return nil
}
