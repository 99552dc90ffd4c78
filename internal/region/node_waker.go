package region

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// wanter writes down that a node is wanted, and tells the server that has its stream.
type wanter interface {
	WantNode(ctx context.Context, node fleet.NodeName) error
}

// nodeWaker says that nodes are wanted, and says it again only when their idle time has begun to
// run out: a delivery to a node that is at work costs nothing more.
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

// WakeNodes returns once whoever has the nodes' streams is told.
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
	now := w.now() // before it is said: what is said later is not older than that
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
