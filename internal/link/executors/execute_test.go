package executors

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func refused(t *testing.T, kind fleet.Kind, err error, words ...string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, kind, fleet.KindOf(err), "%v", err)
	for _, word := range words {
		require.Contains(t, err.Error(), word)
	}
}

// C79: each member has its turn, and each has one connection however much is sent.
func TestRoundRobin(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.provider("a", echo), w.provider("b", echo)
	w.offers(a, detect)
	w.offers(b, detect)
	w.pool.Listening(true)
	for i := range 40 {
		answer, err := w.execute(fmt.Sprintf(`{"n":%d}`, i))
		require.NoError(t, err)
		require.JSONEq(t, fmt.Sprintf(`{"n":%d}`, i), string(answer.Output))
	}
	require.EqualValues(t, 20, a.calls.Load())
	require.EqualValues(t, 20, b.calls.Load())
	require.EqualValues(t, 1, a.dials.Load(), "a connection for each call leaks")
	require.LessOrEqual(t, w.lookups, 40/2, "lookups are kept")
}

// Known weakness: a channel per call. A thousand at once stay within the limit, share the
// connections and leave nothing behind (goleak).
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.Wait = patience })
	a, b := w.provider("a", echo), w.provider("b", echo)
	w.offers(a, detect)
	w.offers(b, detect)
	w.pool.Listening(true)
	var group errgroup.Group
	for i := range 1000 {
		group.Go(func() error {
			input := fmt.Sprintf(`{"n":%d}`, i)
			answer, err := w.execute(input)
			if err == nil && string(answer.Output) != input {
				err = fmt.Errorf("%s was answered %s", input, answer.Output)
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.EqualValues(t, 1000, a.calls.Load()+b.calls.Load())
	for _, p := range []*provider{a, b} {
		require.LessOrEqual(t, p.most.Load(), int64(32), "C87")
		require.EqualValues(t, 1, p.dials.Load())
	}
	require.False(t, w.pool.Remove(a.member.Connection))
	require.True(t, w.pool.Remove(b.member.Connection), "C79: now empty")
	require.Empty(t, w.pool.lines)
}

// One of two dies in mid-call: the other is given the same execution.
func TestDeathInMidCall(t *testing.T) {
	t.Parallel()
	w := setup(t)
	begun := make(chan struct{}, 1)
	a := w.provider("a", func(ctx context.Context, _ *nodev1.ExecuteRequest) ([]byte, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	b := w.provider("b", echo)
	w.offers(a, detect)
	w.offers(b, detect)
	go func() {
		<-begun
		a.server.Stop()
	}()
	for range 2 { // one of them meets a first
		answer, err := w.execute(`{}`)
		require.NoError(t, err)
		require.Equal(t, b.member.Connection, answer.Connection)
	}
	_, same := b.seen.Load(fmt.Sprintf("%032d", 1))
	require.True(t, same)
}

// What comes of the last try says whether the module may have run.
func TestAllDead(t *testing.T) {
	t.Parallel()
	w := setup(t)
	dead := w.provider("dead", echo)
	dead.server.Stop()
	w.offers(dead, detect)
	_, err := w.execute(`{}`)
	refused(t, fleet.Unavailable, err, "provider dead is unreachable")

	cut := w.provider("cut", nil)
	cut.run = func(context.Context, *nodev1.ExecuteRequest) ([]byte, error) {
		go cut.server.Stop()
		<-t.Context().Done() // it has begun and never says anything
		return nil, nil
	}
	cut.run = func(ctx context.Context, _ *nodev1.ExecuteRequest) ([]byte, error) {
		go cut.server.Stop()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	w.offers(cut, detect)
	_, err = w.execute(`{}`)
	refused(t, fleet.Communication, err, "may have been executed")
}

// X6: a module that does not answer costs its deadline, no more, and the slot is free again.
func TestSlow(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.Limit = time.Second })
	a := w.provider("a", func(ctx context.Context, in *nodev1.ExecuteRequest) ([]byte, error) {
		if string(in.GetInput()) == `"hang"` {
			<-ctx.Done()
		}
		return []byte(`{}`), ctx.Err()
	})
	w.offers(a, detect)
	_, err := w.execute(`{}`) // the connection stands: the deadline is for the module alone
	require.NoError(t, err)
	_, err = w.pool.Execute(t.Context(), fleet.Execution{ID: "x", Module: detect, Input: []byte(`"hang"`)})
	refused(t, fleet.Communication, err, "timed out")
	eventually(t, "nothing is left at work", func() bool { return a.busy.Load() == 0 })
	require.Zero(t, w.pool.lines[placeOf(a.member)].busy)
}

// C87: beyond the limit executions wait a little, then they are refused; the first that
// waits is the first that goes on.
func TestBackPressure(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.InFlight, o.Wait = 2, 300*time.Millisecond })
	gate := make(chan struct{})
	a := w.provider("a", func(context.Context, *nodev1.ExecuteRequest) ([]byte, error) {
		<-gate
		return []byte(`1`), nil
	})
	w.offers(a, detect)
	var group errgroup.Group
	run := func() error {
		_, err := w.execute(`{}`)
		return err
	}
	group.Go(run)
	group.Go(run)
	eventually(t, "two are at work", func() bool { return a.busy.Load() == 2 })
	_, err := w.execute(`{}`)
	refused(t, fleet.Unavailable, err, "all 1 executors", "busy")
	require.EqualValues(t, 2, a.calls.Load())

	w.pool.o.Wait = patience
	group.Go(run)
	eventually(t, "one waits", func() bool {
		w.pool.mu.Lock()
		defer w.pool.mu.Unlock()
		return w.pool.lines[placeOf(a.member)].waiting.Len() == 1
	})
	close(gate)
	require.NoError(t, group.Wait())
	require.EqualValues(t, 2, a.most.Load())
	require.Zero(t, w.pool.lines[placeOf(a.member)].busy)
}

// C68, C11: nothing new goes where a drain was asked for, from the request on; what is in
// flight is left to finish.
func TestDraining(t *testing.T) {
	t.Parallel()
	w := setup(t)
	gate := make(chan struct{})
	a := w.provider("a", func(context.Context, *nodev1.ExecuteRequest) ([]byte, error) {
		<-gate
		return []byte(`"done"`), nil
	})
	b := w.provider("b", echo)
	w.offers(a, detect)
	w.pool.Listening(true)
	var group errgroup.Group
	group.Go(func() error {
		answer, err := w.execute(`{}`)
		if err == nil && string(answer.Output) != `"done"` {
			err = fmt.Errorf("answered %s", answer.Output)
		}
		return err
	})
	eventually(t, "one is at work", func() bool { return a.busy.Load() == 1 })
	w.offers(b, detect)
	w.change(a.member.Connection, func(m *fleet.ModuleMember) { m.Drains = true })
	w.pool.Changed(a.member.Connection)
	for range 5 {
		answer, err := w.execute(`{}`)
		require.NoError(t, err)
		require.Equal(t, b.member.Connection, answer.Connection)
	}
	require.EqualValues(t, 1, a.calls.Load())
	close(gate)
	require.NoError(t, group.Wait())
	eventually(t, "its connection is closed", func() bool {
		w.pool.mu.Lock()
		defer w.pool.mu.Unlock()
		return w.pool.lines[placeOf(a.member)] == nil
	})
}

// Who waits for an executor that goes looks again, and finds the one that came.
func TestWaitersLookAgain(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.InFlight, o.Wait = 1, patience })
	gate := make(chan struct{})
	a := w.provider("a", func(context.Context, *nodev1.ExecuteRequest) ([]byte, error) {
		<-gate
		return []byte(`1`), nil
	})
	b := w.provider("b", echo)
	w.offers(a, detect)
	var group errgroup.Group
	run := func() error {
		_, err := w.execute(`2`)
		return err
	}
	group.Go(run)
	eventually(t, "one is at work", func() bool { return a.busy.Load() == 1 })
	group.Go(run)
	eventually(t, "one waits", func() bool {
		w.pool.mu.Lock()
		defer w.pool.mu.Unlock()
		return w.pool.lines[placeOf(a.member)].waiting.Len() == 1
	})
	w.change(a.member.Connection, func(m *fleet.ModuleMember) { m.State = fleet.ConnectionDisconnected })
	w.offers(b, detect)
	w.pool.Changed(a.member.Connection)
	eventually(t, "the other one has it", func() bool { return b.calls.Load() == 1 })
	close(gate)
	require.NoError(t, group.Wait())
}

// X8: nobody to ask: who offered it last, and what unblocks it.
func TestNobody(t *testing.T) {
	t.Parallel()
	gone := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, row := range map[string]struct {
		last  *fleet.LastOffer
		kind  fleet.Kind
		words []string
	}{
		"never":     {nil, fleet.NotFound, []string{"no provider offers module acme.vision.Detect"}},
		"gone":      {&fleet.LastOffer{Provider: "cam", Reason: "heartbeat_lapsed", Ended: &gone}, fleet.Unavailable, []string{"provider cam", "2026-01-02T03:04:05Z (heartbeat_lapsed)", "start a provider"}},
		"drains":    {&fleet.LastOffer{Provider: "cam", State: fleet.ConnectionActive, Drains: true}, fleet.Unavailable, []string{"is draining", "another provider"}},
		"no stream": {&fleet.LastOffer{Provider: "cam", State: fleet.ConnectionRegistered}, fleet.Unavailable, []string{"stream"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			w.last = row.last
			_, err := w.execute(`{}`)
			refused(t, row.kind, err, row.words...)
		})
	}
}

// C78, C80: input and output are held against the schemas of who is asked; in an upgrade they
// may differ. Nothing that is refused is sent.
func TestSchemas(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	w := setup(t)
	answers := `{"ok":true}`
	a := w.provider("a", func(context.Context, *nodev1.ExecuteRequest) ([]byte, error) { return []byte(answers), nil })
	a.member.InputSchema = `{"required":["image"],"properties":{"size":{"type":"integer"}},"additionalProperties":false}`
	a.member.InputSchema = `{"required":["image"],"properties":{"image":true,"size":{"type":"integer"}},"additionalProperties":false}`
	a.member.OutputSchema = `{"properties":{"ok":{"type":"boolean"}},"required":["ok"]}`
	w.offers(a, detect)
	_, err := w.execute(`{"image":1,"size":"` + secret + `"}`)
	refused(t, fleet.Invalid, err, "/size", "integer")
	require.NotContains(t, fleet.Detail(err), secret)
	_, err = w.execute(secret)
	refused(t, fleet.Invalid, err)
	require.Zero(t, a.calls.Load())
	require.NoError(t, w.pool.Check(t.Context(), detect, []byte(`{"image":1}`)))
	refused(t, fleet.Invalid, w.pool.Check(t.Context(), detect, []byte(`{}`)), "image")
	_, err = w.execute(`{"image":1}`)
	require.NoError(t, err)

	answers = `{"ok":"` + secret + `"}`
	_, err = w.execute(`{"image":1}`)
	refused(t, fleet.ApplyFailed, err, "/ok", "provider a")
	require.NotContains(t, fleet.Detail(err), secret)
	answers = "no JSON"
	_, err = w.execute(`{"image":1}`)
	refused(t, fleet.ApplyFailed, err)

	newer := w.provider("newer", echo)
	newer.member.InputSchema = `{"required":["image","zoom"]}`
	w.offers(newer, detect)
	for range 4 {
		answer, err := w.execute(`{"image":1,"zoom":2}`)
		require.NoError(t, err)
		require.Equal(t, newer.member.Connection, answer.Connection)
	}
}

// Known weakness: a module that only a later member offers can be called, and goes to it alone.
func TestDifferentModules(t *testing.T) {
	t.Parallel()
	track := fleet.ModuleRef{Namespace: detect.Namespace, Name: "Track"}
	w := setup(t)
	a, b := w.provider("a", echo), w.provider("b", echo)
	w.offers(a, detect)
	w.offers(b, detect, track)
	for range 6 {
		answer, err := w.pool.Execute(t.Context(), fleet.Execution{ID: "x", Module: track, Input: []byte(`1`)})
		require.NoError(t, err)
		require.Equal(t, b.member.Connection, answer.Connection)
	}
	require.Zero(t, a.calls.Load())
}

// An executor that serves another connection refuses, and another member is asked.
func TestOtherConnection(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.provider("a", echo), w.provider("b", echo)
	w.offers(a, detect)
	w.offers(b, detect)
	a.member.Connection = "another" // it registered anew since
	for range 4 {
		answer, err := w.execute(`1`)
		require.NoError(t, err)
		require.Equal(t, b.member.Connection, answer.Connection)
	}
	require.EqualValues(t, 2, a.calls.Load())
	conn := w.pool.of[b.member.Connection].conn
	b.server.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.True(t, conn.WaitForStateChange(ctx, connectivity.Ready), "the pool hears that it ended")
	_, err := w.execute(`1`)
	refused(t, fleet.Unavailable, err)
}

// A module's own error is its answer: it is never asked for again.
func TestOwnErrors(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.Unknown, codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.Internal, codes.PermissionDenied, codes.DataLoss} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			var mu sync.Mutex
			calls := 0
			fail := func(context.Context, *nodev1.ExecuteRequest) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				calls++
				return nil, status.Error(code, strings.Repeat("no such lens ", 1000))
			}
			w.offers(w.provider("a", fail), detect)
			w.offers(w.provider("b", fail), detect)
			_, err := w.execute(`1`)
			refused(t, fleet.ApplyFailed, err, code.String(), "no such lens")
			require.Less(t, len(err.Error()), 1000)
			require.Equal(t, 1, calls)
		})
	}
}

// X9: an answer that is too long is refused, whether it is read or not, and not asked for again.
func TestLongAnswers(t *testing.T) {
	t.Parallel()
	for _, size := range []int{fleet.MaxOutput + 1, answerRoom + 1} {
		w := setup(t)
		a := w.provider("a", func(context.Context, *nodev1.ExecuteRequest) ([]byte, error) {
			return []byte(`"` + strings.Repeat("x", size) + `"`), nil
		})
		w.offers(a, detect)
		w.offers(w.provider("b", a.run), detect)
		_, err := w.execute(`1`)
		refused(t, fleet.ApplyFailed, err, "exceeds")
	}
}

// The same address under several registrations is one connection, until the last has gone.
func TestSharedAddress(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.provider("a", echo)
	one, two := a.member, a.member
	one.Connection, two.Connection = "one", "two"
	for range 3 {
		require.NoError(t, w.pool.Add(one))
		require.NoError(t, w.pool.Add(two))
	}
	require.Len(t, w.pool.lines, 1)
	require.False(t, w.pool.Remove("one"))
	require.False(t, w.pool.Remove("one"))
	require.Len(t, w.pool.lines, 1)
	require.True(t, w.pool.Remove("two"))
	require.Empty(t, w.pool.lines)
}

// C50: what nobody names any more is closed though nothing was heard of its end.
func TestPrune(t *testing.T) {
	t.Parallel()
	at := now()
	var mu sync.Mutex
	w := setup(t, func(o *Options) {
		o.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return at
		}
	})
	w.offers(w.provider("a", echo), detect)
	_, err := w.execute(`1`)
	require.NoError(t, err)
	w.pool.Prune()
	require.Len(t, w.pool.lines, 1)
	mu.Lock()
	at = at.Add(2 * keepIdle)
	mu.Unlock()
	w.pool.Prune()
	require.Empty(t, w.pool.lines)
	require.Empty(t, w.pool.members.known)
}

// A lookup of before a change is not kept after it.
func TestStaleLookup(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.Life = time.Hour })
	a := w.provider("a", echo)
	w.offers(a, detect)
	w.pool.Listening(true)
	_, err := w.execute(`1`)
	require.NoError(t, err)
	before := w.lookups
	_, err = w.execute(`1`)
	require.NoError(t, err)
	require.Equal(t, before, w.lookups, "a lookup is kept while somebody listens")
	w.pool.Listening(false)
	w.pool.Changed("somebody else")
	for range 3 {
		_, err = w.execute(`1`)
		require.NoError(t, err)
	}
	require.Greater(t, w.lookups, before+1, "nobody listens: each looks for itself")
}

// C78: an executor is dialled only where its provider registered from, or in a network that is allowed; a name counts by
// what it resolves to.
func TestDialsOnlyItsProvider(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		host, caller, network string
		reached               bool
	}{
		"its own address":             {"127.0.0.1", "127.0.0.1", "", true},
		"its own, as IPv6 writes it":  {"127.0.0.1", "::ffff:127.0.0.1", "", true},
		"a name of its own":           {"localhost", "127.0.0.1", "", true},
		"another's":                   {"127.0.0.1", "192.0.2.1", "", false},
		"a name of another":           {"localhost", "192.0.2.1", "", false},
		"in an allowed network":       {"127.0.0.1", "192.0.2.1", "127.0.0.0/8", true},
		"beside the allowed network":  {"127.0.0.1", "192.0.2.1", "10.0.0.0/8", false},
		"of a caller without address": {"127.0.0.1", "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, func(o *Options) {
				if row.network != "" {
					o.Networks = fleet.ExecutorNetworks{netip.MustParsePrefix(row.network)}
				}
			})
			p := w.provider("a", echo)
			_, port, err := net.SplitHostPort(p.member.Executor)
			require.NoError(t, err)
			p.member.Executor = net.JoinHostPort(row.host, port)
			p.member.Caller, _ = netip.ParseAddr(row.caller)
			w.offers(p, detect)
			_, err = w.execute(`{}`)
			if row.reached {
				require.NoError(t, err)
				return
			}
			refused(t, fleet.Unavailable, err, "is unreachable")
			var says *fleet.Error
			require.ErrorAs(t, err, &says)
			require.Contains(t, says.Hint, "--executor-network")
			require.Zero(t, p.dials.Load())
		})
	}
}
