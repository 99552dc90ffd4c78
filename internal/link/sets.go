package link

import (
	"context"
	"sync"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// toldSet is the version of its set of replicas that a node was last notified of.
type toldSet struct {
	mu           sync.Mutex
	known        bool // it was notified of one
	era, version int64
	heard        int64 // the highest version known before the first notification
}

// news decides whether to notify the node of a version, and of which: each is sent once.
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

// ofEra is the era of a version that arrived without one. False stores the version until the era is known.
func (t *toldSet) ofEra(version int64) (int64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.known {
		t.heard = max(t.heard, version)
	}
	return t.era, t.known
}

// tellSet notifies a node of the version of its set, once each.
func (s *Server) tellSet(c *connection, era, version int64) {
	if c.now() == fleet.ConnectionRegistered { // no stream yet: it is notified when that opens
		return
	}
	if set, is := c.set.news(era, version); is {
		s.metrics.sets.Inc()
		s.send(c, &nodev1.ConnectResponse{Message: &nodev1.ConnectResponse_ReplicaSet{ReplicaSet: set}})
	}
}

// setChanged handles a new version of a node's set, written here or at any server.
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

// setOpened notifies a node that connects. The connection is already held: setChanged handles later changes. If the
// version cannot be read, the next comparison notifies the node.
func (s *Server) setOpened(ctx context.Context, c *connection) {
	if c.node == "" || s.o.Replicas == nil {
		return
	}
	ctx, cancel := within(ctx)
	defer cancel()
	era, version, err := s.o.Replicas.NodeSetVersion(ctx, c.node)
	if err != nil {
		s.o.Log.Warn("cannot read a node's set version; retrying later", "node", c.node, "error", err)
		return
	}
	s.tellSet(c, era, version)
}

// tellSets notifies nodes of versions that this server missed.
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
