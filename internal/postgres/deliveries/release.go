package deliveries

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// release is one revision to be numbered.
type release struct {
	postgres.Request
	Key        fleet.ObjectKey
	Action     fleet.Action
	Content    fleet.Content
	Run        json.RawMessage
	RunHash    fleet.Hash
	Enabled    bool
	Durability fleet.Durability
	Reason     string
	Operation  fleet.OperationKind
}

// revisionAgain copies a revision under the next number.
func revisionAgain(r *db.Revision, t InstanceTurn) release {
	return release{
		Request: t.Request, Key: t.Key, Action: fleet.ActionDeploy, Content: contentOf(*r), Run: r.Run, RunHash: postgres.HashText(r.RunHash),
		Enabled: r.Enabled, Durability: fleet.Durability(r.Durability), Reason: t.Reason,
		Operation: t.Kind,
	}
}

// deletionAfter is the delete of what a revision put there: a number without a body.
func deletionAfter(r *db.Revision, t InstanceTurn) release {
	d := revisionAgain(r, t)
	d.Action, d.Enabled, d.Content, d.Run, d.RunHash = fleet.ActionDelete, false, fleet.Content{}, nil, ""
	return d
}

// ReleaseNext releases what a revision has under the next number; a deletion of it if that is the kind of the turn.
func (s *Store) ReleaseNext(ctx context.Context, q *db.Queries, r *db.Revision, t InstanceTurn, of *fleet.Object) error {
	next := revisionAgain(r, t)
	if t.Kind == fleet.OperationDelete {
		next = deletionAfter(r, t)
	}
	_, err := s.release(ctx, q, next, of)
	return err
}

func sameRevision(r *db.Revision, n release) bool {
	return r.Action != string(fleet.ActionDelete) && postgres.HashText(r.BodyHash) == n.Content.Hash &&
		postgres.HashText(r.RunHash) == n.RunHash && r.Enabled == n.Enabled && r.Durability == string(n.Durability)
}

// release numbers a revision and opens its operation. Numbers are per (site, name), go on
// over delete and re-create, and are given under the lock on the subject's row (N18).
func (s *Store) release(ctx context.Context, q *db.Queries, r release, of *fleet.Object) (*postgres.Operation, error) {
	site, name := r.Key.Scope, r.Key.Name
	if err := postgres.Hold(ctx, q, r.Content.Hash); err != nil {
		return nil, err
	}
	next := numbered{Site: site}
	next.add(name, of.Project, 1, 0)
	got, err := next.write(ctx, q)
	if err != nil {
		return nil, err
	}
	number := got[0].DesiredRevision
	rows := revisionRows{Site: site, CreatedBy: r.Actor, Reason: r.Reason}
	rows.add(revisionRow{&r, name, number, string(r.Action), of.Generation, of.Spec})
	if err := rows.write(ctx, q); err != nil {
		return nil, err
	}
	return openInstance(ctx, q, r.Request, r.Key, postgres.NewOperation{Kind: r.Operation, Revision: number, Project: of.Project})
}

// openInstance opens an operation on an instance.
func openInstance(ctx context.Context, q *db.Queries, in postgres.Request, key fleet.ObjectKey, n postgres.NewOperation) (*postgres.Operation, error) {
	n.Site, n.Name = key.Scope, key.Name
	n.Subject = fleet.InstanceSubject(fleet.SiteName(key.Scope), fleet.InstanceName(key.Name))
	o, err := postgres.OpenOperation(ctx, q, in, n)
	return &o, err
}

// Desired is the highest released revision, nil when there is none.
func Desired(ctx context.Context, q *db.Queries, k fleet.ObjectKey) (*db.Revision, error) {
	r, err := q.DesiredRevision(ctx, db.DesiredRevisionParams{Site: k.Scope, Name: k.Name})
	if postgres.NoRows(err) {
		return nil, nil
	}
	return &r, err
}

// Snapshot is the deployed revision, nil when there is none.
func Snapshot(ctx context.Context, q *db.Queries, k fleet.ObjectKey) (*db.Revision, error) {
	r, err := q.SnapshotRevision(ctx, db.SnapshotRevisionParams{Site: k.Scope, Name: k.Name})
	if postgres.NoRows(err) {
		return nil, nil
	}
	return &r, err
}

func contentOf(r db.Revision) fleet.Content {
	return fleet.Content{Kind: fleet.ContentKind(r.ContentKind), Hash: postgres.HashText(r.BodyHash), Size: r.Size}
}

// RevisionOf is a row as the entity sees it.
func RevisionOf(r *db.Revision) fleet.Revision {
	if r == nil {
		return fleet.Revision{}
	}
	return fleet.Revision{
		Version: fleet.Version{Era: r.Era, Revision: r.Revision}, Action: fleet.Action(r.Action),
		Content: contentOf(*r), RunHash: postgres.HashText(r.RunHash), Enabled: r.Enabled,
	}
}
