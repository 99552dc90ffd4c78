package deployments

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// TurnDeployment carries a DeploymentTurn out in one transaction. A door that asks twice is
// answered with its operation. Of a deployment that was never released the deletion ends at once,
// and starts no operation; a door's has ended when it is answered.
func (s *Store) TurnDeployment(ctx context.Context, t DeploymentTurn) (postgres.Started, error) {
	return s.Change(ctx, t.Write, nil, func(q *db.Queries, out *postgres.Started) error {
		w, err := s.declaredDeployment(ctx, q, t.Write)
		if err != nil {
			return err
		}
		may := s.MayTurn
		if t.Kind == fleet.OperationDestroy {
			may = s.Recovered
		}
		if err := may(ctx, q, w.object); err != nil {
			return err
		}
		out.Written = postgres.Written{Before: w.object, After: w.object}
		return w.turn(ctx, t, out)
	})
}

// declaredDeployment locks the deployment that a write is about, as the write saw it.
func (s *Store) declaredDeployment(ctx context.Context, q *db.Queries, w postgres.Write) (*deploymentWork, error) {
	o, err := postgres.Find(ctx, q, w.Key)
	if err != nil || o == nil || w.Project != "" && o.Project != w.Project {
		return nil, postgres.OrNotFound(err, "deployment", w.Key.Name, "holdfast get deployments")
	}
	if err := s.CheckMatch(w, o); err != nil {
		return nil, err
	}
	return workOn(ctx, q, o, w.Actor)
}

func (w *deploymentWork) turn(ctx context.Context, t DeploymentTurn, out *postgres.Started) (err error) {
	if t.Kind == fleet.OperationDestroy {
		return w.destroy(ctx, t, out)
	}
	if t.Kind == fleet.OperationScale && w.unreleased() {
		return w.scaleUnreleased(ctx, t, out)
	}
	if err := w.mayTurn(); err != nil {
		return err
	}
	o := postgres.NewOperation{Kind: t.Kind, Revision: w.row.Revision, ProcessVersion: w.row.ProcessVersion, Target: int(w.row.Target)}
	do := map[fleet.OperationKind]func(context.Context, DeploymentTurn, *postgres.NewOperation) error{
		fleet.OperationConverge: w.convergeAgain, fleet.OperationScale: w.scale, fleet.OperationRestart: w.restart,
	}[t.Kind]
	if do == nil {
		return fleet.Errorf(fleet.Invalid, "unknown operation %.40q on a deployment", t.Kind)
	}
	if err := do(ctx, t, &o); err != nil {
		return err
	}
	out.Operation, err = w.open(ctx, t.Door, o)
	return err
}

// unreleased reports whether the declaration stands, and nothing of it was ever released.
func (w *deploymentWork) unreleased() bool { return !w.deleting() && w.row.Revision == 0 }

// mayTurn refuses what nothing may be asked of but its end (S42).
func (w *deploymentWork) mayTurn() error {
	name := w.row.Name
	switch {
	case w.object.DeletingSince != nil:
		return fleet.Errorf(fleet.IllegalState, "deployment %s is being deleted", name).WithHint("a PUT supersedes the delete")
	case w.deleting():
		return fleet.Errorf(fleet.IllegalState, "deployment %s waits for the end of its predecessor", name).
			WithHint("see what is left: holdfast explain deployment " + name)
	case w.row.Revision == 0:
		return fleet.Errorf(fleet.IllegalState, "deployment %s was never released", name).WithHint("a PUT without deploy=false releases it")
	}
	return nil
}

// convergeAgain lets a deployment that was given up start again (S44), and rolls the newest revision out again that was rolled back.
func (w *deploymentWork) convergeAgain(ctx context.Context, t DeploymentTurn, o *postgres.NewOperation) error {
	active, err := w.activeRollout(ctx)
	if err != nil {
		return err
	}
	returns, err := w.returning(ctx, active)
	if err != nil {
		return err
	}
	if active != nil && !returns {
		o.Revision, o.ProcessVersion = active.ToRevision, active.ProcessVersion
		return nil
	}
	last, err := w.newest(ctx, w.row.Uid)
	if err != nil {
		return err
	}
	if last != nil && last.Revision > w.row.Revision && !w.pending(last) {
		return w.rollAgain(ctx, active, last.Revision, o)
	}
	if fleet.DeploymentState(w.row.State) != fleet.DeploymentError {
		if t.Again {
			return fleet.Errorf(fleet.IllegalState, "revision %d of deployment %s is the newest, and runs", w.row.Revision, w.row.Name).
				WithHint("to start its replicas anew: holdfast restart deployment " + w.row.Name)
		}
		return nil
	}
	return w.q.BeginDeploymentAnew(ctx, w.row.Name)
}

// scale sets the target, within the bounds of the released revision (S28, S42).
func (w *deploymentWork) scale(ctx context.Context, t DeploymentTurn, o *postgres.NewOperation) error {
	active, err := w.activeRollout(ctx)
	if err != nil {
		return err
	}
	revision := w.row.Revision
	if returns, err := w.returning(ctx, active); err != nil {
		return err
	} else if active != nil && !returns {
		revision = active.ToRevision
	}
	l, err := w.readLine(ctx, revision, 0)
	if err != nil {
		return err
	}
	if err := w.scaleWithin(ctx, t, l.spec); err != nil {
		return err
	}
	o.Target = *t.Replicas
	if active == nil && w.row.Target == 0 {
		if err := w.startUnproven(ctx, o.Target); err != nil {
			return err
		}
	}
	return w.q.ScaledRollout(ctx, w.row.Name)
}

// scaleWithin sets the target within the bounds of a spec.
func (w *deploymentWork) scaleWithin(ctx context.Context, t DeploymentTurn, spec fleet.DeploymentSpec) error {
	if t.Replicas == nil {
		return fleet.Errorf(fleet.Invalid, "replicas is required").At("/replicas")
	}
	if spec.State == fleet.StateStopped {
		return fleet.Errorf(fleet.IllegalState, "deployment %s is stopped, so it cannot be scaled", w.row.Name).
			WithHint(`start it first, with a PUT with "state": "started"; that restores its target`)
	}
	n, bounds := *t.Replicas, spec.Replicas
	if n < bounds.Min || n > bounds.Max {
		return fleet.Errorf(fleet.Invalid, "%d replicas requested; the bounds are %d to %d", n, bounds.Min, bounds.Max).At("/replicas").
			WithHint("declare other bounds first")
	}
	if err := w.q.ScaleDeployment(ctx, db.ScaleDeploymentParams{Target: postgres.WaveNumber(n), Name: w.row.Name}); err != nil {
		return err
	}
	line := historyLine{reason: "scaled", message: withReason(fmt.Sprintf("from %d to %d replicas", w.row.Target, n), t.Reason), actor: t.Actor}
	now := w.row
	now.Target = postgres.WaveNumber(n)
	return w.turned(ctx, now, line)
}

func withReason(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

// turned tells of what is wanted from now on: no visit may find anything else changed (X17).
func (w *deploymentWork) turned(ctx context.Context, now db.Deployment, line historyLine) error {
	if err := w.write(ctx, now.Uid, line); err != nil {
		return err
	}
	return w.announce(ctx, w.row, now, line.actor)
}

// destroy marks the declaration; it goes when nothing of it runs any more. One that waits for the
// end of another of its name is waited for no more.
func (w *deploymentWork) destroy(ctx context.Context, t DeploymentTurn, out *postgres.Started) error {
	if err := postgres.Unreferred(ctx, w.q, t.Key); err != nil {
		return err
	}
	if w.object.UID == w.row.Uid && w.row.Revision == 0 && fleet.DeploymentState(w.row.State) == fleet.DeploymentPending {
		return w.destroyUnreleased(ctx, t, out)
	}
	var err error
	if out.Written, err = postgres.MarkDeleting(ctx, w.q, t.Actor, w.object); err != nil {
		return err
	}
	w.object = out.After
	if w.row.NextUid != nil {
		if err := w.q.DeclareNext(ctx, db.DeclareNextParams{Name: w.row.Name}); err != nil {
			return err
		}
	}
	if out.Changed {
		if err := w.write(ctx, w.object.UID, historyLine{reason: "delete_requested", message: t.Reason, actor: t.Actor}); err != nil {
			return err
		}
	}
	out.Operation, err = w.open(ctx, t.Door, postgres.NewOperation{Kind: t.Kind, Revision: w.row.Revision, ProcessVersion: w.row.ProcessVersion})
	return err
}

// destroyUnreleased ends what never ran at once.
func (w *deploymentWork) destroyUnreleased(ctx context.Context, t DeploymentTurn, out *postgres.Started) error {
	state := fleet.DeploymentState(w.row.State)
	for _, on := range []fleet.DeploymentEvent{fleet.DeploymentDeleted, fleet.DeploymentGone} {
		var err error
		if state, err = state.Next(on); err != nil {
			return err
		}
	}
	out.After, out.Changed = nil, true
	if err := postgres.Remove(ctx, w.q, t.Actor, w.object); err != nil {
		return err
	}
	p := db.EndUnreleasedParams{Name: w.row.Name, State: string(state)}
	if err := w.q.EndUnreleased(ctx, p); err != nil {
		return err
	}
	line := historyLine{from: w.row.State, to: string(state), reason: "deleted", message: "it was never released", actor: t.Actor}
	err := w.write(ctx, w.row.Uid, line)
	if err != nil || t.Door.Run == "" {
		return err
	}
	out.Operation, err = w.insertEnded(ctx, t.Door, postgres.NewOperation{Kind: t.Kind}, fleet.OperationFinish{Reason: "destroyed", Message: "it was never released"})
	return err
}

// insertEnded writes an operation that has succeeded, of which its door learns at once (X13).
func (w *deploymentWork) insertEnded(ctx context.Context, door postgres.Door, o postgres.NewOperation, how fleet.OperationFinish) (*postgres.Operation, error) {
	op, err := w.insert(ctx, door, o)
	if err != nil {
		return nil, err
	}
	id := string(op.ID)
	if err := w.q.EndOperationsEach(ctx, db.EndOperationsEachParams{
		Ids: []string{id}, States: []string{string(fleet.OperationSucceeded)}, Reasons: []string{how.Reason}, Messages: []string{how.Message},
	}); err != nil {
		return nil, err
	}
	if err := w.q.DoorTold(ctx, id); err != nil {
		return nil, err
	}
	row, err := w.q.GetOperation(ctx, id)
	ended := postgres.OperationOf(row)
	return &ended, err
}

// RemoveReplica ends a replica by hand; another takes its place (S115). One that ends already is
// left to it, and one that has ended is as asked for: the answer to the first request may be lost.
func (s *Store) RemoveReplica(ctx context.Context, in postgres.Write, id fleet.ReplicaID) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		if err := postgres.Lock(ctx, q, []fleet.ObjectKey{in.Key}); err != nil {
			return err
		}
		w, err := s.declaredDeployment(ctx, q, in)
		if err != nil {
			return err
		}
		c := carrying{deploymentWork: w, plan: fleet.DeploymentPlan{Terminate: []fleet.ReplicaStep{{ID: id, Reason: "removed", Message: "removed by " + in.Actor}}}}
		if err := c.hold(ctx); err != nil {
			return err
		}
		over, err := w.over(ctx, id)
		if err != nil || over {
			return err
		}
		if w.row.State == string(fleet.DeploymentError) { // nothing would take its place
			return fleet.Errorf(fleet.IllegalState, "deployment %s was given up: no new replica would replace %s", w.name(), id).
				WithHint("holdfast restart deployment " + w.row.Name)
		}
		if _, there := c.steps[id]; !there {
			return postgres.OrNotFound(nil, "replica", string(id), "holdfast get replicas --deployment "+in.Key.Name)
		}
		if err := c.endByHand(ctx); err != nil {
			return err
		}
		if in.DryRun {
			return postgres.ErrRollback
		}
		return nil
	})
}

// over says that a replica of it ends or has ended.
func (w *deploymentWork) over(ctx context.Context, id fleet.ReplicaID) (bool, error) {
	row, err := w.q.GetReplica(ctx, string(id))
	if postgres.NoRows(err) || err == nil && row.Replica.Deployment != w.row.Name {
		return false, nil
	}
	return err == nil && !fleet.ReplicaState(row.Replica.State).Live(), err
}

// endByHand ends replicas on request, and wakes the deployment.
func (c *carrying) endByHand(ctx context.Context) error {
	for _, do := range []func(context.Context) error{c.raise, c.terminate, c.tell} {
		if err := do(ctx); err != nil {
			return err
		}
	}
	for i := range c.history.order {
		c.history.order[i].actor = c.actor
	}
	if err := c.history.write(ctx, c.q, c.row.Name, c.row.Uid); err != nil {
		return err
	}
	return postgres.PutOutbox(ctx, c.q, c.subject())
}
