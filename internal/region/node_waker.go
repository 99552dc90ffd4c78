package region

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// wanter records that a node is wanted, and notifies the server with its stream.
type wanter interface {
	WantNode(ctx context.Context, node fleet.NodeName) error
}

// nodeWaker wakes nodes, again only when part of their idle time has passed: a delivery to a busy node costs
// nothing more.
type nodeWaker struct {
	store wanter
	idle  time.Duration // 0: nodes never idle
	now   func() time.Time

	mu   sync.Mutex
	said map[fleet.NodeName]time.Time
}

func newNodeWaker(store wanter, idle time.Duration, now func() time.Time) *nodeWaker {
	return &nodeWaker{store: store, idle: idle, now: now, said: map[fleet.NodeName]time.Time{}}
}

// WakeNodes returns once the servers with the nodes' streams are notified.
func (w *nodeWaker) WakeNodes(ctx context.Context, nodes ...fleet.NodeName) error {
	if w.idle == 0 {
		return nil
	}
	for _, node := range nodes {
		if err := w.wake(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

func (w *nodeWaker) wake(ctx context.Context, node fleet.NodeName) error {
	now := w.now() // before the notification, so that the time is never too late
	w.mu.Lock()
	said, before := w.said[node]
	w.mu.Unlock()
	if node == "" || before && now.Sub(said) < decide.SayAgain(w.idle) {
		return nil
	}
	if err := w.store.WantNode(ctx, node); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said[node] = now
	return nil
}
