package stores

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// MustMiss records why a node did not take a delivery.
func (b *Bench) MustMiss(d fleet.DeliveryID, node fleet.NodeName, state fleet.TargetState, reason fleet.Kind) fleet.InstanceSeen {
	b.T.Helper()
	seen, err := b.Miss(b.Ctx(), fleet.Miss{
		Subject: SubjectOf(Run1), Delivery: d, Node: node, State: state, Reason: reason, Message: "it said so",
	})
	require.NoError(b.T, err)
	return seen
}

// Report has a node report a revision of the press, at its start or later.
func (b *Bench) Report(node fleet.NodeName, r fleet.Revision) {
	b.T.Helper()
	_, err := b.HeldBy(b.Ctx(), nodes.NodeReport{Node: node, Instances: []fleet.NodeInstance{{Instance: Press, Held: Holding(r)}}})
	require.NoError(b.T, err)
}

// SubjectOf is the press in a run of its workflow.
func SubjectOf(run string) fleet.Subject {
	return fleet.Subject{Site: Plant, Instance: Press, Run: run, Build: "build-1"}
}

// step takes one step of an entity and no more.
func (b *Bench) step(ctx context.Context, of fleet.Subject, step fleet.Step) (fleet.Walked, error) {
	return b.Walk(ctx, of, step, func(fleet.InstanceSeen, int) (fleet.Step, bool) { return fleet.Step{}, false })
}

// Observe takes the step that changes nothing.
func (b *Bench) Observe(ctx context.Context, of fleet.Subject) (fleet.InstanceSeen, error) {
	w, err := b.step(ctx, of, fleet.Step{})
	return w.Seen, err
}

// Claim takes the step that opens a delivery.
func (b *Bench) Claim(ctx context.Context, c fleet.Claim) (fleet.InstanceSeen, error) {
	w, err := b.step(ctx, c.Subject, fleet.Step{Claim: &c})
	return w.Seen, err
}

// Prepare takes the step before a node is notified.
func (b *Bench) Prepare(ctx context.Context, p fleet.Prepare) (fleet.Walked, error) {
	return b.step(ctx, p.Subject, fleet.Step{Prepare: &p})
}

// Record takes the step that keeps a node's answer.
func (b *Bench) Record(ctx context.Context, r fleet.Record) (fleet.InstanceSeen, error) {
	w, err := b.step(ctx, r.Subject, fleet.Step{Record: &r})
	return w.Seen, err
}

// Miss takes the step that keeps why a node has no answer.
func (b *Bench) Miss(ctx context.Context, m fleet.Miss) (fleet.InstanceSeen, error) {
	w, err := b.step(ctx, m.Subject, fleet.Step{Miss: &m})
	return w.Seen, err
}

// Settle takes the step that settles what is owed.
func (b *Bench) Settle(ctx context.Context, in fleet.Settle) (fleet.InstanceSeen, error) {
	w, err := b.step(ctx, in.Subject, fleet.Step{Settle: &in})
	return w.Seen, err
}

// End takes the step that ends a delivery.
func (b *Bench) End(ctx context.Context, e fleet.End) (fleet.InstanceSeen, error) {
	w, err := b.step(ctx, e.Subject, fleet.Step{End: &e})
	return w.Seen, err
}

// MustObserve observes the press.
func (b *Bench) MustObserve(run string) fleet.InstanceSeen {
	b.T.Helper()
	seen, err := b.Observe(b.Ctx(), SubjectOf(run))
	require.NoError(b.T, err)
	return seen
}

// ClaimOf is a claim of the press.
func ClaimOf(run, step string) fleet.Claim {
	return fleet.Claim{Subject: SubjectOf(run), Step: step, Workflow: "instance.plant.press", Deadline: time.Hour, TTL: 5 * minute}
}

// MustClaim observes and claims, and returns the open delivery.
func (b *Bench) MustClaim(run, step string) *fleet.DeliverySeen {
	b.T.Helper()
	b.MustObserve(run)
	seen, err := b.Claim(b.Ctx(), ClaimOf(run, step))
	require.NoError(b.T, err)
	require.NotNil(b.T, seen.Open)
	return seen.Open
}

// Notify prepares a notify of a node with a token of its own.
func (b *Bench) Notify(d fleet.DeliveryID, node fleet.NodeName, token string) fleet.Prepared {
	b.T.Helper()
	sum := sha256.Sum256([]byte(token))
	w, err := b.Prepare(b.Ctx(), fleet.Prepare{Subject: SubjectOf(Run1), Delivery: d, Node: node, TTL: 5 * minute, TokenHash: sum[:]})
	require.NoError(b.T, err)
	require.NotNil(b.T, w.Prepared)
	return *w.Prepared
}

// Holding is what a node reports once it has taken a revision.
func Holding(r fleet.Revision) fleet.Held {
	return fleet.Held{Revision: r, HighWater: r.Version, Known: true, Running: r.Enabled && r.Action != fleet.ActionDelete}
}

// RecordOf is the answer of a node that took a revision.
func RecordOf(d fleet.DeliveryID, node fleet.NodeName, r fleet.Revision) fleet.Record {
	return fleet.Record{
		Subject: SubjectOf(Run1), Delivery: d, Node: node, Response: fleet.DeploymentStatusResponse{Held: Holding(r)},
	}
}

// MustRecord keeps that a node took a delivery.
func (b *Bench) MustRecord(d *fleet.DeliverySeen, node fleet.NodeName) fleet.InstanceSeen {
	b.T.Helper()
	seen, err := b.Record(b.Ctx(), RecordOf(d.ID, node, d.Revision))
	require.NoError(b.T, err)
	return seen
}

// MustEnd ends a delivery.
func (b *Bench) MustEnd(d *fleet.DeliverySeen, state fleet.DeliveryState, edits ...func(*fleet.End)) fleet.InstanceSeen {
	b.T.Helper()
	e := fleet.End{Subject: SubjectOf(Run1), Delivery: d.ID, State: state, Operation: fleet.OperationState(state)}
	for _, edit := range edits {
		edit(&e)
	}
	seen, err := b.End(b.Ctx(), e)
	require.NoError(b.T, err)
	return seen
}

// Because sets the reason of an end.
func Because(reason string) func(*fleet.End) { return func(e *fleet.End) { e.Reason = reason } }

// Owing has an end owe what the nodes missed.
func Owing(e *fleet.End) { e.Owe = true }

// Deploy brings the desired revision to both nodes, and ends well.
func (b *Bench) Deploy(step string) *fleet.DeliverySeen {
	b.T.Helper()
	d := b.MustClaim(Run1, step)
	b.MustRecord(d, NodeA)
	b.MustRecord(d, NodeB)
	b.MustEnd(d, fleet.DeliverySucceeded)
	return d
}

// Delivery reads a delivery of the press.
func (b *Bench) Delivery(id fleet.DeliveryID) deliveries.Delivery {
	b.T.Helper()
	all, err := b.ListDeliveries(b.Ctx(), PressKey, 0, 100)
	require.NoError(b.T, err)
	for _, d := range all {
		if d.ID == id {
			return d
		}
	}
	require.Fail(b.T, "there is no such delivery", "%s", id)
	return deliveries.Delivery{}
}

// Owed lists what the press owes, as "node revision due reason".
func (b *Bench) Owed() []string {
	b.T.Helper()
	return Scan[[]string](b, `SELECT coalesce(array_agg(format('%s %s %s %s', node, revision,
		CASE WHEN due THEN 'due' ELSE 'parked' END, reason) ORDER BY node), '{}') FROM owed WHERE site = $1 AND name = $2`, Plant, Press)
}
