package executors

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Now //nolint:forbidigo // deadlines of calls are by the real clock

var detect = fleet.ModuleRef{Namespace: "acme.vision", Name: "Detect"}

const patience = time.Minute

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	require.Eventually(t, done, patience, time.Millisecond, what)
}

// world is a directory of providers, and a pool over it.
type world struct {
	t    *testing.T
	pool *Pool

	mu      sync.Mutex
	members map[fleet.ModuleRef][]fleet.ModuleMember
	last    *fleet.LastOffer
	lookups int
}

func setup(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t, members: map[fleet.ModuleRef][]fleet.ModuleMember{}}
	o := Options{Directory: w, Now: now}
	for _, f := range change {
		f(&o)
	}
	w.pool = New(o)
	t.Cleanup(w.pool.Close)
	return w
}

func (w *world) ModuleMembers(_ context.Context, of fleet.ModuleRef) ([]fleet.ModuleMember, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookups++
	return append([]fleet.ModuleMember{}, w.members[of]...), nil
}

func (w *world) LastOffer(context.Context, fleet.ModuleRef) (*fleet.LastOffer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, nil
}

// offers makes a provider one of those that offer some modules.
func (w *world) offers(p *provider, of ...fleet.ModuleRef) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range of {
		member := p.member
		w.members[m] = append(w.members[m], member)
	}
}

// change alters a member wherever it is listed.
func (w *world) change(id fleet.ConnectionID, f func(*fleet.ModuleMember)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, list := range w.members {
		for i := range list {
			if list[i].Connection == id {
				f(&list[i])
			}
		}
	}
}

func (w *world) execute(input string) (fleet.ExecutionAnswer, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	return w.pool.Execute(ctx, fleet.Execution{ID: fmt.Sprintf("%032d", 1), Module: detect, Input: []byte(input)})
}

// provider serves an executor on a socket.
type provider struct {
	nodev1.UnimplementedExecutorServer
	member fleet.ModuleMember
	server *grpc.Server
	dials  atomic.Int64
	calls  atomic.Int64
	busy   atomic.Int64
	most   atomic.Int64
	seen   sync.Map // execution ids
	run    func(ctx context.Context, in *nodev1.ExecuteRequest) ([]byte, error)
}

// counted counts the connections of a listener.
type counted struct {
	net.Listener
	dials *atomic.Int64
}

func (c counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.dials.Add(1)
	}
	return conn, err
}

var echo = func(_ context.Context, in *nodev1.ExecuteRequest) ([]byte, error) { return in.GetInput(), nil }

func (w *world) provider(name string, run func(context.Context, *nodev1.ExecuteRequest) ([]byte, error)) *provider {
	w.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	p := &provider{run: run, server: grpc.NewServer(
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)}
	p.member = fleet.ModuleMember{
		Connection: fleet.ConnectionID("connection-" + name), Provider: fleet.ProviderName(name), Executor: listener.Addr().String(),
		State: fleet.ConnectionActive,
	}
	nodev1.RegisterExecutorServer(p.server, p)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.server.Serve(counted{listener, &p.dials}) // it ends with Stop
	}()
	w.t.Cleanup(func() {
		p.server.Stop()
		<-done
	})
	return p
}

// Execute is as the SDK's: it refuses what is meant for another connection.
func (p *provider) Execute(ctx context.Context, in *nodev1.ExecuteRequest) (*nodev1.ExecuteResponse, error) {
	p.calls.Add(1)
	if in.GetConnectionId() != string(p.member.Connection) {
		return nil, status.Error(codes.Unavailable, "not this provider's connection")
	}
	n := p.busy.Add(1)
	defer p.busy.Add(-1)
	for most := p.most.Load(); n > most && !p.most.CompareAndSwap(most, n); most = p.most.Load() {
		continue
	}
	p.seen.Store(in.GetExecutionId(), true)
	out, err := p.run(ctx, in)
	return &nodev1.ExecuteResponse{Output: out}, err
}
