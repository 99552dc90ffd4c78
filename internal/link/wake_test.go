package link_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/link"
)

const wokenNode = fleet.NodeName("plant-1-a")

// idling are terms by which nothing lapses and nodes idle.
func idling() fleet.LinkTiming {
	t := slow()
	t.Idle = 10 * time.Second
	return t
}

// deaf compares so seldom that only what is told reaches a stream.
func deaf() fleet.LinkTiming {
	t := idling()
	t.HeartbeatEvery, t.HeartbeatTimeout = time.Minute, time.Hour
	return t
}

func (r *region) want(node fleet.NodeName) {
	r.t.Helper()
	require.NoError(r.t, r.store.WantNode(r.t.Context(), node))
}

// listens waits until so many servers hear the database's channel.
func (r *region) listens(servers int) {
	r.t.Helper()
	r.eventually("the servers listen", func() bool {
		var n int
		require.NoError(r.t, r.pool.QueryRow(r.t.Context(),
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN holdfast_link%'`).Scan(&n))
		return n == servers
	})
}

func (l *live) woken() {
	l.t.Helper()
	l.await("wake", func(m *nodev1.ConnectResponse) bool { return m.GetWake() != nil })
}

// sleeps wants no wake among what was said until a heartbeat that is sent now is acked.
func (l *live) sleeps() {
	l.t.Helper()
	l.beat(0)
	l.await("ack and no wake", func(m *nodev1.ConnectResponse) bool {
		require.Nil(l.t, m.GetWake(), "it was woken")
		return m.GetHeartbeatAck() != nil
	})
}

// compared waits until a server has compared what it holds with its rows, twice: the second
// comparison began after this call.
func (s *server) compared(r *region) {
	r.t.Helper()
	for range 2 {
		var before, seen time.Time
		of := `SELECT seen_at FROM link_servers WHERE id = $1`
		require.NoError(r.t, r.pool.QueryRow(r.t.Context(), of, s.id).Scan(&before))
		r.eventually("it looks", func() bool {
			require.NoError(r.t, r.pool.QueryRow(r.t.Context(), of, s.id).Scan(&seen))
			return seen.After(before)
		})
	}
}

func TestWake(t *testing.T) {
	t.Parallel()
	connect := func(r *region, s *server, node fleet.NodeName) *live {
		return r.dial(s.address, signed(r.node(node))).connect(asNode(string(node), ""))
	}
	t.Run("nodes are told after how long they idle, other providers are not", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		s, never := r.serve(idling()), r.serve(slow())
		key := r.node(wokenNode)
		got := r.dial(s.address, signed(key)).register(asNode(string(wokenNode), ""))
		require.Equal(t, 10*time.Second, got.GetIdleAfter().AsDuration())
		require.Nil(t, r.client(s).register(offer()).GetIdleAfter())
		require.Nil(t, r.dial(never.address, signed(key)).register(asNode(string(wokenNode), "")).GetIdleAfter())
	})
	t.Run("a node that is wanted hears it at once, and no other does", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		s := r.serve(deaf())
		r.listens(1)
		one, other := connect(r, s, wokenNode), connect(r, s, "plant-1-b")
		r.want(wokenNode)
		one.woken()
		other.sleeps()
	})
	t.Run("wherever its stream is", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		first, second := r.serve(deaf()), r.serve(deaf())
		r.listens(2)
		a, b := connect(r, first, wokenNode), connect(r, second, "plant-1-b")
		r.want(wokenNode)
		a.woken()
		r.want("plant-1-b")
		b.woken()
	})
	t.Run("once for each time, also when that is found again by comparing", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		s := r.serve(idling())
		r.listens(1)
		l := connect(r, s, wokenNode)
		for range 3 {
			r.want(wokenNode)
			l.woken()
			s.compared(r)
			l.sleeps()
		}
	})
	t.Run("a word that was lost is found by comparing", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		l := connect(r, r.serve(idling()), wokenNode)
		r.exec(`INSERT INTO wakes (node, number, at) VALUES ($1, 7, now())`, string(wokenNode))
		l.woken()
		r.exec(`UPDATE wakes SET number = 8, at = now()`)
		l.woken()
	})
	t.Run("a node that connects hears of what it missed, and of what is long over it does not", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		s := r.serve(deaf())
		r.node(wokenNode)
		r.want(wokenNode)
		connect(r, s, wokenNode).woken()
		r.node("plant-1-b")
		r.want("plant-1-b")
		r.exec(`UPDATE wakes SET at = now() - interval '3 minutes' WHERE node = 'plant-1-b'`)
		connect(r, s, "plant-1-b").sleeps()
	})
	t.Run("a server that was killed takes no wake with it", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		first := r.serve(idling())
		l := connect(r, first, wokenNode)
		first.stop()
		require.Error(t, l.ended())
		r.want(wokenNode)
		connect(r, r.serve(idling()), wokenNode).woken()
	})
	t.Run("a database that forgot the last ones is not waited for", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		s := r.serve(deaf())
		r.listens(1)
		l := connect(r, s, wokenNode)
		r.want(wokenNode)
		l.woken()
		r.exec(`DELETE FROM wakes`) // as a crash does that lost the commit
		r.want(wokenNode)
		l.woken()
	})
	t.Run("when it cannot be read whether a node was wanted, it is woken", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		s := r.serve(deaf(), func(o *link.Options) { o.Store = &unreadable{o.Store} })
		connect(r, s, wokenNode).woken()
	})
}

// unreadable is a store that does not say who is wanted.
type unreadable struct{ link.Store }

// WantedNode fails.
func (unreadable) WantedNode(context.Context, fleet.NodeName, time.Duration) (int64, error) {
	return 0, fleet.Errorf(fleet.Unavailable, "away")
}
