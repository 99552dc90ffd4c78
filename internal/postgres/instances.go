package postgres

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// InstanceChange is a PUT of an instance. Content is its flattened body, already stored;
// RunJSON the canonical run section. With Release unset the spec is written and nothing
// is released. Flattened names the template generations that the body was made from.
type InstanceChange struct {
	Write
	Spec    fleet.InstanceSpec
	Content fleet.Content
	RunJSON json.RawMessage
	RunHash fleet.Hash
	Release bool
	Reason  string
	Limit   time.Duration // of the operation
}

// Started is what a change of an instance came to. Operation is nil when nothing had to
// be started.
type Started struct {
	Written
	Operation *Operation
}

// PutInstance writes the spec, numbers its revision and opens the operation that brings it
// to the nodes, with the outbox row, in one transaction (X2).
func (s *Store) PutInstance(ctx context.Context, c InstanceChange) (Started, error) {
	var out Started
	err := s.change(ctx, c.Write, &out, func(q *db.Queries) error {
		if err := s.checkReferences(ctx, q, c); err != nil {
			return err
		}
		var err error
		if out.Written, err = s.write(ctx, q, c.Write, c.Spec); err != nil || !c.Release {
			return err
		}
		r := releaseOf(c)
		before, err := desired(ctx, q, c.Key)
		if err != nil {
			return err
		}
		if before != nil && before.Generation == out.After.Generation && sameRevision(before, r) {
			return nil
		}
		out.Operation, err = s.release(ctx, q, r, out.After)
		return err
	})
	return out, err
}

func releaseOf(c InstanceChange) release {
	return release{
		Key: c.Key, Action: fleet.ActionDeploy, Content: c.Content, Run: c.RunJSON, RunHash: c.RunHash,
		Enabled: c.Spec.Enabled, Durability: c.Spec.Durability, Actor: c.Actor, Reason: c.Reason,
		Operation: fleet.OperationDeploy, Limit: c.Limit,
	}
}

// change runs one mutation of an instance under its locks, once per idempotency key.
func (s *Store) change(ctx context.Context, w Write, out *Started, f func(q *db.Queries) error) error {
	return s.tx(ctx, "change "+w.Key.String(), func(q *db.Queries) error {
		*out = Started{}
		site := fleet.ObjectKey{Kind: fleet.KindSite, Name: w.Key.Scope}
		if err := lock(ctx, q, []fleet.ObjectKey{w.Key}, site); err != nil {
			return err
		}
		again, err := s.replayed(ctx, q, w, out)
		if err != nil || again {
			return err
		}
		if o, err := find(ctx, q, site); err != nil || o == nil || o.DeletingSince != nil {
			return orNotFound(err, "site", w.Key.Scope, "declare it first: PUT /api/v1/sites/"+w.Key.Scope)
		}
		if err := f(q); err != nil {
			return err
		}
		if w.DryRun {
			return errRollback
		}
		return remember(ctx, q, w, out)
	})
}

func orNotFound(err error, kind, name, hint string) error {
	if err != nil {
		return err
	}
	return fleet.Errorf(fleet.NotFound, "there is no %s %s", kind, name).At(kind).WithHint(hint)
}

// replayed answers a request that was seen before from what it started then.
func (s *Store) replayed(ctx context.Context, q *db.Queries, w Write, out *Started) (bool, error) {
	if w.Idempotency.Key == "" {
		return false, nil
	}
	row, err := q.GetIdempotency(ctx, db.GetIdempotencyParams{Actor: w.Actor, Key: w.Idempotency.Key})
	if noRows(err) {
		return false, nil
	}
	if err != nil {
		return false, failed("read idempotency key", err)
	}
	if !bytes.Equal(row.RequestHash, w.Idempotency.Hash) {
		return false, otherRequest()
	}
	if out.After, err = find(ctx, q, w.Key); err != nil || row.OperationID == "" {
		return true, err
	}
	op, err := q.GetOperation(ctx, row.OperationID)
	if err != nil {
		return true, failed("read operation", err)
	}
	o := operationOf(op)
	out.Operation = &o
	return true, nil
}

func remember(ctx context.Context, q *db.Queries, w Write, out *Started) error {
	if w.Idempotency.Key == "" {
		return nil
	}
	p := db.InsertIdempotencyParams{Actor: w.Actor, Key: w.Idempotency.Key, RequestHash: w.Idempotency.Hash}
	if out.Operation != nil {
		p.OperationID = string(out.Operation.ID)
	}
	n, err := q.InsertIdempotency(ctx, p)
	if err == nil && n == 0 {
		return keyUnderWay()
	}
	return failed("store idempotency key", err)
}

func otherRequest() error {
	return fleet.Errorf(fleet.Conflict, "this key was used for another request").At("Idempotency-Key").
		WithHint("use a new key for a new request")
}

func keyUnderWay() error {
	return fleet.Errorf(fleet.Conflict, "a request with this key is under way").At("Idempotency-Key").
		WithHint("send it again in a moment")
}

// checkReferences looks at what the spec points to, inside the transaction that writes it.
func (s *Store) checkReferences(ctx context.Context, q *db.Queries, c InstanceChange) error {
	if c.Spec.Template != "" {
		p := db.GetTemplateGenerationParams{Name: string(c.Spec.Template), Generation: c.Spec.TemplateGeneration}
		if _, err := q.GetTemplateGeneration(ctx, p); err != nil {
			return missingTemplate(err, c.Spec.Template, "/template")
		}
	}
	if c.Spec.Artifact != nil {
		p := db.BodyAllowedParams{Hash: hashBytes(c.Spec.Artifact.Hash), Project: string(c.Project)}
		_, err := q.BodyAllowed(ctx, p)
		if noRows(err) {
			return fleet.Errorf(fleet.NotFound, "project %s has uploaded no such artifact", c.Project).At("/artifact").
				WithHint("upload it first: POST /api/v1/artifacts")
		}
		if err != nil {
			return failed("read artifact", err)
		}
	}
	return hold(ctx, q, append(c.Spec.Bodies(), c.Content.Hash)...)
}

// InstanceTurn asks for enable, disable, delete, deploy or rollback of an instance. Door
// is the workflow that asked, when it was one.
type InstanceTurn struct {
	Write
	Kind     fleet.OperationKind
	Revision int64 // for a rollback, 0 to find it
	Reason   string
	Limit    time.Duration
	Door     Door
	// Unreleased releases a spec that was written with ?deploy=false; nil when there is none.
	Unreleased *InstanceChange
}

// Door is a workflow that waits for an operation.
type Door struct{ Workflow, Run string }

// TurnInstance carries an InstanceTurn out in one transaction.
func (s *Store) TurnInstance(ctx context.Context, t InstanceTurn) (Started, error) {
	var out Started
	err := s.change(ctx, t.Write, &out, func(q *db.Queries) error {
		if t.Door.Run != "" {
			op, err := q.OperationByDoor(ctx, db.OperationByDoorParams{DoorWorkflow: t.Door.Workflow, DoorRun: t.Door.Run})
			if err == nil {
				o := operationOf(op)
				out.Operation = &o
				return nil
			}
			if !noRows(err) {
				return failed("read the operation of a door", err)
			}
		}
		o, err := find(ctx, q, t.Key)
		if err != nil || o == nil {
			return orNotFound(err, "instance", t.Key.Scope+"/"+t.Key.Name, "holdfast get instances --site "+t.Key.Scope)
		}
		if t.Project != "" && o.Project != t.Project {
			return orNotFound(nil, "instance", t.Key.Scope+"/"+t.Key.Name, "it belongs to another project")
		}
		if err := checkMatch(t.Write, o); err != nil {
			return err
		}
		return s.turn(ctx, q, t, o, &out)
	})
	return out, err
}

func (s *Store) turn(ctx context.Context, q *db.Queries, t InstanceTurn, o *fleet.Object, out *Started) error {
	out.Written = Written{Before: o, After: o}
	if o.DeletingSince != nil && t.Kind != fleet.OperationDelete {
		return fleet.Errorf(fleet.IllegalState, "instance %s is being deleted", o.Name).
			WithHint("a PUT supersedes the delete")
	}
	last, err := desired(ctx, q, t.Key)
	if err != nil {
		return err
	}
	switch t.Kind {
	case fleet.OperationDeploy:
		return s.deployAgain(ctx, q, t, last, out)
	case fleet.OperationRollback:
		return s.rollback(ctx, q, t, last, out)
	case fleet.OperationEnable, fleet.OperationDisable:
		return s.setEnabled(ctx, q, t, last, out)
	case fleet.OperationDelete:
		return s.delete(ctx, q, t, last, out)
	}
	return fleet.Errorf(fleet.Invalid, "%.40q is no operation on an instance", t.Kind)
}

func (s *Store) deployAgain(ctx context.Context, q *db.Queries, t InstanceTurn, last *db.Revision, out *Started) (err error) {
	if err := sameSpec(t, out.Before); err != nil {
		return err
	}
	if u := t.Unreleased; u != nil && (last == nil || !sameRevision(last, releaseOf(*u))) {
		if err := hold(ctx, q, u.Content.Hash); err != nil {
			return err
		}
		out.Operation, err = s.release(ctx, q, releaseOf(*u), out.After)
		return err
	}
	if last == nil || last.Action == string(fleet.ActionDelete) {
		return fleet.Errorf(fleet.IllegalState, "instance %s has no revision to deploy", t.Key.Name)
	}
	out.Operation, err = s.open(ctx, q, t.operation(last.Revision, out.After.Project))
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
		return failed("read the spec", err)
	}
	a, errA := json.Marshal(now)
	b, errB := json.Marshal(t.Unreleased.Spec)
	if err := errors.Join(errA, errB); err != nil {
		return failed("compare the spec", err)
	}
	if !bytes.Equal(a, b) {
		return fleet.Errorf(fleet.Unavailable, "instance %s was changed at the same moment", t.Key.Name).
			WithHint("send the request again")
	}
	return nil
}

func (s *Store) setEnabled(ctx context.Context, q *db.Queries, t InstanceTurn, last *db.Revision, out *Started) error {
	var spec fleet.InstanceSpec
	if err := json.Unmarshal(out.Before.Spec, &spec); err != nil {
		return failed("read the spec", err)
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
	if out.Written, err = s.write(ctx, q, w, spec); err != nil {
		return err
	}
	if last.Enabled == want {
		out.Operation, err = s.open(ctx, q, t.operation(last.Revision, out.After.Project))
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
func (s *Store) rollback(ctx context.Context, q *db.Queries, t InstanceTurn, last *db.Revision, out *Started) error {
	to, err := s.rollbackTarget(ctx, q, t, last)
	if err != nil {
		return err
	}
	w := t.Write
	w.Project, w.Labels, w.IfMatch = out.Before.Project, out.Before.Labels, 0
	spec, err := marked(to.Spec, out.Before.Spec)
	if err != nil {
		return err
	}
	if err := hold(ctx, q, append(spec.Bodies(), hashText(to.BodyHash))...); err != nil {
		return err
	}
	if out.Written, err = s.write(ctx, q, w, spec); err != nil {
		return err
	}
	r := revisionAgain(to, t)
	out.Operation, err = s.release(ctx, q, r, out.After)
	return err
}

// marked is an earlier spec with the secret marks that its instance has now.
func marked(earlier, now json.RawMessage) (fleet.InstanceSpec, error) {
	var to, from fleet.InstanceSpec
	err := errors.Join(json.Unmarshal(earlier, &to), json.Unmarshal(now, &from))
	return to.KeepMarks(from), failed("read the spec", err)
}

func (s *Store) rollbackTarget(ctx context.Context, q *db.Queries, t InstanceTurn, last *db.Revision) (*db.Revision, error) {
	if t.Revision != 0 {
		to, err := q.GetRevision(ctx, db.GetRevisionParams{Site: t.Key.Scope, Name: t.Key.Name, Revision: t.Revision})
		if noRows(err) || err == nil && to.Action == string(fleet.ActionDelete) {
			return nil, fleet.Errorf(fleet.NotFound, "there is no revision %d to go back to", t.Revision).At("/revision").
				WithHint("holdfast deliveries " + t.Key.Scope + "/" + t.Key.Name)
		}
		return &to, failed("read revision", err)
	}
	snap, err := snapshot(ctx, q, t.Key)
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
		if !noRows(err) {
			return nil, failed("find the revision before", err)
		}
	}
	return nil, fleet.Errorf(fleet.IllegalState, "no earlier revision of %s was ever deployed", t.Key.Name)
}

func (s *Store) delete(ctx context.Context, q *db.Queries, t InstanceTurn, last *db.Revision, out *Started) error {
	var err error
	if last == nil { // nothing was ever released: no node has to confirm
		out.After, out.Changed = nil, true
		return remove(ctx, q, t.Actor, out.Before)
	}
	if out.Written, err = markDeleting(ctx, q, t.Actor, out.Before, time.Now()); err != nil {
		return err
	}
	if last.Action == string(fleet.ActionDelete) {
		out.Operation, err = s.open(ctx, q, t.operation(last.Revision, out.After.Project))
		return err
	}
	out.Operation, err = s.release(ctx, q, deletionAfter(last, t), out.After)
	return err
}

func (t InstanceTurn) operation(revision int64, project fleet.ProjectName) newOperation {
	return newOperation{
		Kind: t.Kind, Key: t.Key, Revision: revision, Project: project, Actor: t.Actor, Door: t.Door, Limit: t.Limit,
	}
}

func hashBytes(h fleet.Hash) []byte {
	b, err := hex.DecodeString(string(h))
	if err != nil || len(b) == 0 {
		return nil
	}
	return b
}

func hashText(b []byte) fleet.Hash { return fleet.Hash(hex.EncodeToString(b)) }
