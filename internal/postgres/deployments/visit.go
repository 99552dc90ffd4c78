package deployments

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// VisitDeployment looks at a deployment, has it judged and carries the plan out, all in one
// transaction that holds the deployment's row: of two servers that do so at once the second sees
// what the first did. It makes the workflow run the deployment's current one, and takes its
// operations and outbox rows. An unknown deployment is done.
func (s *Store) VisitDeployment(ctx context.Context, v fleet.DeploymentVisit) (fleet.DeploymentVisited, error) {
	turn := &placingTurn{queue: s.placing}
	defer turn.leave()
	out, err := s.visitOnce(ctx, v, turn)
	if errors.Is(err, errNoTurn) {
		if err := turn.wait(ctx); err != nil {
			return fleet.DeploymentVisited{}, err
		}
		return s.visitOnce(ctx, v, turn)
	}
	return out, err
}

func (s *Store) visitOnce(ctx context.Context, v fleet.DeploymentVisit, turn *placingTurn) (fleet.DeploymentVisited, error) {
	var out fleet.DeploymentVisited
	subject := fleet.DeploymentSubject(v.Deployment)
	err := s.Tx(ctx, func(q *db.Queries) error {
		out = fleet.DeploymentVisited{Done: true}
		if err := postgres.Lock(ctx, q, []fleet.ObjectKey{fleet.DeploymentKey(v.Deployment)}); err != nil {
			return err
		}
		if err := postgres.Serve(ctx, q, postgres.Server{Run: v.Run, Build: v.Build}, subject); err != nil {
			return err
		}
		w, err := visited(ctx, q, v.Deployment)
		if err != nil || w == nil {
			return err
		}
		if err := q.AttachDeploymentRun(ctx, db.AttachDeploymentRunParams{Run: v.Run, Name: w.row.Name}); err != nil {
			return err
		}
		w.placing, w.looked = turn, s.looked
		out, err = w.visit(ctx)
		return err
	})
	return out, err
}

// visited locks a deployment that may not be declared any more, nil when there is none.
func visited(ctx context.Context, q *db.Queries, name fleet.DeploymentName) (*deploymentWork, error) {
	row, err := q.LockDeployment(ctx, string(name))
	if postgres.NoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o, err := postgres.Find(ctx, q, fleet.DeploymentKey(name))
	return &deploymentWork{q: q, row: row, object: o, actor: postgres.RegionActor}, err
}

// SeeDeployment reads what the next visit of a deployment would look at.
func (s *Store) SeeDeployment(ctx context.Context, name fleet.DeploymentName) (fleet.DeploymentSeen, error) {
	var seen fleet.DeploymentSeen
	err := s.Tx(ctx, func(q *db.Queries) error {
		w, err := visited(ctx, q, name)
		if err != nil || w == nil {
			return postgres.OrNotFound(err, "deployment", string(name), "holdfast get deployments")
		}
		l, err := w.look(ctx)
		seen = l.seen
		return err
	})
	return seen, err
}

// looked is what was seen, with what is needed to make replicas of it.
type looked struct {
	seen    fleet.DeploymentSeen
	line                // of the deployment's own revision
	next    line        // of the one that is rolled out
	rollout *db.Rollout // nil without one
}

// line is a revision to make replicas of.
type line struct {
	revision *db.DeploymentRevision // nil when nothing was released
	spec     fleet.DeploymentSpec
	terms    terms
	version  int64 // the process version of new replicas
}

func (w *deploymentWork) look(ctx context.Context) (looked, error) {
	var l looked
	var err error
	if l.seen.At, err = w.q.Now(ctx); err != nil {
		return l, err
	}
	if err := w.lookAtRevision(ctx, &l); err != nil {
		return l, err
	}
	if err := w.lookAtRollout(ctx, &l); err != nil {
		return l, err
	}
	s := &l.seen
	s.Name, s.State, s.Reason, s.Message = w.name(), fleet.DeploymentState(w.row.State), w.row.Reason, w.row.Message
	s.Deleting, s.Redeclared = w.deleting(), w.row.NextUid != nil
	s.Target, s.Revision, s.ProcessVersion = int(w.row.Target), w.row.Revision, w.row.ProcessVersion
	s.Began, s.BeganVersion = w.row.Began, w.row.BeganVersion
	s.Attempts, s.Crashes, s.NextAttempt, s.Owed = int(w.row.Attempts), int(w.row.Crashes), timeOf(w.row.NextAttempt), int(w.row.Owed)
	if s.Replicas, err = w.replicas(ctx, &l); err != nil {
		return l, err
	}
	s.Project, s.Placement = fleet.ProjectName(w.row.Project), l.spec.Placement
	if s.Nodes, err = readNodes(ctx, w.q, w.name(), s.Placement, l.next.spec.Placement); err != nil {
		return l, err
	}
	if s.Rollout != nil {
		s.Rollout.To.Nodes = s.Nodes
	}
	if s.Operations, err = w.operations(ctx, &l); err != nil || len(s.Operations) == 0 && s.Rollout == nil {
		return l, err
	}
	s.Unconfirmed, err = w.unconfirmed(ctx)
	return l, err
}

// unconfirmed are the nodes that may run something of this declaration that has ended; only operations and rollouts ask.
func (w *deploymentWork) unconfirmed(ctx context.Context) ([]fleet.UnconfirmedNode, error) {
	rows, err := w.q.UnconfirmedNodes(ctx, db.UnconfirmedNodesParams{Deployment: w.row.Name, Uid: w.row.Uid})
	out := make([]fleet.UnconfirmedNode, len(rows))
	for i, r := range rows {
		out[i] = fleet.UnconfirmedNode{Node: fleet.NodeName(r.Node), ProcessVersion: r.ProcessVersion, Gone: goneSince(r.RemovedAt, r.RevokedAt)}
	}
	return out, err
}

// goneSince is when a node was first taken for gone for good.
func goneSince(removed, revoked *time.Time) time.Time {
	if removed == nil || revoked != nil && revoked.Before(*removed) {
		return timeOf(revoked)
	}
	return *removed
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// lookAtRevision reads the deployment's own revision: what should run, or what a rollout started from.
func (w *deploymentWork) lookAtRevision(ctx context.Context, l *looked) (err error) {
	if w.row.Revision == 0 {
		return nil
	}
	if l.line, err = w.readLine(ctx, w.row.Revision, w.row.ProcessVersion); err != nil {
		return err
	}
	l.seen.Stopped, l.seen.Min, l.seen.Terms = l.spec.State == fleet.StateStopped, l.spec.Replicas.Min, l.spec.Recovery
	l.seen.Startup, l.seen.Settle, l.seen.Stop = l.terms.startup(), l.terms.settle(), l.terms.stop()
	l.seen.Strategy, l.seen.Shows = l.spec.Strategy, l.terms.Replica.Shows()
	return nil
}

func (w *deploymentWork) readLine(ctx context.Context, revision, version int64) (line, error) {
	l := line{version: version}
	r, err := w.q.GetDeploymentRevision(ctx, db.GetDeploymentRevisionParams{Deployment: w.row.Name, Revision: revision})
	if err != nil {
		return l, err
	}
	l.revision = &r
	if l.spec, err = specOfRevision(&r); err != nil {
		return l, err
	}
	l.terms, err = keptTerms(&r)
	return l, err
}

func (w *deploymentWork) replicas(ctx context.Context, l *looked) ([]fleet.ReplicaSeen, error) {
	rows, err := w.q.SeeReplicas(ctx, w.row.Name)
	out := make([]fleet.ReplicaSeen, len(rows))
	for i, r := range rows {
		var failing fleet.FailedChecks
		if err := json.Unmarshal(r.Failing, &failing); err != nil {
			return nil, postgres.Unreadable("the checks of replica "+r.ID, err)
		}
		out[i] = w.replicaSeen(r, l)
		out[i].Failing = failing.String()
	}
	return out, err
}

// fromVersion is the lowest process version of what need not be replaced. A server that knows no rollouts raises only the
// version itself by a restart.
func (w *deploymentWork) fromVersion() int64 {
	if w.row.ProcessVersion > w.row.LastVersion {
		return w.row.ProcessVersion
	}
	return w.row.FromVersion
}

// replicaSeen is a replica with the process version of the revision that it is as good as one of: of the same definition, and
// not from before a restart.
func (w *deploymentWork) replicaSeen(r db.SeeReplicasRow, l *looked) fleet.ReplicaSeen {
	out := replicaSeen(r)
	if r.ProcessVersion < w.fromVersion() {
		return out
	}
	own := l.line.of(r)
	switch {
	case l.next.of(r) && (!own || l.next.brought(r, l.version)):
		out.ProcessVersion = l.next.version
	case own:
		out.ProcessVersion = l.version
	}
	return out
}

// of reports whether a replica runs the object of a line.
func (l line) of(r db.SeeReplicasRow) bool {
	return l.revision != nil && bytes.Equal(r.Object, objectOf(l.revision))
}

// brought reports whether a rollout made the replica, whose stable revision, of the same object, has a version: a higher one since
// it returns to it.
func (l line) brought(r db.SeeReplicasRow, stable int64) bool {
	return r.ProcessVersion >= l.version && (stable < l.version || r.ProcessVersion < stable)
}

func replicaSeen(r db.SeeReplicasRow) fleet.ReplicaSeen {
	out := fleet.ReplicaSeen{
		ID: fleet.ReplicaID(r.ID), Node: fleet.NodeName(r.Node), Site: fleet.SiteName(r.Site), State: fleet.ReplicaState(r.State),
		Health: fleet.ReplicaHealth(r.Health), Phase: fleet.ReplicaPhase(r.Phase).Exactly(fleet.ReplicaPhase(r.ExactPhase)), Revision: r.Revision, ProcessVersion: r.ProcessVersion,
		Restarts: int(r.Restarts), CreatedAt: r.CreatedAt, Since: r.Since, Reason: r.Reason, Message: r.Message,
		Stop: time.Duration(r.StopSeconds) * time.Second, StopBy: timeOf(r.StopBy), Leave: r.Leaves, Gone: r.Gone, Lost: r.Lost,
		Unready: r.Unready, ReadySince: timeOf(r.ReadySince), Worked: timeOf(r.Worked),
	}
	if r.LeaveBy.Unix() > 0 {
		out.LeaveBy = r.LeaveBy
	}
	if r.Heard {
		out.HeardSince = r.HeardSince
	} else {
		out.Unheard = r.Unheard
	}
	return out
}

func (w *deploymentWork) operations(ctx context.Context, l *looked) ([]fleet.DeploymentOperation, error) {
	rows, err := w.q.SeeDeploymentOperations(ctx, w.subject())
	if err != nil {
		return nil, err
	}
	wanted, rolling := w.row.Revision, int64(0)
	if l.rollout != nil {
		wanted, rolling = l.rollout.ToRevision, l.rollout.ProcessVersion
	}
	if w.row.NextUid != nil {
		next, err := w.newest(ctx, *w.row.NextUid)
		if err != nil {
			return nil, err
		}
		if next != nil {
			wanted = next.Revision
		}
	}
	out := make([]fleet.DeploymentOperation, len(rows))
	for i, r := range rows {
		out[i] = fleet.DeploymentOperation{
			ID: fleet.OperationID(r.ID), Kind: fleet.OperationKind(r.Kind), ProcessVersion: r.ProcessVersion, Target: int(r.Target),
			Cancelled: r.CancelRequested, Opened: r.CreatedAt, Deadline: r.DeadlineAt, Stale: w.stale(r, wanted, rolling),
		}
	}
	return out, nil
}

// stale says that a later request took an operation's place: another release, another target, or
// the end of the declaration that it was asked of.
func (w *deploymentWork) stale(o db.SeeDeploymentOperationsRow, wanted, rolling int64) bool {
	switch kind := fleet.OperationKind(o.Kind); {
	case kind == fleet.OperationDestroy:
		return false
	case kind == fleet.OperationConverge && o.Revision < wanted:
		return true
	case kind == fleet.OperationConverge:
		return w.deleting() && (w.row.NextUid == nil || o.Revision <= w.row.Revision)
	case kind == fleet.OperationReturn: // of a rollout that another took the place of
		return rolling != o.ProcessVersion
	case kind == fleet.OperationRestart && o.StopFirst && o.ProcessVersion > 0 && o.Revision < wanted: // a rollout as well
		return true
	case kind == fleet.OperationScale && o.Target != w.row.Target:
		return true
	}
	return w.deleting()
}
