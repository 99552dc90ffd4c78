package link

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// idleAfter is the term by which nodes idle; other providers have no tasks.
func (s *Server) idleAfter(node fleet.NodeName) *durationpb.Duration {
	if node == "" || s.o.Timing.Idle == 0 {
		return nil
	}
	return durationpb.New(s.o.Timing.Idle)
}

// wakeNode is told that a node is wanted, here or at any server.
func (s *Server) wakeNode(node fleet.NodeName, number int64) {
	s.mu.RLock()
	c := s.nodes[node]
	s.mu.RUnlock()
	if c != nil {
		s.wake(c, number)
	}
}

// wake tells a node once of each number that is above those it was told of.
func (s *Server) wake(c *connection, number int64) {
	if c.now() == fleet.ConnectionRegistered { // no stream yet: it is looked at when that opens
		return
	}
	for told := c.woken.Load(); number > told; told = c.woken.Load() {
		if c.woken.CompareAndSwap(told, number) {
			s.metrics.wakes.Inc()
			s.send(c, &nodev1.ConnectResponse{Message: &nodev1.ConnectResponse_Wake{Wake: &nodev1.Wake{}}})
			return
		}
	}
}

// wakeOpened tells a node that connects whether it was wanted meanwhile. The connection is held
// already: what is wanted from now on is told by wakeNode. When it cannot be found out the node
// is woken, which costs a poll.
func (s *Server) wakeOpened(ctx context.Context, c *connection) {
	if c.node == "" {
		return
	}
	ctx, cancel := within(ctx)
	defer cancel()
	number, err := s.o.Store.WantedNode(ctx, c.node, s.o.TaskLife)
	if err != nil {
		s.o.Log.Warn("a node is woken in case", "node", c.node, "error", err)
		number = 1
	}
	s.wake(c, number)
}

// wakeWanted wakes the nodes of which this server was not told.
func (s *Server) wakeWanted(ctx context.Context) error {
	wanted, err := s.o.Store.WantedNodes(ctx, s.o.TaskLife)
	for node, number := range wanted {
		s.wakeNode(node, number)
	}
	return err
}
