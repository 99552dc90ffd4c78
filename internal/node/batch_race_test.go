package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// dies runs the batch with a process that dies at a failpoint.
func (m *many) dies(point string) (died bool) {
	m.dieAt = point
	defer func() {
		k, _ := recover().(killed)
		died = k.at == point
	}()
	_, _ = m.run()
	return false
}

func (m *many) revive() {
	m.restart()
	m.opt.Told = m.hears
}

// X13, N98: killed anywhere, the batch is carried out when it comes again, and nothing twice.
func TestBatchKilled(t *testing.T) {
	t.Parallel()
	for point, already := range map[string]int{
		"before_fetch": 0, "after_fetch": 0, "before_switch": 0, "after_switch": 20, "before_reply": 20,
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			m := batched(t, fleet.RoleActive)
			for i := range 20 {
				m.add(numbered(i), 1, fmt.Sprint("config ", i))
			}
			require.True(t, m.dies(point))
			m.revive()
			out := m.mustRun()
			require.Equal(t, fleet.BatchOutcome{Applied: 20 - already, Already: already, Fetched: out.Fetched}, out)
			for i := range 20 {
				require.Equal(t, fmt.Sprint("config ", i), m.file(numbered(i)))
				left, err := os.ReadDir(m.files.dir(numbered(i)))
				require.NoError(t, err)
				require.Len(t, left, 1, "no draft is left")
			}
			if already > 0 {
				require.Empty(t, m.hashes)
			}
		})
	}
	t.Run("with one that runs, which is started once", func(t *testing.T) {
		t.Parallel()
		m := batched(t, fleet.RoleActive)
		m.add("quiet", 1, "q")
		m.add("runs", 1, "r", runsWith(testRun))
		m.spoil = func(w http.ResponseWriter, r *http.Request) bool {
			if tail(r) == "results" {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return tail(r) == "results"
		}
		_, err := m.run()
		require.Equal(t, fleet.Communication, fleet.KindOf(err))
		m.spoil = nil
		m.revive()
		require.Equal(t, 2, m.mustRun().Already)
		require.Equal(t, []string{"start runs 1"}, m.rt.said())
	})
}

// at calls do once, when the batch comes to a failpoint, without the failpoint of what do does.
func (m *many) at(point string, do func()) {
	var once sync.Once
	m.opt.Failpoint = func(name string) {
		if name == point {
			once.Do(func() { m.opt.Failpoint = func(string) {}; do() })
		}
	}
}

// N98, N18: whoever has the newer revision wins, whenever it comes, and stops no other item.
func TestBatchMeets(t *testing.T) {
	t.Parallel()
	for _, role := range []fleet.Role{fleet.RoleActive, fleet.RoleStandby} {
		for _, point := range []string{"before_fetch", "after_fetch"} {
			t.Run("a newer delivery at "+point+" on the "+string(role), func(t *testing.T) {
				t.Parallel()
				m := batched(t, role)
				m.add("fought", 2, "two")
				m.add("other", 2, "two too")
				right := under(m.cmd.Role, m.cmd.Epoch)
				m.at(point, func() { m.must(m.bench.cmd(3, "three", named("fought"), noRun, right)) })
				require.Equal(t, 1, m.mustRun().Applied)
				require.Equal(t, fleet.Stale, m.reason("fought"))
				require.EqualValues(t, 3, m.result("fought").Held.Version.Revision)
				require.EqualValues(t, 3, m.held("fought").Version.Revision)
				require.Empty(t, m.reason("other"))
			})
		}
	}
	t.Run("a newer delivery that comes while the names are taken waits, and wins", func(t *testing.T) {
		t.Parallel()
		for point, kind := range map[string]fleet.Kind{"before_switch": fleet.Stale, "after_switch": ""} {
			m := batched(t, fleet.RoleActive)
			m.add("fought", 2, "two")
			m.add("other", 2, "two too")
			var newer <-chan error
			m.at(point, func() {
				newer = m.start(m.bench.cmd(3, "three", named("fought"), noRun))
				require.Eventually(t, func() bool {
					m.lanes.mu.Lock()
					defer m.lanes.mu.Unlock()
					return m.lanes.busy["fought"].overruled != ""
				}, patience, time.Millisecond)
			})
			m.mustRun()
			require.NoError(t, <-newer)
			require.Equal(t, kind, m.reason("fought"))
			require.Empty(t, m.reason("other"))
			require.EqualValues(t, 3, m.held("fought").Version.Revision)
			require.Equal(t, "three", m.file("fought"))
		}
	})
	t.Run("a newer delivery that runs already wins, an older one is ended, the same one is joined", func(t *testing.T) {
		t.Parallel()
		for n, kind := range map[int64]fleet.Kind{1: "", 2: "", 3: fleet.Stale} {
			m := batched(t, fleet.RoleActive)
			entered, goOn := make(chan struct{}), make(chan struct{})
			m.rt.onStart = func(ctx context.Context, spec guardian.Spec) error {
				if spec.Labels.Version.Revision != n {
					return nil
				}
				select {
				case <-entered:
					return nil
				default:
				}
				close(entered)
				select {
				case <-goOn:
				case <-ctx.Done():
				}
				return ctx.Err()
			}
			single := m.start(m.bench.cmd(n, fmt.Sprint("config ", n), named("fought")))
			<-entered
			m.add("fought", 2, "config 2", runsWith(testRun))
			m.add("other", 2, "x")
			if n == 2 {
				m.at("after_switch", func() { close(goOn) })
			}
			m.mustRun()
			require.Equal(t, kind, m.reason("fought"), "%d", n)
			require.Empty(t, m.reason("other"))
			if n == 3 {
				close(goOn)
			}
			err := <-single
			require.Equal(t, n == 1, fleet.KindOf(err) == fleet.Stale, "%v", err)
			require.Equal(t, max(n, 2), m.held("fought").Version.Revision)
			require.Equal(t, max(n, 2), m.runsNow("fought"))
		}
	})
	t.Run("whoever joined one that then goes alone is not told that it is done", func(t *testing.T) {
		t.Parallel()
		m := batched(t, fleet.RoleActive)
		m.must(m.bench.cmd(1, "one", named("runs")))
		m.add("runs", 2, "two")
		cmd := m.bench.cmd(2, "two", named("runs"), noRun)
		var joined <-chan error
		m.at("before_switch", func() { joined = m.start(cmd) })
		m.mustRun()
		require.NoError(t, <-joined)
		require.Zero(t, m.runsNow("runs"))
		require.EqualValues(t, 2, m.held("runs").Version.Revision)
	})
	// X21
	t.Run("a role that is lost meanwhile refuses all", func(t *testing.T) {
		t.Parallel()
		for _, point := range []string{"after_fetch", "before_switch"} {
			m := batched(t, fleet.RoleActive)
			m.add("one", 1, "1")
			m.add("two", 1, "2")
			m.at(point, func() {
				require.NoError(t, m.Adopt(t.Context(), sqlite.Right{Role: fleet.RoleStandby, Epoch: 7}, ""))
			})
			require.Equal(t, 2, m.mustRun().Failed)
			require.Equal(t, fleet.Stale, m.reason("one"))
			require.Empty(t, m.file("one"))
		}
	})
	t.Run("a lease that is lost before the switch switches nothing", func(t *testing.T) {
		t.Parallel()
		m := batched(t, fleet.RoleActive)
		m.add("one", 1, "1")
		m.at("before_switch", func() { m.mayRun = false })
		require.Equal(t, 1, m.mustRun().Failed)
		require.Equal(t, fleet.Stale, m.reason("one"))
		require.False(t, m.held("one").Known)
		require.NoFileExists(t, m.files.path("one", fleet.ContentJSON))
	})
	t.Run("its caller's end leaves nothing half done", func(t *testing.T) {
		t.Parallel()
		m := batched(t, fleet.RoleActive)
		m.add("one", 1, "1")
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("workflow execution already completed")
		m.at("after_fetch", func() { cancel(gone) })
		_, err := m.ApplyBatch(ctx, m.command(), nil)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, m.held("one").Version.Revision)
		require.Empty(t, m.lanes.busy)
		require.Equal(t, 1, m.mustRun().Applied)
	})
}

// N98, N18, X23: batches, single deliveries and sweeps over the same names at once end, and
// each name ends at its highest number.
func TestBatchLanes(t *testing.T) {
	t.Parallel()
	const names, last = 12, 8
	m := batched(t, fleet.RoleActive)
	config := func(name int, n int64) string { return fmt.Sprint("config ", name, " ", n) }
	batches := make([]fleet.BatchCommand, 0, last)
	items := map[fleet.BatchID][]fleet.BatchItem{}
	for n := int64(1); n <= last; n++ {
		m.next()
		for i := range names {
			if n == last || rand.N(3) > 0 {
				var changes []item
				if i%4 == 0 && n%2 == 0 {
					changes = append(changes, runsWith(testRun))
				}
				m.add(numbered(i), n, config(i, n), changes...)
			}
		}
		batches = append(batches, m.command())
		items[m.cmd.BatchID] = m.items
	}
	m.spoil = func(w http.ResponseWriter, r *http.Request) bool {
		if tail(r) == "items" {
			m.items = items[fleet.BatchID(strings.Split(r.URL.Path, "/")[4])]
		}
		return false
	}
	var group sync.WaitGroup
	for _, cmd := range batches {
		for range 2 {
			group.Go(func() { _, _ = m.ApplyBatch(t.Context(), cmd, nil) })
		}
	}
	for range 20 {
		i, n := rand.N(names), rand.Int64N(last-1)+1
		cmd := m.bench.cmd(n, config(i, n), named(numbered(i)), noRun)
		group.Go(func() { _, _ = m.apply(cmd) })
	}
	group.Go(func() { _ = m.settleAll(t.Context()) })
	group.Wait()
	_, err := m.ApplyBatch(t.Context(), batches[last-1], nil)
	require.NoError(t, err)
	require.Empty(t, m.lanes.busy)
	for i := range names {
		require.EqualValues(t, last, m.held(numbered(i)).Version.Revision)
		require.Equal(t, config(i, last), m.file(numbered(i)))
		require.Equal(t, i%4 == 0, m.runsNow(numbered(i)) != 0)
	}
}

// N43, N98
func TestBatchRuns(t *testing.T) {
	t.Parallel()
	t.Run("starts what has a command, from the store and eight at once", func(t *testing.T) {
		t.Parallel()
		m := batched(t, fleet.RoleActive)
		var mu sync.Mutex
		now, most := 0, 0
		all := make(chan struct{})
		there := sync.OnceFunc(func() { close(all) }) // eight may be at it again later
		m.rt.onStart = func(context.Context, guardian.Spec) error {
			mu.Lock()
			now++
			if most = max(most, now); now == alones {
				there()
			}
			mu.Unlock()
			<-all // nobody goes on before eight are there
			mu.Lock()
			now--
			mu.Unlock()
			return nil
		}
		for i := range 3 * alones {
			m.add(numbered(i), 1, fmt.Sprint("config ", i), runsWith(testRun))
		}
		m.region.asked()
		require.Equal(t, 24, m.mustRun().Applied)
		require.LessOrEqual(t, most, alones)
		require.Empty(t, m.region.asked(), "neither body nor run section is fetched by itself")
		require.True(t, m.result(numbered(7)).Held.Running)
		require.EqualValues(t, 1, m.runsNow(numbered(7)))
	})
	t.Run("one whose command dies is put back, and the others are fine", func(t *testing.T) {
		t.Parallel()
		m := batched(t, fleet.RoleActive)
		m.must(m.bench.cmd(1, "one", named("bad")))
		m.rt.onStart = startFails("dies")
		m.add("bad", 2, "dies", runsWith(testRun))
		m.add("good", 2, "lives", runsWith(testRun))
		m.add("quiet", 2, "quiet")
		require.Equal(t, fleet.BatchOutcome{Applied: 2, Failed: 1}, func() fleet.BatchOutcome { o := m.mustRun(); o.Fetched = 0; return o }())
		r := m.result("bad")
		require.Equal(t, fleet.ApplyFailed, r.Reason)
		require.Contains(t, r.Message, "exit code 3")
		require.EqualValues(t, 1, r.Held.Version.Revision)
		require.EqualValues(t, 2, r.Held.HighWater.Revision)
		require.True(t, r.Held.Running)
		require.EqualValues(t, 1, m.runsNow("bad"))
		require.EqualValues(t, 2, m.runsNow("good"))
		require.EqualValues(t, 1, m.counted.ApplyFailed.Load())
		require.EqualValues(t, 3, m.counted.Applied.Load())
	})
	t.Run("a standby keeps the run section and starts nothing", func(t *testing.T) {
		t.Parallel()
		m := batched(t, fleet.RoleStandby)
		before := m.commits()
		m.add("runs", 1, "r", runsWith(testRun))
		m.mustRun()
		require.Equal(t, 1, m.commits()-before)
		require.Empty(t, m.rt.said())
		require.NoError(t, m.Adopt(t.Context(), sqlite.Right{Role: fleet.RoleActive, Epoch: 3}, ""))
		require.NoError(t, m.settleAll(t.Context()))
		require.EqualValues(t, 1, m.runsNow("runs"))
	})
}

// N43, N98: the same with real processes.
func TestBatchGuardians(t *testing.T) {
	t.Parallel()
	m := batched(t, fleet.RoleActive)
	self, err := os.Executable()
	require.NoError(t, err)
	rt := &guardian.Runtime{Root: t.TempDir(), Executable: self, LifetimePID: os.Getpid()}
	require.NoError(t, rt.Lease(t.Context(), guardian.NoDeadline()))
	m.opt.Runtime = rt
	const lives, dies = `{"command":["/bin/sleep","600"]}`, `{"command":["/bin/sh","-c","exit 3"]}`
	names := []fleet.InstanceName{"bad", "good", "quiet"}
	t.Cleanup(func() {
		for _, name := range names {
			require.NoError(t, rt.Stop(context.WithoutCancel(t.Context()), name))
		}
	})
	m.add("bad", 1, "one", runsWith(lives))
	require.Equal(t, 1, m.mustRun().Applied)
	m.next()
	m.add("bad", 2, "two", runsWith(dies))
	m.add("good", 2, "two", runsWith(lives))
	m.add("quiet", 2, "two")
	out := m.mustRun()
	require.Equal(t, 2, out.Applied, "%v", m.results)
	require.Equal(t, fleet.ApplyFailed, m.reason("bad"))
	for name, n := range map[fleet.InstanceName]int64{"bad": 1, "good": 2} {
		st, is, err := rt.Status(t.Context(), name)
		require.NoError(t, err)
		require.True(t, is && st.Running, name)
		require.Equal(t, n, st.Labels.Version.Revision)
		require.True(t, m.result(name).Held.Running)
	}
	require.Equal(t, "one", m.file("bad"))
}

// N100
func TestBatchStages(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", fleet.MaxBatchBody+1)
	staged := func(t *testing.T) *many {
		m := batched(t, fleet.RoleActive)
		m.must(m.bench.cmd(1, "one", named("config"), noRun))
		m.must(m.bench.cmd(1, "one", named("runs")))
		m.must(m.bench.cmd(1, "one", named("level"), noRun))
		m.rt.said()
		m.add("config", 2, "two")
		m.add("runs", 2, "two", runsWith(testRun))
		m.add("large", 1, large)
		m.add("level", 1, "one")
		m.add("again", 1, "one")
		m.cmd.Stage = true
		out := m.mustRun()
		require.Equal(t, fleet.BatchOutcome{Applied: 4, Already: 1, Fetched: out.Fetched}, out)
		return m
	}
	t.Run("fetches and keeps, and switches nothing", func(t *testing.T) {
		t.Parallel()
		m := staged(t)
		require.Equal(t, "one", m.file("config"))
		require.EqualValues(t, 1, m.runsNow("runs"))
		require.Empty(t, m.rt.said())
		for _, name := range []fleet.InstanceName{"config", "runs", "large", "again"} {
			r := m.result(name)
			require.True(t, r.Staged, name)
			require.Equal(t, m.held(name), r.Held)
		}
		require.False(t, m.result("level").Staged)
		require.EqualValues(t, 1, m.result("config").Held.HighWater.Revision, "it is not accepted yet")
		require.EqualValues(t, 1, m.result("config").Held.Version.Revision)
		in, err := m.store.Instance(t.Context(), "config")
		require.NoError(t, err)
		require.Nil(t, in.Staged)
		require.Equal(t, 4, m.mustRun().Applied, "the same again")
		require.Empty(t, m.hashes)
	})
	for name, later := range map[string]func(m *many){
		"a later batch": func(m *many) {
			m.cmd.Stage = false
			m.mustRun()
		},
		"later deliveries": func(m *many) {
			m.must(m.bench.cmd(2, "two", named("config"), noRun))
			m.must(m.bench.cmd(2, "two", named("runs")))
			m.must(m.bench.cmd(1, large, named("large"), noRun))
		},
	} {
		t.Run("is switched to without a download by "+name+", also after a collection and a restart", func(t *testing.T) {
			t.Parallel()
			m := staged(t)
			for more := true; more; {
				var err error
				more, err = m.store.Collect(t.Context())
				require.NoError(t, err)
			}
			m.revive()
			require.Equal(t, "one", m.file("config"))
			m.region.asked()
			m.hashes = nil
			later(m)
			require.Empty(t, m.hashes)
			require.Empty(t, m.region.asked())
			require.Equal(t, "two", m.file("config"))
			require.Equal(t, large, m.file("large"))
			require.EqualValues(t, 2, m.runsNow("runs"))
		})
	}
	// N59, N63, N100
	t.Run("what the node is owed is older, and still taken", func(t *testing.T) {
		t.Parallel()
		m := staged(t)
		m.add("owed", 4, "four")
		m.mustRun()
		m.must(m.bench.cmd(3, "three", named("owed"), noRun))
		require.Equal(t, "three", m.file("owed"))
		m.hashes = nil
		m.cmd.Stage = false
		m.mustRun()
		require.Empty(t, m.hashes)
		require.Equal(t, "four", m.file("owed"))
	})
	t.Run("a newer revision lets go of what was kept", func(t *testing.T) {
		t.Parallel()
		m := staged(t)
		m.must(m.bench.cmd(3, "three", named("config"), noRun))
		m.must(m.bench.cmd(3, "three", named("runs")))
		for more := true; more; {
			var err error
			more, err = m.store.Collect(t.Context())
			require.NoError(t, err)
		}
		has, err := m.store.HasContent(t.Context(), hashOf([]byte("two")))
		require.NoError(t, err)
		require.False(t, has)
		m.cmd.Stage = false
		m.mustRun()
		require.Equal(t, fleet.Stale, m.reason("config"))
	})
}
