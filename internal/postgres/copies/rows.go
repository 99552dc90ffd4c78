package copies

import (
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// row is a copy as the queries take it.
type row struct {
	Region        fleet.RegionName  `json:"region"`
	Kind          fleet.ObjectKind  `json:"kind"`
	Scope         string            `json:"scope"`
	Name          string            `json:"name"`
	Owner         fleet.RegionName  `json:"owner"`
	OwnerEpoch    int64             `json:"owner_epoch"`
	Number        int64             `json:"number"`
	UID           string            `json:"uid"`
	Project       fleet.ProjectName `json:"project"`
	Service       string            `json:"service"`
	Labels        map[string]string `json:"labels"`
	Generation    int64             `json:"generation"`
	Spec          json.RawMessage   `json:"spec"`
	Syncing       json.RawMessage   `json:"syncing"`
	CreatedBy     string            `json:"created_by"`
	CreatedAt     time.Time         `json:"created_at"`
	UpdatedAt     time.Time         `json:"updated_at"`
	DeletingSince *time.Time        `json:"deleting_since"`
	Event         int64             `json:"event"`
}

func rowOf(owner fleet.RegionName, o fleet.Object) row {
	r := row{
		Region: o.Region, Kind: o.Kind, Scope: o.Scope, Name: o.Name, Owner: owner, OwnerEpoch: o.Version.OwnerEpoch,
		Number: o.Version.Number, UID: o.UID, Project: o.Project, Service: o.Service, Labels: o.Labels, Generation: o.Generation, Spec: o.Spec,
		Syncing: o.Syncing, CreatedBy: o.CreatedBy, CreatedAt: o.CreatedAt, UpdatedAt: o.UpdatedAt, DeletingSince: o.DeletingSince, Event: o.ResourceVersion,
	}
	if r.Labels == nil {
		r.Labels = map[string]string{}
	}
	return r
}

func (r row) object() fleet.Object {
	return fleet.Object{
		ObjectKey: fleet.ObjectKey{Kind: r.Kind, Scope: r.Scope, Name: r.Name}, Region: r.Region,
		Version: fleet.CopyVersion{OwnerEpoch: r.OwnerEpoch, Number: r.Number}, UID: r.UID, Project: r.Project, Service: r.Service, Labels: r.Labels,
		Generation: r.Generation, ResourceVersion: r.Event, Spec: r.Spec, Syncing: r.Syncing, CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt,
		UpdatedAt: r.UpdatedAt, DeletingSince: r.DeletingSince,
	}
}
