package conformance

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/provider"
)

// C9, C10, C21, C30, C31, C37, C38, C40, C41
func TestLoss(t *testing.T) {
	t.Parallel()
	t.Run("a crash is seen at once, and a new process is a new connection", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t, patient())
		first := child(t, r.address, r.token)
		id := r.active("p", "")
		require.NoError(t, first.Kill())
		r.ends(id, fleet.StreamFailed)
		child(t, r.address, r.token)
		r.active("p", id)
	})
	for what, frozen := range map[string]struct{ up, down bool }{
		"both ways, half-open": {true, true}, "towards the server": {true, false},
	} {
		t.Run("a link that is silent "+what+" is lost after the timeout, by both sides", func(t *testing.T) {
			t.Parallel()
			r := newRegion(t, quick())
			w := newWire(t, r.address)
			c := r.run(options(w.address, r.token))
			id := r.active("p", "")
			w.set(frozen.up, frozen.down, true)
			r.ends(id, fleet.HeartbeatLapsed)
			r.eventually("the provider knows", func() bool { return c.Status().ConnectionID != id })
			w.cut()
			w.set(false, false, false)
			r.active("p", id)
			require.Len(t, r.live(), 1)
		})
	}
	t.Run("a link that is silent towards the provider is lost by it, and the server learns so", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t, quick())
		w := newWire(t, r.address)
		r.run(options(w.address, r.token))
		id := r.active("p", "")
		w.set(false, true, true)
		r.ends(id, fleet.StreamFailed)
		w.cut()
		w.set(false, false, false)
		r.active("p", id)
	})
	t.Run("a link that is cut is built anew", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t, patient())
		w := newWire(t, r.address)
		r.run(options(w.address, r.token))
		id := ""
		for range 5 {
			id = r.active("p", id)
			w.cut()
			r.ends(id, fleet.StreamFailed, fleet.Replaced)
		}
		r.active("p", id)
		require.Len(t, r.live(), 1)
	})
}

// C32
func TestStall(t *testing.T) {
	t.Parallel()
	signal := func(t *testing.T, p *os.Process, s syscall.Signal) { require.NoError(t, p.Signal(s)) }
	t.Run("shorter than the timeout changes nothing", func(t *testing.T) {
		t.Parallel()
		timing := patient()
		timing.HeartbeatTimeout = 20 * time.Second
		r := newRegion(t, timing)
		p := child(t, r.address, r.token)
		id := r.active("p", "")
		signal(t, p, syscall.SIGSTOP)
		<-time.After(2 * time.Second)
		require.Equal(t, fleet.ConnectionActive, r.row(id).State)
		signal(t, p, syscall.SIGCONT)
		since := now()
		r.eventually("it is heard again", func() bool { at := r.row(id).HeartbeatAt; return at != nil && at.After(since) })
		require.Equal(t, fleet.ConnectionActive, r.row(id).State)
	})
	t.Run("longer than the timeout ends the connection, and the provider comes back with another", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t, quick())
		p := child(t, r.address, r.token)
		id := r.active("p", "")
		signal(t, p, syscall.SIGSTOP)
		r.ends(id, fleet.HeartbeatLapsed)
		require.Empty(t, r.live())
		signal(t, p, syscall.SIGCONT)
		r.active("p", id)
	})
}

// C38, C42, C74, C75
func TestServer(t *testing.T) {
	t.Parallel()
	t.Run("that restarts on its port finds its provider again", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t, patient())
		r.run(options(r.address, r.token))
		id := r.active("p", "")
		r.stop()
		r.ends(id, fleet.ServerLapsed)
		r.serve()
		r.active("p", id)
	})
	t.Run("that flaps leaves one connection in the end", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t, patient())
		c := r.run(options(r.address, r.token))
		id := ""
		for range 5 {
			id = r.active("p", id)
			r.stop()
			r.serve()
		}
		id = r.active("p", id)
		r.eventually("the provider knows", func() bool {
			s := c.Status()
			return s.State == provider.Active && s.ConnectionID == id
		})
		require.Len(t, r.live(), 1)
	})
	t.Run("that takes back a token ends its provider for good", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t, patient())
		token, id := r.grant("beta")
		c := r.run(options(r.address, token))
		r.active("p", "")
		require.NoError(t, r.store.RevokeAPIToken(t.Context(), id))
		var refused *provider.RefusedError
		require.ErrorAs(t, c.result(), &refused)
	})
}

// modules run an executor, and give what its provider needs of it.
func (r *region) modules(namespace, group string, handle provider.Handler) (func(*provider.Options), nodev1.ExecutorClient) {
	r.Helper()
	return r.secured(namespace, group, nil, handle)
}

// secured is modules with an executor that speaks TLS; nil is in the clear.
func (r *region) secured(namespace, group string, security *tls.Config, handle provider.Handler) (func(*provider.Options), nodev1.ExecutorClient) {
	r.Helper()
	executor, err := provider.NewExecutor(provider.ExecutorOptions{
		Modules: []provider.Module{{Name: "work", Handle: handle}}, Shutdown: 100 * time.Millisecond, TLS: security,
	})
	require.NoError(r, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(r, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- executor.Serve(ctx, l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(r, err)
	r.Cleanup(func() {
		cancel()
		_ = conn.Close()
		require.NoError(r, <-served)
	})
	return func(o *provider.Options) {
		o.ModuleNamespace, o.Group, o.ExecutorAddress, o.Executor = namespace, group, l.Addr().String(), executor
	}, nodev1.NewExecutorClient(conn)
}

// C8, C11 to C13, C16, C19, C23 to C28, C66 to C69, X5
func TestDrain(t *testing.T) {
	t.Parallel()
	// working is a provider with one execution at work.
	working := func(r *region, handle provider.Handler) (c *running, id string, done chan error) {
		began := make(chan struct{}, 1)
		with, executor := r.modules("acme.text", "", func(ctx context.Context, input []byte) ([]byte, error) {
			began <- struct{}{}
			return handle(ctx, input)
		})
		c = r.run(options(r.address, r.token, with))
		id = r.active("p", "")
		done = make(chan error, 1)
		go func() {
			_, err := executor.Execute(context.Background(), &nodev1.ExecuteRequest{ConnectionId: id, Module: "work"})
			done <- err
		}()
		<-began
		return c, id, done
	}
	const soon = 4 * time.Second // the provider has heard of it by then
	drain := func(r *region, id string, limit time.Duration) {
		_, err := r.store.AskDrain(r.Context(), fleet.ConnectionID(id), "upgrade", limit)
		require.NoError(r, err)
	}
	t.Run("waits for what is at work, visibly, and the provider closes", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t, patient())
		release := make(chan struct{})
		c, id, done := working(r, func(context.Context, []byte) ([]byte, error) { <-release; return nil, nil })
		drain(r, id, patience)
		r.eventually("it is draining, with a count", func() bool {
			row := r.row(id)
			return row.State == fleet.ConnectionDraining && row.InFlight == 1
		})
		close(release)
		require.NoError(t, <-done)
		r.ends(id, fleet.StreamClosed)
		var drained *provider.DrainedError
		require.ErrorAs(t, c.result(), &drained)
		require.Equal(t, provider.DrainedError{Reason: "upgrade"}, *drained)
	})
	t.Run("cancels what hangs at the deadline", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t, patient())
		c, id, done := working(r, func(ctx context.Context, _ []byte) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() })
		drain(r, id, soon)
		require.Error(t, <-done)
		r.ends(id, fleet.StreamClosed, fleet.DrainDeadline)
		require.ErrorContains(t, c.result(), "drained: upgrade")
	})
	t.Run("is over at the deadline, whatever hangs on", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t, patient())
		release := make(chan struct{})
		c, id, _ := working(r, func(context.Context, []byte) ([]byte, error) { <-release; return nil, nil })
		t.Cleanup(func() { close(release) })
		drain(r, id, soon)
		r.ends(id, fleet.DrainDeadline, fleet.StreamFailed)
		var drained *provider.DrainedError
		require.ErrorAs(t, c.result(), &drained)
		require.Equal(t, 1, drained.Left)
	})
	t.Run("that is asked for twice has the earlier deadline", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t, patient())
		c, id, done := working(r, func(ctx context.Context, _ []byte) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() })
		drain(r, id, time.Hour)
		r.eventually("it is draining", func() bool { return r.row(id).State == fleet.ConnectionDraining })
		drain(r, id, soon)
		require.Error(t, <-done)
		r.ends(id, fleet.StreamClosed, fleet.DrainDeadline)
		require.ErrorContains(t, c.result(), "drained: upgrade")
	})
	t.Run("lets one that rejoins come back", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t, patient())
		r.run(options(r.address, r.token, func(o *provider.Options) { o.Rejoin = true }))
		id := r.active("p", "")
		drain(r, id, patience)
		r.ends(id, fleet.StreamClosed)
		r.active("p", id)
	})
}

// C55, C56, C62, C73, C76, C82
func TestOwnership(t *testing.T) {
	t.Parallel()
	idle := func(context.Context, []byte) ([]byte, error) { return nil, nil }
	t.Run("one of a group that leaves takes nothing from the other", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t, patient())
		a, _ := r.modules("acme.text", "g", idle)
		b, _ := r.modules("acme.text", "g", idle)
		leaves := r.run(options(r.address, r.token, a, named("a")))
		first := r.active("a", "")
		r.run(options(r.address, r.token, b, named("b")))
		second := r.active("b", "")
		leaves.end()
		require.NoError(t, leaves.result())
		r.ends(first, fleet.Deregistered)
		require.Equal(t, fleet.ConnectionActive, r.row(second).State)
		require.Equal(t, fleet.ModuleNamespace("acme.text"), r.live()[0].Namespace)
	})
	t.Run("the same provider that registers anew takes over, and the old one ends", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t, patient())
		a, _ := r.modules("acme.text", "", idle)
		b, _ := r.modules("acme.text", "", idle)
		old := r.run(options(r.address, r.token, a))
		id := r.active("p", "")
		r.run(options(r.address, r.token, b))
		r.active("p", id)
		require.ErrorIs(t, old.result(), provider.ErrReplaced)
		require.Equal(t, fleet.Replaced, r.row(id).Reason)
		require.Len(t, r.live(), 1)
	})
	t.Run("a module namespace is not taken from its owner", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t, patient())
		a, _ := r.modules("acme.text", "", idle)
		b, _ := r.modules("acme.text", "", idle)
		r.run(options(r.address, r.token, a))
		id := r.active("p", "")
		granted, _ := r.grant("acme.text")
		err := r.run(options(r.address, granted, b, func(o *provider.Options) { o.MaxReconnectAttempts = 3 })).result()
		require.ErrorIs(t, err, provider.ErrUnreachable, "its owner may leave, so it is tried again")
		require.ErrorContains(t, err, "belongs to provider p")
		other, _ := r.grant("other")
		var refused *provider.RefusedError
		require.ErrorAs(t, r.run(options(r.address, other, b)).result(), &refused)
		require.Equal(t, codes.PermissionDenied, refused.Code)
		require.Equal(t, fleet.ConnectionActive, r.row(id).State)
		require.Len(t, r.live(), 1)
	})
}
