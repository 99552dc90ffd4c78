package postgres

import (
	"context"
	"math"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// InstanceView is all that a status is made of.
type InstanceView struct {
	Desired, Snapshot  fleet.Revision
	DesiredGeneration  int64
	SnapshotGeneration int64
	Recorded           time.Time
	Lease              Lease
	Nodes              []HeldView
	Last               *Delivery
}

// Lease says which node may be active, by which epoch.
type Lease struct {
	Holder fleet.NodeName
	Epoch  int64
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

// ViewInstance reads what the status of an instance is made of.
func (s *Store) ViewInstance(ctx context.Context, k fleet.ObjectKey) (InstanceView, error) {
	var v InstanceView
	want, err := desired(ctx, s.q, k)
	if err != nil {
		return v, err
	}
	if want != nil {
		v.Desired, v.DesiredGeneration = revisionOf(want), want.Generation
	}
	snap, err := s.q.GetSnapshot(ctx, db.GetSnapshotParams{Site: k.Scope, Name: k.Name})
	if err != nil && !noRows(err) {
		return v, failed("read snapshot", err)
	}
	if err == nil {
		rev, err := snapshot(ctx, s.q, k)
		if err != nil {
			return v, err
		}
		v.Snapshot, v.SnapshotGeneration, v.Recorded = revisionOf(rev), rev.Generation, snap.RecordedAt
	}
	lease, err := s.q.GetLease(ctx, k.Scope)
	if err != nil && !noRows(err) {
		return v, failed("read the lease", err)
	}
	v.Lease = Lease{fleet.NodeName(lease.Holder), lease.Epoch}
	return v, s.viewNodes(ctx, k, &v)
}

func (s *Store) viewNodes(ctx context.Context, k fleet.ObjectKey, v *InstanceView) error {
	rows, err := s.q.HeldOfInstance(ctx, db.HeldOfInstanceParams{Name: k.Name, Site: k.Scope})
	if err != nil {
		return failed("read what nodes hold", err)
	}
	for _, r := range rows {
		h := HeldView{Node: fleet.NodeName(r.Node), Role: fleet.Role(r.Role), Hash: hashText(r.Hash)}
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
		v.Nodes = append(v.Nodes, h)
	}
	last, err := s.ListDeliveries(ctx, k, 0, 1)
	if len(last) == 1 {
		v.Last = &last[0]
	}
	return err
}

// Delivery is one attempt, with what each node made of it.
type Delivery struct {
	ID           fleet.DeliveryID
	Attempt      int64
	Revision     fleet.Revision
	Generation   int64
	FromRevision int64
	State        fleet.DeliveryState
	Phase        string
	Reason       string
	Message      string
	SettledAs    fleet.Settlement
	RequestedBy  string
	Why          string
	WorkflowID   string
	RunID        string
	CreatedAt    time.Time
	Deadline     time.Time
	EndedAt      *time.Time
	Targets      []Target
}

// Target is one node of a delivery.
type Target struct {
	Node    fleet.NodeName
	Role    fleet.Role
	State   fleet.TargetState
	Fetched int64
	Total   int64
	Reason  string
	Message string
}

// ListDeliveries lists newest first, below an attempt (0 is the start).
func (s *Store) ListDeliveries(ctx context.Context, k fleet.ObjectKey, before int64, limit int32) ([]Delivery, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	rows, err := s.q.ListDeliveries(ctx, db.ListDeliveriesParams{Site: k.Scope, Name: k.Name, BeforeAttempt: before, MaxRows: limit})
	if err != nil {
		return nil, failed("list deliveries", err)
	}
	out, ids := make([]Delivery, len(rows)), make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
		out[i] = Delivery{
			ID: fleet.DeliveryID(r.ID), Attempt: r.Attempt, Generation: r.Generation, FromRevision: r.FromRevision,
			Revision: fleet.Revision{
				Version: fleet.Version{Era: r.Era, Revision: r.Revision}, Action: fleet.Action(r.Action),
				Content: fleet.Content{Hash: hashText(r.BodyHash)},
			},
			State: fleet.DeliveryState(r.State), Phase: r.Phase, Reason: r.Reason, Message: r.Message,
			RequestedBy: r.RequestedBy, Why: r.Why, WorkflowID: r.WorkflowID, RunID: r.RunID,
			CreatedAt: r.CreatedAt, Deadline: r.DeadlineAt, EndedAt: r.EndedAt,
		}
		if r.SettledAs != nil {
			out[i].SettledAs = fleet.Settlement(*r.SettledAs)
		}
	}
	targets, err := s.Targets(ctx, ids...)
	for i := range out {
		out[i].Targets = targets[ids[i]]
	}
	return out, err
}

// Targets reads the nodes of some deliveries.
func (s *Store) Targets(ctx context.Context, ids ...string) (map[string][]Target, error) {
	rows, err := s.q.TargetsOfMany(ctx, ids)
	out := map[string][]Target{}
	for _, t := range rows {
		out[t.DeliveryID] = append(out[t.DeliveryID], Target{
			Node: fleet.NodeName(t.Node), Role: fleet.Role(t.Role), State: fleet.TargetState(t.State),
			Fetched: t.Fetched, Total: t.Total, Reason: t.Reason, Message: t.Message,
		})
	}
	return out, failed("read targets", err)
}

// Deployed gives the content of the deployed revision, or of the desired one.
func (s *Store) Deployed(ctx context.Context, k fleet.ObjectKey) (snap, want fleet.Revision, err error) {
	a, err := snapshot(ctx, s.q, k)
	if err != nil {
		return snap, want, err
	}
	b, err := desired(ctx, s.q, k)
	return revisionOf(a), revisionOf(b), err
}

// DeliveryWorkflow gives the workflow run of a delivery.
func (s *Store) DeliveryWorkflow(ctx context.Context, id fleet.DeliveryID) (workflow, run string, err error) {
	d, err := s.q.GetDelivery(ctx, string(id))
	if noRows(err) {
		return "", "", nil
	}
	return d.WorkflowID, d.RunID, failed("read the delivery", err)
}

// RevisionOf reads one revision; 0 is none.
func (s *Store) RevisionOf(ctx context.Context, k fleet.ObjectKey, revision int64) (fleet.Revision, error) {
	if revision == 0 {
		return fleet.Revision{}, nil
	}
	r, err := s.q.GetRevision(ctx, db.GetRevisionParams{Site: k.Scope, Name: k.Name, Revision: revision})
	return revisionOf(&r), failed("read revision", err)
}
