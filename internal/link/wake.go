package link

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// idleAfter is the idle time of nodes; other providers have no tasks.
func (s *Server) idleAfter(node fleet.NodeName) *durationpb.Duration {
	if node == "" || s.o.Timing.Idle == 0 {
		return nil
	}
	return durationpb.New(s.o.Timing.Idle)
}

// wakeNode handles a node that is wanted, here or at any server.
func (s *Server) wakeNode(node fleet.NodeName, number int64) {
	s.mu.RLock()
	c := s.nodes[node]
	s.mu.RUnlock()
	if c != nil {
		s.wake(c, number)
	}
}

// wake sends a node each wake number once, if it is above the last one sent.
func (s *Server) wake(c *connection, number int64) {
	if c.now() == fleet.ConnectionRegistered { // no stream yet: it is checked when that opens
		return
	}
	for sent := c.woken.Load(); number > sent; sent = c.woken.Load() {
		if c.woken.CompareAndSwap(sent, number) {
			s.metrics.wakes.Inc()
			s.send(c, &nodev1.ConnectResponse{Message: &nodev1.ConnectResponse_Wake{Wake: &nodev1.Wake{}}})
			return
		}
	}
}

// wakeOpened wakes a connecting node if it was wanted before. The connection is already held: wakeNode handles
// later wakes. If that cannot be read, the node is woken, which costs a poll.
func (s *Server) wakeOpened(ctx context.Context, c *connection) {
	if c.node == "" {
		return
	}
	ctx, cancel := within(ctx)
	defer cancel()
	number, err := s.o.Store.WantedNode(ctx, c.node, s.o.TaskLife)
	if err != nil {
		s.o.Log.Warn("waking a node as a precaution", "node", c.node, "error", err)
		number = 1
	}
	s.wake(c, number)
}

// wakeWanted wakes nodes whose wake this server missed.
func (s *Server) wakeWanted(ctx context.Context) error {
	wanted, err := s.o.Store.WantedNodes(ctx, s.o.TaskLife)
	for node, number := range wanted {
		s.wakeNode(node, number)
	}
	return err
}
