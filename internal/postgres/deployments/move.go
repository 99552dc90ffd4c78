package deployments

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// move applies the deployment's events and records the reason for its state.
func (c *carrying) move(ctx context.Context) error {
	before := c.row
	if err := c.moveRollout(ctx); err != nil {
		return err
	}
	if err := c.through(ctx); err != nil {
		return err
	}
	conditions, changed, err := c.conditions(c.row.Conditions) // none of a new declaration
	if err != nil {
		return err
	}
	p := db.MoveDeploymentParams{
		Name: c.row.Name, State: c.row.State, Reason: c.plan.Rule, Message: c.plan.Message, Awaited: c.plan.Awaited,
		Began: c.row.Began, BeganVersion: c.row.BeganVersion, Attempts: postgres.WaveNumber(c.plan.Attempts), Crashes: postgres.WaveNumber(c.plan.Crashes),
		NextAttempt: orNull(c.plan.NextAttempt), Owed: postgres.WaveNumber(c.plan.Owed), WakeAt: orNull(c.plan.Next), Conditions: conditions, Proven: c.plan.Proven,
	}
	if err := c.q.MoveDeployment(ctx, p); err != nil {
		return err
	}
	if before.State == p.State && before.Reason == p.Reason && !changed {
		return nil
	}
	if c.object == nil || c.gone && c.object.DeletingSince != nil { // its end was said
		return nil
	}
	now := c.row
	now.Reason, now.Message, now.Conditions = p.Reason, p.Message, p.Conditions
	return c.announce(ctx, before, now, postgres.RegionActor)
}

// conditions dates those of the plan by those that were, and says whether they changed.
func (c *carrying) conditions(before json.RawMessage) (out json.RawMessage, changed bool, err error) {
	var was []fleet.Condition
	if err := json.Unmarshal(before, &was); err != nil {
		return nil, false, postgres.Unreadable("the conditions", err)
	}
	dated, changed := fleet.ConditionsSince(was, c.plan.Conditions, c.seen.At.UTC())
	out, err = json.Marshal(dated)
	return out, changed, err
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// through applies the events.
func (c *carrying) through(ctx context.Context) error {
	c.row.Began, c.row.BeganVersion = c.plan.Began, c.plan.BeganVersion
	for _, on := range c.plan.Events {
		to, err := fleet.DeploymentState(c.row.State).Next(on)
		if err != nil {
			return err
		}
		c.history.order = append(c.history.order, historyLine{
			from: c.row.State, to: string(to), reason: c.plan.Rule, message: c.plan.Message, actor: postgres.RegionActor, times: 1,
		})
		c.row.State = string(to)
		if err := c.after(ctx, on); err != nil {
			return err
		}
	}
	return nil
}

// after does what goes with an event.
func (c *carrying) after(ctx context.Context, on fleet.DeploymentEvent) error {
	switch on {
	case fleet.DeploymentGone:
		c.gone = true
		if c.object != nil && c.object.DeletingSince != nil {
			return postgres.Remove(ctx, c.q, postgres.RegionActor, c.object)
		}
	case fleet.DeploymentRedeclared:
		return c.redeclareAfter(ctx)
	case fleet.DeploymentBegun, fleet.DeploymentAvailable, fleet.DeploymentAttemptFailed, fleet.DeploymentGivenUp,
		fleet.DeploymentUpdated, fleet.DeploymentStopped, fleet.DeploymentDeleted:
	}
	return nil
}

// redeclareAfter begins with the next declaration, whose row is anew.
func (c *carrying) redeclareAfter(ctx context.Context) error {
	if c.object == nil || c.object.DeletingSince != nil {
		return fleet.Errorf(fleet.IllegalState, "deployment %s was not declared again", c.row.Name)
	}
	project := c.row.Project
	c.row.State = string(fleet.DeploymentTerminated)
	if err := c.redeclare(ctx); err != nil {
		return err
	}
	if c.row.Project != project {
		c.history = lines{}
	}
	c.plan.Attempts, c.plan.Crashes, c.plan.NextAttempt, c.plan.Owed = 0, 0, time.Time{}, 0
	c.plan.Done, c.plan.More = false, true
	return nil
}

// announce writes the status event of a deployment (X17). What ran before another declaration of the
// name began is no status of this one.
func (w *deploymentWork) announce(ctx context.Context, before, now db.Deployment, actor string) error {
	p := db.AppendEventParams{
		Kind: string(fleet.KindDeployment), Project: now.Project, Name: now.Name, Uid: now.Uid, Generation: w.object.Generation, Actor: actor,
	}
	if before.Uid != now.Uid {
		return postgres.AppendStatus(ctx, w.q, p, nil, statusOfDeployment(now))
	}
	return postgres.AppendStatus(ctx, w.q, p, statusOfDeployment(before), statusOfDeployment(now))
}

func statusOfDeployment(d db.Deployment) any {
	return map[string]any{
		"state": d.State, "reason": d.Reason, "message": d.Message, "revision": d.Revision, "processVersion": d.ProcessVersion,
		"target": d.Target, "conditions": d.Conditions,
	}
}

// finish ends operations, and notifies their waiters.
func (c *carrying) finish(ctx context.Context) error {
	if len(c.plan.Finish) == 0 {
		return nil
	}
	var p db.EndOperationsEachParams
	for _, f := range c.plan.Finish {
		p.Ids, p.States = append(p.Ids, string(f.ID)), append(p.States, string(f.State))
		p.Reasons, p.Messages = append(p.Reasons, f.Reason), append(p.Messages, f.Message)
	}
	return c.q.EndOperationsEach(ctx, p)
}

func (c *carrying) result(ctx context.Context) (fleet.DeploymentVisited, error) {
	out := fleet.DeploymentVisited{
		State: fleet.DeploymentState(c.row.State), Rule: c.plan.Rule, Message: c.plan.Message, Awaited: c.plan.Awaited,
		At: c.seen.At, Next: c.plan.Next, More: c.plan.More, Done: c.plan.Done, Ended: c.ended(),
	}
	for _, r := range c.seen.Replicas {
		state := r.State
		if moved, is := c.steps[r.ID]; is {
			state = fleet.ReplicaState(moved.State)
		}
		if state.Live() {
			out.Replicas++
		}
		if state == fleet.ReplicaHealthy {
			out.Healthy++
		}
	}
	out.Replicas += len(c.created)
	untold, err := c.q.CountUntold(ctx, c.subject())
	out.Untold = int(untold)
	return out, err
}

// ended says what kind of operations ended.
func (c *carrying) ended() []fleet.OperationEnded {
	kinds := map[fleet.OperationID]fleet.OperationKind{}
	for _, o := range c.seen.Operations {
		kinds[o.ID] = o.Kind
	}
	out := make([]fleet.OperationEnded, len(c.plan.Finish))
	for i, f := range c.plan.Finish {
		out[i] = fleet.OperationEnded{Kind: kinds[f.ID], State: f.State, Reason: f.Reason}
	}
	return out
}
