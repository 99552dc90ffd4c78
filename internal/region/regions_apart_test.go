package region

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/compare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// skew sets the clock of a region's database off, as its servers see it.
func (m *mesh) skew(region fleet.RegionName, by string) {
	m.t.Helper()
	r := m.regions[region]
	for _, clock := range []string{"now", "clock_timestamp", "statement_timestamp", "transaction_timestamp"} {
		r.exec(m.t, fmt.Sprintf(`CREATE SCHEMA IF NOT EXISTS skew;
			CREATE FUNCTION skew.%s() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT pg_catalog.%s() + interval '%s' $$`, clock, clock, by))
	}
	r.exec(m.t, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = skew, public, pg_catalog', current_database()); END $$`)
	r.store.Pool.Reset()
	var off bool
	require.NoError(m.t, r.store.Pool.QueryRow(m.t.Context(), `SELECT abs(extract(epoch FROM now() - pg_catalog.now())) > 1`).Scan(&off))
	require.True(m.t, off)
}

// M23, M32, M33, M40: a region that was away for longer than its peer keeps events and deletions starts from a snapshot, and loses by a
// comparison what was deleted meanwhile.
func TestAwayForLong(t *testing.T) {
	t.Parallel()
	m := stand(t, 20)
	eu := m.regions["eu"]
	for i := range 5 {
		m.remove("eu", poolKey(i))
		m.declare("eu", poolKey(5+i), "one", map[string]string{"v": "2"}, fleet.PoolSpec{MaxReplicas: 50})
		m.declare("eu", poolKey(50+i), "one", nil, fleet.PoolSpec{MaxReplicas: 50})
	}
	eu.exec(t, `UPDATE events SET at = at - interval '8 days'`)
	require.Eventually(t, func() bool { // transactions of other tests hold it back
		var left int
		for _, kind := range []fleet.CollectedKind{fleet.CollectEvents, fleet.CollectMarkers} {
			if _, _, err := eu.store.CollectPage(t.Context(), kind, fleet.DefaultRetention()); err != nil {
				return false
			}
		}
		return eu.raw.QueryRow(t.Context(), `SELECT count(*) FROM events`).Scan(&left) == nil && left == 0
	}, patience, 10*time.Millisecond, "eu kept none of what happened")

	ctx, cancel := context.WithCancel(t.Context())
	wait := m.follow(ctx)
	us := m.regions["us"]
	require.Eventually(t, func() bool {
		var wanted bool
		err := us.raw.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM region_syncs WHERE peer = 'eu' AND wanted > 0 AND ended_at IS NULL)`).Scan(&wanted)
		return err == nil && wanted && len(m.held("us")) == 26
	}, patience, 10*time.Millisecond, "the snapshot came, and a comparison is wanted")
	c := &compare.Comparer{Store: us.store, Peers: questions{mesh: m, self: "us"}}
	var turn fleet.SyncTurn
	require.Eventually(t, func() (done bool) { // it waits until the stream has caught up
		var err error
		turn, err = c.Page(t.Context(), fleet.SyncVisit{Peer: "eu", Run: "run"})
		return err == nil && turn.Done
	}, patience, 10*time.Millisecond)
	require.EqualValues(t, 5, turn.Removed)
	require.Equal(t, m.owed("us"), m.held("us"))
	require.Empty(t, m.setAside("us", "eu"))
	cancel()
	wait()
}

// newer is a peer of a later build, which has a kind of object that this one does not know.
type newer struct {
	from
	kindOf string // the name of the object of that kind
}

func (n newer) Watch(ctx context.Context, peer fleet.RegionName, at fleet.StreamPlace) (io.ReadCloser, error) {
	said, err := n.from.Watch(ctx, peer, at)
	if err != nil {
		return nil, err
	}
	out, in := io.Pipe()
	go func() {
		lines := bufio.NewReader(said)
		for {
			line, err := lines.ReadBytes('\n')
			if _, failed := in.Write(n.said("", line)); err != nil || failed != nil {
				_ = in.CloseWithError(err)
				_ = said.Close()
				return
			}
		}
	}()
	return out, nil
}

// said changes lines on their way.
func (n newer) said(_ string, text []byte) []byte {
	var out []byte
	for _, line := range bytes.SplitAfter(text, []byte("\n")) {
		if bytes.Contains(line, []byte(`"`+n.kindOf+`"`)) {
			line = bytes.ReplaceAll(line, []byte(`"pool"`), []byte(`"gadget"`))
		}
		out = append(out, line...)
	}
	return out
}

// M26, X24: of a peer of a later build, what this one does not know is set aside and holds up nothing else; fields that it does not
// know are kept. After its upgrade, it takes the rest.
func TestNewerPeer(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "eu", "us")
	m.share("eu", "one", "eu", "us")
	for i := range 3 {
		m.declare("eu", poolKey(i), "one", nil, fleet.PoolSpec{MaxReplicas: 3})
	}
	m.regions["eu"].exec(t, `UPDATE objects SET spec = spec || '{"later": {"field": [1]}}' WHERE name = 'pool-1'`)
	later := newer{from{m, "us"}, poolKey(2).Name}
	ctx, cancel := context.WithCancel(t.Context())
	f := &watch.Follower{
		Now: time.Now, Store: m.regions["us"].store, Peers: later, Log: slog.New(slog.DiscardHandler),
		Turn: time.Minute, Beat: 50 * time.Millisecond, Silence: 20 * time.Second, Retry: 50 * time.Millisecond,
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = f.Follow(ctx, "eu", "run", func(fleet.Followed) {}) // it ends with the test
	}()
	unknown := map[string]string{"eu/gadget/" + poolKey(2).Name: "unknown_kind"}
	owed := m.owed("us")
	delete(owed, "eu/"+poolKey(2).String())
	require.Eventually(t, func() bool { return len(m.held("us")) == len(owed) && len(m.setAside("us", "eu")) == 1 }, patience, 10*time.Millisecond)
	require.Equal(t, owed, m.held("us"))
	require.Equal(t, unknown, m.setAside("us", "eu"))
	m.current("us", "eu")
	cancel()
	<-ended

	m.ask("us", "eu", false)
	m.compare(questions{mesh: m, self: "us", mangle: later.said}, "eu")
	require.Equal(t, owed, m.held("us"))
	require.Equal(t, unknown, m.setAside("us", "eu"))

	m.ask("us", "eu", false)
	m.compare(questions{mesh: m, self: "us"}, "eu")
	require.Equal(t, m.owed("us"), m.held("us"))
	require.Empty(t, m.setAside("us", "eu"), "the upgraded build took it")
}
