package replicas

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// order is what a test asks of an agent process.
type order struct {
	Dir, Executable string
	Lifetime        int
	Set             fleet.NodeReplicas
	Definitions     map[fleet.Hash][]byte
}

// agent keeps replicas until it is killed, and prints what it tells of them.
func agent(arg string) int {
	var o order
	if err := json.Unmarshal([]byte(arg), &o); err != nil {
		return 1
	}
	store, err := sqlite.Open(context.Background(), filepath.Join(o.Dir, "node.db"))
	if err != nil {
		return 1
	}
	opt := options(o.Dir, &guardian.Runtime{
		Root: filepath.Join(o.Dir, "replicas", "run"), Executable: o.Executable, LifetimePID: o.Lifetime, Unleased: true,
		Log: slog.New(slog.DiscardHandler),
	})
	opt.Store = store
	opt.Region = &fakeRegion{set: o.Set, definitions: o.Definitions, logs: map[fleet.ReplicaID]string{}, samples: map[fleet.ReplicaID]Sample{}}
	k := New(opt)
	k.Heard()
	go func() { _ = k.Run(context.Background()) }() // until it is killed
	for complete := true; ; complete = false {
		report, err := k.Next(context.Background(), complete)
		if err != nil {
			return 1
		}
		for _, st := range report.GetReplicas() {
			fmt.Println(st.GetPhase(), st.GetHealth(), st.GetRestarts(), st.GetPid(), st.GetEndpoint())
		}
		k.Acked(report.GetSequence())
	}
}

// said is one line of an agent process.
type said struct {
	phase, health, endpoint string
	restarts                int
	pid                     uint32
}

// agentUntil runs an agent process until it said something, and kills it then.
func agentUntil(t *testing.T, o order, enough func(said) bool) said {
	t.Helper()
	arg, err := json.Marshal(o)
	require.NoError(t, err)
	cmd := exec.Command(o.Executable, "agent", string(arg))
	cmd.Env = os.Environ()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	watchdog := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	var last said
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var s said
		_, err := fmt.Sscan(lines.Text(), &s.phase, &s.health, &s.restarts, &s.pid, &s.endpoint)
		if err == nil && enough(s) {
			last = s
			break
		}
	}
	require.NotZero(t, last, "the agent never said it")
	require.NoError(t, cmd.Process.Kill())
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	return last
}

// S19, X5: an agent that is killed leaves its replicas running; the next one takes them over with
// what was counted, and needs no region for it.
func TestAgentKilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.stop()
	def := web(frail, func(d *fleet.Definition) { d.Command = append(d.Command, "heals") })
	hash := b.defined(def)
	o := order{
		Dir: b.dir, Executable: b.runtime().Executable, Lifetime: os.Getpid(), Definitions: b.region.definitions,
		Set: fleet.NodeReplicas{Era: 1, Version: 1, Replicas: []fleet.NodeReplica{line(first, hash)}},
	}
	require.NoError(t, os.MkdirAll(b.in(first, ""), 0o700))
	sickened := false
	before := agentUntil(t, o, func(s said) bool {
		healthy := s.phase == string(fleet.PhaseRunning) && s.health == string(fleet.HealthHealthy)
		if healthy && !sickened { // it is restarted once
			sickened = true
			require.NoError(t, os.WriteFile(b.in(first, "sick"), nil, 0o600))
		}
		return healthy && s.restarts == 1
	})
	require.True(t, alive(before.pid))

	b.region.away = true
	b.open(false)
	b.eventually(func() bool { return b.status(first) != nil }, "nothing is told of it")
	st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	require.Equal(t, []any{before.pid, before.endpoint, uint32(1)}, []any{st.GetPid(), st.GetEndpoint(), st.GetRestarts()})
	require.Equal(t, []string{"running HEALTHY 1"}, b.told(first))

	require.NoError(t, os.WriteFile(b.in(first, "sick"), nil, 0o600))
	b.eventually(func() bool { return b.status(first).GetRestarts() == 2 }, "it is not probed any more")
	st = b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	require.Equal(t, before.endpoint, st.GetEndpoint())
	require.False(t, alive(before.pid))
}

// S19: what ended while no agent was there is reported by the next one.
func TestEndedUnseen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ask(line(first, b.defined(web())))
	st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	b.stop()
	require.NoError(t, syscall.Kill(int(st.GetPid()), syscall.SIGKILL))
	require.NoError(t, b.runtime().Await(t.Context(), nameOf(first)))
	b.open(true)
	st = b.is(first, fleet.PhaseExited, fleet.HealthNotChecked)
	require.Contains(t, st.GetMessage(), "SIGKILL")
}

// S19, X5: a replica whose guardian is paused while the agent is started again is taken over as it is,
// and its end is seen later.
func TestGuardianPaused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ask(line(first, b.defined(web())))
	st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	seen, _, err := b.runtime().Status(t.Context(), nameOf(first))
	require.NoError(t, err)
	b.stop()
	require.NoError(t, syscall.Kill(seen.GuardianPID, syscall.SIGSTOP))
	b.mu.Lock()
	b.statuses, b.seen = map[fleet.ReplicaID]*nodev1.ReplicaStatus{}, map[fleet.ReplicaID][]string{}
	b.mu.Unlock()
	b.open(true)
	b.eventually(func() bool { return b.status(first) != nil }, "nothing is told of it")
	b.eventually(func() bool {
		b.keeper.prober.mu.Lock()
		defer b.keeper.prober.mu.Unlock()
		return b.keeper.prober.watched[first] != nil
	}, "it is not probed any more")
	require.True(t, alive(st.GetPid()))
	require.Equal(t, []string{"running HEALTHY 0"}, b.told(first))
	require.NoError(t, syscall.Kill(seen.GuardianPID, syscall.SIGCONT))
	require.NoError(t, syscall.Kill(int(st.GetPid()), syscall.SIGKILL))
	require.Contains(t, b.is(first, fleet.PhaseExited, fleet.HealthNotChecked).GetMessage(), "SIGKILL")
}

// X5: a replica dies with its guardian, and is reported at once.
func TestGuardianKilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ask(line(first, b.defined(web(func(d *fleet.Definition) { d.Env["STUBBORN"] = "yes" }))))
	st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	seen, _, err := b.runtime().Status(t.Context(), nameOf(first))
	require.NoError(t, err)
	children := childrenOf(t, st.GetPid())
	require.NoError(t, syscall.Kill(seen.GuardianPID, syscall.SIGKILL))
	st2 := b.is(first, fleet.PhaseExited, fleet.HealthNotChecked)
	require.Contains(t, st2.GetMessage(), "guardian was killed")
	require.False(t, alive(st.GetPid()))
	for _, child := range children {
		require.False(t, alive(child))
	}
}

// X4: with the region away the node starts again what exits, after pauses that grow (kubeedge 4441).
func TestExitWhileAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ask(line(first, b.defined(web())))
	st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	b.region.mu.Lock()
	b.region.away = true
	b.region.mu.Unlock()
	b.keeper.Lost()
	require.NoError(t, syscall.Kill(int(st.GetPid()), syscall.SIGKILL))
	b.is(first, fleet.PhaseExited, fleet.HealthNotChecked)
	b.eventually(func() bool { return b.status(first).GetRestarts() == 1 }, "it stays down")
	again := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	require.Equal(t, st.GetEndpoint(), again.GetEndpoint())
}

// S19, X4: so it does with what a reboot ended: the next agent needs no region for it (kubeedge 4441).
func TestRebootWhileAway(t *testing.T) {
	t.Parallel()
	boot := "this boot"
	b := setup(t, func(o *Options) { o.Boot = boot })
	b.ask(line(first, b.defined(web())))
	st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	at, _, err := b.runtime().Status(t.Context(), nameOf(first))
	require.NoError(t, err)
	b.stop()
	require.NoError(t, syscall.Kill(at.GuardianPID, syscall.SIGKILL))
	require.NoError(t, b.runtime().Await(t.Context(), nameOf(first)))
	boot, b.region.away = "the next boot", true
	b.mu.Lock()
	delete(b.statuses, first)
	b.mu.Unlock()
	b.open(false)
	b.eventually(func() bool { return b.status(first).GetRestarts() == 1 }, "it stays down")
	again := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	require.Equal(t, st.GetEndpoint(), again.GetEndpoint())
	require.NotEqual(t, st.GetPid(), again.GetPid())
}

// forgets has the node's store lost while its agent is away.
func (b *bench) forgets() {
	b.t.Helper()
	for _, name := range []string{"node.db", "node.db-wal", "node.db-shm"} {
		require.NoError(b.t, os.RemoveAll(filepath.Join(b.dir, name)))
	}
	b.mu.Lock()
	b.statuses = map[fleet.ReplicaID]*nodev1.ReplicaStatus{}
	b.mu.Unlock()
}

// X3, X5, X28: what nobody remembers runs on, and is ended only by name.
func TestStranger(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hash := b.defined(web())
	b.ask(line(first, hash), line(second, hash))
	st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	other := b.is(second, fleet.PhaseRunning, fleet.HealthHealthy)
	b.stop()
	b.forgets()
	b.region.set = fleet.NodeReplicas{} // no set: whatever answered was not the region
	b.open(true)
	b.eventually(func() bool {
		b.region.mu.Lock()
		defer b.region.mu.Unlock()
		return b.region.fetched > 2
	}, "the set is not asked for again")
	require.True(t, alive(st.GetPid()))
	require.Nil(t, b.status(second), "it is not told before there is a set that does not list it")
	b.region.mu.Lock()
	b.region.set = fleet.NodeReplicas{Era: 1, Version: 7}
	b.region.mu.Unlock()
	b.says(line(first, hash))
	again := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	require.NotEqual(t, st.GetPid(), again.GetPid(), "nobody knew how it was started")
	told := b.is(second, fleet.PhaseRunning, fleet.HealthNotChecked)
	require.Equal(t, []any{other.GetPid(), "", "its node does not remember it"}, []any{told.GetPid(), told.GetDeployment(), told.GetMessage()})
	require.True(t, alive(other.GetPid()))

	b.ask(line(first, hash), line(second, hash)) // it is known after all
	b.eventually(func() bool { return b.status(second).GetPid() != other.GetPid() }, "it is not started as it is to be")
	b.is(second, fleet.PhaseRunning, fleet.HealthHealthy)
	require.False(t, alive(other.GetPid()))
	b.ask(line(first, hash))
	b.gone(second)
	require.False(t, alive(st.GetPid()))
}

// X3, X28: what a set does not list runs on with its health, is told with what is known of it, is taken
// over by the next agent, and ends when it is named.
func TestUnlisted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hash := b.defined(web())
	b.ask(line(first, hash), line(second, hash))
	kept := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	b.is(second, fleet.PhaseRunning, fleet.HealthHealthy)
	b.says(line(second, hash)) // a region that was restored
	b.eventually(func() bool { return b.status(first).GetDeployment() == "web" }, "nobody is told of it")
	told := b.status(first)
	require.Equal(t, []any{kept.GetPid(), int64(3), string(fleet.PhaseRunning), string(fleet.HealthHealthy)},
		[]any{told.GetPid(), told.GetRevision(), told.GetPhase(), told.GetHealth()})
	require.Empty(t, b.status(second).GetDeployment(), "it is told of no other")

	b.says() // and one that lost everything
	b.eventually(func() bool { return b.status(second).GetDeployment() == "web" }, "nobody is told of it")
	b.stop()
	b.mu.Lock()
	b.statuses = map[fleet.ReplicaID]*nodev1.ReplicaStatus{}
	b.mu.Unlock()
	b.open(true)
	b.eventually(func() bool { return b.status(first).GetDeployment() == "web" }, "the next agent does not tell it")
	require.True(t, alive(kept.GetPid()))
	require.Equal(t, kept.GetPid(), b.status(first).GetPid())

	b.ask(line(second, hash), fleet.NodeReplica{ID: first}) // an operator let it go
	b.is(first, fleet.PhaseStopped, fleet.HealthNotChecked)
	require.False(t, alive(kept.GetPid()))
	b.ask(line(second, hash))
	b.gone(first)
	require.Equal(t, string(fleet.PhaseRunning), b.status(second).GetPhase())
}

// X3, X10: of more than a report may hold, what the set lists comes first.
func TestUnlistedInABoundedReport(t *testing.T) {
	t.Parallel()
	k := fed(t)
	close(k.ready)
	k.replicas[first].unlisted = true
	for i := range fleet.MaxReportedReplicas {
		id := fleet.ReplicaID(fmt.Sprintf("%012x", i))
		k.strangers[id] = stranger{unlisted: true, lead: lead{Found: Found{ID: id, Running: true, PID: 9}}}
	}
	k.strangers[third] = stranger{} // of which no set was read
	k.strangers[second] = stranger{unlisted: true}
	report, err := k.Next(t.Context(), true)
	require.NoError(t, err)
	require.Len(t, report.GetReplicas(), fleet.MaxReportedReplicas)
	require.Equal(t, string(second), report.GetReplicas()[0].GetId())
	require.NotContains(t, ids(report), string(third))
	told := ids(report)
	slices.Sort(told)
	require.Len(t, slices.Compact(told), fleet.MaxReportedReplicas, "the region refuses a report with one twice")
}

// X3, X5: a set that is older than one that was taken ends nothing, nor one that is not whole, nor does one that is not to be had.
func TestOldSet(t *testing.T) {
	t.Parallel()
	for name, worse := range map[string]func(f *fakeRegion){
		"a lower version": func(f *fakeRegion) { f.set = fleet.NodeReplicas{Era: 2, Version: 4} },
		"a lower era":     func(f *fakeRegion) { f.set = fleet.NodeReplicas{Era: 1, Version: 900} },
		"no era":          func(f *fakeRegion) { f.set = fleet.NodeReplicas{Version: 900} },
		"twice the same": func(f *fakeRegion) {
			f.set = fleet.NodeReplicas{Era: 2, Version: 6, Replicas: []fleet.NodeReplica{{ID: first}, {ID: first}}}
		},
		"a name that is none": func(f *fakeRegion) {
			f.set = fleet.NodeReplicas{Era: 2, Version: 6, Replicas: []fleet.NodeReplica{{ID: first}, {ID: "../x"}}}
		},
		"cut short": func(f *fakeRegion) {
			f.set = fleet.NodeReplicas{Era: 2, Version: 6, Count: 2, Replicas: []fleet.NodeReplica{{ID: first}}}
		},
		"no answer": func(f *fakeRegion) { f.away = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(o *Options) { o.FetchEvery = 5 * time.Millisecond })
			b.region.mu.Lock()
			b.region.set = fleet.NodeReplicas{Era: 2, Version: 4}
			b.region.mu.Unlock()
			b.ask(line(first, b.defined(web())))
			st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
			b.region.mu.Lock()
			worse(b.region)
			b.region.fetched = 0
			b.region.mu.Unlock()
			b.keeper.OnReplicaSet(2, 9)
			b.eventually(func() bool {
				b.region.mu.Lock()
				defer b.region.mu.Unlock()
				return b.region.fetched > 2
			}, "the set is not asked for again")
			require.True(t, alive(st.GetPid()))
			is := b.status(first)
			require.Equal(t, []any{st.GetPhase(), st.GetHealth(), st.GetPid(), st.GetRestarts(), st.GetMessage()},
				[]any{is.GetPhase(), is.GetHealth(), is.GetPid(), is.GetRestarts(), is.GetMessage()}, "it may be told again")
		})
	}
}
