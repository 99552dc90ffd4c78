package deployments

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// activeRollout is the rollout under way, nil without one.
func (w *deploymentWork) activeRollout(ctx context.Context) (*db.Rollout, error) {
	r, err := w.q.ActiveRollout(ctx, w.row.Name)
	if postgres.NoRows(err) {
		return nil, nil
	}
	return &r, err
}

// lookAtRollout reads the rollout under way, and the revision that it brings.
func (w *deploymentWork) lookAtRollout(ctx context.Context, l *looked) (err error) {
	if l.rollout, err = w.activeRollout(ctx); err != nil || l.rollout == nil {
		return err
	}
	r := l.rollout
	if r.Uid != w.row.Uid || r.FromRevision != w.row.Revision || r.ProcessVersion == w.row.ProcessVersion { // a server that knows no rollouts released
		l.rollout = nil
		return w.supersede(ctx, r, fmt.Sprintf("revision %d was released", w.row.Revision))
	}
	if l.next, err = w.readLine(ctx, r.ToRevision, r.ProcessVersion); err != nil {
		return err
	}
	seen := fleet.RolloutSeen{
		Number: r.Number, State: fleet.RolloutState(r.State), Since: r.Since, Reason: r.Reason, BeganIn: fleet.DeploymentState(r.BeganIn), Step: int(r.Step), StepAt: timeOf(r.StepAt), Want: int(r.Want), Most: int(r.Most), ProgressAt: r.ProgressAt, Clock: fleet.RolloutClock(r.Clock),
		Progress: postgres.SecondsOf(r.Progress), Deadline: r.DeadlineAt, Short: r.Short, Failure: r.Failure, AtStart: int(r.AtStart),
		Failures: int(r.Failures), FailedAt: timeOf(r.FailedAt),
		To: fleet.RevisionLine{
			Revision: r.ToRevision, ProcessVersion: r.ProcessVersion, Terms: l.next.spec.Recovery, Startup: l.next.terms.startup(),
			Settle: l.next.terms.settle(), Stop: l.next.terms.stop(), Shows: l.next.terms.Replica.Shows(), Placement: l.next.spec.Placement, Crashes: int(r.Crashes), Owed: int(r.Owed),
			NextAttempt: timeOf(r.NextAttempt),
		},
	}
	if seen.There, err = w.q.RegionThere(ctx); err != nil {
		return err
	}
	if err := json.Unmarshal(r.Strategy, &seen.Strategy); err != nil {
		return postgres.Unreadable("the strategy of a rollout", err)
	}
	l.seen.Rollout = &seen
	return nil
}

// rollOut starts a rollout of a revision.
func (w *deploymentWork) rollOut(ctx context.Context, l line) error {
	strategy, err := json.Marshal(l.spec.Strategy)
	if err != nil {
		return err
	}
	routable, err := w.q.CountRoutable(ctx, w.row.Name)
	if err != nil {
		return err
	}
	limit, err := w.rolloutLimit(ctx, l)
	if err != nil {
		return err
	}
	own, err := w.readLine(ctx, w.row.Revision, w.row.ProcessVersion)
	if err != nil {
		return err
	}
	r, err := w.q.InsertRollout(ctx, db.InsertRolloutParams{
		Deployment: w.row.Name, Uid: w.row.Uid, Project: w.row.Project, FromRevision: w.row.Revision, ToRevision: l.revision.Revision, ProcessVersion: l.version,
		Strategy: strategy, State: string(fleet.RolloutDeploying), BeganIn: string(cmp.Or(w.began, fleet.DeploymentRunning)), AtStart: postgres.WaveNumber(int(routable)), FromTarget: w.targetBefore(),
		Step:     postgres.WaveNumber(decide.FirstStep(l.spec.Strategy, int(routable), own.spec.Replicas.Min)),
		Progress: l.progress().Seconds(), MinHealthy: l.minHealthy().Seconds(), Seconds: limit.Seconds(), CreatedBy: w.actor,
	})
	if err != nil {
		return err
	}
	return w.write(ctx, w.row.Uid, rolloutLine(&r, fleet.RolloutDeploying, "", w.actor))
}

// targetBefore is the target that a return restores: of a rollout that supersedes another, that of the other.
func (w *deploymentWork) targetBefore() int32 {
	if w.superseded != nil && w.superseded.FromTarget != nil {
		return *w.superseded.FromTarget
	}
	return w.row.Target
}

// rolloutLimit is how long a rollout may take, pauses apart: as its operation.
func (w *deploymentWork) rolloutLimit(ctx context.Context, l line) (time.Duration, error) {
	t, err := w.operationTerms(ctx, postgres.NewOperation{Kind: fleet.OperationConverge, Revision: l.revision.Revision, ProcessVersion: l.version})
	return decide.OperationLimit(t), err
}

// supersede ends a rollout whose revision is not wanted any more: its replicas are replaced by what is.
func (w *deploymentWork) supersede(ctx context.Context, r *db.Rollout, by string) error {
	if r == nil {
		return nil
	}
	to, err := fleet.RolloutState(r.State).Next(fleet.RolloutSupersede)
	if err != nil {
		return err
	}
	p := db.TurnRolloutParams{Deployment: r.Deployment, Number: r.Number, State: string(to), Reason: string(fleet.OperationSuperseded), Message: by, Step: r.Step, StepAt: r.StepAt}
	if err := w.q.TurnRollout(ctx, p); err != nil {
		return err
	}
	w.superseded = r
	return w.write(ctx, w.row.Uid, rolloutLine(r, to, by, w.actor))
}

// rolloutLine is a line of the history about a rollout.
func rolloutLine(r *db.Rollout, to fleet.RolloutState, message, actor string) historyLine {
	return historyLine{reason: "rollout_" + strings.ToLower(string(to)), message: withReason(fmt.Sprintf("rollout %d to revision %d", r.Number, r.ToRevision), message), actor: actor}
}

// renew gives the stable revision a process version above that of the one that it comes back from.
func (c *carrying) renew(ctx context.Context) error {
	if c.plan.Rollout == nil || !c.plan.Rollout.Anew {
		return nil
	}
	row, err := c.q.RaiseStable(ctx, c.row.Name)
	if err != nil {
		return err
	}
	if c.of.version == c.line.version {
		c.of.version = row.ProcessVersion
	}
	c.row.Target, c.row.ProcessVersion, c.row.LastVersion, c.plan.BeganVersion = row.Target, row.ProcessVersion, row.LastVersion, row.BeganVersion
	return nil
}

// moveRollout writes what becomes of the rollout.
func (c *carrying) moveRollout(ctx context.Context) error {
	p := c.plan.Rollout
	if p == nil || c.rollout == nil {
		return nil
	}
	r, state := c.rollout, fleet.RolloutState(c.rollout.State)
	for _, on := range p.Events {
		to, err := state.Next(on)
		if err != nil {
			return err
		}
		state = to
		c.history.order = append(c.history.order, rolloutLine(r, to, p.Message, postgres.RegionActor))
	}
	err := c.q.MoveRollout(ctx, db.MoveRolloutParams{
		Deployment: r.Deployment, Number: r.Number, State: string(state), Active: state.Active(), Reason: p.Reason, Message: p.Message, Failure: p.Failure,
		Step: postgres.WaveNumber(p.Step), StepAt: orNull(p.StepAt), Want: postgres.WaveNumber(p.Want), Proven: postgres.WaveNumber(p.Proven), Most: postgres.WaveNumber(p.Most), ProgressAt: p.ProgressAt, Clock: string(p.Clock), Until: orNull(p.Until),
		Short: p.Short, Failures: postgres.WaveNumber(p.Failures), FailedAt: orNull(p.FailedAt), Crashes: postgres.WaveNumber(p.Crashes), Owed: postgres.WaveNumber(p.Owed), NextAttempt: orNull(p.NextAttempt),
	})
	if err != nil {
		return err
	}
	if state == fleet.RolloutDeployed {
		return c.adopt(ctx)
	}
	return nil
}

// adopt makes the revision that was rolled out the deployment's own.
func (c *carrying) adopt(ctx context.Context) (err error) {
	p := c.plan.Rollout
	c.row, err = c.q.AdoptRevision(ctx, db.AdoptRevisionParams{Name: c.row.Name, Revision: c.rollout.ToRevision, ProcessVersion: c.rollout.ProcessVersion})
	c.plan.Began, c.plan.BeganVersion = c.row.Began, c.row.BeganVersion
	c.plan.Crashes, c.plan.Owed, c.plan.NextAttempt = p.Crashes, p.Owed, p.NextAttempt
	return err
}

// rollAgain rolls a revision out once more.
func (w *deploymentWork) rollAgain(ctx context.Context, active *db.Rollout, revision int64, o *postgres.NewOperation) error {
	if err := w.supersede(ctx, active, fmt.Sprintf("revision %d is rolled out again", revision)); err != nil {
		return err
	}
	l, err := w.readLine(ctx, revision, 0)
	if err != nil {
		return err
	}
	own, err := w.readLine(ctx, w.row.Revision, w.row.ProcessVersion)
	if err != nil {
		return err
	}
	seen, err := w.seeRelease(ctx, l)
	if err != nil {
		return err
	}
	seen.WasStopped = own.spec.State == fleet.StateStopped
	rolls := decide.Release(seen).Beside()
	if rolls {
		if err := w.beginStart(ctx, active, seen); err != nil {
			return err
		}
	}
	if o.StopFirst {
		l.spec.Strategy = l.spec.Strategy.StopFirst()
	}
	l.version = w.nextVersion()
	o.Revision, o.ProcessVersion = revision, l.version
	p := db.ReleaseDeploymentParams{Name: w.row.Name, Revision: revision, Uid: w.row.Uid, ProcessVersion: l.version, Target: w.row.Target, Rolls: rolls}
	if err := w.q.ReleaseDeployment(ctx, p); err != nil || !rolls {
		return err
	}
	return w.rollOut(ctx, l)
}

// returning reports whether a rollout is on its way back, or is asked to be.
func (w *deploymentWork) returning(ctx context.Context, r *db.Rollout) (bool, error) {
	if r == nil || fleet.RolloutState(r.State) == fleet.RolloutCanceling {
		return r != nil, nil
	}
	rows, err := w.q.SeeDeploymentOperations(ctx, w.subject())
	return slices.ContainsFunc(rows, func(o db.SeeDeploymentOperationsRow) bool {
		return o.ProcessVersion == r.ProcessVersion && (fleet.OperationKind(o.Kind) == fleet.OperationReturn || o.CancelRequested && slices.Contains(decide.RollingKinds(), fleet.OperationKind(o.Kind)))
	}), err
}

// minHealthy is how long a replica must be routable to be proven.
func (l line) minHealthy() time.Duration { return l.spec.Strategy.MinHealthy(l.terms.Replica.Shows()) }

// progress is the longest time without progress of a rollout.
func (l line) progress() time.Duration {
	return decide.ProgressDeadline(l.spec.Strategy, l.terms.startup(), l.terms.check(), l.terms.Replica.Shows())
}
