package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// X21
func TestEndOfLease(t *testing.T) {
	t.Parallel()
	const at = 1000 * time.Second
	before := func(stop, kill, force, gone time.Duration) LeaseEnd {
		return LeaseEnd{at - stop, at - kill, at - force, at - gone}
	}
	ms := time.Millisecond
	for name, c := range map[string]struct {
		deadline, ttl, grace time.Duration
		want                 LeaseEnd
	}{
		"a short grace is kept":             {at, 16 * time.Second, time.Second, before(3000*ms, 2000*ms, 1500*ms, 1000*ms)},
		"a long one is cut":                 {at, 16 * time.Second, time.Minute, before(4000*ms, 2000*ms, 1500*ms, 1000*ms)},
		"no grace is a kill":                {at, 16 * time.Second, 0, before(2000*ms, 2000*ms, 1500*ms, 1000*ms)},
		"the margin shrinks with the TTL":   {at, 3200 * ms, time.Minute, before(800*ms, 400*ms, 300*ms, 200*ms)},
		"and does not grow beyond its most": {at, time.Hour, 10 * time.Second, before(12*time.Second, 2000*ms, 1500*ms, 1000*ms)},
		"no deadline never ends":            {NoDeadline, 3 * time.Second, time.Second, LeaseEnd{NoDeadline, NoDeadline, NoDeadline, NoDeadline}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, EndOfLease(c.deadline, c.ttl, c.grace))
		})
	}
	t.Run("a patient one has a margin for its grace, and all else as it was", func(t *testing.T) {
		t.Parallel()
		for grace, stop := range map[time.Duration]time.Duration{time.Minute: 3 * time.Second, time.Second / 4: 2250 * ms, 0: 2 * time.Second} {
			require.Equal(t, before(stop, 2000*ms, 1500*ms, 1000*ms), EndOfLease(at, 16*time.Second, grace).Patient())
		}
		forever := EndOfLease(NoDeadline, time.Second, time.Second)
		require.Equal(t, forever, forever.Patient())
	})
	t.Run("steps follow one another", func(t *testing.T) {
		t.Parallel()
		e := EndOfLease(at, 16*time.Second, time.Second)
		require.Equal(t, LeaseRun, e.Step(e.Stop-1))
		require.Equal(t, LeaseStop, e.Step(e.Stop))
		require.Equal(t, LeaseKill, e.Step(e.Kill))
		require.Equal(t, LeaseKill, e.Step(at+time.Hour))
		require.Equal(t, []time.Duration{e.Stop, e.Kill, NoDeadline},
			[]time.Duration{e.Next(e.Stop - 1), e.Next(e.Stop), e.Next(e.Kill)})
		forever := EndOfLease(NoDeadline, 0, time.Second)
		require.Equal(t, LeaseRun, forever.Step(NoDeadline-1))
	})
}

// X21
func TestEndOfLeaseProperties(t *testing.T) {
	t.Parallel()
	lease := func(t *rapid.T) (deadline, ttl, grace time.Duration) {
		ttl = time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "ttl"))
		deadline = time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "deadline"))
		grace = time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "grace"))
		return deadline, ttl, grace
	}
	t.Run("everything is over before the deadline, in order, and the grace is never longer than asked", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			deadline, ttl, grace := lease(t)
			e := EndOfLease(deadline, ttl, grace)
			require.True(t, e.Stop <= e.Kill && e.Kill < e.Force && e.Force < e.Gone && e.Gone < deadline, "%+v", e)
			require.LessOrEqual(t, e.Kill-e.Stop, grace)
		})
	})
	t.Run("one lost renewal of three in a TTL stops nothing, whatever the grace", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			deadline, ttl, grace := lease(t)
			granted := deadline - ttl
			require.Equal(t, LeaseRun, EndOfLease(deadline, ttl, grace).Step(granted+2*ttl/3))
		})
	})
	t.Run("a later deadline never ends anything earlier", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			deadline, ttl, grace := lease(t)
			a, b := EndOfLease(deadline, ttl, grace), EndOfLease(deadline+time.Millisecond, ttl, grace)
			require.True(t, a.Stop < b.Stop && a.Kill < b.Kill && a.Force < b.Force && a.Gone < b.Gone)
		})
	})
}
