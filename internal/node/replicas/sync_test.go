package replicas

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
)

// F24: a digest follows the reports, once each time it is due, and of the whole only.
func TestDigest(t *testing.T) {
	t.Parallel()
	k := fed(t)
	close(k.ready)
	due := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.feed.due = true
	}
	next := func() *nodev1.ReplicasReport {
		r, err := k.Next(t.Context(), false)
		require.NoError(t, err)
		return r
	}
	due()
	require.Nil(t, k.report(false), "before it knows all that runs")
	k.fresh = true
	require.Nil(t, k.report(false), "it is not due any more")
	due()
	k.feed.changed(first)
	report := next()
	require.Equal(t, []string{string(first)}, ids(report))
	require.Nil(t, report.GetDigest())
	again := next()
	require.Equal(t, []string{string(first)}, ids(again), "without the ack it is told again")
	k.Acked(again.GetSequence())

	k.feed.found = corrected{missing: 2, stray: 1}
	digest := next()
	require.Empty(t, ids(digest))
	require.Equal(t, []int64{1, 9}, []int64{digest.GetSetEra(), digest.GetSetVersion()})
	require.False(t, digest.GetComplete())
	d := digest.GetDigest()
	require.Equal(t, []uint32{2, 1}, []uint32{d.GetMissing(), d.GetStray()})
	require.Len(t, d.GetReplicas(), 2)
	one := d.GetReplicas()[0]
	require.Equal(t, []any{string(first), int64(3), int64(7), "running", "HEALTHY"},
		[]any{one.GetId(), one.GetRevision(), one.GetProcessVersion(), one.GetPhase(), one.GetHealth()})
	require.Greater(t, digest.GetSequence(), again.GetSequence())
	require.Nil(t, k.report(false), "once")
	due()
	repeated := next()
	require.EqualValues(t, 2, repeated.GetDigest().GetMissing(), "it was not acked")
	k.Acked(repeated.GetSequence())
	due()
	require.Zero(t, next().GetDigest().GetMissing())
}

// F25: a requested report is complete, once.
func TestRequestedReport(t *testing.T) {
	t.Parallel()
	k := fed(t)
	close(k.ready)
	k.fresh = true
	k.OnReplicasReport()
	report, err := k.Next(soon(t), false)
	require.NoError(t, err)
	require.Equal(t, []any{true, true, []string{string(first), string(second)}}, []any{report.GetComplete(), report.GetWhole(), ids(report)})
	require.EqualValues(t, 7, report.GetReplicas()[0].GetProcessVersion())
	k.Acked(report.GetSequence())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = k.Next(ended, false)
	require.ErrorIs(t, err, context.Canceled)
}

// often checks the drivers at once.
func often(o *Options) { o.SyncEvery = 20 * time.Millisecond }

// X8: a process that is killed while its guardian stands still sends no event: the check finds it, and says so.
// It takes as long as a guardian may take to answer.
func TestCheckFindsWhatEndedWithoutNotice(t *testing.T) {
	t.Parallel()
	b := setup(t, often)
	b.ask(line(first, b.defined(web())))
	st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	at, _, err := b.runtime().Status(t.Context(), nameOf(first))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(at.GuardianPID, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(at.GuardianPID, syscall.SIGKILL) })
	require.NoError(t, syscall.Kill(int(st.GetPid()), syscall.SIGKILL))
	b.eventually(func() bool { return b.status(first).GetPhase() == string(fleet.PhaseExited) }, "it counts as running for ever")
	b.eventually(func() bool { return b.corrected().missing == 1 }, "it is not counted")
}

// X8, F28: a guardian of a replica that the node does not know is found while the agent runs, and reported; it
// runs on until the set ends it by name.
func TestCheckFindsStrangers(t *testing.T) {
	t.Parallel()
	b := setup(t, often)
	b.ask(line(first, b.defined(web())))
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	runtime := b.runtime()
	st, err := runtime.Start(t.Context(), guardian.Spec{
		Instance: nameOf(second), Once: true, Dir: b.dir, Run: fleet.Run{Command: []string{"sleep", "1000"}, StartSeconds: notLonger},
	})
	require.NoError(t, err)
	b.eventually(func() bool { return b.status(second).GetPhase() == string(fleet.PhaseRunning) }, "it is not reported")
	b.eventually(func() bool { return b.corrected().stray == 1 }, "it is not counted")
	require.True(t, alive(uint32(st.PID)))
	end := line(second, "")
	end.Run = false
	b.says(line(first, b.defined(web())), end)
	b.eventually(func() bool { return !alive(uint32(st.PID)) }, "it runs on")
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	b.says(line(first, b.defined(web())))
	b.gone(second)
	require.Equal(t, corrected{stray: 1}, b.corrected())
}

// F48: ordinary life, with starts, ends and restarts, is no difference.
func TestCheckOfOrdinaryLife(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *Options) { o.SyncEvery = time.Millisecond })
	def := b.defined(web())
	for range 3 {
		b.ask(line(first, def), line(second, def))
		b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
		b.is(second, fleet.PhaseRunning, fleet.HealthHealthy)
		kill := b.status(second).GetPid()
		require.NoError(t, syscall.Kill(int(kill), syscall.SIGKILL))
		b.is(second, fleet.PhaseExited, fleet.HealthNotChecked)
		b.ask()
		b.gone(first)
		b.gone(second)
	}
	require.Zero(t, b.corrected())
}

// corrected adds up what the digests said.
func (b *bench) corrected() corrected {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.found
}

// F48: a driver that does not answer says nothing about its replicas; one that lists others is doubted, and what came
// or went during its list is not.
func TestSilentDriverIsNoDrift(t *testing.T) {
	t.Parallel()
	k := fed(t)
	for _, w := range k.replicas {
		w.known.Driver = fleet.DriverDocker
	}
	const third, fourth = fleet.ReplicaID("cccccccccccc"), fleet.ReplicaID("dddddddddddd")
	check := func(found map[fleet.ReplicaID]lead, silent ...fleet.Driver) (doubted, strangers int) {
		k.check(map[fleet.ReplicaID]bool{fourth: true}, func() (map[fleet.ReplicaID]lead, map[fleet.Driver]bool) {
			absent := map[fleet.Driver]bool{}
			for _, name := range silent {
				absent[name] = true
			}
			return found, absent
		})
		for _, w := range k.replicas {
			if w.doubted {
				doubted++
			}
			w.doubted = false
		}
		return doubted, len(k.strangers)
	}
	runs := func(id fleet.ReplicaID) lead { return lead{Found{ID: id, Running: true}, fleet.DriverDocker} }
	doubted, _ := check(nil, fleet.DriverDocker)
	require.Zero(t, doubted, "it is silent")
	doubted, _ = check(nil)
	require.Equal(t, 2, doubted)
	doubted, strangers := check(map[fleet.ReplicaID]lead{first: runs(first), second: runs(second), fourth: runs(fourth)})
	require.Equal(t, []int{0, 0}, []int{doubted, strangers}, "one was removed meanwhile")
	_, strangers = check(map[fleet.ReplicaID]lead{first: runs(first), second: runs(second), third: runs(third)})
	require.Equal(t, 1, strangers)
	require.Equal(t, corrected{stray: 1}, k.feed.found)
}
