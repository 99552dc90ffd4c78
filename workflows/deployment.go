package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// DeploymentInput names the deployment.
type DeploymentInput struct {
	Deployment fleet.DeploymentName `json:"deployment"`
}

// DeploymentStatus answers the status query: how the deployment stood at the last visit, and why
// the entity waits (X8).
type DeploymentStatus struct {
	fleet.DeploymentVisited
	Visits int `json:"visits"`
}

var deployments *activities.Deployments

// Deployment is the entity of one deployment: it has it looked at, decided and acted upon, over
// and over, until there is nothing left to do. A converged deployment has no run: what nodes
// report, what people ask and the sweep wake it anew. docs/deployments.md draws it.
func Deployment(ctx workflow.Context, in DeploymentInput) error {
	d := &deployment{in: in, wake: workflow.GetSignalChannel(ctx, SignalWake)}
	if err := workflow.SetQueryHandler(ctx, QueryStatus, func() (DeploymentStatus, error) { return d.status, nil }); err != nil {
		return err
	}
	for {
		if err := d.visit(ctx); err != nil {
			return err
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return workflow.NewContinueAsNewError(ctx, TypeDeployment, in)
		}
		switch seen := d.status.DeploymentVisited; {
		case seen.More:
		case seen.Done:
			if !d.wake.ReceiveAsync(nil) {
				return nil
			}
		default:
			if err := d.wait(ctx); err != nil {
				return err
			}
		}
	}
}

// deployment is the run of an entity. It remembers nothing: the store knows.
type deployment struct {
	in     DeploymentInput
	wake   workflow.ReceiveChannel
	status DeploymentStatus
	phase  fleet.DeploymentState // that people find it by
}

// visit drains the signals first: what they announced is in what is seen after them.
func (d *deployment) visit(ctx workflow.Context) error {
	drain(d.wake)
	in := fleet.DeploymentVisit{Deployment: d.in.Deployment, Run: workflow.GetInfo(ctx).WorkflowExecution.RunID}
	d.status.DeploymentVisited = fleet.DeploymentVisited{}
	if err := insist(ctx, deployments.VisitDeployment, in, &d.status.DeploymentVisited); err != nil {
		return err
	}
	d.status.Visits++
	workflow.SetCurrentDetails(ctx, d.details())
	if d.phase == d.status.State || d.status.State == "" {
		return nil
	}
	d.phase = d.status.State
	return workflow.UpsertTypedSearchAttributes(ctx, phaseKey.ValueSet(string(d.phase)))
}

// wait ends when it is woken, or when there is something to do by the clock.
func (d *deployment) wait(ctx workflow.Context) error {
	timing, cancel := workflow.WithCancel(ctx)
	defer cancel()
	s := workflow.NewSelector(ctx).
		AddReceive(d.wake, func(c workflow.ReceiveChannel, _ bool) { c.ReceiveAsync(nil) }).
		AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {})
	if next := d.status.Next; !next.IsZero() {
		// The database's clock set the time; at least a moment, so that clocks apart do not spin.
		s.AddFuture(workflow.NewTimer(timing, max(leastWait, next.Sub(d.status.At))), func(workflow.Future) {})
	}
	s.Select(ctx)
	return ctx.Err()
}

// leastWait is the least between two visits that nobody asked for.
const leastWait = 100 * time.Millisecond

// details are what people read in Temporal Web.
func (d *deployment) details() string {
	s := d.status
	out := fmt.Sprintf("**%s**: %s, %d of %d replicas healthy. %s", s.Rule, s.State, s.Healthy, s.Replicas, s.Message)
	if s.Awaited != "" {
		out += " It waits for " + s.Awaited + "."
	}
	return out
}
