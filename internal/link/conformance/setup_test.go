// Package conformance has the provider SDK and the server of the link meet over real sockets.
package conformance

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/link"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
	"github.com/holdfast-io/holdfast/provider"
)

// patience bounds a wait for what must happen, on a machine that does much else.
const patience = 60 * time.Second

// now is the real clock: sockets and the database run by it.
var now = time.Now //nolint:forbidigo // see above

// childAddress and childToken start this test binary as a provider of its own.
const (
	childAddress = "CONFORMANCE_TEST_LINK"
	childToken   = "CONFORMANCE_TEST_TOKEN"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(childAddress); address != "" { //nolint:forbidigo // how a test starts itself as another process
		os.Exit(runChild(address, os.Getenv(childToken))) //nolint:forbidigo // as above
	}
	goleak.VerifyTestMain(m)
}

// runChild is a provider that lives until its standard input ends.
func runChild(address, token string) int {
	c, err := provider.New(options(address, token))
	if err != nil {
		return 2
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	if c.Run(ctx) != nil {
		return 1
	}
	return 0
}

// child starts a provider as a process.
func child(t *testing.T, address, token string) *os.Process {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childAddress+"="+address, childToken+"="+token)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = in.Close()
		_ = cmd.Wait() // it may have been killed
	})
	return cmd.Process
}

// quick are terms by which a loss shows in seconds; patient ones by which nothing lapses.
func quick() fleet.LinkTiming {
	t := patient()
	t.HeartbeatTimeout = 1500 * time.Millisecond
	return t
}

func patient() fleet.LinkTiming {
	return fleet.LinkTiming{
		HeartbeatEvery: 50 * time.Millisecond, HeartbeatTimeout: patience, StreamRequired: patience,
		Report: 100 * time.Millisecond, DrainAck: 500 * time.Millisecond,
	}
}

// region is a database with a server of the link on it, at an address that outlives the server.
type region struct {
	*testing.T
	store   *store.Store
	timing  fleet.LinkTiming
	address string
	stop    func()
	token   string // may claim acme and what lies below
}

func newRegion(t *testing.T, timing fleet.LinkTiming) *region {
	r := &region{T: t, store: testkit.Store(t), timing: timing, address: testkit.Address()}
	r.token, _ = r.grant("acme")
	r.serve()
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *region) grant(namespaces ...fleet.ModuleNamespace) (token, id string) {
	r.Helper()
	token, hash, err := identity.NewToken(32)
	require.NoError(r, err)
	row, err := r.store.AddAPIToken(r.Context(), keyring.APIToken{Hash: hash[:], Role: "provider", Namespaces: namespaces, CreatedBy: "test"})
	require.NoError(r, err)
	return token, row.ID
}

// serve starts a server, on the same port again after the one before has stopped.
func (r *region) serve() {
	r.Helper()
	id, err := postgres.NewID()
	require.NoError(r, err)
	s, err := link.New(link.Options{Store: r.store, ID: id, Timing: r.timing, Now: now, Log: slog.New(slog.DiscardHandler), Replicas: r.store})
	require.NoError(r, err)
	l, err := net.Listen("tcp", r.address)
	require.NoError(r, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	r.stop = sync.OnceFunc(func() { cancel(); require.NoError(r, <-done) })
}

func (r *region) eventually(what string, so func() bool) {
	r.Helper()
	require.Eventually(r, so, patience, 5*time.Millisecond, what)
}

// live are the connections that have not ended.
func (r *region) live() []nodes.Connection {
	r.Helper()
	all, err := r.store.ListConnections(context.Background(), "", "", 100)
	require.NoError(r, err)
	return all
}

func (r *region) row(id string) nodes.Connection {
	r.Helper()
	c, err := r.store.GetConnection(context.Background(), fleet.ConnectionID(id))
	require.NoError(r, err)
	return c
}

// ends waits for the end of a connection, for one of these reasons.
func (r *region) ends(id string, reasons ...fleet.ConnectionEvent) {
	r.Helper()
	r.eventually("the connection ends", func() bool { return !r.row(id).State.Live() })
	require.Contains(r, reasons, r.row(id).Reason)
}

// active waits until a provider is Active under an id that is not the one before.
func (r *region) active(name, before string) string {
	r.Helper()
	var id string
	r.eventually(name+" is active", func() bool {
		for _, c := range r.live() {
			if string(c.Provider) == name && c.State == fleet.ConnectionActive && string(c.ID) != before {
				id = string(c.ID)
				return true
			}
		}
		return false
	})
	return id
}

// options are those of a provider that never gives up; its name is p.
func options(address, token string, change ...func(*provider.Options)) provider.Options {
	o := provider.Options{
		Address: address, Name: "p", Insecure: true, MaxReconnectAttempts: -1,
		Token:   func(context.Context) (string, error) { return token, nil },
		Backoff: provider.Backoff{Initial: 20 * time.Millisecond, Max: 200 * time.Millisecond},
	}
	for _, f := range change {
		f(&o)
	}
	return o
}

func named(name string) func(*provider.Options) {
	return func(o *provider.Options) { o.Name = name }
}

// running is a provider in this process.
type running struct {
	*provider.InstanceConnection
	t    *testing.T
	end  context.CancelFunc
	done chan error
}

func (r *region) run(o provider.Options) *running {
	r.Helper()
	c, err := provider.New(o)
	require.NoError(r, err)
	ctx, cancel := context.WithCancel(context.Background())
	out := &running{c, r.T, cancel, make(chan error, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		out.done <- c.Run(ctx)
	}()
	r.Cleanup(func() { cancel(); <-ended })
	return out
}

func (c *running) result() error {
	c.t.Helper()
	select {
	case err := <-c.done:
		return err
	case <-time.After(patience):
		require.FailNow(c.t, "Run goes on")
		return nil
	}
}

// wire is a TCP proxy that can go silent without closing anything, and let nobody in.
type wire struct {
	address, to string
	listener    net.Listener
	forwarding  sync.WaitGroup

	mu       sync.Mutex
	frozen   *sync.Cond
	up, down bool // frozen
	closed   bool // to new connections
	conns    []net.Conn
}

func newWire(t *testing.T, to string) *wire {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{address: l.Addr().String(), to: to, listener: l}
	w.frozen = sync.NewCond(&w.mu)
	accepting := make(chan struct{})
	go func() { defer close(accepting); w.accept() }()
	t.Cleanup(func() {
		_ = l.Close()
		<-accepting
		w.set(false, false, true)
		w.cut()
		w.forwarding.Wait()
	})
	return w
}

func (w *wire) accept() {
	for {
		in, err := w.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", w.to)
		w.mu.Lock()
		if err != nil || w.closed {
			w.mu.Unlock()
			_ = in.Close()
			if err == nil {
				_ = out.Close()
			}
			continue
		}
		w.conns = append(w.conns, in, out)
		w.forwarding.Add(2)
		w.mu.Unlock()
		go w.forward(in, out, &w.up)
		go w.forward(out, in, &w.down)
	}
}

func (w *wire) forward(from, to net.Conn, stopped *bool) {
	defer w.forwarding.Done()
	buffer := make([]byte, 4<<10)
	for {
		n, err := from.Read(buffer)
		w.mu.Lock()
		for *stopped {
			w.frozen.Wait()
		}
		w.mu.Unlock()
		_, _ = to.Write(buffer[:n])
		if err != nil {
			_ = to.Close()
			return
		}
	}
}

// set freezes each way or lets it flow, and opens or closes the wire to new connections.
func (w *wire) set(up, down, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.up, w.down, w.closed = up, down, closed
	w.frozen.Broadcast()
}

// cut closes what is open.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
}
