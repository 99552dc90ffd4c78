package sqlite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const name = fleet.InstanceName("press")

var active = Right{Role: fleet.RoleActive, Epoch: 3}

// setup opens a store whose node is active at epoch 3.
func setup(t testing.TB) (*Store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a?b#c", "node.db")
	require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
	s := reopen(t, nil, path)
	_, _, err := s.Adopt(t.Context(), active, "plant-1-a")
	require.NoError(t, err)
	return s, path
}

func reopen(t testing.TB, old *Store, path string) *Store {
	t.Helper()
	if old != nil {
		require.NoError(t, old.Close())
	}
	s, err := Open(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func body(size int, seed uint64) ([]byte, fleet.Content) {
	data := make([]byte, size)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	sum := sha256.Sum256(data)
	return data, fleet.Content{Kind: fleet.ContentArtifact, Hash: fleet.Hash(hex.EncodeToString(sum[:])), Size: int64(size)}
}

// fill brings a body to where a slot may refer to it.
func fill(t *testing.T, s *Store, data []byte, c fleet.Content) *Staging {
	t.Helper()
	st, err := s.OpenStaging(t.Context(), c)
	require.NoError(t, err)
	for at := st.Received(); at < c.Size; at += MaxChunk {
		require.Equal(t, at, st.Received())
		require.NoError(t, st.Append(t.Context(), data[at:min(at+MaxChunk, c.Size)]))
	}
	require.NoError(t, st.Seal(t.Context()))
	require.True(t, st.Complete())
	return st
}

// filled is an attempt with its body.
func filled(t *testing.T, s *Store, a Attempt, data []byte) Attempt {
	a.Body = fill(t, s, data, a.Revision.Content)
	return a
}

func attempt(n int64, c fleet.Content) Attempt {
	return Attempt{Instance: name, Right: active, Revision: fleet.Revision{
		Version: fleet.Version{Era: 1, Revision: n}, Action: fleet.ActionDeploy, Content: c, Enabled: true,
	}}
}

func deletion(n int64) Attempt {
	return Attempt{Instance: name, Right: active, Revision: fleet.Revision{
		Version: fleet.Version{Era: 1, Revision: n}, Action: fleet.ActionDelete,
	}}
}

func commit(t *testing.T, s *Store, a Attempt, data []byte) {
	t.Helper()
	require.NoError(t, s.Accept(t.Context(), a))
	if a.Revision.Action != fleet.ActionDelete {
		a = filled(t, s, a, data)
	}
	require.NoError(t, s.Commit(t.Context(), a))
}

func held(t *testing.T, s *Store) Instance {
	t.Helper()
	in, err := s.Instance(t.Context(), name)
	require.NoError(t, err)
	return in
}

func number(s *Slot) int64 {
	if s == nil {
		return 0
	}
	return s.Version.Revision
}

func TestOpen(t *testing.T) {
	t.Parallel()
	t.Run("every commit is durable, space can be given back, one connection writes", func(t *testing.T) {
		t.Parallel()
		s, path := setup(t)
		for pragma, want := range map[string]string{
			"journal_mode": "wal", "synchronous": "2", "auto_vacuum": "2", "foreign_keys": "1", "busy_timeout": "10000",
		} {
			var got string
			require.NoError(t, s.db.QueryRow("PRAGMA "+pragma).Scan(&got))
			require.Equal(t, want, got, pragma)
		}
		var schema int
		require.NoError(t, s.db.QueryRow("PRAGMA user_version").Scan(&schema))
		require.Len(t, steps(t), schema)
		require.Equal(t, 1, s.db.Stats().MaxOpenConnections)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	})
	// X26
	for name, c := range map[string]struct {
		ahead, from int // of what this version knows
		want        fleet.Kind
	}{
		"serves a schema one step ahead that it may use":         {1, 0, ""},
		"serves one several steps ahead, of one release":         {3, 0, ""},
		"refuses one step ahead that only who knows it may use":  {1, 1, fleet.IllegalState},
		"refuses several ahead, of which it may use the first":   {3, 2, fleet.IllegalState},
		"knows its own schema, whatever that one says of others": {0, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, path := setup(t)
			known := len(steps(t))
			_, err := s.db.Exec(fmt.Sprintf("UPDATE usable SET from_schema = %d; PRAGMA user_version = %d", known+c.from, known+c.ahead))
			require.NoError(t, err)
			require.NoError(t, s.Close())
			s, err = Open(t.Context(), path)
			if c.want != "" {
				require.Equal(t, c.want, fleet.KindOf(err))
				return
			}
			require.NoError(t, err)
			require.NoError(t, s.Close())
		})
	}
	// X26
	t.Run("refuses a store that no release has made, and changes nothing", func(t *testing.T) {
		t.Parallel()
		for _, version := range []int{1, 8} {
			path := filepath.Join(t.TempDir(), "node.db")
			conn, err := sql.Open("sqlite", "file:"+path)
			require.NoError(t, err)
			_, err = conn.Exec(fmt.Sprintf("CREATE TABLE meta (id INTEGER PRIMARY KEY, region TEXT); PRAGMA user_version = %d", version))
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			before, err := os.ReadFile(path)
			require.NoError(t, err)
			_, err = Open(t.Context(), path)
			require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
			require.ErrorContains(t, err, "which no release has made")
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, bytes.Equal(before, after), "not a byte was changed")
		}
	})
	t.Run("refuses one whose schema is in its log still", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "node.db")
		conn, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)")
		require.NoError(t, err)
		_, err = conn.Exec("CREATE TABLE meta (id INTEGER PRIMARY KEY, region TEXT); PRAGMA user_version = 8")
		require.NoError(t, err)
		_, err = Open(t.Context(), path)
		require.ErrorContains(t, err, "which no release has made")
		require.NoError(t, conn.Close())
	})
	t.Run("is told by each migration who may use it", func(t *testing.T) {
		t.Parallel()
		for _, step := range steps(t)[1:] {
			script, err := migrations.ReadFile(step)
			require.NoError(t, err)
			require.Regexp(t, `(?m)^UPDATE usable SET from_schema = max\(from_schema, \d+\);$`, string(script), step)
		}
	})
}

// steps are the migrations in their order.
func steps(t *testing.T) []string {
	t.Helper()
	names, err := fs.Glob(migrations, "migrations/*.sql")
	require.NoError(t, err)
	return names
}

// later is this version's schema and a migration that is made for the test, as the next release may bring one.
func later(t *testing.T) fs.FS {
	t.Helper()
	files := fstest.MapFS{"migrations/0002_made.sql": {Data: []byte(`ALTER TABLE instances ADD COLUMN made INTEGER NOT NULL DEFAULT 7;
		UPDATE usable SET from_schema = max(from_schema, 1);`)}}
	for _, step := range steps(t) {
		script, err := migrations.ReadFile(step)
		require.NoError(t, err)
		files[step] = &fstest.MapFile{Data: script}
	}
	return files
}

// X26: the next version takes over what this one wrote, and this one can come back.
func TestMigrateKeepsSlots(t *testing.T) {
	t.Parallel()
	s, path := setup(t)
	data, c := body(1, 10)
	commit(t, s, attempt(4, c), data)
	before := held(t, s)
	require.NoError(t, s.Close())

	next, err := open(t.Context(), path, later(t))
	require.NoError(t, err)
	require.Equal(t, before, held(t, next))
	var made int
	require.NoError(t, next.db.QueryRow("SELECT made FROM instances").Scan(&made))
	require.Equal(t, 7, made)
	data, c = body(2, 10)
	commit(t, next, attempt(5, c), data)
	_, err = next.db.Exec(`INSERT INTO slots SELECT 'nobody', slot, era, revision, action, kind, hash, size, run_hash, run, enabled, epoch, content_id FROM slots`)
	require.Error(t, err, "what slots refer to is still required")
	require.NoError(t, next.Close())

	s = reopen(t, nil, path)
	require.EqualValues(t, 5, number(held(t, s).Current))
	require.EqualValues(t, 4, number(held(t, s).Previous))
}

func TestChecks(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	data, c := body(1, 10)
	commit(t, s, attempt(4, c), data)
	for _, bad := range []string{"slot = 'x'", "action = 'x'", "kind = 'x'", "enabled = 2"} {
		_, err := s.db.Exec("UPDATE slots SET " + bad)
		require.Error(t, err, bad)
	}
	for _, bad := range []string{"high_action = 'x'", "high_enabled = 2"} {
		_, err := s.db.Exec("UPDATE instances SET " + bad)
		require.Error(t, err, bad)
	}
}

func TestMeta(t *testing.T) {
	t.Parallel()
	t.Run("a node without a role takes one at its own epoch", func(t *testing.T) {
		t.Parallel()
		s := reopen(t, nil, filepath.Join(t.TempDir(), "node.db"))
		standby := Right{fleet.RoleStandby, 0}
		_, after, err := s.Adopt(t.Context(), standby, "plant-1-a")
		require.NoError(t, err)
		require.Equal(t, standby, after.Right)
		_, after, err = s.Adopt(t.Context(), Right{fleet.RoleActive, 0}, "plant-1-a")
		require.NoError(t, err)
		require.Equal(t, standby, after.Right, "and no other one")
	})
	s, path := setup(t)
	require.NoError(t, s.SetRegion(t.Context(), "eu-1"))
	require.NoError(t, s.SetStartID(t.Context(), "start-1"))
	for _, old := range []Right{{fleet.RoleStandby, 2}, {fleet.RoleStandby, 3}} {
		_, after, err := s.Adopt(t.Context(), old, "x")
		require.NoError(t, err)
		require.Equal(t, active, after.Right, "an epoch that is not higher changes nothing")
	}
	before, after, err := s.Adopt(t.Context(), Right{fleet.RoleStandby, 4}, "plant-1-b")
	require.NoError(t, err)
	require.Equal(t, active, before.Right)
	require.Equal(t, Right{fleet.RoleStandby, 4}, after.Right)
	s = reopen(t, s, path)
	meta, err := s.Meta(t.Context())
	require.NoError(t, err)
	require.Equal(t, Meta{Right: after.Right, Holder: "plant-1-b", Region: "eu-1", LastStartID: "start-1"}, meta)
}

// N96
func TestStagingResumes(t *testing.T) {
	t.Parallel()
	data, c := body(3*MaxChunk+17, 1)
	t.Run("where it was, with its hash, after the store was closed between any two chunks", func(t *testing.T) {
		t.Parallel()
		s, path := setup(t)
		require.NoError(t, s.Accept(t.Context(), attempt(1, c)))
		for at := int64(0); at < c.Size; {
			st, err := s.OpenStaging(t.Context(), c)
			require.NoError(t, err)
			require.Equal(t, at, st.Received())
			require.False(t, st.Complete())
			require.NoError(t, st.Append(t.Context(), data[at:min(at+MaxChunk, c.Size)]))
			at = min(at+MaxChunk, c.Size)
			require.Equal(t, at, st.Received())
			require.False(t, collect(t, s), "what is being fetched stays")
			s = reopen(t, s, path)
		}
		fill(t, s, data, c)
		var out bytes.Buffer
		require.NoError(t, s.WriteContent(t.Context(), c, &out))
		require.Equal(t, data, out.Bytes())
	})
	t.Run("and a chunk that was not committed is not counted", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		st, err := s.OpenStaging(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, st.Append(t.Context(), data[:100]))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, st.Append(ended, data[100:200]))
		require.Equal(t, int64(100), st.Received())
		fill(t, s, data, c) // the hash covers exactly what is there
		require.Equal(t, fleet.Stale, fleet.KindOf(st.Append(t.Context(), data[100:200])),
			"a second writer of the same body is refused")
	})
}

// N94
func TestStagingVerifies(t *testing.T) {
	t.Parallel()
	data, c := body(1000, 2)
	t.Run("a body with another hash is discarded and cannot be staged", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		require.NoError(t, s.Accept(t.Context(), attempt(1, c)))
		st, err := s.OpenStaging(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, st.Append(t.Context(), append([]byte{data[0] ^ 1}, data[1:]...)))
		require.Equal(t, fleet.HashMismatch, fleet.KindOf(st.Seal(t.Context())))
		has, err := s.HasContent(t.Context(), c.Hash)
		require.NoError(t, err)
		require.False(t, has)
		refused := attempt(1, c)
		refused.Body = st
		require.Equal(t, fleet.IllegalState, fleet.KindOf(s.Stage(t.Context(), refused)))
		require.NoError(t, s.Stage(t.Context(), filled(t, s, attempt(1, c), data)))
	})
	t.Run("a longer body, and a part of one, are refused", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		st, err := s.OpenStaging(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, fleet.HashMismatch, fleet.KindOf(st.Append(t.Context(), make([]byte, 1001))))
		require.NoError(t, st.Append(t.Context(), data[:999]))
		require.Equal(t, fleet.IllegalState, fleet.KindOf(st.Seal(t.Context())))
	})
	t.Run("a size that turns out wrong begins again, a verified body knows its own", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		wrong := c
		wrong.Size = 5000
		st, err := s.OpenStaging(t.Context(), wrong)
		require.NoError(t, err)
		require.NoError(t, st.Append(t.Context(), data))
		commit(t, s, attempt(1, c), data)
		_, err = s.OpenStaging(t.Context(), wrong)
		require.Equal(t, fleet.HashMismatch, fleet.KindOf(err))
	})
	t.Run("an empty body is a body", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		_, empty := body(0, 1)
		commit(t, s, attempt(1, empty), nil)
		require.Equal(t, int64(1), number(held(t, s).Current))
	})
}

// N49, N50, N95
func TestSwitch(t *testing.T) {
	t.Parallel()
	a, ca := body(100, 1)
	b, cb := body(200, 2)
	t.Run("keeps the previous revision, over a new number of the same content too", func(t *testing.T) {
		t.Parallel()
		s, path := setup(t)
		commit(t, s, attempt(1, ca), a)
		commit(t, s, attempt(2, cb), b)
		disabled := attempt(3, cb)
		disabled.Revision.Action, disabled.Revision.Enabled = fleet.ActionDisable, false
		commit(t, s, disabled, b)
		s = reopen(t, s, path)
		in := held(t, s)
		require.Equal(t, []int64{0, 3, 1}, []int64{number(in.Staged), number(in.Current), number(in.Previous)})
		require.False(t, in.Current.Enabled)
		require.Equal(t, disabled.Revision, in.Current.Revision)
	})
	t.Run("a staged revision changes nothing until it is promoted", func(t *testing.T) {
		t.Parallel()
		s, path := setup(t)
		commit(t, s, attempt(1, ca), a)
		require.NoError(t, s.Accept(t.Context(), attempt(2, cb)))
		require.NoError(t, s.Stage(t.Context(), filled(t, s, attempt(2, cb), b)))
		s = reopen(t, s, path)
		in := held(t, s)
		require.Equal(t, []int64{2, 1}, []int64{number(in.Staged), number(in.Current)})
		require.NoError(t, s.Unstage(t.Context(), name))
		require.Equal(t, int64(2), held(t, s).HighWater.Version.Revision, "the mark stays")
		require.Equal(t, fleet.Stale, fleet.KindOf(s.Promote(t.Context(), attempt(2, cb))))
	})
	t.Run("nothing older is accepted, staged or committed", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		commit(t, s, attempt(1, ca), a)
		require.NoError(t, s.Accept(t.Context(), attempt(3, cb)))
		for _, older := range []Attempt{attempt(1, ca), attempt(2, ca), attempt(3, ca)} {
			require.Equal(t, fleet.Stale, fleet.KindOf(s.Accept(t.Context(), older)))
		}
		require.Equal(t, fleet.Stale, fleet.KindOf(s.Commit(t.Context(), attempt(2, ca))))
		require.Equal(t, fleet.Stale, fleet.KindOf(s.Commit(t.Context(), filled(t, s, attempt(2, cb), b))))
		has, err := s.HasContent(t.Context(), cb.Hash)
		require.NoError(t, err)
		require.False(t, has, "a slot that is refused leaves no body")
		require.NoError(t, s.Accept(t.Context(), attempt(3, cb)), "the same one may be tried again")
	})
	t.Run("nothing is committed under a right that has passed", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		require.NoError(t, s.Accept(t.Context(), attempt(1, ca)))
		require.NoError(t, s.Stage(t.Context(), filled(t, s, attempt(1, ca), a)))
		_, _, err := s.Adopt(t.Context(), Right{fleet.RoleActive, 4}, "")
		require.NoError(t, err)
		for _, err := range []error{
			s.Promote(t.Context(), attempt(1, ca)), s.Stage(t.Context(), attempt(1, ca)),
			s.Accept(t.Context(), attempt(2, ca)), s.Renumber(t.Context(), attempt(2, ca)),
		} {
			require.Equal(t, fleet.Stale, fleet.KindOf(err))
		}
		require.Nil(t, held(t, s).Current)
	})
	t.Run("a tombstone outlives the content, keeps the mark, and a new revision may follow", func(t *testing.T) {
		t.Parallel()
		s, path := setup(t)
		commit(t, s, attempt(1, ca), a)
		commit(t, s, attempt(2, cb), b)
		commit(t, s, deletion(3), nil)
		s = reopen(t, s, path)
		in := held(t, s)
		require.True(t, in.Current.Deleted())
		require.Nil(t, in.Previous)
		require.Equal(t, fleet.Stale, fleet.KindOf(s.Accept(t.Context(), attempt(2, cb))))
		commit(t, s, attempt(4, ca), a)
		in = held(t, s)
		require.Equal(t, []int64{4, 0}, []int64{number(in.Current), number(in.Previous)})
	})
	t.Run("renumbering changes number and mark together, and refuses other content", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		commit(t, s, attempt(1, ca), a)
		require.NoError(t, s.Renumber(t.Context(), attempt(5, ca)))
		in := held(t, s)
		require.Equal(t, int64(5), number(in.Current))
		require.Equal(t, in.Current.Version, in.HighWater.Version)
		require.Equal(t, fleet.Stale, fleet.KindOf(s.Renumber(t.Context(), attempt(6, cb))))
		require.Equal(t, int64(5), held(t, s).HighWater.Version.Revision, "a refused one leaves no mark")
	})
}

func TestUneasy(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	data, c := body(100, 1)
	next, cn := body(100, 2)
	runs := func(name string, enabled bool) Attempt {
		a := of(name, attempt(1, c))
		a.Revision.Enabled, a.Revision.RunHash, a.Run = enabled, "r", []byte(`{"command":["x"]}`)
		return a
	}
	for _, a := range []Attempt{of("plain", attempt(1, c)), of("half", attempt(1, c)), runs("runs", true), runs("off", false), of("failed", attempt(1, c))} {
		commit(t, s, a, data)
	}
	half := of("half", attempt(2, cn))
	require.NoError(t, s.Accept(t.Context(), half))
	require.NoError(t, s.Stage(t.Context(), filled(t, s, half, next)))

	names := func(also ...fleet.InstanceName) (all []fleet.InstanceName) {
		uneasy, err := s.Uneasy(t.Context(), also)
		require.NoError(t, err)
		whole, err := s.Instances(t.Context())
		require.NoError(t, err)
		for _, in := range uneasy {
			require.Contains(t, whole, in)
			all = append(all, in.Name)
		}
		return all
	}
	require.Equal(t, []fleet.InstanceName{"half", "runs"}, names())
	require.Equal(t, []fleet.InstanceName{"failed", "half", "runs"}, names("failed", "never-heard-of", "runs"))
}

func TestCollect(t *testing.T) {
	t.Parallel()
	t.Run("removes in bounded steps what no slot and no mark needs, and gives the space back", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		big, cBig := body(12*MaxChunk, 1)
		small, cSmall := body(10, 2)
		_, cNever := body(10, 3)
		commit(t, s, attempt(1, cBig), big)
		commit(t, s, attempt(2, cSmall), small)
		require.False(t, collect(t, s), "the previous revision is needed")
		require.NoError(t, s.Accept(t.Context(), attempt(3, cNever)))
		commit(t, s, deletion(4), nil)
		before := pages(t, s)
		require.Equal(t, 2, collectAll(t, s))
		require.Less(t, pages(t, s), before/10)
		var left int
		require.NoError(t, s.db.QueryRow("SELECT (SELECT count(*) FROM contents) + (SELECT count(*) FROM chunks)").Scan(&left))
		require.Zero(t, left)
	})
	t.Run("takes many small bodies in one step, and keeps a little free space for the next ones", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		for i := range 20 {
			data, c := body(10_000, uint64(i))
			commit(t, s, attempt(int64(i+1), c), data)
		}
		before := pages(t, s)
		require.False(t, collect(t, s))
		require.Equal(t, 2, contents(t, s), "current and previous")
		require.Equal(t, before, pages(t, s))
	})
	t.Run("a body that is wanted again while it is being removed is fetched anew, never half there", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		big, cBig := body(12*MaxChunk, 1)
		commit(t, s, attempt(1, cBig), big)
		commit(t, s, deletion(2), nil)
		require.True(t, collect(t, s))
		st, err := s.OpenStaging(t.Context(), cBig)
		require.NoError(t, err)
		require.False(t, st.Complete())
		require.Zero(t, st.Received())
		commit(t, s, attempt(3, cBig), big)
		collectAll(t, s)
		var out bytes.Buffer
		require.NoError(t, s.WriteContent(t.Context(), cBig, &out))
		require.Equal(t, big, out.Bytes())
	})
}

// N98: as much free space as the next bodies need stays in the file, and no page more is given back.
func TestSlack(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	free := func() (n int) {
		require.NoError(t, s.db.QueryRow("PRAGMA freelist_count").Scan(&n))
		return n
	}
	drops := func() { // about a page
		_, err := s.db.Exec("DELETE FROM ballast WHERE rowid = (SELECT min(rowid) FROM ballast)")
		require.NoError(t, err)
	}
	_, err := s.db.Exec("CREATE TABLE ballast (page BLOB)")
	require.NoError(t, err)
	_, err = s.db.Exec("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400) INSERT INTO ballast SELECT zeroblob(3000) FROM n")
	require.NoError(t, err)
	_, err = s.db.Exec("DELETE FROM ballast WHERE rowid <= ?", slackPages-16)
	require.NoError(t, err)
	require.Less(t, free(), slackPages)
	for free() < slackPages {
		drops()
	}
	require.Equal(t, slackPages, free())
	require.NoError(t, s.vacuum(t.Context()))
	require.Equal(t, slackPages, free())
	for free() == slackPages {
		drops()
	}
	require.NoError(t, s.vacuum(t.Context()))
	require.Zero(t, s.db.Stats().InUse)
	require.Zero(t, free())
}

// collectAll collects until nothing is left, and gives how many steps that took.
func collectAll(t *testing.T, s *Store) int {
	t.Helper()
	for steps := 1; ; steps++ {
		if !collect(t, s) {
			return steps
		}
		require.Less(t, steps, 100, "it has no end")
	}
}

func collect(t *testing.T, s *Store) bool {
	t.Helper()
	more, err := s.Collect(t.Context())
	require.NoError(t, err)
	require.Zero(t, s.db.Stats().InUse, "the only connection is kept: whatever comes next would wait for ever")
	return more
}

func pages(t *testing.T, s *Store) int {
	t.Helper()
	var n int
	require.NoError(t, s.db.QueryRow("PRAGMA page_count").Scan(&n))
	return n
}

func TestLogOffset(t *testing.T) {
	t.Parallel()
	s, path := setup(t)
	at, err := s.LogOffset(t.Context(), name)
	require.NoError(t, err)
	require.Zero(t, at)
	require.NoError(t, s.SetLogOffset(t.Context(), name, 7))
	require.NoError(t, s.SetLogOffset(t.Context(), name, 3), "a source that was cut begins again")
	s = reopen(t, s, path)
	at, err = s.LogOffset(t.Context(), name)
	require.NoError(t, err)
	require.Equal(t, int64(3), at)
}
