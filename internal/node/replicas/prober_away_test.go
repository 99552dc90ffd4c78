package replicas

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
)

// startup is a prober on a clock of its own, and how long its replica has been looked after.
type startup struct {
	*prober
	t     *testing.T
	w     *watch
	clock time.Duration
	used  time.Duration
}

const startupLimit = 10 * time.Second

func startsUp(t *testing.T) *startup {
	t.Helper()
	s := &startup{t: t, clock: time.Hour}
	s.prober = newProber(func() time.Duration { return s.clock })
	s.begins()
	return s
}

// begins has a replica probed, to which nobody listens.
func (s *startup) begins() {
	check := fleet.HealthCheck{Type: fleet.HealthTCP}.WithDefaults()
	s.w = &watch{
		id: first, check: check, address: "127.0.0.1:1", changed: func(decide.ProbeState) {}, failed: func(decide.ProbeState) {},
		state: decide.StartProbes(check, startupLimit, s.clock),
	}
	s.watch(s.w)
}

func (s *startup) looks() []*watch {
	due, next := s.due()
	require.LessOrEqual(s.t, next, attends)
	return due
}

func (s *startup) tries(due []*watch) {
	for _, w := range due {
		s.try(s.t.Context(), w)
	}
}

// goes on for a while, or until the replica is late.
func (s *startup) goes(on time.Duration) {
	for end := s.used + on; s.used < end && !s.w.state.Late(); s.used += decide.StartupProbeEvery {
		s.tries(s.looks())
		s.clock += decide.StartupProbeEvery
	}
}

// S48, S84: the time until a start-up is late is one in which it could be looked after. An agent that was
// paused, alone or with its machine, gives it what it missed.
func TestStartupAfterAPause(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pauses func(s *startup)
		late   time.Duration // of the time that it was looked after
	}{
		"nothing is paused": {func(*startup) {}, startupLimit},
		"between two probes": {func(s *startup) {
			s.clock += time.Hour
		}, startupLimit},
		"before a probe that was due has begun": {func(s *startup) {
			due := s.looks()
			require.Len(s.t, due, 1)
			s.clock += time.Hour
			s.tries(due)
		}, startupLimit},
		"while a probe waits for its answer": {func(s *startup) {
			due := s.looks()
			began := s.clock
			s.clock += time.Hour
			s.mu.Lock()
			s.catchUp(s.clock)
			due[0].state, due[0].flying = decide.Probe(due[0].state, due[0].check, "connection refused", began), false
			s.mu.Unlock()
		}, startupLimit},
		"for less than anybody notices": {func(s *startup) {
			s.clock += away
		}, startupLimit - away},
		"three times": {func(s *startup) {
			for range 3 {
				s.clock += time.Hour
				s.goes(decide.StartupProbeEvery)
			}
		}, startupLimit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startsUp(t)
			s.goes(startupLimit / 2)
			require.False(t, s.w.state.Late())
			c.pauses(s)
			s.goes(startupLimit)
			require.True(t, s.w.state.Late())
			require.InDelta(t, c.late, s.used, float64(5*decide.StartupProbeEvery))
		})
	}
	t.Run("before it was begun", func(t *testing.T) {
		t.Parallel()
		s := startsUp(t)
		s.goes(time.Second)
		s.forget(first)
		s.clock += time.Hour
		s.begins()
		s.goes(2 * startupLimit)
		require.InDelta(t, time.Second+startupLimit, s.used, float64(5*decide.StartupProbeEvery))
	})
}

// S48, S84: a replica whose machine was suspended while it started is neither given up nor restarted, and
// the next agent knows of the time that it was given.
func TestSuspendedStartup(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64 // of the clock
	b := setup(t, func(o *Options) {
		o.Now = func() time.Duration { return guardian.SinceBoot() + time.Duration(ahead.Load()) }
	})
	probe := func() decide.ProbeState {
		b.keeper.prober.mu.Lock()
		defer b.keeper.prober.mu.Unlock()
		if w := b.keeper.prober.watched[first]; w != nil {
			return w.state
		}
		return decide.ProbeState{}
	}
	b.put(first, "wait")
	b.ask(line(first, b.defined(web())))
	st := b.is(first, fleet.PhaseRunning, fleet.HealthNotChecked)
	b.eventually(func() bool { return probe().Missed > 0 }, "it is not probed")
	before := probe()
	ahead.Store(int64(time.Hour))
	b.eventually(func() bool { return probe().Missed > before.Missed+time.Hour-time.Minute }, "it is not probed after the pause")
	b.eventually(func() bool {
		rows, err := b.store.Replicas(t.Context())
		require.NoError(t, err)
		r, err := recall(rows[0], "this boot", 0)
		require.NoError(t, err)
		return r.Probe.Deadline >= before.Deadline+time.Hour
	}, "its deadline is not written down")
	require.NoError(t, os.Remove(b.in(first, "wait")))
	is := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	require.Equal(t, []any{st.GetPid(), uint32(0)}, []any{is.GetPid(), is.GetRestarts()})
}
