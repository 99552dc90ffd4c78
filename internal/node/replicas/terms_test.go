package replicas

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// terms are those of a check that sees within milliseconds what is sick, and of a single restart.
func terms() fleet.ReplicaTerms {
	recovery := fleet.DefaultRecovery()
	recovery.Restarts = 1
	return fleet.ReplicaTerms{Recovery: recovery, CheckTerms: fleet.CheckTerms{Interval: 0.05, Timeout: 20, UnhealthyThreshold: 2, HealthyThreshold: 1}}
}

// slack is a definition whose probes fail never, and whose stop takes longer than a test waits.
func slack(d *fleet.Definition) {
	d.Command = append(d.Command, "heals")
	d.Env["STUBBORN"] = "yes"
	d.Health.Interval, d.Health.Timeout, d.StopSeconds, d.Recovery.Restarts = 3600, 20, 60, 1000
}

// F13, F15, F51: a running replica obeys other terms at once, and its process stays; so it does under the next
// agent, which may not reach its region.
func TestTermsInPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := line(first, b.defined(web(slack)))
	l.StopSeconds = 60
	b.ask(l)
	st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	l.Terms, l.StopSeconds = terms(), 1
	b.ask(l)
	b.eventually(func() bool {
		b.keeper.prober.mu.Lock()
		defer b.keeper.prober.mu.Unlock()
		return b.keeper.prober.watched[first].check.UnhealthyThreshold == 2
	}, "its probes are as before")
	require.Equal(t, st.GetPid(), b.status(first).GetPid())
	require.True(t, alive(st.GetPid()))

	b.region.mu.Lock()
	b.region.away = true
	b.region.mu.Unlock()
	b.stop()
	b.open(true)
	require.Equal(t, st.GetPid(), b.is(first, fleet.PhaseRunning, fleet.HealthHealthy).GetPid())
	b.put(first, "sick")
	b.eventually(func() bool { return b.status(first).GetRestarts() == 1 }, "its failed probes go unseen, or its stop takes the first stop time")
	again := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	require.False(t, alive(st.GetPid()))
	b.put(first, "sick")
	failed := b.is(first, fleet.PhaseFailed, fleet.HealthNotChecked)
	require.Equal(t, fleet.ReasonRestartsUsedUp, failed.GetReason())
	require.False(t, alive(again.GetPid()))
}
