package postgres_test

import (
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// visitJudge decides as the region does.
type visitJudge struct {
	seen fleet.DeploymentSeen
	plan decide.DeploymentPlan
}

func newJudge() postgres.DeploymentJudge { return &visitJudge{} }

var judgeReplica = postgres.ReplicaJudge{Reported: decide.ReplicaReported, Unlisted: decide.UnlistedReplica, Cap: decide.DropCap}

func (j *visitJudge) Decide(seen fleet.DeploymentSeen) postgres.DeploymentPlan {
	j.seen, j.plan = seen, decide.Deployment(seen)
	return planOf(j.plan)
}

func (j *visitJudge) Place(wish postgres.PlaceWish, rooms []fleet.NodeRoom) (postgres.DeploymentPlan, []fleet.NodeName) {
	got := decide.Place(decide.PlaceRequest(wish), rooms)
	return planOf(j.plan.Placed(j.seen, got)), got.Nodes
}

func planOf(p decide.DeploymentPlan) postgres.DeploymentPlan {
	out := postgres.DeploymentPlan{
		Rule: p.Rule, Message: p.Message, Events: p.Events, Create: p.Create, Scarce: p.Scarce, Attempts: p.Attempts, Crashes: p.Crashes,
		NextAttempt: p.NextAttempt, Owed: p.Owed, Began: p.Began, BeganVersion: p.BeganVersion, Conditions: p.Conditions, Awaited: p.Awaited,
		Next: p.Next, More: p.More, Done: p.Done,
		Terminate: stepsOf(p.Terminate), End: stepsOf(p.End), Fail: stepsOf(p.Fail),
	}
	for _, f := range p.Finish {
		out.Finish = append(out.Finish, postgres.OperationFinish(f))
	}
	return out
}

func stepsOf(all []decide.ReplicaStep) []postgres.ReplicaStep {
	var out []postgres.ReplicaStep
	for _, s := range all {
		out = append(out, postgres.ReplicaStep(s))
	}
	return out
}
