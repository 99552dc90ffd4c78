package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// sentTo picks what is asked of one voter.
func sentTo(acts []Action, voter string, call Call) (found []Send) {
	for _, a := range acts {
		if a.Do == DoSend && string(a.Send.To) == voter && a.Send.Call == call {
			found = append(found, a.Send)
		}
	}
	return found
}

// renews has a candidate that won ask for the renewal of its lease.
func renews(t *testing.T) (Candidate, []Action, time.Duration) {
	t.Helper()
	c, _ := NewCandidate(paired(), Claim{}, 0)
	c = c.wins(t, 0)
	now := c.cfg.Interval
	c, acts := c.Tick(at(now), 0)
	require.Len(t, sentTo(acts, "b", Grant), 1)
	return c, acts, now
}

// X21: a node's own vote that counted on meanwhile, which no other is ahead of, is caught up with at once, by
// its number; a peer's word would use the numbers up.
func TestHolderCatchesUp(t *testing.T) {
	t.Parallel()
	for _, ahead := range []int64{-1, 0, 5} {
		c, acts, now := renews(t)
		seen := c.claim.Counter + ahead
		hears := func(from string) []Action {
			c, _ = c.Answered(sentTo(acts, from, Grant)[0], Answer{Voter: fleet.NodeName(from), Reason: Behind, Vote: Standing{Promised: c.claim.Epoch, Holder: "a", Epoch: c.claim.Epoch, Counter: seen, TTL: ttl}}, at(now))
			_, more := c.Tick(at(now+time.Millisecond), 0)
			return more
		}
		require.Empty(t, hears("b"))
		acts = hears("a")
		again := sentTo(acts, "b", Grant)
		if ahead < 0 { // late: what was sent since is above it
			require.Empty(t, again)
			continue
		}
		require.Len(t, again, 1, "%d ahead", ahead)
		require.Equal(t, seen+1, again[0].Request.Counter)
	}
}

// X21: a holder asks for a higher epoch when one was promised, and for no other refusal.
func TestHolderIsOutbid(t *testing.T) {
	t.Parallel()
	for reason, asks := range map[Reason]bool{Outbid: true, Held: false, Lost: false, Behind: false} {
		c, acts, now := renews(t)
		c, _ = c.Answered(sentTo(acts, "b", Grant)[0], Answer{Voter: "b", Reason: reason, Vote: Standing{Promised: c.claim.Epoch + 1}}, at(now))
		c, acts = c.Tick(at(now+time.Millisecond), 0)
		require.Equal(t, asks, len(sentTo(acts, "b", Ask)) > 0, reason)
		require.True(t, c.held, "its lease still runs")
	}
}

// N60, X21: a release is told every voter once an interval, until each has heard of it: an answer to
// another one, and one of a voter that lost its vote, are none.
func TestReleaseIsToldUntilItIsHeard(t *testing.T) {
	t.Parallel()
	c, _, now := renews(t)
	c, _ = c.HandOver(at(now))
	c, acts := c.Stopped(at(now))
	first := sentTo(acts, "b", Release)
	require.Len(t, first, 1)
	hears := func(s Send, reason Reason) {
		c, _ = c.Answered(s, Answer{Voter: s.To, Granted: reason == Granted, Reason: reason}, at(now))
	}
	tick := func(after time.Duration) []Action {
		now += after
		var acts []Action
		c, acts = c.Tick(at(now), 0)
		return acts
	}
	hears(sentTo(acts, string(Region), Release)[0], Granted)
	other := first[0]
	other.Request.Epoch--
	hears(other, Granted)
	hears(first[0], Lost)
	acts = tick(c.cfg.Interval - 1)
	require.Empty(t, sentTo(acts, "b", Release), "not before its time")
	acts = tick(1)
	require.Len(t, sentTo(acts, "b", Release), 1)
	require.Empty(t, sentTo(acts, string(Region), Release), "it has heard")
	hears(sentTo(acts, "b", Release)[0], Granted)
	acts = tick(c.cfg.Interval)
	own := sentTo(acts, "a", Release)
	require.Len(t, own, 1)
	require.Empty(t, sentTo(acts, "b", Release))
	hears(own[0], Granted)
	require.Equal(t, parting{}, c.parting, "all have heard")
	require.Empty(t, sentTo(tick(c.cfg.Interval), "a", Release))
}

// X21: a deadline that this node cannot have been given is none, and one that has come has passed.
func TestRestartedHolder(t *testing.T) {
	t.Parallel()
	const now = time.Hour
	for left, holds := range map[time.Duration]bool{0: false, 1: true, ttl: true, ttl + 1: false} {
		c, acts := NewCandidate(paired(), Claim{Epoch: 4, Counter: 9, Deadline: at(now + left), Boot: "boot"}, at(now))
		require.Equal(t, holds, c.held, left)
		require.NotEmpty(t, acts)
	}
	claim := Claim{Epoch: 4, Counter: 9, Unbounded: true, Boot: "boot"}
	for isolation, holds := range map[Isolation]bool{IsolationRun: true, IsolationStop: false} {
		c, _ := NewCandidate(with(func(c *Config) { c.OnIsolation = isolation }), claim, at(now))
		require.Equal(t, holds, c.held, isolation)
	}
}
