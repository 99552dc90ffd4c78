package link

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"time"

	"google.golang.org/grpc"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

type connectStream = grpc.BidiStreamingServer[nodev1.ConnectRequest, nodev1.ConnectResponse]

// Connect is the stream of one connection. It returns when the connection has ended, however it ended, after its
// row has: a provider that reconnects finds nothing in its way.
func (s *Server) Connect(stream connectStream) error {
	if s.leaving.Load() {
		return endStatus(fleet.ServerLapsed)
	}
	first, err := s.firstWord(stream)
	if err != nil {
		return StatusOf(err)
	}
	c, err := s.open(stream, first)
	if err != nil {
		return s.turnAway(stream, err)
	}
	s.take(c, first)
	go s.read(stream, c)
	s.wakeOpened(stream.Context(), c)
	s.setOpened(stream.Context(), c)
	s.turned(c.node)
	<-c.done
	s.awaitSaved(c)
	return endStatus(*c.ended.Load())
}

// firstWord waits for the heartbeat that identifies the stream, but not longer than StreamRequired.
func (s *Server) firstWord(stream connectStream) (*nodev1.Heartbeat, error) {
	type word struct {
		m   *nodev1.ConnectRequest
		err error
	}
	words := make(chan word, 1)
	go func() { m, err := stream.Recv(); words <- word{m, err} }()
	over := time.NewTimer(s.o.Timing.StreamRequired)
	defer over.Stop()
	select {
	case w := <-words:
		if w.err != nil {
			return nil, &fleet.Error{Kind: fleet.Communication, Message: "the stream broke", Err: w.err}
		}
		if h := w.m.GetHeartbeat(); h != nil {
			return h, nil
		}
		return nil, fleet.Errorf(fleet.Invalid, "the first message of a stream must be a heartbeat")
	case <-over.C:
		return nil, fleet.Errorf(fleet.Unavailable, "timed out waiting for the stream's first message")
	case <-stream.Context().Done():
		return nil, fleet.Errorf(fleet.Communication, "the stream broke")
	}
}

// open makes the connection active (C5), once and only for its own provider (C61).
func (s *Server) open(stream connectStream, first *nodev1.Heartbeat) (*connection, error) {
	id := fleet.ConnectionID(first.GetConnectionId())
	who := IdentityOf(stream.Context()).Name
	row, err := s.crowds.opening.ask(stream.Context(), who, nodes.Opening{ID: id, Identity: who})
	if err != nil && stream.Context().Err() != nil {
		s.abort(id, who)
	}
	if err = cmp.Or(err, row.Err); err != nil {
		return nil, err
	}
	var modules []string
	for _, m := range row.Modules {
		modules = append(modules, string(m.Name))
	}
	c := s.find(id)
	if c == nil { // registered at another server
		c = newConnection(id, fleet.ConnectionRegistered, row.Protocol, s.clock())
		c.node = row.Node
	}
	c.modules = modules
	c.heard.Store(s.clock())
	c.attach(stream.Send)
	if !c.move(fleet.StreamOpened) { // it ended here while its row was opened
		s.moves.end(newConnection(id, fleet.ConnectionDisconnected, row.Protocol, 0), fleet.StreamFailed)
		return nil, fleet.Errorf(fleet.Gone, "%s", fleet.StreamRequired)
	}
	s.hold(c)
	if !c.now().Live() { // it ended before it was held again
		s.drop(c)
	}
	if first.GetProtocolVersion() != c.protocol {
		s.end(c, fleet.StreamFailed)
		return nil, wrongVersion(c)
	}
	return c, nil
}

// abort ends a registration whose stream broke while it was opened: its row may already be active.
func (s *Server) abort(id fleet.ConnectionID, who string) {
	c := s.find(id)
	switch {
	case c == nil: // registered at another server: its row is this one's only if it was opened
		s.moves.end(newConnection(id, fleet.ConnectionDisconnected, protocolOldest, 0), fleet.StreamFailed)
	case c.identity == who:
		s.end(c, fleet.StreamFailed)
	}
}

func wrongVersion(c *connection) error {
	return fleet.Errorf(fleet.Precondition, "this connection uses protocol version %d", c.protocol).At("protocolVersion")
}

// turnAway answers a stream that opens nothing. It does not reveal whose id it is.
func (s *Server) turnAway(stream connectStream, err error) error {
	reason := ""
	switch fleet.KindOf(err) {
	case fleet.Denied:
		s.refuse(stream.Context(), "not_its_connection", "Connect")
		reason = "unknown"
	case fleet.NotFound:
		reason = "unknown"
	case fleet.Gone:
		var e *fleet.Error
		if errors.As(err, &e) {
			reason = e.Message
		}
	case fleet.Invalid, fleet.Unauthenticated, fleet.Conflict, fleet.IllegalState, fleet.Precondition, fleet.TooLarge,
		fleet.RateLimited, fleet.Stale, fleet.HashMismatch, fleet.ApplyFailed, fleet.Communication, fleet.Unavailable,
		fleet.IsolationMissing, fleet.NotOwner, fleet.Internal:
		return StatusOf(err)
	}
	return StatusOf(stream.Send(again(reason)))
}

func again(reason string) *nodev1.ConnectResponse {
	return &nodev1.ConnectResponse{Message: &nodev1.ConnectResponse_RegisterAgain{RegisterAgain: &nodev1.RegisterAgain{Reason: reason}}}
}

// savedLimit is how long the end of a stream waits for the end of its row.
const savedLimit = 2 * time.Second

func (s *Server) awaitSaved(c *connection) {
	over := time.NewTimer(savedLimit)
	defer over.Stop()
	select {
	case <-c.saved:
	case <-over.C: // the database is unreachable; it is written later
	}
}

// read receives the provider's messages until the stream ends, or the handler returns.
func (s *Server) read(stream connectStream, c *connection) {
	for {
		m, err := stream.Recv()
		if err != nil {
			s.end(c, ending(err))
			return
		}
		switch {
		case m.GetHeartbeat() != nil:
			s.take(c, m.GetHeartbeat())
		case m.GetDrainAck() != nil:
			s.acked(c, m.GetDrainAck())
		case m.GetReplicasReport() != nil:
			s.takeReport(stream.Context(), c, m.GetReplicasReport())
		}
	}
}

// ending distinguishes a provider's own end from a broken stream.
func ending(err error) fleet.ConnectionEvent {
	if errors.Is(err, io.EOF) {
		return fleet.StreamClosed
	}
	return fleet.StreamFailed
}

// take handles a heartbeat: it is recorded and acked while the connection lives. In Draining it is acked too, or
// the provider would count this server as dead during the drain (C20 to C22, C69).
func (s *Server) take(c *connection, h *nodev1.Heartbeat) {
	s.metrics.heartbeats.Inc()
	switch {
	case fleet.ConnectionID(h.GetConnectionId()) != c.id:
		s.send(c, again("unknown"))
		return
	case h.GetProtocolVersion() != c.protocol:
		s.end(c, fleet.StreamFailed)
		return
	case !c.now().Live():
		return
	}
	c.heard.Store(s.clock())
	c.inFlight.Store(bounded(h.GetInFlightCount()))
	c.beaten.Store(true)
	s.send(c, &nodev1.ConnectResponse{Message: &nodev1.ConnectResponse_HeartbeatAck{HeartbeatAck: &nodev1.HeartbeatAck{
		ConnectionId: string(c.id), ProtocolVersion: c.protocol,
	}}})
}

func bounded(n uint32) int32 { return int32(min(n, math.MaxInt32)) }

// acked handles the provider's acknowledgement that it takes nothing new (C8, C26). It ignores one that was not
// requested or that names another connection.
func (s *Server) acked(c *connection, a *nodev1.DrainAck) {
	if fleet.ConnectionID(a.GetConnectionId()) != c.id || !c.drains() {
		return
	}
	n := bounded(a.GetInFlightCount())
	c.inFlight.Store(n)
	c.beaten.Store(true)
	if c.move(fleet.DrainAcked) {
		s.metrics.drains.WithLabelValues("acked").Inc()
		s.moves.ack(c, int(n))
	}
}

// send sends a message without waiting for the client. A client that does not read is cut: by a full queue, or by
// the monitor when a send takes too long.
func (s *Server) send(c *connection, m *nodev1.ConnectResponse) {
	flush, taken := c.enqueue(m)
	switch {
	case !taken && c.now() != fleet.ConnectionRegistered:
		if s.end(c, fleet.StreamFailed) {
			s.metrics.stuck.Inc()
		}
	case flush:
		go s.flush(c)
	}
}

func (s *Server) flush(c *connection) {
	for m := c.dequeue(); m != nil; m = c.dequeue() {
		select {
		case <-c.done:
			return
		default:
		}
		c.sending.Store(s.clock())
		err := c.out(m)
		c.sending.Store(0)
		if err != nil {
			s.end(c, fleet.StreamFailed)
			return
		}
	}
}

// within adds the time limit of a call to the store.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, storeLimit)
}
