package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ticks lets time go on as a process does that is there, and tells when the deadline was taken off.
func (c Candidate) ticks(from, to time.Duration) (Candidate, []time.Duration) {
	var off []time.Duration
	for now := from; now <= to; now += c.cfg.Interval / 4 {
		var acts []Action
		c, acts = c.Tick(at(now), 0)
		for _, a := range acts {
			if a.Do == DoUnbounded {
				off = append(off, now)
			}
		}
	}
	return c, off
}

// X21: at a site that says run, a holder that was paused asks before it takes itself for isolated;
// one whose deadline passed meanwhile has lost what it held first.
func TestWokenIsolatedRun(t *testing.T) {
	t.Parallel()
	run := with(func(c *Config) { c.OnIsolation = IsolationRun })
	quarter := run.Interval / 4
	held := func(t *testing.T) Candidate {
		t.Helper()
		c, _ := NewCandidate(run, Claim{}, 0)
		return c.wins(t, 0)
	}
	for name, c := range map[string]struct {
		woke time.Duration
		want []time.Duration // when the deadline is taken off, if nobody answers
	}{
		"woken before its deadline, it has asked by the next tick": {ttl - 2*quarter, []time.Duration{ttl - quarter}},
		"woken too late for that, it lets go and asks":             {ttl - quarter, []time.Duration{ttl - quarter + roundUp(2*ttl/3, quarter)}},
		"woken after its deadline":                                 {6 * ttl, []time.Duration{6*ttl + roundUp(2*ttl/3, quarter)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cand, off := held(t).ticks(c.woke, c.woke+ttl)
			require.Equal(t, c.want, off)
			require.True(t, cand.Claim().Unbounded)
		})
	}
	t.Run("what was over ends with the first tick, which asks", func(t *testing.T) {
		t.Parallel()
		c, acts := held(t).Tick(at(6*ttl), 0)
		require.Equal(t, DoLost, acts[0].Do)
		require.Equal(t, Ask, acts[1].Send.Call)
		_, holds := c.Holding(at(6 * ttl))
		require.False(t, holds)
	})
	t.Run("an answer that waited to be read says nothing of now", func(t *testing.T) {
		t.Parallel()
		c, acts := held(t).Tick(at(run.Interval), 0)
		late := acts[len(acts)-1].Send
		c, acts = c.Answered(late, Answer{Voter: late.To, Granted: true, Reason: Granted}, at(6*ttl))
		require.Equal(t, []Do{DoLost}, []Do{acts[0].Do})
		_, off := c.ticks(6*ttl, 6*ttl+ttl/2)
		require.Empty(t, off)
	})
	t.Run("one that was refused before waits two TTLs again", func(t *testing.T) {
		t.Parallel()
		c, acts := held(t).Tick(at(run.Interval), 0)
		c, _ = c.Refused(acts[len(acts)-1].Send, at(run.Interval))
		c, off := c.ticks(6*ttl, 8*ttl-1)
		require.Empty(t, off)
		_, off = c.ticks(8*ttl, 8*ttl)
		require.Len(t, off, 1)
	})
}

func roundUp(d, to time.Duration) time.Duration { return (d + to - 1) / to * to }

// X21: who was told to wait asks nobody meanwhile, and does not take that for silence.
func TestToldToWaitIsHeard(t *testing.T) {
	t.Parallel()
	run := with(func(c *Config) { c.OnIsolation = IsolationRun })
	c, _ := NewCandidate(run, ran, at(2*time.Second))
	c, acts := c.Tick(at(2*time.Second), 0)
	for _, act := range acts {
		if act.Do == DoSend && act.Send.To != "b" {
			answer := Answer{Voter: act.Send.To, Granted: act.Send.To == "a", Reason: Restarted, Wait: ttl}
			c, _ = c.Answered(act.Send, answer, at(2*time.Second))
		}
	}
	c, off := c.ticks(2*time.Second, 2*time.Second+ttl)
	require.Empty(t, off, "the region is there, and said when to ask again")
	_, off = c.ticks(2*time.Second+ttl, 2*time.Second+2*ttl)
	require.Len(t, off, 1, "and then it was not")
}
