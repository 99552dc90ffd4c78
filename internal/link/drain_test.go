package link_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

func (r *region) drain(id, reason string, limit time.Duration) nodes.Connection {
	r.t.Helper()
	c, err := r.store.AskDrain(r.t.Context(), fleet.ConnectionID(id), reason, limit)
	require.NoError(r.t, err)
	return c
}

// C8, C11, C12, C19, C23, C24, C25, C26, C27, C28, C68, C69, X5: the whole handshake.
func TestDrain(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	l := r.client(r.serve(slow())).connect(offer())
	l.ackDrain(3) // nobody asked: it means nothing
	l.beat(3)
	l.acked()
	require.Equal(t, fleet.ConnectionActive, r.row(l.id).State)
	require.True(t, r.row(l.id).TakesWork())

	asked := r.drain(l.id, "new version", 20*time.Second)
	require.Equal(t, fleet.ConnectionActive, asked.State, "it moves on the ack, not on the request")
	require.False(t, asked.TakesWork(), "nothing is sent to it from the request on")
	m := l.drainRequest()
	require.Equal(t, "new version", m.GetReason())
	require.InDelta(t, 20_000, m.GetDeadlineMs(), 2_000, "milliseconds from now")
	require.Equal(t, fleet.ConnectionActive, r.row(l.id).State)

	l.ackDrain(2)
	r.eventually("it drains", func() bool { return r.row(l.id).State == fleet.ConnectionDraining })
	row := r.row(l.id)
	require.Equal(t, 2, row.InFlight)
	require.NotNil(t, row.Drain.AckedAt)
	require.Equal(t, asked.Drain.Deadline, row.Drain.Deadline)
	l.beat(1) // still acked, still counted
	l.acked()
	r.eventually("the count is visible", func() bool { return r.row(l.id).InFlight == 1 })
	l.ackDrain(1)
	l.beat(0)
	l.acked()
	require.Equal(t, fleet.ConnectionDraining, r.row(l.id).State)

	require.NoError(t, l.stream.CloseSend())
	require.ErrorContains(t, l.ended(), "EOF")
	require.Equal(t, fleet.StreamClosed, r.row(l.id).Reason)
	_, err := r.store.AskDrain(t.Context(), fleet.ConnectionID(l.id), "x", time.Second)
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
}

// C13, C36, C66, C67: what hangs is cut at its deadline, acked or not.
func TestDrainDeadline(t *testing.T) {
	t.Parallel()
	t.Run("of work that hangs, which no silence ends before", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		l := r.client(r.serve(quick())).connect(offer())
		quiet := l.keep(quick().HeartbeatEvery)
		r.drain(l.id, "x", 7*time.Second)
		l.drainRequest()
		l.ackDrain(5)
		quiet()
		began := now()
		require.Equal(t, "drain_deadline", refused(t, codes.Aborted, l.ended()))
		require.Greater(t, now().Sub(began), 2*time.Second, "longer than the heartbeat timeout")
		require.Equal(t, fleet.DrainDeadline, r.row(l.id).Reason)
	})
	t.Run("of one that never acks, after it was asked again", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		l := r.client(r.serve(quick())).connect(offer())
		l.keep(quick().HeartbeatEvery)
		r.drain(l.id, "x", 4*time.Second)
		first := l.drainRequest()
		second := l.drainRequest()
		require.Less(t, second.GetDeadlineMs(), first.GetDeadlineMs(), "what is left of it")
		require.Equal(t, "drain_deadline", refused(t, codes.Aborted, l.ended()))
	})
}

// C24: only with an open stream.
func TestDrainOfARegistration(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	id := r.client(r.serve(slow())).register(offer()).GetConnectionId()
	_, err := r.store.AskDrain(t.Context(), fleet.ConnectionID(id), "x", time.Second)
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
	_, err = r.store.AskDrain(t.Context(), "00000000000000000000000000000000", "x", time.Second)
	require.Equal(t, fleet.NotFound, fleet.KindOf(err))
}

// A second drain is the same one; the earlier deadline wins.
func TestSecondDrain(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	l := r.client(r.serve(slow())).connect(offer())
	first := r.drain(l.id, "first", time.Minute)
	l.drainRequest()
	l.ackDrain(1)
	r.eventually("it drains", func() bool { return r.row(l.id).State == fleet.ConnectionDraining })
	later := r.drain(l.id, "later", time.Hour)
	require.Equal(t, first.Drain.Deadline, later.Drain.Deadline)
	require.Equal(t, "first", later.Drain.Reason)
	sooner := r.drain(l.id, "sooner", 3*time.Second)
	require.Less(t, sooner.Drain.Deadline, first.Drain.Deadline)
	require.Equal(t, first.Drain.AskedAt, sooner.Drain.AskedAt)
	for l.drainRequest().GetDeadlineMs() >= 5_000 { // of the later one, on a busy machine
	}
	refused(t, codes.Aborted, l.ended())
}

// A drain that races with the stream's end leaves an ended row and no second life.
func TestDrainRacesWithTheEnd(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	c := r.client(r.serve(slow()))
	for range 20 {
		l := c.connect(offer())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = r.store.AskDrain(t.Context(), fleet.ConnectionID(l.id), "x", time.Second) // may be too late
		}()
		l.ackDrain(1)
		_ = l.stream.CloseSend() // likewise
		<-done
		r.ends(l.id, fleet.StreamClosed)
	}
}

// C69: acks come while it drains, for as long as it takes.
func TestAcksWhileDraining(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	l := r.client(r.serve(quick())).connect(offer())
	l.keep(quick().HeartbeatEvery)
	r.drain(l.id, "x", time.Minute)
	l.drainRequest()
	l.ackDrain(1)
	for range 12 { // three heartbeat timeouts
		l.await("ack", func(m *nodev1.ConnectResponse) bool { return m.GetHeartbeatAck() != nil })
	}
	require.Equal(t, fleet.ConnectionDraining, r.row(l.id).State)
}
