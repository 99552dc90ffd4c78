package deployments

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// restart replaces every replica, one by one or all at once. During a rollout, which starts each anew, it waits for its end.
func (w *deploymentWork) restart(ctx context.Context, t DeploymentTurn, o *postgres.NewOperation) error {
	o.StopFirst = t.StopFirst
	if t.StopFirst && !w.mayStopFirst() {
		return fleet.Errorf(fleet.IllegalState, "deployment %s is %s with a target of %d: stop_first restarts what is RUNNING", w.row.Name, w.row.State, w.row.Target).
			WithHint("holdfast restart deployment " + w.row.Name)
	}
	active, err := w.activeRollout(ctx)
	if err != nil {
		return err
	}
	if active != nil {
		o.ProcessVersion = 0
		return w.write(ctx, w.row.Uid, historyLine{reason: "restart_waits", message: withReason(fmt.Sprintf("for the end of rollout %d", active.Number), t.Reason), actor: t.Actor})
	}
	o.ProcessVersion, err = w.beginRestart(ctx, t)
	return err
}

func (w *deploymentWork) mayStopFirst() bool {
	return fleet.DeploymentState(w.row.State) == fleet.DeploymentRunning && w.row.Target > 0
}

// beginRestart gives the process version of the replicas to come. To stop first is a rollout of the same revision.
func (w *deploymentWork) beginRestart(ctx context.Context, t DeploymentTurn) (version int64, err error) {
	now := w.row
	if t.StopFirst {
		version, err = w.recreate(ctx)
	} else {
		version, err = w.q.RestartDeployment(ctx, w.row.Name)
		now.ProcessVersion = version
	}
	if err != nil {
		return 0, postgres.Failed("raise the process version", err)
	}
	return version, w.turned(ctx, now, historyLine{reason: "restarted", message: withReason(fmt.Sprintf("process version %d", version), t.Reason), actor: t.Actor})
}

func (w *deploymentWork) recreate(ctx context.Context) (int64, error) {
	l, err := w.readLine(ctx, w.row.Revision, w.nextVersion())
	if err != nil {
		return 0, err
	}
	l.spec.Strategy.Type, l.spec.Strategy.Steps = fleet.StrategyRecreate, nil
	p := db.ReleaseDeploymentParams{
		Name: w.row.Name, Revision: w.row.Revision, Uid: w.row.Uid, ProcessVersion: l.version, Target: w.row.Target, Rolls: true,
	}
	if err := w.q.ReleaseDeployment(ctx, p); err != nil {
		return 0, err
	}
	return l.version, w.rollOut(ctx, l)
}

// beginWaiting begins the restarts that waited for the end of a rollout, all together.
func (w *deploymentWork) beginWaiting(ctx context.Context) error {
	rows, err := w.q.SeeDeploymentOperations(ctx, w.subject())
	if err != nil {
		return postgres.Failed("read the operations", err)
	}
	waits, t := false, DeploymentTurn{Write: postgres.Write{Request: postgres.Request{Actor: postgres.RegionActor}}}
	for _, o := range rows {
		if fleet.OperationKind(o.Kind) == fleet.OperationRestart && o.ProcessVersion == 0 && !o.CancelRequested {
			waits, t.StopFirst = true, t.StopFirst || o.StopFirst
		}
	}
	if !waits || w.deleting() {
		return nil
	}
	if active, err := w.activeRollout(ctx); err != nil || active != nil {
		return err
	}
	t.StopFirst = t.StopFirst && w.mayStopFirst()
	version, err := w.beginRestart(ctx, t)
	if err != nil {
		return err
	}
	limit, err := w.operationTerms(ctx, postgres.NewOperation{Kind: fleet.OperationRestart, Revision: w.row.Revision, ProcessVersion: version})
	if err != nil {
		return err
	}
	if err := w.q.BeginRestarts(ctx, db.BeginRestartsParams{
		Subject: w.subject(), Revision: w.row.Revision, ProcessVersion: version, Target: w.row.Target, Seconds: decide.OperationLimit(limit).Seconds(),
	}); err != nil {
		return postgres.Failed("begin the restarts that waited", err)
	}
	w.row, err = w.q.LockDeployment(ctx, w.row.Name)
	return postgres.Failed("read the deployment again", err)
}
