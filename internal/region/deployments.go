package region

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// deploymentSteps are the visits of deployments at the store, decided as decide.Deployment says.
type deploymentSteps struct {
	store  *postgres.Store
	settle time.Duration // what was visited within it is left alone by the sweep
	done   func(postgres.DeploymentVisited)
}

// Visit looks, decides and acts in one transaction.
func (d *deploymentSteps) Visit(ctx context.Context, in activities.VisitDeployment) (activities.DeploymentVisited, error) {
	out, err := d.store.VisitDeployment(ctx, postgres.DeploymentVisit{
		Deployment: in.Deployment, Run: in.Run, Build: in.Build, Judge: &deploymentJudge{},
	})
	if err != nil {
		return activities.DeploymentVisited{}, err
	}
	d.done(out)
	return activities.DeploymentVisited{
		State: out.State, Rule: out.Rule, Message: out.Message, Awaited: out.Awaited, Replicas: out.Replicas, Healthy: out.Healthy,
		At: out.At, Next: out.Next, More: out.More, Done: out.Done, Untold: out.Untold,
	}, nil
}

// Due gives a page of a shard.
func (d *deploymentSteps) Due(ctx context.Context, shard, shards int, after string, limit int32) ([]fleet.DeploymentName, error) {
	return d.store.DeploymentsDue(ctx, postgres.DeploymentShard{Shard: shard, Shards: shards, Settle: d.settle}, after, limit)
}

// deploymentJudge is the decision about one visit. The store asks it anew when its transaction is
// run again.
type deploymentJudge struct {
	seen fleet.DeploymentSeen
	plan decide.DeploymentPlan
}

var _ postgres.DeploymentJudge = (*deploymentJudge)(nil)

// Decide says what to do about a deployment.
func (j *deploymentJudge) Decide(seen fleet.DeploymentSeen) postgres.DeploymentPlan {
	j.seen, j.plan = seen, decide.Deployment(seen)
	return storePlan(j.plan)
}

// Place finds nodes for what the plan creates.
func (j *deploymentJudge) Place(wish postgres.PlaceWish, rooms []fleet.NodeRoom) (postgres.DeploymentPlan, []fleet.NodeName) {
	got := decide.Place(decide.PlaceRequest(wish), decide.Spread(j.seen, rooms))
	return storePlan(j.plan.Placed(j.seen, got)), got.Nodes
}

func storePlan(p decide.DeploymentPlan) postgres.DeploymentPlan {
	out := postgres.DeploymentPlan{
		Rule: p.Rule, Message: p.Message, Events: p.Events, Create: p.Create, Scarce: p.Scarce, Attempts: p.Attempts, Crashes: p.Crashes,
		NextAttempt: p.NextAttempt, Owed: p.Owed, Began: p.Began, BeganVersion: p.BeganVersion, Conditions: p.Conditions, Awaited: p.Awaited,
		Next: p.Next, More: p.More, Done: p.Done,
		Terminate: storeSteps(p.Terminate), End: storeSteps(p.End), Fail: storeSteps(p.Fail),
	}
	for _, f := range p.Finish {
		out.Finish = append(out.Finish, postgres.OperationFinish(f))
	}
	return out
}

func storeSteps(all []decide.ReplicaStep) []postgres.ReplicaStep {
	out := make([]postgres.ReplicaStep, len(all))
	for i, s := range all {
		out[i] = postgres.ReplicaStep(s)
	}
	return out
}

// deployment writes what a door asks of a deployment.
func (r *requests) deployment(ctx context.Context, in activities.DoorRequest, by string) (activities.OperationView, error) {
	out, err := r.specs.TurnDeployment(ctx, postgres.DeploymentTurn{
		Write: postgres.Write{Key: fleet.DeploymentKey(in.Deployment), Actor: by}, Kind: in.Kind, Replicas: in.Replicas,
		Door: postgres.Door{Workflow: in.Workflow, Run: in.Run}, Limit: decide.OperationLimit,
	})
	if err != nil {
		return activities.OperationView{}, err
	}
	op := *out.Operation
	if out.Changed && op.State.Ended() { // no visit ends it, and a repeat changes nothing
		r.closed([]postgres.OperationEnded{{Kind: op.Kind, State: op.State, Reason: op.Reason}})
	}
	return r.view(ctx, op)
}
