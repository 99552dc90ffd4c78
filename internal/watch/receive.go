package watch

import (
	"strconv"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// ChangeOf reads what a peer sent of an object.
func ChangeOf(peer fleet.RegionName, l api.WatchLine) (fleet.CopyChange, error) {
	c := fleet.CopyChange{
		Key: fleet.CopyKey{Region: peer}, Version: fleet.CopyVersion{OwnerEpoch: l.OwnerEpoch, Number: l.Number},
	}
	if l.Region != "" {
		c.Key.Region = fleet.RegionName(l.Region)
	}
	switch {
	case l.Type == api.WatchObject && l.Object != nil:
		o := objectOf(*l.Object)
		c.Key.ObjectKey, c.Object = o.ObjectKey, &o
		c.Object.Version, c.TookOver = c.Version, o.SyncingNow().TookOver
	case l.Type == api.WatchGone && l.Gone != nil:
		c.Key.ObjectKey = fleet.ObjectKey{Kind: fleet.ObjectKind(l.Gone.Kind), Scope: l.Gone.Site, Name: l.Gone.Name}
		c.End, c.TookOver, c.MovedTo = fleet.CopyEnd(l.Gone.Reason), l.Gone.TookOver, fleet.RegionName(l.Gone.MovedTo)
	default:
		return c, fleet.Errorf(fleet.Invalid, "a line of type %.20q without its object", l.Type)
	}
	return c, nil
}

func objectOf(v api.Object) fleet.Object {
	version, _ := strconv.ParseInt(v.ResourceVersion, 10, 64) // of the owner's API; the order is the line's
	return fleet.Object{
		ObjectKey: fleet.ObjectKey{Kind: fleet.ObjectKind(v.Kind), Scope: v.Site, Name: v.Name}, UID: v.UID,
		Project: fleet.ProjectName(v.Project), Service: v.Service, Labels: v.Labels, Generation: v.Generation, ResourceVersion: version, Spec: v.Spec,
		Syncing: v.Syncing, CreatedBy: v.CreatedBy, CreatedAt: v.CreatedAt, UpdatedAt: v.UpdatedAt, DeletingSince: v.DeletingSince,
	}
}
