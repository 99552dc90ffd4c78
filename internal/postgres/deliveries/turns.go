package deliveries

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// TurnInstance carries an InstanceTurn out in one transaction.
func (s *Store) TurnInstance(ctx context.Context, t InstanceTurn) (postgres.Started, error) {
	return s.Change(ctx, t.Write, siteOf(t.Write), func(q *db.Queries, out *postgres.Started) error {
		if err := onSite(ctx, q, t.Write); err != nil {
			return err
		}
		o, err := postgres.Find(ctx, q, t.Key)
		if err != nil || o == nil || t.Project != "" && o.Project != t.Project {
			return postgres.OrNotFound(err, "instance", t.Key.Scope+"/"+t.Key.Name, "holdfast get instances --site "+t.Key.Scope)
		}
		if err := s.CheckMatch(t.Write, o); err != nil {
			return err
		}
		may := s.MayTurn
		if t.Kind == fleet.OperationDelete {
			may = s.Recovered
		}
		if err := may(ctx, q, o); err != nil {
			return err
		}
		return s.turn(ctx, q, t, o, out)
	})
}

func (s *Store) turn(ctx context.Context, q *db.Queries, t InstanceTurn, o *fleet.Object, out *postgres.Started) error {
	out.Written = postgres.Written{Before: o, After: o}
	if o.DeletingSince != nil && t.Kind != fleet.OperationDelete {
		return fleet.Errorf(fleet.IllegalState, "instance %s is being deleted", o.Name).
			WithHint("a PUT supersedes the delete")
	}
	last, err := Desired(ctx, q, t.Key)
	if err != nil {
		return err
	}
	switch t.Kind { //nolint:exhaustive // all other kinds are of something else
	case fleet.OperationDeploy:
		return s.deployAgain(ctx, q, t, last, out)
	case fleet.OperationRollback:
		return s.rollback(ctx, q, t, last, out)
	case fleet.OperationEnable, fleet.OperationDisable:
		return s.setEnabled(ctx, q, t, last, out)
	case fleet.OperationDelete:
		return s.delete(ctx, q, t, last, out)
	}
	return fleet.Errorf(fleet.Invalid, "unknown operation %.40q on an instance", t.Kind)
}

func (s *Store) deployAgain(ctx context.Context, q *db.Queries, t InstanceTurn, last *db.Revision, out *postgres.Started) (err error) {
	if err := sameSpec(t, out.Before); err != nil {
		return err
	}
	if u := t.Unreleased; u != nil && (last == nil || !sameRevision(last, releaseOf(*u))) {
		out.Operation, err = s.release(ctx, q, releaseOf(*u), out.After)
		return err
	}
	if last == nil || last.Action == string(fleet.ActionDelete) {
		return fleet.Errorf(fleet.IllegalState, "instance %s has no revision to deploy", t.Key.Name)
	}
	out.Operation, err = t.open(ctx, q, last.Revision, out.After.Project)
	return err
}

// sameSpec refuses what was flattened from a spec that a PUT has replaced since: released
// now, the older content would get the higher number. The same call again flattens anew.
func sameSpec(t InstanceTurn, o *fleet.Object) error {
	if t.Unreleased == nil {
		return nil
	}
	var now fleet.InstanceSpec
	if err := json.Unmarshal(o.Spec, &now); err != nil {
		return postgres.Unreadable("the spec", err)
	}
	a, errA := json.Marshal(now)
	b, errB := json.Marshal(t.Unreleased.Spec)
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	if !bytes.Equal(a, b) {
		return fleet.Errorf(fleet.Unavailable, "instance %s was changed at the same moment", t.Key.Name).
			WithHint("retry the request")
	}
	return nil
}

func (s *Store) setEnabled(ctx context.Context, q *db.Queries, t InstanceTurn, last *db.Revision, out *postgres.Started) error {
	var spec fleet.InstanceSpec
	if err := json.Unmarshal(out.Before.Spec, &spec); err != nil {
		return postgres.Unreadable("the spec", err)
	}
	if last == nil || last.Action == string(fleet.ActionDelete) { // also when re-created and not deployed yet
		return fleet.Errorf(fleet.IllegalState, "instance %s was never deployed", t.Key.Name).
			WithHint("deploy it first: holdfast deploy " + t.Key.Scope + "/" + t.Key.Name)
	}
	want := t.Kind == fleet.OperationEnable
	spec.Enabled = want
	w := t.Write
	w.Project, w.Labels, w.IfMatch = out.Before.Project, out.Before.Labels, 0
	var err error
	if out.Written, err = s.Write(ctx, q, w, spec); err != nil {
		return err
	}
	if last.Enabled == want {
		out.Operation, err = t.open(ctx, q, last.Revision, out.After.Project)
		return err
	}
	r := revisionAgain(last, t)
	r.Enabled, r.Action = want, fleet.ActionEnable
	if !want {
		r.Action = fleet.ActionDisable
	}
	out.Operation, err = s.release(ctx, q, r, out.After)
	return err
}

// rollback goes to a deployed revision: it writes that spec as a new generation, and a new
// number with the same body.
func (s *Store) rollback(ctx context.Context, q *db.Queries, t InstanceTurn, last *db.Revision, out *postgres.Started) error {
	to, err := s.rollbackTarget(ctx, q, t, last)
	if err != nil {
		return err
	}
	w := t.Write
	w.Project, w.Labels, w.IfMatch = out.Before.Project, out.Before.Labels, 0
	spec, err := postgres.Marked(to.Spec, out.Before.Spec)
	if err != nil {
		return err
	}
	if err := postgres.Hold(ctx, q, append(spec.Bodies(), postgres.HashText(to.BodyHash))...); err != nil {
		return err
	}
	if out.Written, err = s.Write(ctx, q, w, spec); err != nil {
		return err
	}
	r := revisionAgain(to, t)
	out.Operation, err = s.release(ctx, q, r, out.After)
	return err
}

func (s *Store) rollbackTarget(ctx context.Context, q *db.Queries, t InstanceTurn, last *db.Revision) (*db.Revision, error) {
	if t.Revision != 0 {
		to, err := revisionAt(ctx, q, t.Key.Scope, t.Key.Name, t.Revision)
		if postgres.NoRows(err) || err == nil && to.Action == string(fleet.ActionDelete) {
			return nil, fleet.Errorf(fleet.NotFound, "revision %d not found", t.Revision).At("/revision").
				WithHint("holdfast deliveries " + t.Key.Scope + "/" + t.Key.Name)
		}
		return to, err
	}
	snap, err := Snapshot(ctx, q, t.Key)
	if err != nil {
		return nil, err
	}
	if snap != nil && last != nil && snap.Revision != last.Revision && snap.Action != string(fleet.ActionDelete) {
		return snap, nil
	}
	if snap != nil {
		p := db.DeployedBeforeParams{Site: t.Key.Scope, Name: t.Key.Name, Revision: snap.Revision}
		before, err := q.DeployedBefore(ctx, p)
		if err == nil {
			return &before, nil
		}
		if !postgres.NoRows(err) {
			return nil, err
		}
	}
	return nil, fleet.Errorf(fleet.IllegalState, "no earlier revision of %s was ever deployed", t.Key.Name)
}

func (s *Store) delete(ctx context.Context, q *db.Queries, t InstanceTurn, last *db.Revision, out *postgres.Started) error {
	err := postgres.Unreferred(ctx, q, t.Key)
	if err != nil {
		return err
	}
	if last == nil { // nothing was ever released: no node has to confirm
		out.After, out.Changed = nil, true
		return postgres.Remove(ctx, q, t.Actor, out.Before)
	}
	if out.Written, err = postgres.MarkDeleting(ctx, q, t.Actor, out.Before); err != nil {
		return err
	}
	if last.Action == string(fleet.ActionDelete) {
		out.Operation, err = t.open(ctx, q, last.Revision, out.After.Project)
		return err
	}
	out.Operation, err = s.release(ctx, q, deletionAfter(last, t), out.After)
	return err
}

func (t InstanceTurn) open(ctx context.Context, q *db.Queries, revision int64, project fleet.ProjectName) (*postgres.Operation, error) {
	return openInstance(ctx, q, t.Request, t.Key, postgres.NewOperation{Kind: t.Kind, Revision: revision, Project: project})
}
