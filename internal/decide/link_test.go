package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// C34, C35, C36, C66, C67, C71: comparisons are strict, and Draining has its deadline only.
func TestLink(t *testing.T) {
	t.Parallel()
	limits := decide.LinkLimits{LinkTiming: fleet.DefaultLinkTiming(), Send: 10 * time.Second}
	const s = time.Second
	drain := func(left, sent time.Duration) *decide.LinkDrain { return &decide.LinkDrain{Left: left, Sent: sent} }
	for name, row := range map[string]struct {
		seen decide.LinkSeen
		end  fleet.ConnectionEvent
		ask  bool
		rule string
	}{
		"registered, at its limit":       {decide.LinkSeen{State: fleet.ConnectionRegistered, Registered: 30 * s}, "", false, "waits_for_stream"},
		"registered, past it":            {decide.LinkSeen{State: fleet.ConnectionRegistered, Registered: 30*s + 1}, fleet.StreamRequired, false, "stream_required"},
		"registered is not silent":       {decide.LinkSeen{State: fleet.ConnectionRegistered, Silent: time.Hour}, "", false, "waits_for_stream"},
		"active, at its limit":           {decide.LinkSeen{State: fleet.ConnectionActive, Registered: time.Hour, Silent: 15 * s}, "", false, "lives"},
		"active, past it":                {decide.LinkSeen{State: fleet.ConnectionActive, Silent: 15*s + 1}, fleet.HeartbeatLapsed, false, "heartbeat_lapsed"},
		"draining is never lapsed":       {decide.LinkSeen{State: fleet.ConnectionDraining, Silent: time.Hour, Drain: drain(s, time.Hour)}, "", false, "lives"},
		"draining, at its deadline":      {decide.LinkSeen{State: fleet.ConnectionDraining, Drain: drain(0, 0)}, fleet.DrainDeadline, false, "drain_deadline"},
		"unacked, at its deadline":       {decide.LinkSeen{State: fleet.ConnectionActive, Drain: drain(0, 0)}, fleet.DrainDeadline, false, "drain_deadline"},
		"unacked, asked a while ago":     {decide.LinkSeen{State: fleet.ConnectionActive, Drain: drain(s, 5*s)}, "", false, "lives"},
		"unacked, asked too long ago":    {decide.LinkSeen{State: fleet.ConnectionActive, Drain: drain(s, 5*s+1)}, "", true, "drain_unacked"},
		"acked is not asked again":       {decide.LinkSeen{State: fleet.ConnectionDraining, Drain: drain(s, time.Hour)}, "", false, "lives"},
		"a send that takes its time":     {decide.LinkSeen{State: fleet.ConnectionActive, Sending: 10 * s}, "", false, "lives"},
		"a send that takes for ever":     {decide.LinkSeen{State: fleet.ConnectionActive, Sending: 10*s + 1}, fleet.StreamFailed, false, "send_stuck"},
		"a send that hangs in Draining":  {decide.LinkSeen{State: fleet.ConnectionDraining, Sending: 11 * s}, fleet.StreamFailed, false, "send_stuck"},
		"disconnected stays what it was": {decide.LinkSeen{State: fleet.ConnectionDisconnected, Silent: time.Hour, Sending: time.Hour}, "", false, "ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turn, rule := decide.Link(row.seen, limits)
			require.Equal(t, decide.LinkTurn{End: row.end, AskDrain: row.ask}, turn)
			require.Equal(t, row.rule, rule)
		})
	}
	require.False(t, decide.LinkClocksRestart(2*s, s))
	require.True(t, decide.LinkClocksRestart(2*s+1, s))
}

// Whatever is decided, the machine has an arrow for it.
func TestLinkDecidesWhatTheMachineDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		span := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(-1, 120).Draw(t, "s")) * time.Second
		})
		seen := decide.LinkSeen{
			State:      rapid.SampledFrom(fleet.ConnectionStates()).Draw(t, "state"),
			Registered: span.Draw(t, "registered"), Silent: span.Draw(t, "silent"), Sending: span.Draw(t, "sending"),
		}
		if seen.State != fleet.ConnectionRegistered && rapid.Bool().Draw(t, "drains") { // AskDrain refuses one without a stream
			seen.Drain = &decide.LinkDrain{Left: span.Draw(t, "left"), Sent: span.Draw(t, "sent")}
		}
		turn, rule := decide.Link(seen, decide.LinkLimits{LinkTiming: fleet.DefaultLinkTiming(), Send: 10 * time.Second})
		if rule == "" {
			t.Fatalf("no rule for %+v", seen)
		}
		if turn.End == "" {
			return
		}
		if _, err := seen.State.Next(turn.End); err != nil {
			t.Fatalf("%s: %v", rule, err)
		}
	})
}
