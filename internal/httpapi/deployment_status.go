package httpapi

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

// conditionAvailable is the type of the condition that status.available repeats.
const conditionAvailable = "available"

// deploymentStatuses reads all of a page at once.
func (s *server) deploymentStatuses(ctx context.Context, page []fleet.Object) ([]any, error) {
	names := make([]string, len(page))
	for i, o := range page {
		names[i] = o.Name
	}
	views, err := s.store.ViewDeployments(ctx, names...)
	if err != nil {
		return nil, err
	}
	out := make([]any, len(page))
	for i, o := range page {
		out[i] = s.deploymentStatus(o.Name, views[o.Name], &o)
	}
	return out, nil
}

// deploymentStatus is the status of a deployment, or of one that was only written so far. The object is nil, or has no generation, if
// it is declared no more.
func (s *server) deploymentStatus(name string, v deployments.DeploymentView, o *fleet.Object) api.DeploymentStatus {
	now := decide.ReplicasNow{Healthy: v.Counts.Healthy, Unheard: v.Counts.Unheard, Need: decide.Needed(v.Target, v.Min)}
	reason, message := decide.WhyNow(v.Reason, v.Message, now)
	status := api.DeploymentStatus{
		Since: timeOrNil(v.Since),
		State: v.State, Reason: reason, Message: message, Target: v.Target, Replicas: totalsOf(v),
		Revision: v.Revision, DeployingRevision: v.Deploying, StableRevision: v.Stable, ObservedGeneration: v.Generation, ProcessVersion: v.ProcessVersion,
		Awaited: v.Awaited, Until: timeOrNil(v.Until),
		Workflow: s.links.workflow(fleet.DeploymentSubject(fleet.DeploymentName(name)), v.EntityRun), Conditions: decide.ConditionsNow(v.Conditions, now),
	}
	if v.Rollout != nil {
		r := rolloutView(*v.Rollout)
		status.Rollout = &r
	}
	if o != nil && o.Generation > 0 {
		synced := decide.Synced(syncedSeen(v, *o))
		status.Synced = &synced
	}
	status.PendingRestart = pendingRestart(v.Pending)
	if status.State == "" || v.Revision == 0 && v.Reason == "" { // it was never visited
		status.State, status.Reason = fleet.DeploymentPending, "not_released"
		status.Message = "it was written without being released: deploy it"
		status.Conditions, _ = fleet.ConditionsSince(nil, decide.NotReleased(), v.Since)
	}
	if status.Conditions == nil {
		status.Conditions = []fleet.Condition{}
	}
	for _, c := range status.Conditions {
		if c.Type == conditionAvailable {
			status.Available = c.Status == fleet.ConditionTrue
		}
	}
	return status
}

// syncedSeen is what of a deployment decides whether what is declared is what runs.
func syncedSeen(v deployments.DeploymentView, o fleet.Object) decide.SyncedSeen {
	seen := decide.SyncedSeen{
		Name: fleet.DeploymentName(o.Name), Generation: o.Generation, Written: o.UpdatedAt, Earlier: v.UID != "" && v.UID != o.UID,
		Newest: decide.SyncedRevision{Revision: v.Newest, Generation: v.Released, At: v.NewestAt}, Own: decide.SyncedRevision{Revision: v.Revision, Generation: v.Generation, At: v.ReleasedAt},
		State: v.State, Since: v.Since, Message: v.Message, Stopped: v.Stopped, Present: v.Present, Waits: v.Pending != nil,
	}
	if o.DeletingSince != nil {
		seen.Deleting = *o.DeletingSince
	}
	if v.Deploying > 0 {
		seen.Replacing = v.Updated
	}
	for _, c := range v.Conditions {
		if v.Deploying > 0 && c.Type == decide.ConditionProgressing && c.Status == fleet.ConditionTrue {
			seen.Replacing = c.Since
		}
	}
	if r := v.LastRollout; r != nil {
		seen.Rollout = &decide.SyncedRollout{State: r.State, Reason: r.Reason, Message: r.Message, To: r.To, Began: r.CreatedAt, Since: r.StateSince}
	}
	return seen
}

// pendingRestart lists the fields that wait (F52); it lists no fields if a spec cannot be read.
func pendingRestart(p *deployments.PendingRestart) *api.PendingRestart {
	if p == nil {
		return nil
	}
	fields, err := declare.Pending(p.Applied, p.Spec)
	if err != nil {
		fields = []api.SpecChange{}
	}
	return &api.PendingRestart{Revision: p.Revision, Fields: fields}
}

func totalsOf(v deployments.DeploymentView) api.ReplicaTotals {
	c := v.Counts
	return api.ReplicaTotals{Desired: v.Target, Healthy: c.Healthy, Routable: c.Routable, Unhealthy: c.Unhealthy, Starting: c.Starting, Degraded: c.Unheard, Terminating: c.Terminating}
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// fillDeployments says of the operations of deployments how far these are, and why those that
// run still do (X8).
func (s *server) fillDeployments(ctx context.Context, rows []postgres.Operation, views []api.Operation) error {
	var names []string
	for _, o := range rows {
		if o.Kind.OfDeployment() && !o.State.Ended() {
			names = append(names, string(o.Deployment))
		}
	}
	if len(names) == 0 {
		return nil
	}
	all, err := s.store.ViewDeployments(ctx, names...)
	if err != nil {
		return err
	}
	for i, o := range rows {
		v, known := all[string(o.Deployment)]
		if !o.Kind.OfDeployment() || o.State.Ended() || !known {
			continue
		}
		views[i].Replicas = &api.DeploymentProgress{
			State: v.State, Target: v.Target, Replicas: totalsOf(v), Awaited: v.Awaited, Until: timeOrNil(v.Until),
		}
		if r := v.Rollout; r != nil && r.State == fleet.RolloutPaused && r.ProcessVersion == o.ProcessVersion {
			views[i].Deadline = views[i].Deadline.Add(max(s.Now().Sub(r.StateSince), 0)) // the end of the pause moves it so far
		}
		if views[i].Reason == "" {
			views[i].Reason, views[i].Message = waitsForDeployment(o, v)
		}
	}
	return nil
}

// waitsForDeployment says why an operation of a deployment still runs.
func waitsForDeployment(o postgres.Operation, v deployments.DeploymentView) (reason, message string) {
	switch {
	case o.EntityRun == "":
		return "queued", "waiting for the workflow of deployment " + string(o.Deployment)
	case v.Awaited != "":
		return v.Reason, v.Awaited
	}
	return v.Reason, v.Message
}
