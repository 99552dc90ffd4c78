package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// The results of a probe: why it failed, "" for a success.
const passes, fails = "", "connection refused"

func result(ok bool) string {
	if ok {
		return passes
	}
	return fails
}

// S47 to S50, S75, S77 to S79, S83, S84
func TestProbe(t *testing.T) {
	t.Parallel()
	const good, bad, notYet = fleet.HealthHealthy, fleet.HealthUnhealthy, fleet.HealthNotChecked
	for _, c := range []struct {
		name    string
		results string // + and -
		want    []fleet.ReplicaHealth
	}{
		{"is healthy at the second success", "++", []fleet.ReplicaHealth{notYet, good}},
		{"does not count failures before the first success", "-----++", []fleet.ReplicaHealth{notYet, notYet, notYet, notYet, notYet, notYet, good}},
		{"counts in a row only", "++--+--+---", []fleet.ReplicaHealth{notYet, good, good, good, good, good, good, good, good, good, bad}},
		{"one failure after the first success starts the row anew", "+-+-++", []fleet.ReplicaHealth{notYet, notYet, notYet, notYet, notYet, good}},
		{"is unhealthy before it was ever healthy", "+---", []fleet.ReplicaHealth{notYet, notYet, notYet, bad}},
		{"recovers at the second success", "+---++", []fleet.ReplicaHealth{notYet, notYet, notYet, bad, bad, good}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := decide.StartProbes(fleet.HealthCheck{}, time.Minute, time.Hour)
			require.Equal(t, time.Hour, p.Next)
			for i, r := range c.results {
				begun := p.Begun || r == '+'
				at := p.Next
				p = decide.Probe(p, fleet.HealthCheck{}, result(r == '+'), at)
				require.Equal(t, c.want[i], p.Health, "result %d", i)
				if begun {
					require.Equal(t, at+10*time.Second, p.Next)
				} else {
					require.Equal(t, at+100*time.Millisecond, p.Next)
				}
			}
		})
	}
}

// F72, F77: readiness is ready or not, from the first result on, and is never late.
func TestReadinessProbes(t *testing.T) {
	t.Parallel()
	const good, bad = fleet.HealthHealthy, fleet.HealthUnhealthy
	check := fleet.HealthCheck{Interval: 5}
	for _, c := range []struct {
		name    string
		from    fleet.ReplicaHealth
		results string
		want    []fleet.ReplicaHealth
	}{
		{"is ready at the second success", bad, "-++", []fleet.ReplicaHealth{bad, bad, good}},
		{"is not at the third failure", good, "--+---", []fleet.ReplicaHealth{good, good, good, good, good, bad}},
		{"is again", good, "---++", []fleet.ReplicaHealth{good, good, bad, bad, good}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := decide.StartReadiness(c.from, time.Hour)
			for i, r := range c.results {
				at := p.Next
				p = decide.Probe(p, check, result(r == '+'), at)
				require.Equal(t, c.want[i], p.Health, "result %d", i)
				require.Equal(t, at+5*time.Second, p.Next, "its pace is that of the check from the beginning")
				require.False(t, p.Late())
				require.Equal(t, p, p.Delay(time.Hour))
			}
		})
	}
}

// S84, S130: since when it is as it is, and how long one that was not looked at may take.
func TestProbeTimes(t *testing.T) {
	t.Parallel()
	check := fleet.HealthCheck{HealthyThreshold: 2, Timeout: 4}
	p := decide.StartProbes(check, time.Minute, 0)
	require.Equal(t, time.Hour+100*time.Millisecond+4*time.Second, p.Resume(check, time.Hour).Deadline)
	p = decide.Probe(p, check, passes, time.Second)
	require.Zero(t, p.Since)
	p = decide.Probe(p, check, passes, 2*time.Second)
	require.Equal(t, 2*time.Second, p.Since)
	p = decide.Probe(p, check, passes, 3*time.Second)
	require.Equal(t, 2*time.Second, p.Since)
}

// S84: a slow starter has its deadline, and one that succeeded once has none.
func TestProbeDeadline(t *testing.T) {
	t.Parallel()
	check := fleet.HealthCheck{HealthyThreshold: 1}
	p := decide.StartProbes(check, 2*time.Minute, time.Second)
	p = decide.Probe(p, check, fails, 2*time.Minute)
	require.False(t, p.Late(), "it may have begun to answer since")
	require.True(t, decide.Probe(p, check, fails, 2*time.Minute+time.Second).Late())
	resumed := p.Resume(check, time.Hour)
	require.False(t, decide.Probe(resumed, check, fails, time.Hour).Late(), "it is looked at for as long as a probe may take")
	require.True(t, decide.Probe(resumed, check, fails, time.Hour+6*time.Second).Late())
	delayed := p.Delay(time.Hour)
	require.False(t, decide.Probe(delayed, check, fails, time.Hour+2*time.Minute).Late(), "it has the time that nobody could look")
	require.True(t, decide.Probe(delayed, check, fails, time.Hour+2*time.Minute+time.Second).Late())
	p = decide.Probe(p, check, passes, time.Hour)
	require.Equal(t, p, p.Delay(time.Hour), "what is healthy has no deadline")
	require.Equal(t, fleet.HealthHealthy, p.Health, "nobody looked before, and it serves")
	require.False(t, p.Late())
	none := decide.StartProbes(fleet.HealthCheck{Type: fleet.HealthNone}, time.Second, 0)
	require.Equal(t, fleet.HealthHealthy, none.Health)
	require.False(t, none.Late())
}

// S48, S84: one that answers now and then is given up, too, in a bounded time; one that came to an
// answer never is.
func TestProbeSettles(t *testing.T) {
	t.Parallel()
	check := fleet.HealthCheck{Interval: 1, HealthyThreshold: 2, UnhealthyThreshold: 3}
	p := decide.StartProbes(check, time.Second, time.Second)
	now := p.Next
	for i := range 10 {
		require.False(t, p.Late(), "it has ten looks")
		now = p.Next
		p = decide.Probe(p, check, result(i%2 == 0), now)
		require.Equal(t, fleet.HealthNotChecked, p.Health)
	}
	require.Equal(t, 11*time.Second, p.Due())
	require.False(t, decide.Probe(p, check, passes, p.Next).Late(), "it may still come to an answer")
	require.True(t, decide.Probe(decide.Probe(p, check, passes, p.Next), check, fails, p.Next+time.Second).Late())
	p = decide.Probe(decide.Probe(p, check, passes, now), check, passes, now+time.Second)
	require.Equal(t, fleet.HealthHealthy, p.Health)
	require.Zero(t, p.Due())
	for range 3 {
		p = decide.Probe(p, check, fails, p.Next)
	}
	require.Equal(t, fleet.HealthUnhealthy, p.Health)
	require.False(t, p.Late(), "that has its own way")
	slow := decide.Probe(decide.StartProbes(check, time.Minute, time.Second), check, passes, time.Second)
	require.Equal(t, 61*time.Second, slow.Due(), "it has all of its start-up for that")
	require.Equal(t, time.Hour+61*time.Second, slow.Delay(time.Hour).Due())
	slow = slow.Resume(check, time.Hour)
	require.Equal(t, time.Hour+10*time.Second, slow.Due(), "nobody looked in between")
	check.Timeout = 4
	patient := decide.Probe(decide.StartProbes(check, time.Second, time.Second), check, passes, time.Second)
	require.Equal(t, 41*time.Second, patient.Due(), "a look may take longer than the interval")
}

// S77, S78, S83: health is what the thresholds make of the last results in a row, whatever came
// before; a probe is never due before the one before it began.
func TestProbeCounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		check := fleet.HealthCheck{
			UnhealthyThreshold: rapid.IntRange(1, 4).Draw(t, "unhealthy"), HealthyThreshold: rapid.IntRange(1, 4).Draw(t, "healthy"),
			Interval: rapid.Float64Range(0.1, 60).Draw(t, "interval"),
		}
		p := decide.StartProbes(check, time.Minute, 0)
		row, last, begun := 0, true, false
		for _, ok := range rapid.SliceOfN(rapid.Bool(), 1, 60).Draw(t, "results") {
			if ok != last {
				row = 0
			}
			row, last, begun = row+1, ok, begun || ok
			was, at := p.Health, p.Next
			p = decide.Probe(p, check, result(ok), at)
			require.Greater(t, p.Next, at)
			switch {
			case ok && row >= check.HealthyThreshold:
				require.Equal(t, fleet.HealthHealthy, p.Health)
			case !ok && begun && row >= check.UnhealthyThreshold:
				require.Equal(t, fleet.HealthUnhealthy, p.Health)
			default:
				require.Equal(t, was, p.Health)
			}
		}
	})
}

// F13: the next probe keeps its distance from the last one, and what is not healthy yet gets its time.
func TestAmendedProbes(t *testing.T) {
	t.Parallel()
	const at = 100 * time.Second
	slow, fast := fleet.HealthCheck{Interval: 60, Timeout: 5}, fleet.HealthCheck{Interval: 2, Timeout: 1}
	begun := decide.ProbeState{Health: fleet.HealthHealthy, Begun: true, Next: at + 59*time.Second}
	require.Equal(t, at+time.Second, begun.Amend(slow, fast, at).Next)
	require.Equal(t, at, decide.ProbeState{Health: fleet.HealthHealthy, Begun: true, Next: at + time.Second}.Amend(slow, fast, at).Next, "it is due")
	begun.Next = at + time.Second
	require.Equal(t, at+59*time.Second, begun.Amend(fast, slow, at).Next)
	trial := decide.ProbeState{Health: fleet.HealthNotChecked, Begun: true, Settle: at + time.Second}
	require.Equal(t, at+slow.SettleTime(), trial.Amend(fast, slow, at).Settle)
	starts := decide.ProbeState{Health: fleet.HealthNotChecked, Deadline: at + time.Hour, Next: at}
	require.Equal(t, starts, starts.Amend(slow, fast, at))
}

// A probe keeps why it failed last, and how often in a row for that, until the replica is healthy.
func TestProbeFailure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		results []string
		want    decide.ProbeFailure
	}{
		{"none before the first probe", nil, decide.ProbeFailure{}},
		{"counts the failures of one cause", []string{"a", "a", "a"}, decide.ProbeFailure{Cause: "a", Times: 3, First: 1}},
		{"counts anew for another cause", []string{"a", "a", "b"}, decide.ProbeFailure{Cause: "b", Times: 1, First: 3}},
		{"keeps it over a success that does not make it healthy", []string{"a", "", "a"}, decide.ProbeFailure{Cause: "a", Times: 2, First: 1}},
		{"forgets it once healthy", []string{"a", "", ""}, decide.ProbeFailure{}},
		{"counts from the first failure of what was healthy", []string{"", "", "a", "a"}, decide.ProbeFailure{Cause: "a", Times: 2, First: 3}},
		{"forgets a failure that a healthy replica got over", []string{"", "", "a", ""}, decide.ProbeFailure{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := decide.StartProbes(fleet.HealthCheck{}, time.Minute, 0)
			for i, cause := range c.results {
				p = decide.Probe(p, fleet.HealthCheck{}, cause, time.Duration(i+1))
			}
			require.Equal(t, c.want, p.Failure)
		})
	}
}
