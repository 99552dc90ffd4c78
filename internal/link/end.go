package link

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// end is the only way to end a connection of this server. It is claimed by the state, so that it happens once (C48
// to C51, C59). The stream's handler returns and the row ends, and with it modules, executor and module namespace.
func (s *Server) end(c *connection, on fleet.ConnectionEvent) bool {
	if !c.move(on) {
		return false
	}
	s.moves.end(c, on)
	s.close(c, on)
	return true
}

// endedElsewhere ends a connection whose row has already ended, or belongs to another server.
func (s *Server) endedElsewhere(c *connection, on fleet.ConnectionEvent) {
	if c.move(on) {
		close(c.saved)
		s.close(c, on)
		s.turned(c.node)
	}
}

// forget drops a registration whose stream is at another server.
func (s *Server) forget(c *connection) {
	if c.move(fleet.ServerLapsed) {
		s.drop(c)
	}
}

func (s *Server) close(c *connection, on fleet.ConnectionEvent) {
	c.ended.Store(&on)
	s.drop(c)
	s.metrics.ended.WithLabelValues(string(on)).Inc()
	if took, drained := c.drained(s.clock()); drained {
		s.metrics.drains.WithLabelValues(string(on)).Inc()
		s.metrics.drainTime.WithLabelValues(string(on)).Observe(took.Seconds())
	}
	close(c.done)
}

// moves are moves to write, the newest of each connection.
type moves struct {
	mu    sync.Mutex
	ended map[*connection]fleet.ConnectionEvent
	acked map[*connection]int
	saves map[*connection]fleet.ConnectionEvent // ends being written
	news  chan struct{}
}

func newMoves() *moves {
	return &moves{ended: map[*connection]fleet.ConnectionEvent{}, acked: map[*connection]int{}, news: make(chan struct{}, 1)}
}

func (m *moves) end(c *connection, on fleet.ConnectionEvent) {
	m.mu.Lock()
	m.ended[c] = on
	delete(m.acked, c) // an end leaves Active as well
	m.mu.Unlock()
	m.tell()
}

func (m *moves) ack(c *connection, inFlight int) {
	m.mu.Lock()
	if _, over := m.ended[c]; !over {
		m.acked[c] = inFlight
	}
	m.mu.Unlock()
	m.tell()
}

func (m *moves) tell() {
	select {
	case m.news <- struct{}{}:
	default:
	}
}

// take returns all that waits, and clears it.
func (m *moves) take() (ended map[*connection]fleet.ConnectionEvent, acked map[*connection]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ended, acked = m.ended, m.acked
	m.ended, m.acked, m.saves = map[*connection]fleet.ConnectionEvent{}, map[*connection]int{}, ended
	return ended, acked
}

// written clears what take returned.
func (m *moves) written() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.saves = nil
}

// unwritten returns the connections that have ended, but whose rows may not have.
func (m *moves) unwritten() map[fleet.ConnectionID]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[fleet.ConnectionID]bool{}
	for _, some := range []map[*connection]fleet.ConnectionEvent{m.ended, m.saves} {
		for c := range some {
			all[c.id] = true
		}
	}
	return all
}

// putBack returns moves that could not be written; newer ones win.
func (m *moves) putBack(ended map[*connection]fleet.ConnectionEvent, acked map[*connection]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.saves = nil
	for c, on := range ended {
		m.ended[c] = on
	}
	for c, n := range acked {
		if _, over := m.ended[c]; over {
			continue
		}
		if _, newer := m.acked[c]; !newer {
			m.acked[c] = n
		}
	}
}

const saveAgain = time.Second

// save writes moves as they arrive, many at once, and retries after a failure.
func (s *Server) save(ctx context.Context) error {
	again := time.NewTicker(saveAgain)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.moves.news:
		case <-again.C:
		}
		s.saveOnce(ctx)
	}
}

func (s *Server) saveOnce(ctx context.Context) {
	ended, acked := s.moves.take()
	if len(ended) == 0 && len(acked) == 0 {
		return
	}
	all := nodes.ConnectionMoves{Ended: map[fleet.ConnectionID]fleet.ConnectionEvent{}, Acked: map[fleet.ConnectionID]int{}}
	for c, on := range ended {
		all.Ended[c.id] = on
	}
	for c, n := range acked {
		all.Acked[c.id] = n
	}
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	if err := s.o.Store.MoveConnections(ctx, s.o.ID, all); err != nil {
		s.o.Log.Warn("cannot write moves of connections; retrying", "count", len(ended)+len(acked), "error", err)
		s.moves.putBack(ended, acked)
		return
	}
	s.moves.written()
	for c := range ended {
		close(c.saved)
		s.turned(c.node)
	}
}
