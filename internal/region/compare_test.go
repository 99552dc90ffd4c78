package region

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/compare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/copies"
)

// questions are how one region asks another one. Mangle changes answers on their way.
type questions struct {
	*mesh
	self   fleet.RegionName
	mangle func(path string, answer []byte) []byte
	sent   *int // bytes of questions and answers
}

func (questions) Allowed(context.Context, fleet.RegionName) error { return nil }

func (a questions) Post(ctx context.Context, peer fleet.RegionName, path string, question []byte) (io.ReadCloser, error) {
	a.mu.Lock()
	cut := a.cut[[2]fleet.RegionName{a.self, peer}]
	a.mu.Unlock()
	if cut {
		return nil, fleet.Errorf(fleet.Unavailable, "the link is cut")
	}
	mux := http.NewServeMux()
	owner := &compare.Owner{Store: a.regions[peer].store, Caller: func(context.Context) fleet.RegionName { return a.self }, View: httpapi.ViewOf, Now: time.Now}
	owner.Mount(mux.Handle)
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(question)))
	if answer.Code != http.StatusOK {
		return nil, fleet.Errorf(fleet.Unavailable, "%s answers %d: %s", peer, answer.Code, answer.Body)
	}
	body := answer.Body.Bytes()
	if a.mangle != nil {
		body = a.mangle(path, body)
	}
	if a.sent != nil {
		*a.sent += len(question) + len(body)
	}
	return io.NopCloser(bytes.NewReader(body)), nil
}

// ask opens an operation for a comparison of one region with another.
func (m *mesh) ask(self, peer fleet.RegionName, accept bool) postgres.Operation {
	m.t.Helper()
	op, err := m.regions[self].store.AskSync(m.t.Context(), copies.SyncRequest{Request: postgres.Request{Actor: "ann"}, Peer: peer, Accept: accept})
	require.NoError(m.t, err)
	return op
}

// compare compares one region with another, and gives the counts.
func (m *mesh) compare(by questions, peer fleet.RegionName) fleet.SyncTurn {
	m.t.Helper()
	c := &compare.Comparer{Store: m.regions[by.self].store, Peers: by, Rival: func(_ fleet.RegionName, n int) { m.rivals.Add(int64(n)) }}
	for range 1000 {
		turn, err := c.Page(m.t.Context(), fleet.SyncVisit{Peer: peer, Run: "run"})
		require.NoError(m.t, err)
		require.Empty(m.t, turn.Waits)
		if turn.Done {
			return turn
		}
	}
	m.t.Fatal("the comparison does not end")
	return fleet.SyncTurn{}
}

// stand makes two regions of which eu shares a project with pools, and us has it.
func stand(t *testing.T, pools int) *mesh {
	t.Helper()
	m := newMesh(t, "eu", "us")
	m.share("eu", "one", "eu", "us")
	for i := range pools {
		m.declare("eu", poolKey(i), "one", map[string]string{"n": fmt.Sprint(i)}, fleet.PoolSpec{MaxReplicas: i})
	}
	ctx, cancel := context.WithCancel(t.Context())
	wait := m.follow(ctx)
	m.settle("at first")
	m.current("us", "eu")
	cancel()
	wait()
	return m
}

// current waits until a region has all that its peers sent.
func (m *mesh) current(self fleet.RegionName, of ...fleet.RegionName) {
	m.t.Helper()
	require.Eventually(m.t, func() bool {
		streams, err := m.regions[self].store.Streams(m.t.Context())
		behind := func(s copies.Stream) bool { return s.Position == "" || s.Lag < 0 }
		return err == nil && len(streams) == len(of) && !slices.ContainsFunc(streams, behind)
	}, patience, 10*time.Millisecond, "the streams of %s are current", self)
}

func poolKey(i int) fleet.ObjectKey {
	return fleet.ObjectKey{Kind: fleet.KindPool, Name: fmt.Sprintf("pool-%d", i)}
}

// M21 to M24, M26: a comparison of what is equal changes nothing, and sends next to nothing.
func TestCompareEqual(t *testing.T) {
	t.Parallel()
	m := stand(t, 300)
	held, sent := m.held("us"), 0
	op := m.ask("us", "eu", false)
	turn := m.compare(questions{mesh: m, self: "us", sent: &sent}, "eu")
	require.Equal(t, fleet.SyncCounts{Compared: 301}, turn.SyncCounts)
	require.Equal(t, held, m.held("us"))
	require.Less(t, sent, 2000, "bytes")
	op, err := m.regions["us"].store.GetOperation(t.Context(), op.ID)
	require.NoError(t, err)
	require.Equal(t, fleet.OperationSucceeded, op.State)
	require.Equal(t, "301 objects compared with region eu, 0 differed; 0 written, 0 removed", op.Message)
}

// X8, M35: a comparison that waits for the peer says so in its operation, and since when, until it goes on.
func TestCompareWaits(t *testing.T) {
	t.Parallel()
	m := stand(t, 1)
	us := m.regions["us"]
	us.exec(t, `INSERT INTO peers (name, public_key, number, admitted_by, admission, address, address_number, address_signature, problem, seen_at)
		VALUES ('eu', decode(repeat('01', 32), 'hex'), 1, 'eu', decode(repeat('00', 64), 'hex'), 'https://eu:1', 1, decode(repeat('00', 64), 'hex'), 'no answer', '2026-03-01T12:00:00Z')`)
	m.setCut([2]fleet.RegionName{"us", "eu"}, true)
	op := m.ask("us", "eu", false)
	says := func() []any {
		now, err := us.store.GetOperation(t.Context(), op.ID)
		require.NoError(t, err)
		return []any{now.State, now.Reason, now.Message}
	}
	page := func() fleet.SyncTurn {
		c := &compare.Comparer{Store: us.store, Peers: questions{mesh: m, self: "us"}}
		turn, err := c.Page(t.Context(), fleet.SyncVisit{Peer: "eu", Run: "run"})
		require.NoError(t, err)
		return turn
	}
	require.Equal(t, "the link is cut", page().Waits)
	require.Equal(t, []any{fleet.OperationRunning, "waiting", "waiting for region eu; it is unreachable since 2026-03-01T12:00:00Z: the link is cut"}, says())
	require.NoError(t, us.store.NoteSync(t.Context(), "eu", ""))
	require.Equal(t, []any{fleet.OperationRunning, "", ""}, says())
	us.exec(t, `UPDATE region_streams SET position = ''`)
	us.exec(t, `UPDATE region_syncs SET ended_at = now(), pass = wanted - 1`)
	page()
	require.Contains(t, says()[2], "the stream of region eu is not current yet")
	us.exec(t, `UPDATE region_syncs SET wanted_at = now() - interval '1 hour'`)
	m.setCut([2]fleet.RegionName{"us", "eu"}, false)
	for !page().Done {
		require.Equal(t, "", says()[1])
	}
	require.Equal(t, []any{fleet.OperationSucceeded, "compared"}, says()[:2])
}

// M23, M24, M26, X24: a comparison finds what was changed without an event: altered, removed, added, kept and renamed rows.
func TestCompareRepairs(t *testing.T) {
	t.Parallel()
	m := stand(t, 60)
	for name, alter := range map[string]string{
		"a spec":                `UPDATE copies SET spec = '{"maxReplicas": 77}' WHERE name = 'pool-3'`,
		"a label":               `UPDATE copies SET labels = '{}' WHERE name = 'pool-3'`,
		"the regions":           `UPDATE copies SET syncing = '{"owningRegion": "eu", "regions": ["eu"]}' WHERE name = 'pool-3'`,
		"a time":                `UPDATE copies SET updated_at = updated_at + interval '1 us' WHERE name = 'pool-3'`,
		"a lower version":       `UPDATE copies SET number = 1 WHERE name = 'pool-3'`,
		"a missing copy":        `DELETE FROM copies WHERE name = 'pool-3'`,
		"all missing":           `DELETE FROM copies`,
		"another uid":           `UPDATE copies SET uid = gen_random_uuid() WHERE name = 'pool-3'`,
		"all uids in one range": `UPDATE copies SET uid = ('00000000-0000-4000-8000-' || lpad(substr(name, 6), 12, '0'))::uuid WHERE kind = 'pool'`,
		"the uids of two":       `UPDATE copies c SET uid = (SELECT d.uid FROM copies d WHERE d.name = CASE c.name WHEN 'pool-3' THEN 'pool-4' ELSE 'pool-3' END) WHERE name IN ('pool-3', 'pool-4')`,
		"another project":       `UPDATE copies SET project = 'default' WHERE name = 'pool-3'`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := m.regions["us"].raw.Exec(t.Context(), alter)
			require.NoError(t, err)
			require.False(t, maps.Equal(m.owed("us"), m.held("us")))
			m.ask("us", "eu", false)
			turn := m.compare(questions{mesh: m, self: "us"}, "eu")
			require.Equal(t, m.owed("us"), m.held("us"))
			require.Positive(t, turn.Differed)
			require.Zero(t, turn.Waiting)
			require.Zero(t, turn.Lost)
			m.ask("us", "eu", false)
			require.Equal(t, fleet.SyncCounts{Compared: 61}, m.compare(questions{mesh: m, self: "us"}, "eu").SyncCounts, "nothing differs any more")
		})
	}
}
