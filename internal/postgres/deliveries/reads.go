package deliveries

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Delivery is one attempt, with what each node made of it.
type Delivery struct {
	ID         fleet.DeliveryID
	Attempt    int64
	Revision   fleet.Revision
	Generation int64
	// From… are what was deployed before, 0 where nothing was.
	FromRevision, FromGeneration int64
	State                        fleet.DeliveryState
	Phase                        string
	Reason                       string
	Message                      string
	SettledAs                    fleet.Settlement
	RequestedBy                  string
	Why                          string
	WorkflowID                   string
	RunID                        string
	CreatedAt                    time.Time
	Deadline                     time.Time
	EndedAt                      *time.Time
	Targets                      []Target
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
	rows, err := s.Q.ListDeliveries(ctx, db.ListDeliveriesParams{Site: k.Scope, Name: k.Name, BeforeAttempt: before, MaxRows: limit})
	if err != nil {
		return nil, err
	}
	out, ids := make([]Delivery, len(rows)), make([]string, len(rows))
	for i, r := range rows {
		ids[i], out[i] = r.ID, deliveryOf(r)
	}
	targets, err := s.Targets(ctx, ids...)
	for i := range out {
		out[i].Targets = targets[ids[i]]
	}
	return out, err
}

func deliveryOf(r db.ListDeliveriesRow) Delivery {
	d := Delivery{
		ID: fleet.DeliveryID(r.ID), Attempt: r.Attempt, Generation: r.Generation, FromRevision: r.FromRevision, FromGeneration: r.FromGeneration,
		Revision: fleet.Revision{
			Version: fleet.Version{Era: r.Era, Revision: r.Revision}, Action: fleet.Action(r.Action),
			Content: fleet.Content{Hash: postgres.HashText(r.BodyHash)},
		},
		State: fleet.DeliveryState(r.State), Phase: r.Phase, Reason: r.Reason, Message: r.Message,
		RequestedBy: r.RequestedBy, Why: r.Why, WorkflowID: r.WorkflowID, RunID: r.RunID,
		CreatedAt: r.CreatedAt, Deadline: r.DeadlineAt, EndedAt: r.EndedAt,
	}
	if r.SettledAs != nil {
		d.SettledAs = fleet.Settlement(*r.SettledAs)
	}
	return d
}

// Targets reads the nodes of some deliveries.
func (s *Store) Targets(ctx context.Context, ids ...string) (map[string][]Target, error) {
	rows, err := s.Q.TargetsOf(ctx, ids)
	out := map[string][]Target{}
	for _, t := range rows {
		out[t.DeliveryID] = append(out[t.DeliveryID], targetOf(t))
	}
	return out, err
}

// targetOf counts all bytes as fetched once the node had them: also those that it held before, and those that came compressed or
// again, which the row counts as they were on the wire.
func targetOf(r db.DeliveryNode) Target {
	t := Target{
		Node: fleet.NodeName(r.Node), Role: fleet.Role(r.Role), State: fleet.TargetState(r.State),
		Fetched: r.Fetched, Total: r.Total, Reason: r.Reason, Message: r.Message,
	}
	failedLater := t.State == fleet.TargetFailed && t.Reason == string(fleet.ApplyFailed)
	if failedLater || t.State == fleet.TargetApplied || t.State == fleet.TargetStaged {
		t.Fetched = t.Total
	}
	return t
}

// TargetHeld is what one target of a delivery holds now, which may be a newer revision.
type TargetHeld struct {
	Revision, Generation int64
	Hash                 fleet.Hash // "" when the instance is deleted there
}

// HeldByTargets reads what the nodes of some deliveries hold; one that never reported is
// missing.
func (s *Store) HeldByTargets(ctx context.Context, ids ...string) (map[string]map[fleet.NodeName]TargetHeld, error) {
	rows, err := s.Q.HeldByTargets(ctx, ids)
	out := map[string]map[fleet.NodeName]TargetHeld{}
	for _, r := range rows {
		if out[r.DeliveryID] == nil {
			out[r.DeliveryID] = map[fleet.NodeName]TargetHeld{}
		}
		out[r.DeliveryID][fleet.NodeName(r.Node)] = TargetHeld{r.Revision, r.Generation, postgres.HashText(r.Hash)}
	}
	return out, err
}

// Deployed gives the content of the deployed revision, or of the desired one.
func (s *Store) Deployed(ctx context.Context, k fleet.ObjectKey) (snap, want fleet.Revision, err error) {
	a, err := Snapshot(ctx, s.Q, k)
	if err != nil {
		return snap, want, err
	}
	b, err := Desired(ctx, s.Q, k)
	return RevisionOf(a), RevisionOf(b), err
}

// DeliveryWorkflow gives the workflow run of a delivery.
func (s *Store) DeliveryWorkflow(ctx context.Context, id fleet.DeliveryID) (workflow, run string, err error) {
	d, err := s.Q.GetDelivery(ctx, string(id))
	if postgres.NoRows(err) {
		return "", "", nil
	}
	return d.WorkflowID, d.RunID, err
}

// RevisionOf reads one revision; 0 is none.
func (s *Store) RevisionOf(ctx context.Context, k fleet.ObjectKey, revision int64) (fleet.Revision, error) {
	if revision == 0 {
		return fleet.Revision{}, nil
	}
	r, err := revisionAt(ctx, s.Q, k.Scope, k.Name, revision)
	return RevisionOf(r), err
}

// SpecOf reads the spec that a revision was released from.
func (s *Store) SpecOf(ctx context.Context, k fleet.ObjectKey, revision int64) (fleet.InstanceSpec, error) {
	var spec fleet.InstanceSpec
	r, err := revisionAt(ctx, s.Q, k.Scope, k.Name, revision)
	if err != nil {
		return spec, err
	}
	return spec, postgres.Unreadable("the spec of a revision", json.Unmarshal(r.Spec, &spec))
}
