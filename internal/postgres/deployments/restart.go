package deployments

import (
	"context"
	"fmt"
	"slices"

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
	begun, err := w.beginRestart(ctx, t)
	o.Kind, o.Revision, o.ProcessVersion = begun.Kind, begun.Revision, begun.ProcessVersion
	return err
}

func (w *deploymentWork) mayStopFirst() bool {
	return fleet.DeploymentState(w.row.State) == fleet.DeploymentRunning && w.row.Target > 0
}

// beginRestart has what waits for a restart rolled out, or the replicas replaced, and gives what to wait for. To stop first is a
// rollout of the same revision.
func (w *deploymentWork) beginRestart(ctx context.Context, t DeploymentTurn) (postgres.NewOperation, error) {
	o := postgres.NewOperation{Kind: fleet.OperationRestart, Revision: w.row.Revision, StopFirst: t.StopFirst}
	last, err := w.newest(ctx, w.row.Uid)
	if err != nil {
		return o, err
	}
	what := ""
	switch {
	case w.pending(last):
		o.Kind, what = fleet.OperationConverge, fmt.Sprintf(", of revision %d", last.Revision)
		err = w.rollAgain(ctx, nil, last.Revision, &o)
	case t.StopFirst:
		o.ProcessVersion, err = w.recreate(ctx)
	default:
		o.ProcessVersion, err = w.q.RestartDeployment(ctx, w.row.Name)
	}
	if err != nil {
		return o, err
	}
	now, err := w.q.LockDeployment(ctx, w.row.Name)
	if err != nil {
		return o, err
	}
	line := historyLine{reason: "restarted", message: withReason(fmt.Sprintf("process version %d%s", o.ProcessVersion, what), t.Reason), actor: t.Actor}
	return o, w.turned(ctx, now, line)
}

func (w *deploymentWork) recreate(ctx context.Context) (int64, error) {
	l, err := w.readLine(ctx, w.row.Revision, w.nextVersion())
	if err != nil {
		return 0, err
	}
	l.spec.Strategy = l.spec.Strategy.StopFirst()
	return l.version, w.releaseBeside(ctx, l)
}

// restartWaits reports whether a restart has waited for the end of a rollout.
func (w *deploymentWork) restartWaits(seen fleet.DeploymentSeen) bool {
	return !w.deleting() && slices.ContainsFunc(seen.Operations, func(o fleet.DeploymentOperation) bool {
		return o.Kind == fleet.OperationRestart && o.ProcessVersion == 0 && !o.Cancelled
	})
}

// beginWaiting begins the restarts that waited for the end of a rollout, all together.
func (w *deploymentWork) beginWaiting(ctx context.Context) error {
	rows, err := w.q.SeeDeploymentOperations(ctx, w.subject())
	if err != nil {
		return err
	}
	t := DeploymentTurn{Write: postgres.Write{Request: postgres.Request{Actor: postgres.RegionActor}}}
	t.StopFirst = w.mayStopFirst() && slices.ContainsFunc(rows, func(o db.SeeDeploymentOperationsRow) bool {
		return fleet.OperationKind(o.Kind) == fleet.OperationRestart && o.ProcessVersion == 0 && !o.CancelRequested && o.StopFirst
	})
	begun, err := w.beginRestart(ctx, t)
	if err != nil {
		return err
	}
	limit, err := w.operationTerms(ctx, begun)
	if err != nil {
		return err
	}
	if err := w.q.BeginRestarts(ctx, db.BeginRestartsParams{
		Subject: w.subject(), Revision: begun.Revision, ProcessVersion: begun.ProcessVersion, Target: w.row.Target, Seconds: decide.OperationLimit(limit).Seconds(),
	}); err != nil {
		return err
	}
	w.row, err = w.q.LockDeployment(ctx, w.row.Name)
	return err
}
