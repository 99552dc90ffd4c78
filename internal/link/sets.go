package link

import (
	"context"
	"sync"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// toldSet is which version of its set of replicas a node was told of last.
type toldSet struct {
	mu           sync.Mutex
	known        bool // it was told of one
	era, version int64
	heard        int64 // the highest version that was heard of before the first was told
}

// news says whether the node is to be told of a version, and of which: each is told once.
func (t *toldSet) news(era, version int64) (*nodev1.ReplicaSet, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.known {
		version = max(version, t.heard)
	}
	if t.known && (era < t.era || era == t.era && version <= t.version) {
		return nil, false
	}
	t.known, t.era, t.version = true, era, version
	return &nodev1.ReplicaSet{Era: era, Version: version}, true
}

// ofEra is the era to which a version belongs that was told without one. False keeps the version
// for when it is known.
func (t *toldSet) ofEra(version int64) (int64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.known {
		t.heard = max(t.heard, version)
	}
	return t.era, t.known
}

// tellSet tells a node which version of its set it should have, once of each.
func (s *Server) tellSet(c *connection, era, version int64) {
	if c.now() == fleet.ConnectionRegistered { // no stream yet: it is told when that opens
		return
	}
	if set, is := c.set.news(era, version); is {
		s.metrics.sets.Inc()
		s.send(c, &nodev1.ConnectResponse{Message: &nodev1.ConnectResponse_ReplicaSet{ReplicaSet: set}})
	}
}

// setChanged is told that a node's set has another version, here or at any server.
func (s *Server) setChanged(node fleet.NodeName, version int64) {
	s.mu.RLock()
	c := s.nodes[node]
	s.mu.RUnlock()
	if c == nil {
		return
	}
	if era, known := c.set.ofEra(version); known {
		s.tellSet(c, era, version)
	}
}

// setOpened tells a node that connects. The connection is held already: what changes from now on is
// told by setChanged. When it cannot be read, the next comparison tells.
func (s *Server) setOpened(ctx context.Context, c *connection) {
	if c.node == "" || s.o.Replicas == nil {
		return
	}
	ctx, cancel := within(ctx)
	defer cancel()
	era, version, err := s.o.Replicas.NodeSetVersion(ctx, c.node)
	if err != nil {
		s.o.Log.Warn("a node is told of its set later", "node", c.node, "error", err)
		return
	}
	s.tellSet(c, era, version)
}

// tellSets tells nodes of the versions of which this server was not told.
func (s *Server) tellSets(ctx context.Context, mine []*connection) error {
	if s.o.Replicas == nil {
		return nil
	}
	versions, err := s.o.Replicas.NodeSetVersions(ctx, s.o.ID)
	if err != nil {
		return err
	}
	for _, c := range mine {
		if set, is := versions[c.id]; is {
			s.tellSet(c, set.Era, set.Version)
		}
	}
	return nil
}
