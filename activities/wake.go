package activities

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// nodeWaker sees to it that nodes ask for their tasks: idle ones do not (docs/idle.md). Who hands
// a workflow what it is to give a node wakes that node. It may be called often, and for nodes
// that are awake.
type nodeWaker interface {
	WakeNodes(ctx context.Context, nodes ...fleet.NodeName) error
}

// wakeNodes wakes nodes, where there are any that idle.
func wakeNodes(ctx context.Context, w nodeWaker, nodes ...fleet.NodeName) error {
	if w == nil {
		return nil
	}
	return w.WakeNodes(ctx, nodes...)
}
