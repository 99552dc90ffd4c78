package replicas

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/poke"
)

func (b *bench) put(id fleet.ReplicaID, name string) {
	b.t.Helper()
	require.NoError(b.t, os.MkdirAll(b.in(id, ""), 0o700))
	require.NoError(b.t, os.WriteFile(b.in(id, name), nil, 0o600))
}

// S49, S54, S80, S106: what fails its probes is restarted in its place, with a limit, and then left
// to the region.
func TestProbesFail(t *testing.T) {
	t.Parallel()
	t.Run("a restart helps", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.ask(line(first, b.defined(web(frail, func(d *fleet.Definition) { d.Command = append(d.Command, "heals") }))))
		st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
		b.put(first, "sick")
		b.eventually(func() bool { return b.status(first).GetRestarts() == 1 }, "it is not restarted")
		again := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
		require.Equal(t, st.GetEndpoint(), again.GetEndpoint(), "traffic finds it where it was")
		require.NotEqual(t, st.GetPid(), again.GetPid())
		require.False(t, alive(st.GetPid()))
		require.Equal(t, []string{"running HEALTHY 0", "running UNHEALTHY 0 probes_failed", "running HEALTHY 1"}, b.told(first))
	})
	t.Run("restarts do not help", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.ask(line(first, b.defined(web(frail, func(d *fleet.Definition) {
			d.Recovery.Restarts, d.Startup.Deadline = 3, 3
		}))))
		b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
		b.put(first, "sick")
		st := b.is(first, fleet.PhaseFailed, fleet.HealthNotChecked)
		require.Equal(t, fleet.ReasonStartupDeadline, st.GetReason())
		require.Equal(t, uint32(1), st.GetRestarts())
		require.NotEmpty(t, st.GetMessage())
		left, err := b.runtime().List(t.Context())
		require.NoError(t, err)
		require.Empty(t, left)
	})
}

// S48, S84: a slow starter has until its deadline, and is healthy as soon as it answers.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(first, "wait")
	b.ask(line(first, b.defined(web(func(d *fleet.Definition) { d.Health.Interval, d.Health.UnhealthyThreshold = 3600, 1 }))))
	b.eventually(func() bool {
		b.region.mu.Lock()
		defer b.region.mu.Unlock()
		return strings.Contains(b.region.logs[first], "up at")
	}, "it is not started")
	st := b.is(first, fleet.PhaseRunning, fleet.HealthNotChecked)
	require.NoError(t, os.Remove(b.in(first, "wait")))
	is := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	require.Equal(t, st.GetPid(), is.GetPid())
	require.Equal(t, []string{"running HEALTHY 0"}, b.told(first))
}

// S75, S76: types of probes, and what runs without any.
func TestKindsOfProbes(t *testing.T) {
	t.Parallel()
	for name, check := range map[string]*fleet.HealthCheck{
		"tcp":       {Type: fleet.HealthTCP, Interval: 0.05, HealthyThreshold: 2},
		"none":      {Type: fleet.HealthNone},
		"not given": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.ask(line(first, b.defined(web(func(d *fleet.Definition) { d.Health = check }))))
			b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
		})
	}
}

// probes is a program that counts how it is probed.
type probes struct {
	*httptest.Server
	atOnce, most, all atomic.Int64
	status            atomic.Int64
	hold              chan struct{}
}

func newProbes(t *testing.T) *probes {
	t.Helper()
	p := &probes{hold: make(chan struct{})}
	p.status.Store(http.StatusOK)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.all.Add(1)
		p.most.Store(max(p.most.Load(), p.atOnce.Add(1)))
		defer p.atOnce.Add(-1)
		if p.status.Load() == 0 {
			select {
			case <-p.hold:
			case <-r.Context().Done(): // it was given up
			}
			return
		}
		w.WriteHeader(int(p.status.Load()))
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *probes) address() string { return strings.TrimPrefix(p.URL, "http://") }

// probing runs a prober until the test ends.
func probing(t *testing.T) *prober {
	t.Helper()
	p := newProber(guardian.SinceBoot)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
	return p
}

// S77, S78, S79, S88, S89, S111: probes of one replica never overlap, and those that take too long count as
// failures; the first success and transitions alone are told.
func TestProber(t *testing.T) {
	t.Parallel()
	program, p := newProbes(t), probing(t)
	var mu sync.Mutex
	var told []fleet.ReplicaHealth
	check := fleet.HealthCheck{Type: fleet.HealthHTTP, Interval: 0.02, Timeout: 0.3, UnhealthyThreshold: 2, HealthyThreshold: 2}.WithDefaults()
	p.watch(&watch{
		id: first, check: check, address: program.address(), state: decide.StartProbes(check, time.Minute, guardian.SinceBoot()),
		changed: func(s decide.ProbeState) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, s.Health)
		},
		failed: func(decide.ProbeState) {},
	})
	saw := func(want ...fleet.ReplicaHealth) {
		t.Helper()
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(told) == len(want)
		}, patience, time.Millisecond)
		require.Equal(t, want, told)
	}
	saw(fleet.HealthNotChecked, fleet.HealthHealthy)
	program.status.Store(0) // it hangs
	saw(fleet.HealthNotChecked, fleet.HealthHealthy, fleet.HealthUnhealthy)
	require.LessOrEqual(t, program.most.Load(), int64(3), "one is probed, and those before were given up")
	program.status.Store(http.StatusFound)
	close(program.hold)
	saw(fleet.HealthNotChecked, fleet.HealthHealthy, fleet.HealthUnhealthy, fleet.HealthHealthy)
	p.forget(first)
	all := program.all.Load()
	program.status.Store(http.StatusTeapot)
	require.Never(t, func() bool { return program.all.Load() > all+1 }, 200*time.Millisecond, 20*time.Millisecond)
}

// S87: the status that is expected.
func TestExpectedStatus(t *testing.T) {
	t.Parallel()
	program, p := newProbes(t), newProber(guardian.SinceBoot)
	for _, c := range []struct {
		answers, expects int
		ok               bool
	}{
		{200, 0, true}, {399, 0, true}, {400, 0, false}, {503, 0, false}, {503, 503, true}, {200, 204, false}, {302, 302, true},
	} {
		program.status.Store(int64(c.answers))
		check := fleet.HealthCheck{ExpectedStatus: c.expects}.WithDefaults()
		require.Equal(t, c.ok, p.probe(t.Context(), program.address(), check) == "", "%+v", c)
	}
	require.Equal(t, causeRefused, p.probe(t.Context(), "127.0.0.1:1", fleet.HealthCheck{}), "nobody listens")
}

// S76, S79, X21: what a port answers without an end is read no further than a head may be, and is a failure.
func TestEndlessAnswers(t *testing.T) {
	t.Parallel()
	const most = 64 << 20 // more than lies between a program and who reads no more
	for name, row := range map[string]struct {
		begins, goesOn string
		ok             bool
	}{
		"an answer with a long body":     {"HTTP/1.1 200 OK\r\n\r\n", "x", true},
		"a line that does not end":       {"HTTP/1.1 200 ", "x", false},
		"a header line that does not":    {"HTTP/1.1 200 OK\r\nX: ", "x", false},
		"header lines that do not":       {"HTTP/1.1 200 OK\r\n", "X: y\r\n", false},
		"announcements of an answer":     {"", "HTTP/1.1 103 Early Hints\r\n\r\n", false},
		"no answer, but something of it": {"\r\n", "\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			t.Cleanup(func() { _ = port.Close() })
			sent := make(chan int, 1)
			go func() {
				n := 0
				defer func() { sent <- n }()
				conn, err := port.Accept()
				if err != nil {
					return
				}
				defer conn.Close() //nolint:errcheck // a test
				_, err = conn.Write([]byte(row.begins))
				for piece := []byte(strings.Repeat(row.goesOn, 1<<14)); err == nil && n < most; n += len(piece) {
					_, err = conn.Write(piece)
				}
			}()
			check := fleet.HealthCheck{}.WithDefaults()
			require.Equal(t, row.ok, newProber(guardian.SinceBoot).probe(t.Context(), port.Addr().String(), check) == "")
			require.Less(t, <-sent, most)
		})
	}
}

// S87, X19: any path that is accepted can be asked for.
func TestHealthPaths(t *testing.T) {
	t.Parallel()
	program, p := newProbes(t), newProber(guardian.SinceBoot)
	for path, valid := range map[string]bool{
		"/": true, "//a": true, "/a%20b?c=%41&d=[e]": true, "/ä#b": true, `/a\b"c|d`: true, "/a?%zz": true,
		"/a%zz": false, "/a\tb": false, "/a\x7f": false,
	} {
		require.Equal(t, valid, fleet.ValidHealthPath(path), path)
		require.Equal(t, valid, p.probe(t.Context(), program.address(), fleet.HealthCheck{Path: path}) == "", path)
	}
}

// S47, S48, S84: what answered once before its deadline is not late, however long its threshold takes;
// neither for this agent nor for the next.
func TestBegunInTime(t *testing.T) {
	t.Parallel()
	for name, anew := range map[string]bool{"the agent stays": false, "the agent is started again": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ahead atomic.Int64 // of the clock
			b := setup(t, func(o *Options) {
				o.Now = func() time.Duration { return guardian.SinceBoot() + time.Duration(ahead.Load()) }
			})
			l := line(first, b.defined(web(func(d *fleet.Definition) {
				d.Health.HealthyThreshold, d.Health.Interval, d.Startup.Deadline = 2, 3600, 1800
			})))
			b.ask(l)
			pid := b.is(first, fleet.PhaseRunning, fleet.HealthNotChecked).GetPid()
			b.eventually(func() bool {
				rows, err := b.store.Replicas(t.Context())
				require.NoError(t, err)
				r, err := recall(rows[0], "this boot", 0)
				require.NoError(t, err)
				return r.Probe.Begun
			}, "the first success is not written down")
			if anew {
				b.stop()
			}
			ahead.Store(int64(time.Hour))
			if anew {
				b.open(true)
			}
			l.StopSeconds++
			b.ask(l) // the worker looks anew
			b.eventually(func() bool {
				b.keeper.mu.Lock()
				defer b.keeper.mu.Unlock()
				w, has := b.keeper.replicas[first]
				return has && w.known.StopSeconds == l.StopSeconds
			}, "the set is not taken")
			poke.Once(b.keeper.prober.wake) // its second probe is due
			st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
			require.Equal(t, []any{pid, uint32(0)}, []any{st.GetPid(), st.GetRestarts()})
			require.Equal(t, []string{"running HEALTHY 0"}, b.told(first))
		})
	}
}

// S48, S84, X28: a clock that has passed the deadline ends nothing that nobody has looked at since: an
// agent that was away, or paused, finds out first that it serves.
func TestBegunUnseen(t *testing.T) {
	t.Parallel()
	for name, anew := range map[string]bool{"the agent was paused": false, "the agent was away": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clock atomic.Int64 // no probe is due while it stands
			clock.Store(int64(time.Hour))
			b := setup(t, func(o *Options) { o.Now = func() time.Duration { return time.Duration(clock.Load()) } })
			b.put(first, "wait")
			l := line(first, b.defined(web()))
			b.ask(l)
			st := b.is(first, fleet.PhaseRunning, fleet.HealthNotChecked)
			b.eventually(func() bool {
				b.keeper.prober.mu.Lock()
				defer b.keeper.prober.mu.Unlock()
				w := b.keeper.prober.watched[first]
				return w != nil && w.state.Missed > 0 && !w.flying
			}, "it is not probed")
			if anew {
				b.stop()
			}
			require.NoError(t, os.Remove(b.in(first, "wait")))
			b.eventually(func() bool { return get(t, st.GetEndpoint()+"/health") == http.StatusOK }, "it does not listen")
			clock.Add(int64(time.Hour))
			if anew {
				b.open(true)
			} else {
				b.keeper.mu.Lock()
				b.keeper.replicas[first].poke() // as its timer would
				b.keeper.mu.Unlock()
			}
			b.eventually(func() bool {
				clock.Add(int64(time.Millisecond))
				return b.status(first).GetPhase() != string(fleet.PhaseRunning) || b.status(first).GetHealth() != string(fleet.HealthNotChecked)
			}, "it is not looked at")
			is := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
			require.Equal(t, []any{st.GetPid(), uint32(0)}, []any{is.GetPid(), is.GetRestarts()})
			require.Equal(t, []string{"running HEALTHY 0"}, b.told(first))
		})
	}
}
