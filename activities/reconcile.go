package activities

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// gapStore compares what a node said it holds with what is deployed, and writes what is to
// be done about it; the others give the subject to wake, "" when the world has moved.
type gapStore interface {
	ComparePage(ctx context.Context, node fleet.NodeName, after string, limit int32) (page []fleet.Comparison, next string, err error)
	Owe(ctx context.Context, node fleet.NodeName, name fleet.InstanceName, revision fleet.Version) (subject string, err error)
	ReleaseAgain(ctx context.Context, node fleet.NodeName, name fleet.InstanceName, revision fleet.Version) (subject string, err error)
	SettleAgain(ctx context.Context, node fleet.NodeName, name fleet.InstanceName, revision fleet.Version) (subject string, err error)
}

// Reconciles are the steps of ReconcileNode.
type Reconciles struct {
	Store    gapStore
	Entities waker
}

// ReconcilePage is one page of a node's comparison.
type ReconcilePage struct {
	Node  fleet.NodeName `json:"node"`
	After string         `json:"after,omitempty"`
}

// ReconciledPage is what a page came to.
type ReconciledPage struct {
	Woken int    `json:"woken"`
	Next  string `json:"next,omitempty"`
}

// pageOfActions bounds what one page may start.
const pageOfActions = 100

// Page owes what is missing or stale on the node and wakes its subjects. Nothing is
// dropped. The outbox repeats a wake that fails here.
func (r *Reconciles) Page(ctx context.Context, in ReconcilePage) (ReconciledPage, error) {
	if err := fleet.ValidateName("/node", string(in.Node)); err != nil {
		return ReconciledPage{}, fail(ctx, err)
	}
	page, next, err := r.Store.ComparePage(ctx, in.Node, in.After, pageOfActions)
	if err != nil {
		return ReconciledPage{}, fail(ctx, err)
	}
	out := ReconciledPage{Next: next}
	for _, c := range page {
		subject, err := r.mend(ctx, in.Node, c)
		if err != nil {
			return ReconciledPage{}, fail(ctx, err)
		}
		if subject == "" {
			continue
		}
		if err := r.Entities.Wake(ctx, subject); err != nil {
			return ReconciledPage{}, fail(ctx, err)
		}
		out.Woken++
	}
	return out, nil
}

// mend acts on one comparison and gives the subject to wake, "" for none.
func (r *Reconciles) mend(ctx context.Context, node fleet.NodeName, c fleet.Comparison) (string, error) {
	switch decide.Reconcile(c) {
	case decide.GapBehind:
		return r.Store.Owe(ctx, node, c.Instance, c.Snapshot.Version)
	case decide.GapAhead:
		return r.Store.ReleaseAgain(ctx, node, c.Instance, c.Snapshot.Version)
	case decide.GapUnrecorded:
		return r.Store.SettleAgain(ctx, node, c.Instance, c.Desired.Version)
	case decide.GapNone:
	}
	return "", nil
}
