package region

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/compare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

func (r *sharing) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	_, err := r.raw.Exec(t.Context(), query, args...)
	require.NoError(t, err)
}

// setAside lists what one region did not take of another one, with the reasons.
func (m *mesh) setAside(self, peer fleet.RegionName) map[string]string {
	m.t.Helper()
	all, err := m.regions[self].store.Quarantined(m.t.Context(), peer, fleet.CopyKey{}, 1000)
	require.NoError(m.t, err)
	out := map[string]string{}
	for _, a := range all {
		out[a.Key.String()] = a.Reason
	}
	return out
}

// M23, M33: what was deleted while nobody followed goes, as the owner confirms by name; what the owner never knew waits for an
// operator (consul 13367).
func TestCompareSurplus(t *testing.T) {
	t.Parallel()
	m := stand(t, 20)
	us := m.regions["us"]
	m.remove("eu", poolKey(3))
	us.exec(t, `INSERT INTO copies SELECT (jsonb_populate_record(c, '{"name": "ghost", "uid": "6f9619ff-8b86-4011-b42d-00c04fc964ff", "number": 900}')).*
		FROM copies c WHERE name = 'pool-4'`)
	m.ask("us", "eu", false)
	turn := m.compare(questions{mesh: m, self: "us"}, "eu")
	require.EqualValues(t, 1, turn.Removed)
	require.EqualValues(t, 1, turn.Waiting)
	require.Zero(t, turn.Lost)
	require.Equal(t, map[string]string{"eu/pool/ghost": "never_known"}, m.setAside("us", "eu"))
	require.Contains(t, m.held("us"), "eu/pool/ghost")
	require.NotContains(t, m.held("us"), "eu/pool/pool-3")
	m.ask("us", "eu", true)
	require.EqualValues(t, 1, m.compare(questions{mesh: m, self: "us"}, "eu").Removed)
	require.Empty(t, m.setAside("us", "eu"), "what is settled waits no more")
	require.Equal(t, m.owed("us"), m.held("us"))
	m.ask("us", "eu", false)
	require.Zero(t, m.compare(questions{mesh: m, self: "us"}, "eu").Differed)
}

// emptied has a region restored to before it had its pools.
func (m *mesh) emptied(name fleet.RegionName) {
	m.t.Helper()
	r := m.regions[name]
	r.exec(m.t, `CREATE TABLE last AS SELECT min(seq) - 1 AS seq FROM events WHERE kind = 'pool'`)
	r.exec(m.t, `DELETE FROM objects WHERE kind = 'pool'`)
	r.exec(m.t, `DELETE FROM events WHERE seq > (SELECT seq FROM last)`)
	_, err := postgres.RaiseEra(m.t.Context(), r.url, string(name))
	require.NoError(m.t, err)
}

// M33: an owner that lost most of its objects does not empty other regions; what it deleted, or the local policy explains, goes.
func TestCompareCap(t *testing.T) {
	t.Parallel()
	m := stand(t, 150)
	m.emptied("eu")
	m.ask("us", "eu", false)
	turn := m.compare(questions{mesh: m, self: "us"}, "eu")
	require.EqualValues(t, 100, turn.Removed)
	require.EqualValues(t, 50, turn.Waiting)
	aside := m.setAside("us", "eu")
	require.Len(t, aside, 50)
	require.Equal(t, []string{"above_cap"}, slices.Compact(slices.Collect(maps.Values(aside))))
	m.ask("us", "eu", true)
	require.EqualValues(t, 50, m.compare(questions{mesh: m, self: "us"}, "eu").Removed)
	require.Equal(t, m.owed("us"), m.held("us"))

	t.Run("for all pages together", func(t *testing.T) {
		t.Parallel()
		m := stand(t, 150)
		m.emptied("eu")
		m.ask("us", "eu", false)
		us := m.regions["us"].store
		at, _, err := us.BeginSync(t.Context(), fleet.SyncVisit{Peer: "eu", Run: "run"})
		require.NoError(t, err)
		const bits = 9 // 512 ranges, of which a page has 128
		require.NoError(t, us.SplitSync(t.Context(), at, bits, 151))
		turn := m.compare(questions{mesh: m, self: "us"}, "eu")
		require.EqualValues(t, 1<<bits, turn.Ranges)
		require.EqualValues(t, 100, turn.Removed)
		require.EqualValues(t, 50, turn.Waiting)
	})

	t.Run("deleted", func(t *testing.T) {
		t.Parallel()
		m := stand(t, 150)
		for i := range 130 {
			m.remove("eu", poolKey(i))
		}
		m.ask("us", "eu", false)
		require.EqualValues(t, 130, m.compare(questions{mesh: m, self: "us"}, "eu").Removed)
		require.Empty(t, m.setAside("us", "eu"))
		require.Equal(t, m.owed("us"), m.held("us"))
	})

	t.Run("explained", func(t *testing.T) {
		t.Parallel()
		m := stand(t, 150)
		m.share("eu", "one", "eu") // the project itself says that us has nothing any more
		m.apply("eu")
		m.ask("us", "eu", false)
		m.compare(questions{mesh: m, self: "us"}, "eu")
		require.Empty(t, m.held("us"))
		require.Empty(t, m.setAside("us", "eu"))
	})
}

// M31, X1: after a restore of the owner, what others have of the time that was undone is listed, and replaced. What is there again as
// it was is not listed: only who has it had changed.
func TestCompareRestored(t *testing.T) {
	t.Parallel()
	follow := func(m *mesh) {
		ctx, cancel := context.WithCancel(t.Context())
		wait := m.follow(ctx)
		require.Eventually(t, func() bool { return strings.Contains(m.held("us")["eu/pool/pool-6"], `"maxReplicas": 66`) }, patience, 10*time.Millisecond)
		m.current("us", "eu")
		cancel()
		wait()
	}
	for name, before := range map[string]func(*mesh){"first the comparison": func(*mesh) {}, "first the stream": follow} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compareRestored(t, before)
		})
	}
}

func compareRestored(t *testing.T, before func(*mesh)) {
	t.Helper()
	m := stand(t, 20)
	eu, us := m.regions["eu"], m.regions["us"]
	eu.exec(t, `CREATE TABLE saved AS TABLE objects`)
	eu.exec(t, `CREATE TABLE last AS SELECT max(seq) AS seq FROM events`)
	eu.exec(t, `UPDATE objects SET syncing = syncing || '{"regions": ["ap", "eu", "us"]}', resource_version = nextval(pg_get_serial_sequence('events', 'seq')) WHERE kind = 'pool' AND name <> 'pool-6'`)
	m.declare("eu", poolKey(3), "one", nil, fleet.PoolSpec{MaxReplicas: 99})
	m.declare("eu", fleet.ObjectKey{Kind: fleet.KindPool, Name: "late"}, "one", nil, fleet.PoolSpec{MaxReplicas: 7})
	m.remove("eu", poolKey(5))
	m.ask("us", "eu", false)
	m.compare(questions{mesh: m, self: "us"}, "eu")
	require.Equal(t, m.owed("us"), m.held("us"))

	eu.exec(t, `DELETE FROM objects WHERE kind = 'pool'`)
	eu.exec(t, `INSERT INTO objects SELECT * FROM saved WHERE kind = 'pool'`)
	eu.exec(t, `DELETE FROM events WHERE seq > (SELECT seq FROM last)`)
	eu.exec(t, `SELECT setval(pg_get_serial_sequence('events', 'seq'), seq) FROM last`)
	_, err := postgres.RaiseEra(t.Context(), eu.url, "eu")
	require.NoError(t, err)
	m.declare("eu", poolKey(6), "one", nil, fleet.PoolSpec{MaxReplicas: 66})
	before(m)
	m.ask("us", "eu", false)
	turn := m.compare(questions{mesh: m, self: "us"}, "eu")
	require.Zero(t, turn.Waiting)
	require.Equal(t, m.owed("us"), m.held("us"))
	lost, err := us.store.LostWrites(t.Context(), 0, 100)
	require.NoError(t, err)
	var words []string
	for _, l := range lost {
		what := "deletion"
		if l.Object != nil {
			what = string(l.Object.Spec)
		}
		words = append(words, l.Key.String()+" "+what)
	}
	require.ElementsMatch(t, []string{
		`eu/pool/pool-3 {"maxReplicas": 99}`, `eu/pool/late {"maxReplicas": 7}`, `eu/pool/pool-5 deletion`,
	}, words)
	m.ask("us", "eu", false)
	require.Equal(t, fleet.SyncCounts{Compared: int64(len(m.held("us")))}, m.compare(questions{mesh: m, self: "us"}, "eu").SyncCounts)
}

// M31, M34: what a restore of the owner undid is listed also if the comparison had begun before it, and goes on with the new era.
func TestCompareGoesOnAfterARestore(t *testing.T) {
	t.Parallel()
	m := stand(t, 1)
	eu, us := m.regions["eu"], m.regions["us"]
	eu.exec(t, `CREATE TABLE last AS SELECT max(seq) AS seq FROM events`)
	m.share("eu", "two", "eu", "us")
	m.ask("us", "eu", false)
	m.compare(questions{mesh: m, self: "us"}, "eu")
	require.Equal(t, m.owed("us"), m.held("us"))
	undone := m.held("us")["eu/project/two"]

	m.ask("us", "eu", false)
	c := &compare.Comparer{Store: us.store, Peers: questions{mesh: m, self: "us", mangle: func(path string, answer []byte) []byte {
		if path == compare.PathNamed {
			return nil
		}
		return answer
	}}}
	turn, err := c.Page(t.Context(), fleet.SyncVisit{Peer: "eu", Run: "run"})
	require.NoError(t, err)
	require.NotEmpty(t, turn.Waits)

	eu.exec(t, `DELETE FROM objects WHERE name = 'two'`)
	eu.exec(t, `DELETE FROM events WHERE seq > (SELECT seq FROM last)`)
	eu.exec(t, `SELECT setval(pg_get_serial_sequence('events', 'seq'), seq) FROM last`)
	_, err = postgres.RaiseEra(t.Context(), eu.url, "eu")
	require.NoError(t, err)
	m.share("eu", "two", "eu", "us")
	require.NotEqual(t, undone, m.owed("us")["eu/project/two"])
	m.compare(questions{mesh: m, self: "us"}, "eu")
	require.Equal(t, m.owed("us"), m.held("us"))
	lost, err := us.store.LostWrites(t.Context(), 0, 100)
	require.NoError(t, err)
	require.Len(t, lost, 1)
	require.Equal(t, "eu/project/two", lost[0].Key.String())
}

// M33, M40: an answer that is cut off, repeated, mixed up, forged or empty takes nothing away, and the next one repairs all.
func TestCompareAnswers(t *testing.T) {
	t.Parallel()
	m, gone := stand(t, 60), 10
	lines := func(change func([][]byte) [][]byte) func([]byte) []byte {
		return func(answer []byte) []byte {
			return bytes.Join(change(bytes.SplitAfter(answer, []byte("\n"))), nil)
		}
	}
	for name, mangle := range map[string]func([]byte) []byte{
		"empty":            func([]byte) []byte { return nil },
		"cut off":          func(b []byte) []byte { return b[:len(b)*2/3] },
		"half a line":      func(b []byte) []byte { return append(b[:len(b):len(b)], []byte(`{"type":`)...) },
		"without its end":  lines(func(l [][]byte) [][]byte { return l[:max(len(l)-2, 0)] }),
		"without a line":   lines(func(l [][]byte) [][]byte { return l[min(1, len(l)):] }),
		"repeated":         lines(func(l [][]byte) [][]byte { return append(append([][]byte{}, l[0]), l...) }),
		"mixed up":         lines(func(l [][]byte) [][]byte { slices.Reverse(l); return l }),
		"of other objects": func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("pool-4"), []byte("pool-9")) },
		"of another owner": func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte(`"owningRegion": "eu"`), []byte(`"owningRegion": "ap"`))
		},
		"of other ranges": func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(`"range":`), []byte(`"range":9`)) },
		"nonsense":        func(b []byte) []byte { return bytes.Repeat([]byte("{[\x00"), 1<<10) },
		"too long":        func(b []byte) []byte { return bytes.Repeat([]byte("x"), 17<<20) },
		"all gone": func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte(`"type":"object"`), []byte(`"type":"gone"`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			us := m.regions["us"]
			for _, path := range []string{compare.PathSums, compare.PathObjects, compare.PathNamed} {
				m.remove("eu", poolKey(gone))
				gone++
				us.exec(t, `UPDATE copies SET spec = '{"maxReplicas": 77}' WHERE name = 'pool-4'`)
				us.exec(t, `DELETE FROM copies WHERE name = 'pool-5'`)
				before := m.held("us")
				m.ask("us", "eu", false)
				by := questions{mesh: m, self: "us", mangle: func(at string, answer []byte) []byte {
					if at == path {
						return mangle(answer)
					}
					return answer
				}}
				c := &compare.Comparer{Store: us.store, Peers: by}
				for range 3 {
					if turn, err := c.Page(t.Context(), fleet.SyncVisit{Peer: "eu", Run: "run"}); err == nil && turn.Done {
						break
					}
				}
				after, owed := m.held("us"), m.owed("us")
				for key := range before {
					if _, is := owed[key]; is {
						require.Contains(t, after, key, fmt.Sprintf("%s of %s took it away", name, path))
					}
				}
				m.ask("us", "eu", true)
				m.compare(questions{mesh: m, self: "us"}, "eu")
				require.Equal(t, m.owed("us"), m.held("us"), path)
			}
		})
	}
}

// M31, M26: what is set aside is bounded, markers outlive a comparison that runs, and what was lost is kept a month.
func TestCompareIsCollected(t *testing.T) {
	t.Parallel()
	m := stand(t, 2)
	us := m.regions["us"]
	us.exec(t, `INSERT INTO quarantine (peer, region, kind, scope, name, reason, owner_epoch, number)
		SELECT 'eu', 'eu', 'pool', '', 'q-' || i, 'malformed', 1, 1 FROM generate_series(1, 10000) i`)
	claim, err := us.store.ClaimStream(t.Context(), "eu", "run")
	require.NoError(t, err)
	_, err = us.store.ApplyCopies(t.Context(), fleet.CopySet{Claim: claim, Changes: []fleet.CopyChange{
		{Key: fleet.CopyKey{Region: "eu", ObjectKey: fleet.ObjectKey{Kind: "novel", Name: "more"}}, Version: fleet.CopyVersion{OwnerEpoch: 1, Number: 5}, End: fleet.CopyDeleted},
		{Key: fleet.CopyKey{Region: "eu", ObjectKey: fleet.ObjectKey{Kind: "pool", Name: "q-7"}}, Version: fleet.CopyVersion{OwnerEpoch: 0, Number: 6}, End: fleet.CopyDeleted},
	}})
	require.NoError(t, err)
	count := func(of string) (n int) {
		require.NoError(t, us.raw.QueryRow(t.Context(), "SELECT count(*) FROM "+of).Scan(&n))
		return n
	}
	require.Equal(t, 10_000, count("quarantine"))
	require.Equal(t, 1, count("quarantine WHERE number = 6"), "what is listed follows the newest")
	m.ask("us", "eu", false)
	m.compare(questions{mesh: m, self: "us"}, "eu")
	require.Zero(t, count("quarantine"), "nothing of it was set aside again")

	m.remove("eu", poolKey(1))
	m.ask("us", "eu", false)
	m.compare(questions{mesh: m, self: "us"}, "eu")
	us.exec(t, `UPDATE copy_markers SET at = now() - interval '8 days'`)
	us.exec(t, `INSERT INTO lost_writes (peer, region, kind, scope, name, owner_epoch, number, reason, at)
		SELECT 'eu', 'eu', 'pool', '', 'x', 1, 1, 'gone', now() - d * interval '1 day' FROM unnest(ARRAY[29, 31]) d`)
	us.exec(t, `UPDATE region_syncs SET started_at = now() - interval '9 days', ended_at = NULL`)
	collect := func(kind fleet.CollectedKind) int64 {
		n, more, err := us.store.CollectPage(t.Context(), kind, fleet.DefaultRetention())
		require.NoError(t, err)
		require.False(t, more)
		return n
	}
	require.Zero(t, collect(fleet.CollectMarkers), "a comparison runs that began before")
	us.exec(t, `UPDATE region_syncs SET ended_at = now()`)
	require.EqualValues(t, 1, collect(fleet.CollectMarkers))
	require.EqualValues(t, 1, collect(fleet.CollectLost))
	require.Equal(t, 1, count("lost_writes"))
}
