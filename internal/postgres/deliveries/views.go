package deliveries

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// InstanceView is all that a status is made of.
type InstanceView struct {
	Desired, Snapshot  fleet.Revision
	DesiredGeneration  int64
	SnapshotGeneration int64
	Recorded           time.Time
	Lease              nodes.Lease
	Nodes              []HeldView
	Last               *Delivery // without its targets
}

// HeldView is one node's copy. Owed is 0 when nothing is.
type HeldView struct {
	Node       fleet.NodeName
	Role       fleet.Role
	Version    fleet.Version
	Hash       fleet.Hash
	Enabled    bool
	Deleted    bool
	Running    bool
	Reason     string
	ReportedAt time.Time
	Owed       int64
	OwedReason string
}

// Held is what the node reported.
func (h HeldView) Held() fleet.Held {
	return fleet.Held{Revision: fleet.Revision{Version: h.Version, Content: fleet.Content{Hash: h.Hash}}, Known: !h.Version.IsZero()}
}

// ViewInstance reads what the status of an instance is made of.
func (s *Store) ViewInstance(ctx context.Context, k fleet.ObjectKey) (InstanceView, error) {
	views, err := s.ViewInstances(ctx, fleet.SiteName(k.Scope), k.Name)
	return views[k.Name], err
}

// ViewInstances reads what the statuses of some instances of a site are made of, with the
// same few queries however many they are.
func (s *Store) ViewInstances(ctx context.Context, site fleet.SiteName, names ...string) (map[string]InstanceView, error) {
	lease, err := s.Q.GetLease(ctx, string(site))
	if err != nil && !postgres.NoRows(err) {
		return nil, err
	}
	views := map[string]InstanceView{}
	for _, name := range names {
		views[name] = InstanceView{Lease: nodes.Lease{Holder: fleet.NodeName(lease.Holder), Epoch: lease.Epoch}}
	}
	for _, fill := range []func(context.Context, fleet.SiteName, []string, map[string]InstanceView) error{
		s.viewRevisions, s.viewNodes, s.viewDeliveries,
	} {
		if err := fill(ctx, site, names, views); err != nil {
			return nil, err
		}
	}
	return views, nil
}

func (s *Store) viewRevisions(ctx context.Context, site fleet.SiteName, names []string, views map[string]InstanceView) error {
	rows, err := s.Q.RevisionsOfInstances(ctx, db.RevisionsOfInstancesParams{Site: string(site), Names: names})
	for _, r := range rows {
		v := views[r.Name]
		v.Desired = RevisionOf(&db.Revision{
			Era: r.Era, Revision: r.Revision, Action: r.Action, ContentKind: r.ContentKind, BodyHash: r.BodyHash, Size: r.Size,
			RunHash: r.RunHash, Enabled: r.Enabled,
		})
		v.Snapshot = RevisionOf(&db.Revision{
			Era: r.SnapEra, Revision: r.SnapRevision, Action: r.SnapAction, ContentKind: r.SnapKind, BodyHash: r.SnapHash,
			Size: r.SnapSize, RunHash: r.SnapRunHash, Enabled: r.SnapEnabled,
		})
		v.DesiredGeneration, v.SnapshotGeneration = r.Generation, r.SnapGeneration
		if r.RecordedAt != nil {
			v.Recorded = *r.RecordedAt
		}
		views[r.Name] = v
	}
	return err
}

func (s *Store) viewNodes(ctx context.Context, site fleet.SiteName, names []string, views map[string]InstanceView) error {
	rows, err := s.Q.HeldOfInstances(ctx, db.HeldOfInstancesParams{Site: string(site), Names: names})
	for _, r := range rows {
		h := HeldView{Node: fleet.NodeName(r.Node), Role: fleet.Role(r.Role), Hash: postgres.HashText(r.Hash)}
		if r.Revision != nil {
			h.Version = fleet.Version{Era: *r.Era, Revision: *r.Revision}
			h.Enabled, h.Deleted, h.Running, h.Reason = *r.Enabled, *r.Deleted, *r.Running, *r.Reason
		}
		if r.ReportedAt != nil {
			h.ReportedAt = *r.ReportedAt
		}
		if r.Owed != nil {
			h.Owed, h.OwedReason = *r.Owed, *r.OwedReason
		}
		v := views[r.Name]
		v.Nodes = append(v.Nodes, h)
		views[r.Name] = v
	}
	return err
}

func (s *Store) viewDeliveries(ctx context.Context, site fleet.SiteName, names []string, views map[string]InstanceView) error {
	rows, err := s.Q.LastDeliveries(ctx, db.LastDeliveriesParams{Site: string(site), Names: names})
	for _, r := range rows {
		v := views[r.Name]
		last := deliveryOf(db.ListDeliveriesRow(r))
		v.Last = &last
		views[r.Name] = v
	}
	return err
}
