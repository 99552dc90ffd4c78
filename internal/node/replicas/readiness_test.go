package replicas

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// readies has a definition checked for readiness.
func readies(d *fleet.Definition) {
	d.Readiness = &fleet.HealthCheck{Type: fleet.HealthHTTP, Path: "/ready", Interval: 0.05, Timeout: 20, HealthyThreshold: 1, UnhealthyThreshold: 2}
}

// ready waits until the node said that a replica is ready, or that it is not.
func (b *bench) ready(id fleet.ReplicaID, ready bool) {
	b.t.Helper()
	b.eventually(func() bool { return b.status(id).GetUnready() != ready }, "its readiness is never reported")
}

// F72, F77: a replica whose readiness check fails is not ready, and stays as it is: healthy, with its process. So it does under
// the next agent.
func TestReadiness(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(first, "busy")
	b.ask(line(first, b.defined(web(frail, readies))))
	st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	require.True(t, st.GetUnready(), "it is not ready before its check passed")
	require.NoError(t, os.Remove(b.in(first, "busy")))
	b.ready(first, true)
	b.put(first, "busy")
	b.ready(first, false)

	b.stop()
	b.mu.Lock()
	delete(b.statuses, first)
	b.mu.Unlock()
	b.open(true)
	require.True(t, b.is(first, fleet.PhaseRunning, fleet.HealthHealthy).GetUnready(), "the next agent remembers it")
	require.NoError(t, os.Remove(b.in(first, "busy")))
	b.ready(first, true)
	require.Equal(t, st.GetPid(), b.status(first).GetPid())
	require.Equal(t, []string{"running HEALTHY 0"}, b.told(first))
}

// F72: a replica that its node starts again is not ready until its check has passed again, and one that ended is not unready.
func TestReadinessOfAnotherStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ask(line(first, b.defined(web(frail, readies, func(d *fleet.Definition) { d.Command = append(d.Command, "heals") }))))
	st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	b.ready(first, true)
	b.put(first, "busy")
	b.put(first, "sick")
	b.eventually(func() bool { return b.status(first).GetRestarts() == 1 }, "it is not started again")
	require.True(t, b.is(first, fleet.PhaseRunning, fleet.HealthHealthy).GetUnready())
	require.NoError(t, os.Remove(b.in(first, "busy")))
	b.ready(first, true)
	b.put(first, "busy")
	b.ready(first, false)
	require.Zero(t, get(t, b.status(first).GetEndpoint()+"/exit"))
	require.False(t, b.is(first, fleet.PhaseExited, fleet.HealthNotChecked).GetUnready())
	require.False(t, alive(st.GetPid()))
}

// F13, F51, F77: the numbers of a readiness check reach a running replica. Without a check it is ready.
func TestReadinessTermsInPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := line(first, b.defined(web(readies, func(d *fleet.Definition) { d.Readiness.Interval, d.Readiness.UnhealthyThreshold = 3600, 1 })))
	other := line(second, b.defined(web()))
	b.ask(l, other)
	st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	l.Terms = web(readies).Terms()
	b.ask(l, other)
	b.ready(first, true)
	b.put(first, "busy")
	b.ready(first, false)
	require.Equal(t, st.GetPid(), b.status(first).GetPid())
	b.put(second, "busy")
	require.False(t, b.is(second, fleet.PhaseRunning, fleet.HealthHealthy).GetUnready())
}
