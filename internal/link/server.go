package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/strangers"
)

// Options configure a link.
type Options struct {
	Store  Store
	ID     string // of this server process, new with each start
	Timing fleet.LinkTiming
	Now    func() time.Time // the clock of tokens, and by its monotonic part all others
	Log    *slog.Logger
	// Refuse gets what identities may not do; nil ignores it.
	Refuse func(audit.Refusal)
	// CheckSchema rejects invalid JSON schemas; nil accepts any text.
	CheckSchema func(schema string) error
	Metrics     *prometheus.Registry
	// Executors are the networks where executors may be, besides their provider's own address.
	Executors fleet.ExecutorNetworks
	// TaskLife is how long a task may wait for its node, 2 minutes by default.
	TaskLife time.Duration
	// Replicas stores nodes' replicas; with nil, reports are rejected and nodes get no sets.
	Replicas ReplicaStore
	// Wake makes entities check their subjects: replicas that changed, nodes that connected or disconnected. It
	// only speeds things up; nil leaves it to the sweep.
	Wake func(ctx context.Context, subjects []string) error
	// GRPC are more options of the gRPC server, for example its TLS.
	GRPC []grpc.ServerOption
}

// Server is one server's side of the link.
type Server struct {
	nodev1.UnimplementedControlPlaneServer
	o       Options
	limits  decide.LinkLimits
	grpc    *grpc.Server
	metrics *metrics
	base    time.Time // of the monotonic clock
	look    chan struct{}
	watch   *decide.Watch[nodes.LinkServer]
	leaving atomic.Bool

	mu    sync.RWMutex
	held  map[fleet.ConnectionID]*connection
	nodes map[fleet.NodeName]*connection // the last one of each
	moves *moves
	turns *waiting[fleet.NodeName] // nodes that connected or disconnected
	wakes *waiting[string]         // subjects to wake

	crowds    *crowds
	strangers *strangers.Limit
}

const (
	monitorEvery = time.Second // C33
	sendLimit    = 10 * time.Second
	storeLimit   = 5 * time.Second
	stopLimit    = 3 * time.Second
	taskLife     = 2 * time.Minute
	// Each connection of the transport has the first for good, the other while it sends; 5,000 are
	// meant to fit, and most messages are small.
	readBuffer  = 2 << 10
	writeBuffer = 8 << 10
	firstWindow = 64 << 10

	// Limits of a connection before it has presented a valid token, and afterwards (docs/limits.md).
	maxStrangers = 1000
	strangerLife = 10 * time.Second
	maxHeaders   = 16 << 10
	maxMessage   = 4 << 20 // a registration may have many schemas
	maxStreams   = 512
)

// New makes a server; its other services are added to Registrar before it serves.
func New(o Options) (*Server, error) {
	if err := o.Timing.Validate(); err != nil {
		return nil, err
	}
	if o.Refuse == nil {
		o.Refuse = func(audit.Refusal) {}
	}
	if o.CheckSchema == nil {
		o.CheckSchema = func(string) error { return nil }
	}
	if o.TaskLife == 0 {
		o.TaskLife = taskLife
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	s := &Server{
		o: o, limits: decide.LinkLimits{LinkTiming: o.Timing, Send: min(sendLimit, o.Timing.HeartbeatTimeout)},
		base: o.Now(), look: make(chan struct{}, 1), held: map[fleet.ConnectionID]*connection{}, nodes: map[fleet.NodeName]*connection{},
		strangers: strangers.NewLimit(maxStrangers, strangerLife), moves: newMoves(), turns: newWaiting[fleet.NodeName](), wakes: newWaiting[string](),
	}
	s.watch = decide.NewWatch[nodes.LinkServer](o.Timing.HeartbeatTimeout)
	s.crowds = s.newCrowds()
	var err error
	if s.metrics, err = newMetrics(o.Metrics, s); err != nil {
		return nil, err
	}
	g := &gate{store: o.Store, crowds: s.crowds, now: o.Now, refuse: o.Refuse}
	s.grpc = grpc.NewServer(append([]grpc.ServerOption{
		grpc.InTapHandle(g.tap), grpc.ChainUnaryInterceptor(g.unary), grpc.ChainStreamInterceptor(g.stream),
		grpc.ConnectionTimeout(strangerLife), grpc.MaxHeaderListSize(maxHeaders), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxStreams),
		// Streams have their heartbeats, which decide first; this finds half-open connections of
		// all other calls.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * o.Timing.HeartbeatEvery, Timeout: o.Timing.HeartbeatTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: min(o.Timing.HeartbeatEvery, time.Second) / 2, PermitWithoutStream: true}),
		grpc.ReadBufferSize(readBuffer), grpc.WriteBufferSize(writeBuffer),
		grpc.InitialWindowSize(firstWindow), grpc.InitialConnWindowSize(firstWindow),
	}, o.GRPC...)...)
	nodev1.RegisterControlPlaneServer(s.grpc, s)
	return s, nil
}

// Registrar takes the other services of the listener. Their calls have an identity.
func (s *Server) Registrar() grpc.ServiceRegistrar { return s.grpc }

// Serve works until the context ends. Then streams end, so that their providers reconnect elsewhere.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if err := s.o.Store.LinkServerSeen(ctx, s.o.ID, s.o.Timing.HeartbeatTimeout); err != nil { // nothing registers at an unknown server
		_ = l.Close() // the error before says more
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	loops, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoops()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := s.grpc.Serve(s.strangers.Listen(l)); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("serve the link: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		defer stopLoops()
		<-ctx.Done()
		s.leave(context.WithoutCancel(ctx))
		return nil
	})
	for _, loop := range append(s.crowds.loops(),
		s.monitor, s.report, s.sync, s.listen, s.sweep, s.save, s.wakeTurned, s.wakeSubjects,
	) {
		group.Go(func() error {
			if err := loop(loops); loops.Err() == nil {
				return err
			}
			return nil
		})
	}
	s.o.Log.Info("serving the link", "address", l.Addr().String(), "server", s.o.ID)
	return group.Wait()
}

// leave ends all streams and records that this server is gone. The loops still run: they write what ended.
func (s *Server) leave(ctx context.Context) {
	s.leaving.Store(true)
	for _, c := range s.all() {
		s.end(c, fleet.ServerLapsed)
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.grpc.GracefulStop() }()
	over := time.NewTimer(stopLimit)
	defer over.Stop()
	select {
	case <-stopped:
	case <-over.C:
		s.grpc.Stop()
		<-stopped
	}
	last, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	if err := s.o.Store.LinkServerGone(last, s.o.ID); err != nil {
		s.o.Log.Warn("cannot deregister this server; other servers will sweep its connections", "error", err)
	}
}

// clock is the monotonic one.
func (s *Server) clock() int64 { return int64(s.o.Now().Sub(s.base)) + 1 }

// all gives what this server holds.
func (s *Server) all() []*connection {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*connection, 0, len(s.held))
	for _, c := range s.held {
		out = append(out, c)
	}
	return out
}

func (s *Server) find(id fleet.ConnectionID) *connection {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.held[id]
}

func (s *Server) hold(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[c.id] = c
	if c.node != "" {
		s.nodes[c.node] = c
	}
}

// drop removes a connection, unless another has replaced it.
func (s *Server) drop(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[c.id] == c {
		delete(s.held, c.id)
	}
	if s.nodes[c.node] == c {
		delete(s.nodes, c.node)
	}
}
