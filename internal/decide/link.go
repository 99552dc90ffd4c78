package decide

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// LinkSeen is a connection as its server sees it, by a monotonic clock.
type LinkSeen struct {
	State fleet.ConnectionState
	// Registered is how long ago it registered, Silent how long ago it was last heard.
	Registered, Silent time.Duration
	// Sending is how long the current send has taken, 0 for none.
	Sending time.Duration
	Drain   *LinkDrain // nil until one is requested
}

// LinkDrain is a drain under way.
type LinkDrain struct {
	Left time.Duration // until its deadline
	Sent time.Duration // since the provider was last asked
}

// LinkLimits are a server's limits.
type LinkLimits struct {
	fleet.LinkTiming
	Send time.Duration // limit of one send
}

// LinkTurn is what to do about a connection; the zero value is nothing.
type LinkTurn struct {
	End      fleet.ConnectionEvent // "" to keep it
	AskDrain bool
}

var linkRules = []struct {
	name string
	when func(LinkSeen, LinkLimits) bool
	then LinkTurn
}{
	{"ended", func(s LinkSeen, _ LinkLimits) bool { return !s.State.Live() }, LinkTurn{}},
	// C34
	{"stream_required", func(s LinkSeen, l LinkLimits) bool {
		return s.State == fleet.ConnectionRegistered && s.Registered > l.StreamRequired
	}, LinkTurn{End: fleet.StreamRequired}},
	{"waits_for_stream", func(s LinkSeen, _ LinkLimits) bool { return s.State == fleet.ConnectionRegistered }, LinkTurn{}},
	// C66: also for one that never acknowledged (C67).
	{"drain_deadline", func(s LinkSeen, _ LinkLimits) bool { return s.Drain != nil && s.Drain.Left <= 0 }, LinkTurn{End: fleet.DrainDeadline}},
	// C35, C36: only for an active one.
	{"heartbeat_lapsed", func(s LinkSeen, l LinkLimits) bool {
		return s.State == fleet.ConnectionActive && s.Silent > l.HeartbeatTimeout
	}, LinkTurn{End: fleet.HeartbeatLapsed}},
	{"send_stuck", func(s LinkSeen, l LinkLimits) bool { return s.Sending > l.Send }, LinkTurn{End: fleet.StreamFailed}},
	// C67
	{"drain_unacked", func(s LinkSeen, l LinkLimits) bool {
		return s.State == fleet.ConnectionActive && s.Drain != nil && s.Drain.Sent > l.DrainAck
	}, LinkTurn{AskDrain: true}},
	{"lives", func(LinkSeen, LinkLimits) bool { return true }, LinkTurn{}},
}

// Link decides what to do about a connection, and by which rule.
func Link(seen LinkSeen, limits LinkLimits) (LinkTurn, string) {
	for _, r := range linkRules {
		if r.when(seen, limits) {
			return r.then, r.name
		}
	}
	return LinkTurn{}, ""
}

// linkTickLate is how many intervals late a tick of the monitor may be.
const linkTickLate = 2

// LinkClocksRestart reports that the monitor itself was paused for so long that silence proves nothing: connections
// were not read during that time (C32 the other way round).
func LinkClocksRestart(sinceTick, interval time.Duration) bool {
	return sinceTick > linkTickLate*interval
}
