package activities

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// leaser is the node's own side of its site's lease.
type leaser interface {
	// HandOver stops what runs and gives the lease back; one that the node does not hold is
	// given back already.
	HandOver(ctx context.Context, cmd fleet.HandOverCommand) (fleet.HandOverResult, error)
	// TakeOver stands for the lease until the node holds it; one that it holds it has taken.
	TakeOver(ctx context.Context, cmd fleet.TakeOverCommand) (fleet.TakeOverResult, error)
}

// HandOver asks the holder of its site's lease to stop and to release it.
func (n *Node) HandOver(ctx context.Context, cmd fleet.HandOverCommand) (fleet.HandOverResult, error) {
	ctx, stop := heartbeat(ctx)
	defer stop()
	out, err := n.Leases.HandOver(ctx, cmd)
	return out, fail(ctx, cutShort(ctx, err))
}

// TakeOver asks a node to stand for its site's lease at once.
func (n *Node) TakeOver(ctx context.Context, cmd fleet.TakeOverCommand) (fleet.TakeOverResult, error) {
	ctx, stop := heartbeat(ctx)
	defer stop()
	out, err := n.Leases.TakeOver(ctx, cmd)
	return out, fail(ctx, cutShort(ctx, err))
}
