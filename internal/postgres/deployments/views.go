package deployments

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// DeploymentView is what the region knows of a deployment beside its declaration.
type DeploymentView struct {
	Name    fleet.DeploymentName
	UID     string
	Project fleet.ProjectName
	State   fleet.DeploymentState
	// Reason is the rule of the last decision, Message says it in a sentence.
	Reason, Message string
	Since           time.Time
	Target, Min     int
	// Revision is what should run (0: nothing was released). Deploying is the revision that replaces it, equal to it while
	// other replicas run, else 0. Stable is the revision to which the rollout of its next start would return, 0 if that is
	// Revision. Rollout is the one under way, nil without one. Redeclared says that another declaration waits for the end of this.
	Revision, Deploying, Stable int64
	Rollout                     *Rollout
	// LastRollout is the newest, also if it has ended.
	LastRollout *Rollout
	// Pending is what waits for a restart, nil for nothing.
	Pending        *PendingRestart
	ProcessVersion int64
	// Generation and Definition are those of Revision, which was released at ReleasedAt. Newest, of generation Released, was released
	// last, at NewestAt: of the declaration that waits, if one does.
	Generation           int64
	Released, Newest     int64
	ReleasedAt, NewestAt time.Time
	// Stopped says that Revision is declared stopped, Present counts all replicas that have not ended.
	Stopped    bool
	Present    int
	Definition fleet.Hash
	Redeclared bool
	Attempts   int
	Crashes    int
	// NextAttempt is when it tries again, zero when it does not wait.
	NextAttempt time.Time
	Counts      ReplicaCounts
	Conditions  []fleet.Condition
	// Awaited says what it waits for, Until when it looks again by itself.
	Awaited   string
	Until     time.Time
	EntityRun string
	Updated   time.Time
}

// ReplicaCounts counts replicas by state, and of the healthy ones those that are routable. Unheard are live ones whose node is not connected: their
// states are not counted.
type ReplicaCounts struct {
	Starting, Healthy, Routable, Unhealthy, Terminating, Unheard int
}

// ViewDeployments reads some deployments by name; undeclared ones are missing. What
// their nodes do not say any more is counted apart (S130).
func (s *Store) ViewDeployments(ctx context.Context, names ...string) (map[string]DeploymentView, error) {
	rows, err := s.Q.ViewDeployments(ctx, names)
	if err != nil {
		return nil, err
	}
	out := make(map[string]DeploymentView, len(rows))
	for _, r := range rows {
		v, err := deploymentViewOf(r)
		if err != nil {
			return nil, err
		}
		out[r.Deployment.Name] = v
	}
	if err := s.addPending(ctx, names, out); err != nil {
		return nil, err
	}
	return out, s.addRollouts(ctx, names, out)
}

func deploymentViewOf(r db.ViewDeploymentsRow) (DeploymentView, error) {
	d := r.Deployment
	v := DeploymentView{
		Name: fleet.DeploymentName(d.Name), UID: d.Uid, Project: fleet.ProjectName(d.Project), State: fleet.DeploymentState(d.State),
		Reason: d.Reason, Message: d.Message, Since: d.Since, Target: int(d.Target), Min: int(r.Least), Revision: d.Revision, ProcessVersion: d.ProcessVersion,
		Generation: r.Generation, Released: r.ReleasedGeneration, Newest: r.Newest, ReleasedAt: r.OwnAt, NewestAt: r.NewestAt, Stopped: r.Stopped,
		Present: int(r.Present), Redeclared: d.NextUid != nil, Attempts: int(d.Attempts), Crashes: int(d.Crashes),
		NextAttempt: timeOf(d.NextAttempt), Awaited: d.Awaited, Until: timeOf(d.WakeAt), EntityRun: d.EntityRun, Updated: d.UpdatedAt,
		Counts: ReplicaCounts{
			Starting: int(r.Starting), Healthy: int(r.Healthy), Routable: int(r.Routable), Unhealthy: int(r.Unhealthy), Terminating: int(r.Terminating), Unheard: int(r.Unheard),
		},
	}
	if len(r.Definition) > 0 {
		v.Definition = postgres.HashText(r.Definition)
	}
	if d.Stable != nil && *d.Stable != d.Revision {
		v.Stable = *d.Stable
	}
	if r.Older > 0 && v.State != fleet.DeploymentTerminated {
		v.Deploying = d.Revision
	}
	err := json.Unmarshal(d.Conditions, &v.Conditions)
	return v, postgres.Unreadable("the conditions of "+d.Name, err)
}

// DeploymentRevision is one immutable content of a deployment.
type DeploymentRevision struct {
	Revision       int64
	Generation     int64
	ProcessVersion int64
	Spec           fleet.DeploymentSpec
	Definition     fleet.Hash
	CreatedBy      string
	Reason         string
	CreatedAt      time.Time
}

// ListDeploymentRevisions gives the revisions of a deployment newest first, after the place of one,
// whose id is its number.
func (s *Store) ListDeploymentRevisions(ctx context.Context, name fleet.DeploymentName, after postgres.Place, limit int32) ([]DeploymentRevision, error) {
	p := db.ListDeploymentRevisionsParams{Deployment: string(name), Before: numbered(after), MaxRows: limit}
	rows, err := s.Q.ListDeploymentRevisions(ctx, p)
	if err != nil {
		return nil, err
	}
	out := make([]DeploymentRevision, len(rows))
	for i, r := range rows {
		spec, err := specOfRevision(&r)
		if err != nil {
			return nil, err
		}
		out[i] = DeploymentRevision{
			Revision: r.Revision, Generation: r.Generation, ProcessVersion: r.ProcessVersion, Spec: spec, Definition: postgres.HashText(r.Definition),
			CreatedBy: r.CreatedBy, Reason: r.Reason, CreatedAt: r.CreatedAt,
		}
	}
	return out, nil
}
