package node

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// N98, N93, N94, N95
func TestBatch(t *testing.T) {
	t.Parallel()
	for _, role := range []fleet.Role{fleet.RoleActive, fleet.RoleStandby} {
		t.Run("brings as many as it may to the "+string(role)+" by one stream and in one transaction", func(t *testing.T) {
			t.Parallel()
			m := batched(t, role)
			for i := range fleet.MaxBatchItems {
				m.add(numbered(i), 1, fmt.Sprintf(`{"n":%d}`, i))
			}
			before := m.commits()
			out := m.mustRun()
			require.Equal(t, fleet.BatchOutcome{Applied: fleet.MaxBatchItems, Fetched: out.Fetched}, out)
			require.Equal(t, 1, m.commits()-before)
			require.Len(t, m.hashes, 1)
			require.Equal(t, 1, m.posts)
			for i := range fleet.MaxBatchItems {
				r := m.result(numbered(i))
				require.Empty(t, r.Reason)
				require.Equal(t, m.held(numbered(i)), r.Held)
				require.EqualValues(t, 1, r.Held.Version.Revision)
				file := ""
				if role == fleet.RoleActive {
					file = fmt.Sprintf(`{"n":%d}`, i)
				}
				require.Equal(t, file, m.file(numbered(i)))
			}
			require.Len(t, m.told, 1)
			require.Len(t, m.told[0], fleet.MaxBatchItems)
			require.EqualValues(t, fleet.MaxBatchItems, m.counted.Applied.Load())

			before = m.commits()
			require.Equal(t, fleet.BatchOutcome{Already: fleet.MaxBatchItems}, m.mustRun())
			require.Empty(t, m.hashes)
			require.Equal(t, before, m.commits())
			require.Empty(t, m.rt.said())
		})
	}
	t.Run("fetches what two of its instances share once, and nothing that is there", func(t *testing.T) {
		t.Parallel()
		m := batched(t, fleet.RoleActive)
		m.must(m.bench.cmd(1, "there", named("old"), noRun))
		m.add("first", 1, "shared")
		m.add("second", 1, "shared")
		m.add("third", 1, "there")
		m.add("empty", 1, "")
		require.Equal(t, 4, m.mustRun().Applied)
		require.Equal(t, 2, m.asks())
		for name, config := range map[fleet.InstanceName]string{"first": "shared", "second": "shared", "third": "there"} {
			require.Equal(t, config, m.file(name))
		}
	})
	t.Run("fetches what is too large for the stream by itself", func(t *testing.T) {
		t.Parallel()
		m := batched(t, fleet.RoleActive)
		large := strings.Repeat("x", fleet.MaxBatchBody+1)
		m.add("large", 1, large)
		m.add("small", 1, "s")
		require.Equal(t, 2, m.mustRun().Applied)
		require.Equal(t, 1, m.asks())
		require.Equal(t, large, m.file("large"))
		require.EqualValues(t, len(large), m.result("large").Fetched)
	})
	t.Run("holds no more in memory than one stream may carry", func(t *testing.T) {
		t.Parallel()
		m := batched(t, fleet.RoleStandby)
		for i := range 20 {
			m.add(numbered(i), 1, fmt.Sprint(i)+strings.Repeat("x", fleet.MaxBatchBody-10))
		}
		require.Equal(t, 20, m.mustRun().Applied)
		require.Len(t, m.hashes, 3)
	})
	for _, coding := range []string{"zstd", "gzip"} {
		t.Run("reads a stream that is compressed by "+coding, func(t *testing.T) {
			t.Parallel()
			m := batched(t, fleet.RoleStandby)
			for i := range 50 {
				m.add(numbered(i), 1, fmt.Sprint(i, strings.Repeat(" the same", 1000)))
			}
			m.stream = func(w http.ResponseWriter, hashes []fleet.Hash) {
				w.Header().Set("Content-Encoding", coding)
				var enc io.WriteCloser = gzip.NewWriter(w)
				if coding == "zstd" {
					enc, _ = zstd.NewWriter(w)
				}
				for _, h := range hashes {
					_, _ = enc.Write(record(h, m.bodies[h]))
				}
				_ = enc.Close()
			}
			out := m.mustRun()
			require.Equal(t, 50, out.Applied)
			require.Less(t, out.Fetched, int64(50_000))
		})
	}
}

// N98: each stands for itself, and ends as its own delivery would have ended.
func TestBatchItems(t *testing.T) {
	t.Parallel()
	m := batched(t, fleet.RoleActive)
	for _, cmd := range []fleet.RefreshDeploymentCommand{
		m.bench.cmd(5, "five", named("older"), noRun), m.bench.cmd(5, "five", named("other"), noRun),
		m.bench.cmd(5, "five", named("level"), noRun), m.bench.cmd(5, "five", named("number"), noRun),
		m.bench.cmd(5, "five", named("next"), noRun), m.bench.cmd(5, "five", named("removed"), noRun),
		m.bench.cmd(5, "runs", named("stops")), m.bench.cmd(5, "same", named("runs")),
	} {
		m.must(cmd)
	}
	m.rt.said()
	m.add("gone", 1, "gone", isGone)
	m.add("older", 4, "four")
	m.add("other", 5, "other five")
	m.add("level", 5, "five")
	m.add("number", 6, "five")
	m.add("next", 6, "six")
	m.add("removed", 6, "", isDeleted)
	m.add("stops", 6, "stopped")
	m.add("runs", 7, "same", runsWith(testRun))
	m.add("../x", 1, "no name")
	delete(m.bodies, m.add("missing", 1, "left out").Revision.Content.Hash)
	m.bodies[m.add("wrong", 1, "these bytes").Revision.Content.Hash] = []byte("owt bytes")
	m.bodies[m.add("longer", 1, "these").Revision.Content.Hash] = []byte("these and more")
	m.add("size", 1, "a size", func(i *fleet.BatchItem) { i.Revision.Content.Size = 3 })
	m.add("run", 1, "r", func(i *fleet.BatchItem) {
		i.Run, i.Revision.RunHash = []byte(`{"command":["rm"]}`), hashOf([]byte(testRun))
	})
	m.add("nonsense", 1, "r", runsWith(`{"command":7}`))
	m.add("off", 1, "off", runsWith(testRun), func(i *fleet.BatchItem) { i.Revision.Action, i.Revision.Enabled = fleet.ActionDisable, false })
	m.add("new", 1, "new")
	stale := m.counted.StaleRefused.Load()

	out := m.mustRun()
	require.Equal(t, fleet.BatchOutcome{Applied: 5, Already: 3, Failed: 10, Fetched: out.Fetched}, out)
	for name, want := range map[fleet.InstanceName]fleet.Kind{
		"gone": fleet.Stale, "older": fleet.Stale, "other": fleet.Conflict, "../x": fleet.Invalid, "missing": fleet.NotFound,
		"wrong": fleet.HashMismatch, "longer": fleet.HashMismatch, "size": fleet.HashMismatch, "run": fleet.HashMismatch,
		"nonsense": fleet.Invalid,
		"level":    "", "number": "", "next": "", "removed": "", "stops": "", "runs": "", "off": "", "new": "",
	} {
		r := m.result(name)
		require.Equal(t, want, r.Reason, "%s: %s", name, r.Message)
		require.Equal(t, want == "", r.Message == "")
		require.Equal(t, m.held(name), r.Held, "what it holds after all is told of each: %s", name)
	}
	for name, n := range map[fleet.InstanceName]int64{"older": 5, "other": 5, "level": 5, "number": 6, "next": 6, "removed": 6, "stops": 6, "runs": 7, "off": 1, "new": 1} {
		require.Equal(t, n, m.held(name).Version.Revision, name)
	}
	for name, config := range map[fleet.InstanceName]string{
		"older": "five", "other": "five", "number": "five", "next": "six", "removed": "", "stops": "stopped", "off": "off", "new": "new", "wrong": "",
	} {
		require.Equal(t, config, m.file(name), name)
	}
	require.Equal(t, []string{"stop stops"}, m.rt.said(), "what runs the same goes on")
	require.EqualValues(t, 2, m.counted.StaleRefused.Load()-stale)
	require.EqualValues(t, 1, m.counted.Conflicts.Load())
	in, err := m.store.Instance(t.Context(), "next")
	require.NoError(t, err)
	require.EqualValues(t, 5, in.Previous.Version.Revision)
	require.False(t, m.held("wrong").Known, "what did not arrive was not accepted")
	require.NotContains(t, fmt.Sprint(m.results)+m.logs.String(), "owt")
}

// N98, X21, N91
func TestBatchRefuses(t *testing.T) {
	t.Parallel()
	status := func(tail0 string, code int) func(m *many) {
		return func(m *many) {
			m.spoil = func(w http.ResponseWriter, r *http.Request) bool {
				if tail(r) == tail0 {
					w.WriteHeader(code)
				}
				return tail(r) == tail0
			}
		}
	}
	for _, tc := range []struct {
		name   string
		change func(m *many)
		kind   fleet.Kind
	}{
		{"another site", func(m *many) { m.cmd.Site = "plant-2" }, fleet.Invalid},
		{"no role", func(m *many) { m.cmd.Role = "boss" }, fleet.Invalid},
		{"no id", func(m *many) { m.cmd.BatchID = "../x" }, fleet.Invalid},
		{"no items", func(m *many) { m.cmd.Count = 0 }, fleet.Invalid},
		{"too many items", func(m *many) { m.cmd.Count = fleet.MaxBatchItems + 1 }, fleet.Invalid},
		{"a lower epoch", func(m *many) { m.cmd.Epoch = 4 }, fleet.Stale},
		{"another role at this epoch", func(m *many) { m.cmd.Role = fleet.RoleStandby }, fleet.Stale},
		{"another count", func(m *many) { m.cmd.Count = 3 }, fleet.Communication},
		{"another digest", func(m *many) { m.items[0].Revision.Version.Revision++ }, fleet.Communication},
		{"a name twice", func(m *many) {
			m.items[1].Instance = m.items[0].Instance
			m.cmd.Digest = fleet.BatchDigest(m.items)
		}, fleet.Communication},
		{"a token for another node", func(m *many) { m.cmd.FetchToken = "AAAA" }, fleet.Unauthenticated},
		{"a batch that has ended", status("items", 404), fleet.Stale},
		{"a wrong token", status("items", 401), fleet.Unauthenticated},
		{"a region that is ill", status("items", 503), fleet.Communication},
		{"items that are no JSON", func(m *many) {
			m.spoil = func(w http.ResponseWriter, _ *http.Request) bool { _, _ = w.Write([]byte("<html>")); return true }
		}, fleet.Communication},
		{"items without end", func(m *many) {
			m.spoil = func(w http.ResponseWriter, _ *http.Request) bool {
				for range 200 {
					if _, err := w.Write([]byte(`{"items":[` + strings.Repeat(" ", 10_000))); err != nil {
						break
					}
				}
				return true
			}
		}, fleet.Communication},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := batched(t, fleet.RoleActive)
			_, _, err := m.store.Adopt(t.Context(), sqlite.Right{Role: fleet.RoleActive, Epoch: 5}, "")
			require.NoError(t, err)
			m.cmd.Epoch = 5
			m.add("one", 1, "1")
			m.add("two", 1, "2")
			m.command()
			tc.change(m)
			_, err = m.ApplyBatch(t.Context(), m.cmd, nil)
			require.Equal(t, tc.kind, fleet.KindOf(err), "%v", err)
			require.False(t, m.held("one").Known)
			require.Empty(t, m.results)
			require.NotContains(t, fmt.Sprint(err)+m.logs.String(), testToken)
		})
	}
	t.Run("a higher epoch is learned with its role", func(t *testing.T) {
		t.Parallel()
		m := batched(t, fleet.RoleActive)
		m.add("one", 1, "1")
		m.cmd.Role, m.cmd.Epoch = fleet.RoleStandby, 9
		require.Equal(t, 1, m.mustRun().Applied)
		require.Empty(t, m.file("one"))
	})
	t.Run("an active without its lease switches nothing", func(t *testing.T) {
		t.Parallel()
		m := batched(t, fleet.RoleActive)
		m.mayRun = false
		m.add("one", 1, "1")
		_, err := m.run()
		require.Equal(t, fleet.Stale, fleet.KindOf(err))
		require.Zero(t, m.held("one").Version.Revision)
	})
	t.Run("results that nobody takes fail the batch, and what was done is done", func(t *testing.T) {
		t.Parallel()
		for code, kind := range map[int]fleet.Kind{503: fleet.Communication, 404: fleet.Stale} {
			m := batched(t, fleet.RoleActive)
			m.add("one", 1, "1")
			status("results", code)(m)
			var said []string
			m.opt.Telling = func(names []fleet.InstanceName) func() {
				said = append(said, fmt.Sprint(names))
				return func() { said = append(said, "done") }
			}
			m.opt.Changed = func(fleet.InstanceName) { said = append(said, "report") }
			_, err := m.run()
			require.Equal(t, kind, fleet.KindOf(err))
			require.Equal(t, []string{"[one]", "done", "report"}, said, "a report tells it instead")
			require.Empty(t, m.told)
			m.spoil = nil
			require.Equal(t, 1, m.mustRun().Already)
		}
	})
	t.Run("a token that is wrong for the bodies fails those that need one", func(t *testing.T) {
		t.Parallel()
		m := batched(t, fleet.RoleActive)
		m.must(m.bench.cmd(1, "there", named("old"), noRun))
		m.add("has", 1, "there")
		m.add("lacks", 1, "x")
		status("bodies", 401)(m)
		m.mustRun()
		require.Empty(t, m.reason("has"))
		require.Equal(t, fleet.Unauthenticated, m.reason("lacks"))
	})
}
