package provider

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
)

// protocolVersion is the highest that this package supports.
const protocolVersion = 1

// keepaliveEvery is the minimum that gRPC allows. Heartbeats are more frequent, so pings are sent only when
// nothing else arrives any more.
const keepaliveEvery = 10 * time.Second

// session is one attempt: a new transport, a new registration, one stream. Its fields belong to the goroutine
// that calls run.
type session struct {
	opt    Options
	lane   *lane
	notes  *notices
	report func(Status)

	client  nodev1.ControlPlaneClient
	stream  nodev1.ControlPlane_ConnectClient
	cut     context.CancelCauseFunc // ends the stream at once
	in      chan *nodev1.ConnectResponse
	over    chan error // the reader's error
	status  Status
	version uint32
	terms

	lived      bool
	watchdog   *time.Timer
	answered   time.Time // when the last answer to a heartbeat came, or the stream was opened
	unanswered time.Time // when the oldest heartbeat since was sent; zero without one
	drain      *draining
	feeding    *feeding
}

// run makes the attempt and continues until the connection ends.
func (s *session) run(ctx context.Context) ending {
	// Its own transport: gRPC's would wait on its own terms before it dials again, and would keep a half-open
	// connection.
	transport := newTransport(s.security())
	conn, err := grpc.NewClient(s.opt.Address, s.dialOptions(transport)...)
	if err != nil {
		return ending{err: fmt.Errorf("prepare to dial: %w", err)}
	}
	defer conn.Close() //nolint:errcheck // nothing is left to send
	s.client = nodev1.NewControlPlaneClient(conn)
	if err := s.register(ctx); err != nil {
		return ending{err: err, unheard: unanswered(err)}
	}
	s.lane.open(s.status.ConnectionID)
	defer s.lane.close()
	if err = s.open(ctx); err == nil {
		err = s.live(ctx)
	}
	if ctx.Err() != nil {
		s.deregister(ctx) // before the stream ends, which would look like a failure (C62)
		err = errClosed
	}
	if silent := (*silenceError)(nil); errors.As(err, &silent) {
		transport.reset()
	}
	s.cut(errClosed)
	if s.drain != nil {
		err = s.settle(ctx)
	}
	return ending{err: err, lived: s.lived}
}

func (s *session) security() credentials.TransportCredentials {
	if s.opt.Insecure {
		return insecure.NewCredentials()
	}
	config := s.opt.TLS
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return credentials.NewTLS(config)
}

func (s *session) dialOptions(security credentials.TransportCredentials) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(security),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: s.opt.CallTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: keepaliveEvery, Timeout: first(s.opt.HeartbeatTimeout, DefaultHeartbeatTimeout),
		}),
		// Messages are small: a program may have thousands of connections.
		grpc.WithReadBufferSize(4 << 10), grpc.WithWriteBufferSize(4 << 10),
		grpc.WithIdleTimeout(0),
	}
}

// authorized adds a token made for this call. gRPC's credentials would report a token that could not be made as
// a refused one.
func (s *session) authorized(ctx context.Context) (context.Context, error) {
	token, err := s.opt.Token(ctx)
	if err != nil {
		return nil, fmt.Errorf("make a token: %w", err)
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), nil
}

func (s *session) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opt.CallTimeout)
	defer cancel()
	authorized, err := s.authorized(ctx)
	if err != nil {
		return err
	}
	answer, err := s.client.Register(authorized, &nodev1.RegisterRequest{
		ProtocolVersion: protocolVersion, Provider: s.opt.Name, ModuleNamespace: s.opt.ModuleNamespace,
		GroupId: s.opt.Group, ExecutorAddress: s.opt.ExecutorAddress, Modules: s.opt.Executor.offers(),
		ExecutorTls: s.opt.Executor.security(s.opt.ExecutorServerName),
		PeerAddress: s.opt.PeerAddress, NodeFacts: s.opt.NodeFacts,
	})
	if err != nil {
		return fmt.Errorf("register: %w", refusal(err))
	}
	s.version = answer.GetProtocolVersion()
	s.terms = s.opt.terms(answer)
	s.notes.site(answer.GetSite())
	s.status = Status{State: Connecting, ConnectionID: answer.GetConnectionId(), IdleAfter: answer.GetIdleAfter().AsDuration()}
	for _, m := range answer.GetModules() {
		if !m.GetAccepted() {
			s.status.Rejected = append(s.status.Rejected, Rejection{m.GetName(), m.GetReason(), m.GetMessage()})
			s.opt.Logger.Error("the region rejected a module", "module", m.GetName(), "reason", m.GetReason(), "message", m.GetMessage())
		}
	}
	return nil
}

// open opens the stream and sends the connection's id. The stream outlives the caller's context, so that an
// orderly end can be sent on it.
func (s *session) open(ctx context.Context) error {
	streamCtx, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	s.cut = cut
	tokenCtx, cancel := context.WithTimeout(ctx, s.opt.CallTimeout)
	defer cancel()
	authorized, err := s.authorized(tokenCtx)
	if err != nil {
		return err
	}
	headers, _ := metadata.FromOutgoingContext(authorized)
	err = s.send(ctx, "the stream was not opened", func() error {
		s.stream, err = s.client.Connect(metadata.NewOutgoingContext(streamCtx, headers))
		return err
	})
	if err != nil {
		return fmt.Errorf("open the stream: %w", refusal(err))
	}
	s.in, s.over = make(chan *nodev1.ConnectResponse), make(chan error, 1)
	go s.read(streamCtx)
	s.answered = time.Now()
	s.watchdog = time.NewTimer(s.timeout)
	return s.beat(ctx)
}

// read passes on messages until the stream ends.
func (s *session) read(ctx context.Context) {
	for {
		m, err := s.stream.Recv()
		if err != nil {
			s.over <- streamError(ctx, err)
			return
		}
		select {
		case s.in <- m:
		case <-ctx.Done():
			s.over <- context.Cause(ctx)
			return
		}
	}
}

func streamError(ctx context.Context, err error) error {
	switch {
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case errors.Is(err, io.EOF):
		return errStreamEnded
	}
	return streamRefusal(err)
}

// send bounds one send; whatever blocks it, the stream is cut after the timeout, or soon after the caller's
// context ended.
func (s *session) send(ctx context.Context, what string, call func() error) error {
	late := &silenceError{what: what, wait: s.timeout}
	limit := newSendLimit(s.timeout, func(err error) { s.cut(err) }, late)
	stop := context.AfterFunc(ctx, limit.hurry)
	defer stop()
	err := call()
	if reached := limit.end(); err != nil && errors.Is(reached, late) {
		return late
	}
	return err
}

// deregister reports the end of this connection to the region; if that fails the region detects it by itself.
func (s *session) deregister(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(s.opt.CallTimeout, s.timeout))
	defer cancel()
	ctx, err := s.authorized(ctx)
	if err == nil {
		_, err = s.client.Deregister(ctx, &nodev1.DeregisterRequest{
			ConnectionId: s.status.ConnectionID, Reason: "closed by the provider",
			ReplicasEnded: s.opt.ReplicasEnded != nil && s.opt.ReplicasEnded(),
		})
	}
	if err != nil {
		s.opt.Logger.Warn("deregister this provider", "err", err)
	}
}
