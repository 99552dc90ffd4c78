package postgres

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// GetObject reads one declared object.
func (s *Store) GetObject(ctx context.Context, k fleet.ObjectKey) (fleet.Object, error) {
	o, err := Find(ctx, s.Q, k)
	if err == nil && o == nil {
		err = fleet.NoObject(k)
	}
	if err != nil {
		return fleet.Object{}, err
	}
	return *o, nil
}

// ListObjects pages through the objects of one kind by name.
func (s *Store) ListObjects(ctx context.Context, kind fleet.ObjectKind, scope string, project fleet.ProjectName, after string, limit int32) ([]fleet.Object, error) {
	rows, err := s.Q.ListObjects(ctx, db.ListObjectsParams{
		Kind: string(kind), Scope: scope, After: after, Project: string(project), MaxRows: limit,
	})
	if err != nil {
		return nil, Failed("list "+kind.Declared().Plural, err)
	}
	return objectsOf(rows), nil
}
