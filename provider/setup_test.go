package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

const (
	// patience bounds a wait for what must happen, on a machine that does much else.
	patience = 30 * time.Second
	beats    = 20 * time.Millisecond
	silence  = 5 * time.Second
)

func TestMain(m *testing.M) {
	if address := os.Getenv(childEnv); address != "" { //nolint:forbidigo // how a test starts itself as another process
		os.Exit(runChild(address))
	}
	goleak.VerifyTestMain(m)
}

// region is a scripted server end of the link. By default it answers every heartbeat.
type region struct {
	nodev1.UnimplementedControlPlaneServer
	t       testing.TB
	address string

	// Set before start.
	onRegister func(n int) error
	// onStream has the whole stream, the n-th; nil is answer.
	onStream func(n int, s *stream) error

	mu           sync.Mutex
	server       *grpc.Server
	registers    []*nodev1.RegisterRequest
	tokens       []string
	deregistered []string
	beatsOf      map[string]int
	log          []string // what happened, in order
}

// stream is one stream of a connection as the script sees it.
type stream struct {
	nodev1.ControlPlane_ConnectServer
	r  *region
	id string
}

func newRegion(t testing.TB) *region {
	return &region{t: t, address: testkit.Address(), beatsOf: map[string]int{}}
}

// start listens, on the same port again after a stop.
func (r *region) start() *region {
	listener, err := net.Listen("tcp", r.address)
	require.NoError(r.t, err)
	server := grpc.NewServer()
	nodev1.RegisterControlPlaneServer(server, r)
	r.mu.Lock()
	r.server = server
	r.mu.Unlock()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	r.t.Cleanup(func() { server.Stop(); <-served })
	return r
}

func (r *region) stop() {
	r.mu.Lock()
	server := r.server
	r.mu.Unlock()
	server.Stop()
}

func (r *region) Register(ctx context.Context, in *nodev1.RegisterRequest) (*nodev1.RegisterResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	r.mu.Lock()
	r.registers = append(r.registers, in)
	r.tokens = append(r.tokens, md.Get("authorization")...)
	n := len(r.registers)
	r.log = append(r.log, "register")
	r.mu.Unlock()
	if r.onRegister != nil {
		if err := r.onRegister(n); err != nil {
			return nil, err
		}
	}
	out := &nodev1.RegisterResponse{
		ConnectionId: idOf(n), ProtocolVersion: 1, HeartbeatInterval: durationpb.New(beats), HeartbeatTimeout: durationpb.New(silence),
	}
	for _, m := range in.GetModules() {
		out.Modules = append(out.Modules, &nodev1.ModuleResult{Name: m.GetName(), Accepted: m.GetName() != "refused", Reason: "schema"})
	}
	return out, nil
}

func idOf(n int) string { return fmt.Sprintf("%032x", n) }

func (r *region) Deregister(_ context.Context, in *nodev1.DeregisterRequest) (*nodev1.DeregisterResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deregistered = append(r.deregistered, in.GetConnectionId())
	r.log = append(r.log, "deregister")
	return &nodev1.DeregisterResponse{}, nil
}

func (r *region) Connect(raw nodev1.ControlPlane_ConnectServer) error {
	s := &stream{ControlPlane_ConnectServer: raw, r: r}
	m, err := s.Recv()
	if err != nil {
		return err
	}
	if s.id = m.GetHeartbeat().GetConnectionId(); s.id == "" {
		return fmt.Errorf("the first message is %v", m)
	}
	r.count(s.id)
	var n int
	_, _ = fmt.Sscanf(s.id, "%x", &n)
	if r.onStream != nil {
		err = r.onStream(n, s)
	} else {
		err = s.answer()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, "stream ended")
	return err
}

func (r *region) count(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beatsOf[id]++
}

func (s *stream) ack() error {
	return s.Send(&nodev1.ConnectResponse{Message: &nodev1.ConnectResponse_HeartbeatAck{
		HeartbeatAck: &nodev1.HeartbeatAck{ConnectionId: s.id, ProtocolVersion: 1},
	}})
}

// next takes a message; heartbeats are counted.
func (s *stream) next() (*nodev1.ConnectRequest, error) {
	m, err := s.Recv()
	if err == nil && m.GetHeartbeat() != nil {
		s.r.count(s.id)
	}
	return m, err
}

// answer acks every heartbeat, the first included, until the provider closes the stream.
func (s *stream) answer() error {
	for {
		if err := s.ack(); err != nil {
			return err
		}
		if _, err := s.next(); err != nil {
			return orNil(err)
		}
	}
}

// listen takes messages without answering until the provider closes the stream.
func (s *stream) listen() error {
	for {
		if _, err := s.next(); err != nil {
			return orNil(err)
		}
	}
}

func orNil(err error) error {
	if err == io.EOF { //nolint:errorlint // gRPC returns it bare
		return nil
	}
	return err
}

func (s *stream) drain(reason string, deadline time.Duration) error {
	return s.Send(&nodev1.ConnectResponse{Message: &nodev1.ConnectResponse_DrainRequest{
		DrainRequest: &nodev1.DrainRequest{Reason: reason, DeadlineMs: deadline.Milliseconds()},
	}})
}

func (s *stream) again(reason string) error {
	return s.Send(&nodev1.ConnectResponse{Message: &nodev1.ConnectResponse_RegisterAgain{
		RegisterAgain: &nodev1.RegisterAgain{Reason: reason},
	}})
}

func (r *region) registrations() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.registers)
}

func (r *region) heartbeats(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.beatsOf[idOf(n)]
}

func (r *region) events() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.log...)
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, patience, 2*time.Millisecond, what)
}

// options connect to an address without a pause worth mentioning.
func options(t testing.TB, address string, change ...func(*Options)) Options {
	o := Options{
		Address: address, Name: "p", Insecure: true, CallTimeout: 5 * time.Second,
		Token:   func(context.Context) (string, error) { return "secret", nil },
		Backoff: Backoff{Initial: time.Millisecond, Max: 10 * time.Millisecond}, MaxReconnectAttempts: -1,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

// lapsing has a connection end soon when it is not answered.
func lapsing(o *Options) { o.HeartbeatTimeout = 400 * time.Millisecond }

// running is a connection whose Run is under way.
type running struct {
	*InstanceConnection
	end  context.CancelFunc
	done chan error
}

func run(t testing.TB, o Options) *running {
	t.Helper()
	c, err := New(o)
	require.NoError(t, err)
	return start(t, c)
}

func start(t testing.TB, c *InstanceConnection) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{c, cancel, make(chan error, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.done <- c.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return r
}

func (r *running) result(t testing.TB) error {
	t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(patience):
		require.FailNow(t, "Run goes on")
		return nil
	}
}

func (r *running) active(t testing.TB, n int) {
	t.Helper()
	eventually(t, "active", func() bool {
		st := r.Status()
		return st.State == Active && st.ConnectionID == idOf(n)
	})
}

// since waits until it is active by its n-th connection or a later one, and gives which: on a busy
// machine one may lapse for nothing.
func (r *running) since(t testing.TB, n int) (is int) {
	t.Helper()
	eventually(t, "active", func() bool {
		st := r.Status()
		_, _ = fmt.Sscanf(st.ConnectionID, "%x", &is)
		return st.State == Active && is >= n
	})
	return is
}

// wire is a TCP proxy that can go silent without closing anything.
type wire struct {
	address string
	to      string

	mu        sync.Mutex
	frozen    *sync.Cond
	up, down  bool // frozen towards the region, towards the provider, for what is open now
	conns     map[net.Conn]bool
	gen       int
	listener  net.Listener
	forwarded sync.WaitGroup
	resets    atomic.Int64 // connections that were reset and not closed
}

func newWire(t testing.TB, to string) *wire {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{address: listener.Addr().String(), to: to, listener: listener, conns: map[net.Conn]bool{}}
	w.frozen = sync.NewCond(&w.mu)
	go w.accept()
	t.Cleanup(w.close)
	return w
}

func (w *wire) accept() {
	for {
		in, err := w.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", w.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		w.mu.Lock()
		gen := w.gen
		w.conns[in], w.conns[out] = true, true
		w.mu.Unlock()
		w.forwarded.Add(2)
		go w.forward(in, out, gen, &w.up)
		go w.forward(out, in, gen, &w.down)
	}
}

// forward copies until an end closes; while frozen it reads nothing and closes nothing.
func (w *wire) forward(from, to net.Conn, gen int, stopped *bool) {
	defer w.forwarded.Done()
	buffer := make([]byte, 4<<10)
	for {
		n, err := from.Read(buffer)
		w.mu.Lock()
		for gen < w.gen && *stopped {
			w.frozen.Wait()
		}
		w.mu.Unlock()
		if n > 0 {
			_, _ = to.Write(buffer[:n])
		}
		if errors.Is(err, syscall.ECONNRESET) {
			w.resets.Add(1)
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}

// freeze silences what is open now, for good; new connections pass.
func (w *wire) freeze(up, down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gen++
	w.up, w.down = up, down
}

func (w *wire) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	w.up, w.down = false, false
	w.frozen.Broadcast()
	for c := range w.conns {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.forwarded.Wait()
}
