package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// C15, C21, C41, C63, C70
func TestInstanceConnection(t *testing.T) {
	t.Parallel()
	t.Run("registers what it offers and lives on heartbeats", func(t *testing.T) {
		t.Parallel()
		executor, err := NewExecutor(ExecutorOptions{Modules: []Module{
			{Name: "reverse", Description: "turns text around", InputSchema: "{}", OutputSchema: "true", Handle: echo},
			{Name: "refused", Handle: echo},
		}})
		require.NoError(t, err)
		first := make(chan *nodev1.ConnectRequest, 1)
		r := newRegion(t)
		r.onStream = func(_ int, s *stream) error {
			if err := s.ack(); err != nil {
				return err
			}
			m, err := s.next()
			if err != nil {
				return err
			}
			first <- m
			return s.answer()
		}
		r.start()
		c := run(t, options(t, r.address, func(o *Options) {
			o.Executor, o.ModuleNamespace, o.Group, o.ExecutorAddress = executor, "acme.text", "g", "127.0.0.1:9091"
			o.InFlight = func() int { return 7 }
		}))
		c.active(t, 1)
		require.Equal(t, []Rejection{{Module: "refused", Reason: "schema"}}, c.Status().Rejected)
		beat := (<-first).GetHeartbeat()
		require.Equal(t, idOf(1), beat.GetConnectionId())
		require.EqualValues(t, 1, beat.GetProtocolVersion())
		require.EqualValues(t, 7, beat.GetInFlightCount())
		require.WithinDuration(t, time.Now(), beat.GetTimestamp().AsTime(), time.Minute)
		eventually(t, "heartbeats", func() bool { return r.heartbeats(1) > 5 })
		r.mu.Lock()
		defer r.mu.Unlock()
		require.Equal(t, []string{"Bearer secret"}, r.tokens)
		in := r.registers[0]
		require.Equal(t, []any{"p", "acme.text", "g", "127.0.0.1:9091", uint32(protocolVersion)},
			[]any{in.GetProvider(), in.GetModuleNamespace(), in.GetGroupId(), in.GetExecutorAddress(), in.GetProtocolVersion()})
		require.Equal(t, "turns text around", in.GetModules()[0].GetDescription())
		require.Equal(t, "{}", in.GetModules()[0].GetInputSchema())
		require.Equal(t, "true", in.GetModules()[0].GetOutputSchema())
	})
	t.Run("is not active before its heartbeat is answered, however late", func(t *testing.T) {
		t.Parallel()
		answer := make(chan struct{})
		r := newRegion(t)
		r.onStream = func(_ int, s *stream) error {
			<-answer
			return s.answer()
		}
		r.start()
		c := run(t, options(t, r.address, func(o *Options) { o.HeartbeatTimeout = patience }))
		eventually(t, "the stream", func() bool { return r.heartbeats(1) > 0 })
		require.Equal(t, Connecting, c.Status().State)
		close(answer)
		c.active(t, 1)
	})
	t.Run("tells its callbacks, and lives on while one blocks", func(t *testing.T) {
		t.Parallel()
		woken, reported, blocked := make(chan struct{}), make(chan []string, 1), make(chan struct{})
		wake := sync.OnceFunc(func() { close(woken) })
		sites := make(chan int64, 1)
		r := newRegion(t)
		r.onStream = func(_ int, s *stream) error {
			for _, m := range []*nodev1.ConnectResponse{
				{Message: &nodev1.ConnectResponse_ActiveModulesReport{ActiveModulesReport: &nodev1.ActiveModulesReport{ActiveModules: []string{"reverse"}}}},
				{}, // of a newer protocol
				{Message: &nodev1.ConnectResponse_Site{Site: &nodev1.Site{Name: "plant-1", Generation: 2}}},
				{Message: &nodev1.ConnectResponse_Wake{}},
			} {
				if err := s.Send(m); err != nil {
					return err
				}
			}
			return s.answer()
		}
		r.start()
		var states []State
		c := run(t, options(t, r.address, func(o *Options) {
			o.OnReport = func(m []string) { reported <- m }
			o.PeerAddress = "10.0.0.1:7462"
			o.OnSite = func(s *nodev1.Site) { sites <- s.GetGeneration() }
			o.OnWake = func() { wake(); <-blocked }
			o.OnState = func(s Status) { states = append(states, s.State) }
		}))
		<-woken
		before := r.heartbeats(1)
		eventually(t, "heartbeats", func() bool { return r.heartbeats(1) > before+5 })
		close(blocked)
		require.Equal(t, []string{"reverse"}, <-reported)
		require.EqualValues(t, 2, <-sites)
		r.mu.Lock()
		require.Equal(t, "10.0.0.1:7462", r.registers[0].GetPeerAddress())
		r.mu.Unlock()
		c.end()
		require.NoError(t, c.result(t))
		require.Equal(t, Closed, states[len(states)-1], "the last state is told before Run returns")
	})
	t.Run("does not run twice at a time, but again", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).start()
		c := run(t, options(t, r.address))
		c.active(t, 1)
		require.ErrorContains(t, c.Run(context.Background()), "already")
		c.end()
		require.NoError(t, c.result(t))
		start(t, c.InstanceConnection).active(t, 2)
	})
	t.Run("ends without a region, and in the midst of a pause", func(t *testing.T) {
		t.Parallel()
		c := run(t, options(t, testkit.Address(), func(o *Options) { o.Backoff = Backoff{Initial: time.Hour} }))
		eventually(t, "the pause", func() bool { return c.Status().State == Disconnected })
		require.Error(t, c.Status().Err)
		c.end()
		require.NoError(t, c.result(t))
	})
}

// C62
func TestClose(t *testing.T) {
	t.Parallel()
	t.Run("deregisters, and only then closes the stream", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).start()
		c := run(t, options(t, r.address))
		c.active(t, 1)
		c.end()
		require.NoError(t, c.result(t))
		require.Equal(t, Closed, c.Status().State)
		eventually(t, "the end of the stream", func() bool { return slices.Contains(r.events(), "stream ended") })
		require.Equal(t, []string{"register", "deregister", "stream ended"}, r.events())
		require.Equal(t, []string{idOf(1)}, r.deregistered)
	})
	t.Run("ends in time when the region is silent", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).start()
		w := newWire(t, r.address)
		c := run(t, options(t, w.address, func(o *Options) { o.HeartbeatTimeout = 5 * time.Second }))
		c.active(t, 1)
		w.freeze(true, true)
		c.end()
		require.NoError(t, c.result(t))
	})
}

// C21, C37 to C43
func TestReconnect(t *testing.T) {
	t.Parallel()
	t.Run("with a new id when the server restarts on its port", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).start()
		c := run(t, options(t, r.address))
		for n := 1; n <= 3; n++ {
			eventually(t, "active", func() bool { return c.Status().State == Active && r.registrations() >= n })
			r.stop()
			eventually(t, "lost", func() bool { return c.Status().State != Active })
			r.start()
		}
		eventually(t, "active", func() bool { return c.Status().State == Active })
		require.Equal(t, 0, c.Status().Failures)
	})
	silent := map[string]func(s *stream) error{
		"does not answer heartbeats": (*stream).listen,
		"stops answering": func(s *stream) error {
			if err := s.ack(); err != nil {
				return err
			}
			return s.listen()
		},
		"stops reading": func(s *stream) error {
			if err := s.ack(); err != nil {
				return err
			}
			<-s.Context().Done()
			return nil
		},
		"answers another connection": func(s *stream) error {
			other := *s
			other.id = idOf(99)
			return other.answer()
		},
		"closes the stream":        func(s *stream) error { return s.ack() },
		"fails the stream":         func(*stream) error { return status.Error(codes.Unavailable, "later") },
		"asks to register again":   func(s *stream) error { return errors.Join(s.ack(), s.again("unknown"), s.listen()) },
		"does not know the stream": func(*stream) error { return status.Error(codes.NotFound, "no such connection") },
	}
	for what, script := range silent {
		t.Run("when the server "+what, func(t *testing.T) {
			t.Parallel()
			r := newRegion(t)
			r.onStream = func(n int, s *stream) error {
				if n <= 2 {
					return script(s)
				}
				return s.answer()
			}
			r.start()
			run(t, options(t, r.address, lapsing)).since(t, 3)
		})
	}
	cuts := map[string]struct{ up, down bool }{
		"both ways": {true, true}, "towards the server": {true, false}, "towards the provider": {false, true},
	}
	for what, cut := range cuts {
		t.Run("when the link goes silent "+what+" and nothing is closed", func(t *testing.T) {
			t.Parallel()
			r := newRegion(t).start()
			w := newWire(t, r.address)
			c := run(t, options(t, w.address, lapsing))
			cutOff := c.since(t, 1)
			w.freeze(cut.up, cut.down)
			c.since(t, cutOff+1)
			eventually(t, "heartbeats", func() bool { return r.heartbeats(r.registrations()) > 3 })
			if !cut.up { // the region hears it at once: nothing of it waits for an acknowledgement
				eventually(t, "the link is reset", func() bool { return w.resets.Load() > 0 })
			}
		})
	}
	t.Run("when registering is not answered", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		hang := make(chan struct{})
		r.onRegister = func(n int) error {
			if n == 1 {
				<-hang
			}
			return nil
		}
		t.Cleanup(func() { close(hang) })
		r.start()
		c := run(t, options(t, r.address, func(o *Options) { o.CallTimeout = time.Second }))
		eventually(t, "active", func() bool { return c.Status().State == Active && r.registrations() >= 2 })
	})
	t.Run("when a token cannot be made, without taking that for a refusal", func(t *testing.T) {
		t.Parallel()
		var asked atomic.Int32
		r := newRegion(t).start()
		run(t, options(t, r.address, func(o *Options) {
			o.Token = func(context.Context) (string, error) {
				if asked.Add(1) < 4 {
					return "", status.Error(codes.Unauthenticated, "the signer is away")
				}
				return "secret", nil
			}
		})).active(t, 1)
	})
	t.Run("for as long as a server flaps, with pauses that begin anew", func(t *testing.T) {
		t.Parallel()
		const flaps = 25
		r := newRegion(t)
		r.onStream = func(n int, s *stream) error {
			if n <= flaps {
				return s.ack()
			}
			return s.answer()
		}
		r.start()
		c, pauses := pausing(t, options(t, r.address, func(o *Options) {
			o.Backoff, o.MaxReconnectAttempts = Backoff{}, 3
		}))
		start(t, c).active(t, flaps+1)
		require.Len(t, pauses.all(), flaps)
		for _, d := range pauses.all() {
			require.LessOrEqual(t, d, 1500*time.Millisecond)
		}
	})
	t.Run("gives up after as many failures as it may have, and says so", func(t *testing.T) {
		t.Parallel()
		c, pauses := pausing(t, options(t, testkit.Address(), func(o *Options) { o.Backoff, o.MaxReconnectAttempts = Backoff{}, 0 }))
		err := start(t, c).result(t)
		require.ErrorIs(t, err, ErrUnreachable)
		require.Equal(t, codes.Unavailable, status.Code(err), "the last failure is in the chain: %v", err)
		require.Equal(t, Closed, c.Status().State)
		require.ErrorIs(t, c.Status().Err, ErrUnreachable)
		all := pauses.all()
		require.Len(t, all, 9)
		for i, d := range all {
			full := min(time.Minute, time.Second<<i)
			require.GreaterOrEqual(t, d, full/2)
			require.LessOrEqual(t, d, min(time.Minute, 3*full/2))
		}
	})
	t.Run("gives up on a server that registers and never answers", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.onStream = func(_ int, s *stream) error { return s.listen() }
		r.start()
		err := run(t, options(t, r.address, func(o *Options) { o.MaxReconnectAttempts, o.HeartbeatTimeout = 2, 100*time.Millisecond })).result(t)
		require.ErrorIs(t, err, ErrUnreachable)
		require.ErrorContains(t, err, "no heartbeat was answered")
		require.Equal(t, 2, r.registrations())
	})
}

// What repeating does not heal is not repeated.
func TestRefusal(t *testing.T) {
	t.Parallel()
	for code, remedy := range map[codes.Code]string{
		codes.Unauthenticated: "check the token", codes.PermissionDenied: "ask an operator to grant",
		codes.InvalidArgument: "correct the options", codes.Unimplemented: "is a region's link",
		codes.FailedPrecondition: "does not support the protocol version",
	} {
		t.Run(fmt.Sprintf("%s ends Run when registering", code), func(t *testing.T) {
			t.Parallel()
			r := newRegion(t)
			r.onRegister = func(int) error { return status.Error(code, "no") }
			r.start()
			refused(t, run(t, options(t, r.address)).result(t), code, remedy)
			require.Equal(t, 1, r.registrations())
		})
	}
	t.Run("of a stream that lived, when a key is revoked", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.onStream = func(_ int, s *stream) error {
			_ = s.ack()
			return status.Error(codes.Unauthenticated, "revoked")
		}
		r.start()
		refused(t, run(t, options(t, r.address)).result(t), codes.Unauthenticated, "revoked")
	})
	for how, script := range map[string]func(s *stream) error{
		"asked to register again": func(s *stream) error { return errors.Join(s.ack(), s.again("replaced"), s.listen()) },
		"whose stream was ended": func(s *stream) error {
			_ = s.ack()
			return status.Error(codes.Aborted, "replaced")
		},
	} {
		t.Run("of one that another process replaced, "+how, func(t *testing.T) {
			t.Parallel()
			r := newRegion(t)
			r.onStream = func(_ int, s *stream) error { return script(s) }
			r.start()
			require.ErrorIs(t, run(t, options(t, r.address)).result(t), ErrReplaced)
			require.Equal(t, 1, r.registrations())
		})
	}
	t.Run("of one that was replaced again, after a registration of its own that nobody answered", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.onRegister = func(n int) error {
			if n == 1 {
				return status.Error(codes.DeadlineExceeded, "too late")
			}
			return nil
		}
		r.onStream = func(_ int, s *stream) error { return errors.Join(s.ack(), s.again("replaced"), s.listen()) }
		r.start()
		require.ErrorIs(t, run(t, options(t, r.address)).result(t), ErrReplaced)
		require.Equal(t, 3, r.registrations())
	})
}

func refused(t testing.TB, err error, code codes.Code, says string) {
	t.Helper()
	var refusal *RefusedError
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, code, refusal.Code)
	require.ErrorContains(t, err, says)
}

// pausing replaces the pauses between attempts by a record of them.
func pausing(t testing.TB, o Options) (*InstanceConnection, *pauses) {
	c, err := New(o)
	require.NoError(t, err)
	p := &pauses{}
	c.wait = func(_ context.Context, d time.Duration) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.list = append(p.list, d)
	}
	return c, p
}

type pauses struct {
	mu   sync.Mutex
	list []time.Duration
}

func (p *pauses) all() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.list)
}
