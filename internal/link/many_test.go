//go:build slow

package link_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/link"
)

// Many connections live side by side, and none of them is taken for dead; when half of them
// go without a word, those and no others are.
func TestMany(t *testing.T) { // alone: its deadline is real
	const many, transports = 400, 20
	r := newRegion(t)
	timing := fleet.LinkTiming{
		HeartbeatEvery: 2 * time.Second, HeartbeatTimeout: 15 * time.Second, StreamRequired: time.Minute, Report: 2 * time.Second, DrainAck: time.Second,
	}
	s := r.serve(timing, func(o *link.Options) { o.Now = standing() })
	clients := make([]*client, transports)
	for i := range clients {
		clients[i] = r.dial(s.address, fixed(r.token))
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	beat := func(stream nodev1.ControlPlane_ConnectClient, id string) {
		defer wg.Done()
		tick := time.NewTicker(timing.HeartbeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				_ = stream.CloseSend() // it ended
				return
			case <-tick.C:
				_ = stream.Send(heartbeatOf(id)) // one that ended is counted below
			}
		}
	}
	drain := func(stream nodev1.ControlPlane_ConnectClient) {
		defer wg.Done()
		for {
			if _, err := stream.Recv(); err != nil {
				return
			}
		}
	}
	var group errgroup.Group
	group.SetLimit(transports)
	for i := range many {
		wg.Add(2)
		group.Go(func() error {
			c := clients[i%transports]
			got, err := c.Register(t.Context(), offer(bare, named("p-"+number(i))))
			if err != nil {
				return err
			}
			stream, err := c.Connect(t.Context())
			if err != nil {
				return err
			}
			go drain(stream)
			err = stream.Send(heartbeatOf(got.GetConnectionId()))
			if i%2 == 0 {
				go beat(stream, got.GetConnectionId())
			} else { // it goes silent
				wg.Done()
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	count := func(sql string) (n int) {
		require.NoError(t, r.pool.QueryRow(t.Context(), sql).Scan(&n))
		return n
	}
	lapsed := func() int { return count("SELECT count(*) FROM connections WHERE reason = 'heartbeat_lapsed'") }
	require.Eventually(t, func() bool { return lapsed() >= many/2 }, 3*time.Minute, 100*time.Millisecond, "%s", ends(func() string {
		rows, err := r.pool.Query(t.Context(), "SELECT state || ' ' || reason || ': ' || count(*) FROM connections GROUP BY state, reason")
		require.NoError(t, err)
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return strings.Join(all, ", ")
	}))
	require.Equal(t, many/2, lapsed())
	require.Equal(t, many/2, count("SELECT count(*) FROM connections WHERE state = 'Active'"))
	close(stop)
	wg.Wait()
}

// standing is a clock that stands still while this machine does: a server whose ticks are late begins all clocks anew, and then nobody lapses.
func standing() func() time.Time {
	var mu sync.Mutex
	last := now()
	at := last
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		read := now()
		at = at.Add(min(read.Sub(last), time.Second/2))
		last = read
		return at
	}
}

func heartbeatOf(id string) *nodev1.ConnectRequest {
	return &nodev1.ConnectRequest{Message: &nodev1.ConnectRequest_Heartbeat{Heartbeat: &nodev1.Heartbeat{ConnectionId: id, ProtocolVersion: 1}}}
}

// ends says what became of connections, when somebody asks.
type ends func() string

func (f ends) String() string { return f() }
