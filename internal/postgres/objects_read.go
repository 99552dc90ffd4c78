package postgres

import (
	"context"
	"encoding/json"
	"time"

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
		return nil, err
	}
	return objectsOf(rows), nil
}

// objectRow is a row of objects as Postgres writes it as JSON.
type objectRow struct {
	UID             string          `json:"uid"`
	Kind            string          `json:"kind"`
	Project         string          `json:"project"`
	Service         string          `json:"service"`
	Scope           string          `json:"scope"`
	Name            string          `json:"name"`
	Labels          json.RawMessage `json:"labels"`
	Generation      int64           `json:"generation"`
	ResourceVersion int64           `json:"resource_version"`
	Refreshed       int64           `json:"refreshed"`
	Spec            json.RawMessage `json:"spec"`
	Syncing         json.RawMessage `json:"syncing"`
	OwnerEpoch      int64           `json:"owner_epoch"`
	OwnerNumber     int64           `json:"owner_number"`
	CreatedBy       string          `json:"created_by"`
	CreatedAt       time.Time       `json:"created_at"`
	UpdatedAt       time.Time       `json:"updated_at"`
	DeletingSince   *time.Time      `json:"deleting_since"`
}

// objectIn is a row in JSON as an object, nil where there is none.
func objectIn(raw json.RawMessage) (*fleet.Object, error) {
	if raw == nil {
		return nil, nil
	}
	var r objectRow
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, Unreadable("an object", err)
	}
	o := ObjectOf(db.Object{
		Uid: r.UID, Kind: r.Kind, Project: r.Project, Service: r.Service, Scope: r.Scope, Name: r.Name, Labels: r.Labels,
		Generation: r.Generation, ResourceVersion: r.ResourceVersion, Refreshed: r.Refreshed, Spec: r.Spec, Syncing: r.Syncing,
		OwnerEpoch: r.OwnerEpoch, OwnerNumber: r.OwnerNumber, CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
		DeletingSince: r.DeletingSince,
	})
	return &o, nil
}
