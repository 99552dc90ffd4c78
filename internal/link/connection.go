package link

import (
	"sync"
	"sync/atomic"
	"time"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// sendQueue is how many messages may wait for one stream; with more, its client does not read.
const sendQueue = 256

// connection is a connection that this server holds: a registration, or an open stream.
type connection struct {
	id       fleet.ConnectionID
	protocol uint32
	modules  []string // short names (C18)
	identity string   // who registered it here; "" if it registered at another server
	node     fleet.NodeName
	site     atomic.Pointer[string] // the mark of the last site description that the node was sent
	woken    atomic.Int64           // the number of the last wake that the node was sent
	set      toldSet

	reporting atomic.Bool // a report of the node is being written

	state atomic.Value // fleet.ConnectionState; moved by compare-and-set only (C44)

	// Times are nanoseconds of the server's monotonic clock.
	registered int64
	heard      atomic.Int64
	sending    atomic.Int64 // since when a message is on its way out, 0 for none
	inFlight   atomic.Int32
	beaten     atomic.Bool // a heartbeat arrived since the last write

	ended atomic.Pointer[fleet.ConnectionEvent]
	done  chan struct{} // closed when it has ended
	saved chan struct{} // closed when its row has ended

	mu    sync.Mutex
	queue []*nodev1.ConnectResponse
	busy  bool // a goroutine is sending
	out   func(*nodev1.ConnectResponse) error
	drain *drain
}

// drain is a drain under way.
type drain struct {
	reason   string
	began    int64
	deadline int64
	sent     int64
}

func newConnection(id fleet.ConnectionID, state fleet.ConnectionState, protocol uint32, now int64) *connection {
	c := &connection{id: id, protocol: protocol, registered: now, done: make(chan struct{}), saved: make(chan struct{})}
	c.state.Store(state)
	return c
}

func (c *connection) now() fleet.ConnectionState {
	s, _ := c.state.Load().(fleet.ConnectionState)
	return s
}

// move is the only way to another state. Of concurrent moves, one wins.
func (c *connection) move(on fleet.ConnectionEvent) bool {
	for {
		from := c.now()
		to, err := from.Next(on)
		if err != nil {
			return false
		}
		if c.state.CompareAndSwap(from, to) {
			return true
		}
	}
}

// seen is the connection at a given time; clocks before floor count as floor.
func (c *connection) seen(now, floor int64) decide.LinkSeen {
	s := decide.LinkSeen{
		State:      c.now(),
		Registered: time.Duration(now - max(c.registered, floor)),
		Silent:     time.Duration(now - max(c.heard.Load(), floor)),
	}
	if since := c.sending.Load(); since > 0 {
		s.Sending = time.Duration(now - max(since, floor))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drain != nil {
		s.Drain = &decide.LinkDrain{Left: time.Duration(c.drain.deadline - now), Sent: time.Duration(now - c.drain.sent)}
	}
	return s
}

// attach sets the connection's stream.
func (c *connection) attach(out func(*nodev1.ConnectResponse) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = out
}

// enqueue queues a message for the stream and reports whether the caller must flush. It returns false for a
// connection without a stream, and if the queue is full.
func (c *connection) enqueue(m *nodev1.ConnectResponse) (flush, taken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out == nil || len(c.queue) >= sendQueue {
		return false, false
	}
	c.queue = append(c.queue, m)
	flush, c.busy = !c.busy, true
	return flush, true
}

// dequeue returns the next message, nil if the sender is done.
func (c *connection) dequeue() *nodev1.ConnectResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		c.busy, c.queue = false, nil
		return nil
	}
	m := c.queue[0]
	c.queue = c.queue[1:]
	return m
}

// asked starts a drain, or moves its deadline forward; it reports whether the provider must be notified.
func (c *connection) asked(reason string, deadline, now int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.drain == nil:
		c.drain = &drain{reason: reason, began: now, deadline: deadline, sent: now}
		return true
	case c.drain.deadline-deadline > int64(drainNews):
		c.drain.deadline, c.drain.sent = deadline, now
		return true
	}
	return false
}

// drainNews is by how much a deadline has to move forward to count as another one, because it is recomputed from
// the database's clock each time.
const drainNews = 500 * time.Millisecond

// drainRequest is the current request to the provider, nil without a drain.
func (c *connection) drainRequest(now int64) *nodev1.ConnectResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drain == nil {
		return nil
	}
	c.drain.sent = now
	left := max(time.Duration(c.drain.deadline-now), 0)
	return &nodev1.ConnectResponse{Message: &nodev1.ConnectResponse_DrainRequest{DrainRequest: &nodev1.DrainRequest{
		Reason: c.drain.reason, DeadlineMs: left.Milliseconds(),
	}}}
}

// drains reports whether a drain was requested.
func (c *connection) drains() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.drain != nil
}

// drained is how long a drain has been under way; false without one.
func (c *connection) drained(now int64) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drain == nil {
		return 0, false
	}
	return time.Duration(now - c.drain.began), true
}
