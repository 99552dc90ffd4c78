package region

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// M35: the lag is how old the last mark is, and how long a transaction has held back the owner's feed: a stream that is up to date
// shows it, and the clock of a database does not (consul 22868). Not parallel: its long transaction holds back the feeds of all databases
// of the cluster, for which TestRegionsShareRuns, in virtual time, cannot wait.
func TestLag(t *testing.T) {
	m := newMesh(t, "eu", "us")
	n := newNetwork(m, 1)
	n.beat = 50 * time.Millisecond
	for name, r := range m.regions {
		n.up(name, r.store, partsOf(t, name, r.store))
		t.Cleanup(func() { n.down(name) })
	}
	ctx, cancel := context.WithCancel(t.Context())
	wait := m.followBy(ctx, func(r *sharing) *watch.Follower {
		return &watch.Follower{
			Now: time.Now, Store: r.store, Peers: pipes{n, r.name}, Log: slog.New(slog.DiscardHandler),
			Turn: time.Minute, Beat: 50 * time.Millisecond, Silence: 15 * time.Second, Retry: 50 * time.Millisecond,
		}
	})
	defer func() { cancel(); wait() }()
	m.share("eu", "one", "eu", "us")
	m.settle("at first")
	us := m.regions["us"]
	lag := func() time.Duration {
		lags, err := us.store.Lags(t.Context())
		require.NoError(t, err)
		if is, known := lags["eu"]; known {
			return is
		}
		return time.Hour
	}
	const some, much = 3 * time.Second, 5 * time.Second // a mark that came without changes is stored within a second
	below := func(what string) {
		t.Helper()
		require.Eventually(t, func() bool { return lag() < some }, patience, 20*time.Millisecond, what)
	}
	below("up to date")

	long, err := m.regions["eu"].raw.Begin(t.Context())
	require.NoError(t, err)
	_, err = long.Exec(t.Context(), `SELECT pg_current_xact_id()`)
	require.NoError(t, err)
	m.declare("eu", poolKey(1), "one", nil, fleet.PoolSpec{MaxReplicas: 1})
	require.Eventually(t, func() bool { return lag() > much }, patience, 20*time.Millisecond, "a long transaction holds the feed back")
	require.NotContains(t, m.held("us"), "eu/pool/pool-1")
	require.NoError(t, long.Rollback(t.Context()))
	m.settle("afterwards")
	below("it ended")

	for _, step := range []string{"- interval '1 hour'", "+ interval '1 hour'"} {
		below("before the clock moves")
		us.exec(t, `UPDATE region_streams SET seen_at = seen_at `+step+`, current_at = current_at `+step)
		require.Less(t, lag(), some, "the clock of the database moved by %s", step)
	}
	m.cutBoth("us", "eu", true)
	require.Eventually(t, func() bool { return lag() > much }, patience, 20*time.Millisecond, "the peer is unreachable")
	cancel()
	wait()
	stopped := lag()
	require.Eventually(t, func() bool { return lag() > stopped+time.Second }, patience, 20*time.Millisecond, "nothing follows the peer")
	m.cutBoth("us", "eu", false)
}

// mute opens one stream that says nothing and stays open.
type mute struct {
	watch.Peers
	opened *atomic.Int64
}

func (p mute) Watch(ctx context.Context, peer fleet.RegionName, at fleet.StreamPlace) (io.ReadCloser, error) {
	if p.opened.Add(1) > 1 {
		return p.Peers.Watch(ctx, peer, at)
	}
	silent, _ := io.Pipe()
	return silent, nil
}

// M35, X6: a stream that is open and says nothing is opened again, without anybody's help (consul 22868).
func TestSilentStreamIsOpenedAgain(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "eu", "us")
	n := newNetwork(m, 1)
	n.beat = 50 * time.Millisecond
	for name, r := range m.regions {
		n.up(name, r.store, partsOf(t, name, r.store))
		t.Cleanup(func() { n.down(name) })
	}
	opened := map[fleet.RegionName]*atomic.Int64{"eu": {}, "us": {}}
	ctx, cancel := context.WithCancel(t.Context())
	wait := m.followBy(ctx, func(r *sharing) *watch.Follower {
		return &watch.Follower{
			Now: time.Now, Store: r.store, Peers: mute{pipes{n, r.name}, opened[r.name]}, Log: slog.New(slog.DiscardHandler),
			Turn: time.Hour, Beat: 50 * time.Millisecond, Silence: 2 * time.Second, Retry: 50 * time.Millisecond,
		}
	})
	defer func() { cancel(); wait() }()
	m.share("eu", "one", "eu", "us")
	m.settle("although the first streams say nothing")
	require.Greater(t, opened["us"].Load(), int64(1))
}
