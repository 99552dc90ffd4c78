package provider

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
)

func echo(_ context.Context, input []byte) ([]byte, error) { return input, nil }

// executing is an executor that serves, of a connection that is Active.
type executing struct {
	*Executor
	*running
	region *region
	client nodev1.ExecutorClient
	end    context.CancelFunc
	served chan error
}

func serve(t testing.TB, r *region, opt ExecutorOptions, change ...func(*Options)) *executing {
	t.Helper()
	executor, err := NewExecutor(opt)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	e := &executing{Executor: executor, region: r, end: cancel, served: make(chan error, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.served <- executor.Serve(ctx, listener)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	e.client = nodev1.NewExecutorClient(conn)
	e.running = run(t, options(t, r.address, append([]func(*Options){func(o *Options) {
		o.Executor, o.ModuleNamespace, o.ExecutorAddress = executor, "acme", listener.Addr().String()
	}}, change...)...))
	return e
}

func (e *executing) execute(ctx context.Context, module string, n int) (string, error) {
	out, err := e.client.Execute(ctx, &nodev1.ExecuteRequest{ConnectionId: idOf(n), Module: module, Input: []byte(`"in"`)})
	return string(out.GetOutput()), err
}

// hung is a module that says that it began, and ends when it is let go or its context ends.
type hung struct{ began, release chan struct{} }

func newHung() *hung { return &hung{make(chan struct{}, 100), make(chan struct{})} }

func (h *hung) handle(ctx context.Context, _ []byte) ([]byte, error) {
	h.began <- struct{}{}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-h.release:
		return []byte(`"done"`), nil
	}
}

func TestExecutor(t *testing.T) {
	t.Parallel()
	t.Run("runs its modules and says how they failed", func(t *testing.T) {
		t.Parallel()
		fails := func(err error) Handler { return func(context.Context, []byte) ([]byte, error) { return nil, err } }
		e := serve(t, newRegion(t).start(), ExecutorOptions{Modules: []Module{
			{Name: "echo", Handle: echo},
			{Name: "fails", Handle: fails(errors.New("too dark"))},
			{Name: "coded", Handle: fails(status.Error(codes.InvalidArgument, "no picture"))},
			{Name: "panics", Handle: func(_ context.Context, input []byte) ([]byte, error) { return []byte{input[len(input)]}, nil }},
			{Name: "waits", Handle: func(ctx context.Context, _ []byte) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }},
		}})
		e.active(t, 1)
		out, err := e.execute(t.Context(), "echo", 1)
		require.NoError(t, err)
		require.Equal(t, `"in"`, out)
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		for module, want := range map[string]codes.Code{
			"fails": codes.Unknown, "coded": codes.InvalidArgument, "panics": codes.Internal, "absent": codes.Unimplemented, "waits": codes.DeadlineExceeded,
		} {
			ctx := t.Context()
			if module == "waits" {
				ctx = short
			}
			_, err := e.execute(ctx, module, 1)
			require.Equal(t, want, status.Code(err), "%s: %v", module, err)
		}
		_, err = e.execute(t.Context(), "echo", 1)
		require.NoError(t, err, "a panic is that of one execution")
		eventually(t, "all have left", func() bool { return e.lane.inFlight() == 0 })
	})
	// C11, C68
	t.Run("takes executions of its own live connection only", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).start()
		e := serve(t, r, ExecutorOptions{Modules: []Module{{Name: "echo", Handle: echo}}})
		e.active(t, 1)
		for _, n := range []int{0, 2, 99} {
			_, err := e.execute(t.Context(), "echo", n)
			require.Equal(t, codes.Unavailable, status.Code(err))
		}
		r.stop()
		r.start()
		eventually(t, "a later connection", func() bool {
			n := r.registrations()
			if n == 1 {
				return false // that one may not have heard yet that its stream ended
			}
			_, err := e.execute(t.Context(), "echo", n)
			return err == nil
		})
		_, err := e.execute(t.Context(), "echo", 1)
		require.Equal(t, codes.Unavailable, status.Code(err), "of the connection that ended")
	})
	// C87
	t.Run("refuses what is more than it may run at a time", func(t *testing.T) {
		t.Parallel()
		h := newHung()
		e := serve(t, newRegion(t).start(), ExecutorOptions{MaxInFlight: 2, Modules: []Module{{Name: "hangs", Handle: h.handle}}})
		e.active(t, 1)
		done := make(chan error, 2)
		for range 2 {
			go func() { _, err := e.execute(context.Background(), "hangs", 1); done <- err }()
			<-h.began
		}
		_, err := e.execute(t.Context(), "hangs", 1)
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.Equal(t, 2, e.lane.inFlight())
		close(h.release)
		require.NoError(t, <-done)
		require.NoError(t, <-done)
		_, err = e.execute(t.Context(), "hangs", 1)
		require.NoError(t, err)
	})
	t.Run("gives what is at work its time when it ends", func(t *testing.T) {
		t.Parallel()
		h := newHung()
		e := serve(t, newRegion(t).start(), ExecutorOptions{Modules: []Module{{Name: "hangs", Handle: h.handle}}})
		e.active(t, 1)
		done := make(chan error, 1)
		go func() { _, err := e.execute(context.Background(), "hangs", 1); done <- err }()
		<-h.began
		e.end()
		close(h.release)
		require.NoError(t, <-done)
		require.NoError(t, <-e.served)
	})
	t.Run("cuts what outlasts that", func(t *testing.T) {
		t.Parallel()
		h := newHung()
		e := serve(t, newRegion(t).start(), ExecutorOptions{Shutdown: 50 * time.Millisecond, Modules: []Module{{Name: "hangs", Handle: h.handle}}})
		e.active(t, 1)
		done := make(chan error, 1)
		go func() { _, err := e.execute(context.Background(), "hangs", 1); done <- err }()
		<-h.began
		e.end()
		require.Error(t, <-done)
		require.NoError(t, <-e.served)
	})
}

// C11, C27, X5
func TestExecutorDrain(t *testing.T) {
	t.Parallel()
	t.Run("finishes what is at work and takes nothing more", func(t *testing.T) {
		t.Parallel()
		h, d, drain := newHung(), newDrained(), make(chan struct{})
		r := newRegion(t)
		r.onStream = func(_ int, s *stream) error {
			_ = s.ack()
			<-drain
			return d.script(s, time.Hour, true)
		}
		r.start()
		e := serve(t, r, ExecutorOptions{Modules: []Module{{Name: "hangs", Handle: h.handle}}}, func(o *Options) { o.HeartbeatTimeout = patience })
		e.active(t, 1)
		done := make(chan error, 1)
		go func() { _, err := e.execute(context.Background(), "hangs", 1); done <- err }()
		<-h.began
		close(drain)
		require.EqualValues(t, 1, <-d.acks)
		_, err := e.execute(t.Context(), "hangs", 1)
		require.Equal(t, codes.Unavailable, status.Code(err))
		close(h.release)
		require.NoError(t, <-done)
		require.NoError(t, <-d.closed)
		require.ErrorContains(t, e.result(t), "drained")
	})
	t.Run("cancels what is at work at the deadline, and then closes", func(t *testing.T) {
		t.Parallel()
		h, d, drain := newHung(), newDrained(), make(chan struct{})
		r := newRegion(t)
		r.onStream = func(_ int, s *stream) error {
			_ = s.ack()
			<-drain
			return d.script(s, 100*time.Millisecond, true)
		}
		r.start()
		e := serve(t, r, ExecutorOptions{Modules: []Module{{Name: "hangs", Handle: h.handle}}}, func(o *Options) { o.HeartbeatTimeout = patience })
		e.active(t, 1)
		done := make(chan error, 1)
		go func() { _, err := e.execute(context.Background(), "hangs", 1); done <- err }()
		<-h.began
		close(drain)
		require.Equal(t, codes.Aborted, status.Code(<-done))
		require.NoError(t, <-d.closed)
		var end *DrainedError
		require.ErrorAs(t, e.result(t), &end)
		require.Equal(t, 0, end.Left)
	})
}
