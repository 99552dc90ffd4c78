package activities

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// gapStore compares what a node said it holds with what is deployed, a page at a time.
type gapStore interface {
	// OweMissing writes what the node lacks as owed, and gives the subjects to wake and
	// where the next page starts ("" when this was the last).
	OweMissing(ctx context.Context, node fleet.NodeName, after string, limit int32) (wake []string, next string, err error)
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
		return ReconciledPage{}, fail(err)
	}
	wake, next, err := r.Store.OweMissing(ctx, in.Node, in.After, pageOfActions)
	if err != nil {
		return ReconciledPage{}, fail(err)
	}
	for _, subject := range wake {
		if err := r.Entities.Wake(ctx, subject); err != nil {
			return ReconciledPage{}, fail(err)
		}
	}
	return ReconciledPage{Woken: len(wake), Next: next}, nil
}
