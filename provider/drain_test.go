package provider

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
)

// drained is what a scripted server saw of a drain.
type drained struct {
	acks   chan uint32 // in-flight counts of the acks
	counts chan uint32 // of the heartbeats after the request
	closed chan error  // how the stream ended, nil: by the provider, in order
}

func newDrained() *drained {
	return &drained{make(chan uint32, 10), make(chan uint32, 1000), make(chan error, 1)}
}

// script drains the stream once it is active, and answers heartbeats while asked to.
func (d *drained) script(s *stream, deadline time.Duration, answering bool) error {
	if err := s.ack(); err != nil {
		return err
	}
	if _, err := s.next(); err != nil {
		return err
	}
	if err := s.drain("upgrade", deadline); err != nil {
		return err
	}
	return d.watch(s, answering)
}

func (d *drained) watch(s *stream, answering bool) error {
	for {
		m, err := s.next()
		if err != nil {
			d.closed <- orNil(err)
			return orNil(err)
		}
		if ack := m.GetDrainAck(); ack != nil {
			d.acks <- ack.GetInFlightCount()
			continue
		}
		d.counts <- m.GetHeartbeat().GetInFlightCount()
		if answering {
			if err := s.ack(); err != nil {
				return err
			}
		}
	}
}

// C16, C25, C27, C69, X5
func TestDrain(t *testing.T) {
	t.Parallel()
	t.Run("acks with what is in flight, counts it down and closes the stream", func(t *testing.T) {
		t.Parallel()
		var work atomic.Int64
		work.Store(3)
		d, asked := newDrained(), make(chan Drain, 1)
		r := newRegion(t)
		r.onStream = func(_ int, s *stream) error { return d.script(s, time.Hour, true) }
		r.start()
		c := run(t, options(t, r.address, func(o *Options) {
			o.InFlight = func() int { return int(work.Load()) }
			o.OnDrain = func(drain Drain) { asked <- drain }
		}))
		require.EqualValues(t, 3, <-d.acks)
		got := <-asked
		require.Equal(t, "upgrade", got.Reason)
		require.WithinDuration(t, time.Now().Add(time.Hour), got.Deadline, time.Minute)
		require.Equal(t, Draining, c.Status().State)
		for want := uint32(3); want > 0; want-- {
			eventually(t, "the count", func() bool { return <-d.counts == want })
			work.Add(-1)
		}
		require.NoError(t, <-d.closed)
		var end *DrainedError
		require.ErrorAs(t, c.result(t), &end)
		require.Equal(t, DrainedError{Reason: "upgrade"}, *end)
		require.Equal(t, 1, r.registrations())
	})
	t.Run("closes at once when nothing is in flight, without answers too", func(t *testing.T) {
		t.Parallel()
		d, r := newDrained(), newRegion(t)
		r.onStream = func(_ int, s *stream) error { return d.script(s, time.Hour, false) }
		r.start()
		c := run(t, options(t, r.address))
		require.EqualValues(t, 0, <-d.acks)
		require.NoError(t, <-d.closed)
		require.ErrorContains(t, c.result(t), "drained: upgrade")
	})
	t.Run("is not broken off because heartbeats are not answered", func(t *testing.T) {
		t.Parallel()
		var work atomic.Int64
		work.Store(1)
		d, r := newDrained(), newRegion(t)
		r.onStream = func(_ int, s *stream) error { return d.script(s, time.Hour, false) }
		r.start()
		c := run(t, options(t, r.address, func(o *Options) {
			o.InFlight = func() int { return int(work.Load()) }
			o.HeartbeatTimeout = 500 * time.Millisecond
		}))
		require.EqualValues(t, 1, <-d.acks)
		for range 75 { // three timeouts
			<-d.counts
		}
		require.Equal(t, Draining, c.Status().State)
		work.Store(0)
		require.NoError(t, <-d.closed)
		require.ErrorContains(t, c.result(t), "drained")
	})
	t.Run("acks again when it is asked again, and keeps the earlier deadline", func(t *testing.T) {
		t.Parallel()
		d, r := newDrained(), newRegion(t)
		r.onStream = func(_ int, s *stream) error {
			for _, deadline := range []time.Duration{time.Hour, 100 * time.Millisecond, time.Hour} {
				if err := s.drain("upgrade", deadline); err != nil {
					return err
				}
			}
			return d.watch(s, true)
		}
		r.start()
		var asked []Drain
		c := run(t, options(t, r.address, func(o *Options) {
			o.InFlight = func() int { return 2 }
			o.OnDrain = func(d Drain) { asked = append(asked, d) }
		}))
		for range 3 {
			require.EqualValues(t, 2, <-d.acks)
		}
		var end *DrainedError
		require.ErrorAs(t, c.result(t), &end)
		require.Equal(t, 2, end.Left)
		require.NotEmpty(t, asked)
		require.WithinDuration(t, time.Now(), asked[len(asked)-1].Deadline, time.Minute, "the program is told that it has less time")
	})
	t.Run("holds when the server goes away in its midst", func(t *testing.T) {
		t.Parallel()
		var work atomic.Int64
		work.Store(1)
		d, r := newDrained(), newRegion(t)
		r.onStream = func(_ int, s *stream) error { return d.script(s, time.Hour, true) }
		r.start()
		c := run(t, options(t, r.address, func(o *Options) { o.InFlight = func() int { return int(work.Load()) } }))
		<-d.acks
		r.stop()
		require.Error(t, <-d.closed)
		r.start()
		require.Never(t, func() bool { return r.registrations() > 1 }, 200*time.Millisecond, 10*time.Millisecond)
		work.Store(0)
		require.ErrorContains(t, c.result(t), "drained")
		require.Equal(t, 1, r.registrations())
	})
	t.Run("ends when the context does, and says so to the region", func(t *testing.T) {
		t.Parallel()
		d, r := newDrained(), newRegion(t)
		r.onStream = func(_ int, s *stream) error { return d.script(s, time.Hour, true) }
		r.start()
		c := run(t, options(t, r.address, func(o *Options) { o.InFlight = func() int { return 1 } }))
		<-d.acks
		c.end()
		require.NoError(t, c.result(t))
		require.Equal(t, []string{idOf(1)}, r.deregistered)
	})
	t.Run("ends when the context does, also while the end of its stream is not answered", func(t *testing.T) {
		t.Parallel()
		d, r := newDrained(), newRegion(t)
		r.onStream = func(_ int, s *stream) error {
			if err := d.script(s, time.Hour, true); err != nil {
				return err
			}
			<-s.Context().Done()
			return nil
		}
		r.start()
		c := run(t, options(t, r.address, func(o *Options) { o.HeartbeatTimeout = 10 * patience }))
		require.NoError(t, <-d.closed)
		c.end()
		require.NoError(t, c.result(t))
		require.Equal(t, []string{idOf(1)}, r.deregistered)
	})
	t.Run("registers again afterwards where that is asked for", func(t *testing.T) {
		t.Parallel()
		d, r := newDrained(), newRegion(t)
		r.onStream = func(n int, s *stream) error {
			if n == 1 {
				return d.script(s, time.Hour, true)
			}
			return s.answer()
		}
		r.start()
		run(t, options(t, r.address, func(o *Options) { o.Rejoin = true })).active(t, 2)
	})
}

// C13, C66, C72
func TestDrainDeadline(t *testing.T) {
	t.Parallel()
	for ms, want := range map[int64]time.Duration{
		-1: 0, 0: 0, 1: time.Millisecond, 90_000: 90 * time.Second, 1 << 62: longestDrain,
	} {
		s := &session{lane: &lane{}, notes: &notices{more: make(chan struct{}, 1)}, report: func(Status) {}, terms: terms{timeout: time.Minute}}
		s.watchdog = time.NewTimer(time.Hour)
		s.cut = func(error) {}
		s.stream = sink{}
		require.NoError(t, s.takeDrain(t.Context(), &nodev1.DrainRequest{DeadlineMs: ms}))
		require.WithinDuration(t, time.Now().Add(want), s.drain.Deadline, time.Minute/2)
		s.drain.look.Stop()
	}
}

// sink is a stream that takes everything.
type sink struct {
	nodev1.ControlPlane_ConnectClient
}

func (sink) Send(*nodev1.ConnectRequest) error { return nil }
