package decide

import (
	"math"
	"time"
)

// NoDeadline is the deadline of what may run until it is stopped.
const NoDeadline = time.Duration(math.MaxInt64)

// longestMargin is enough to kill what hundreds of guardians run on a busy machine; a longer
// TTL needs no more.
const longestMargin = time.Second

// LeaseEnd is when instances under a lease are ended: instants on the clock of its deadline.
//
//	   Stop          Kill          Force         Gone      deadline
//	───┼─────────────┼─────────────┼─────────────┼─────────┼──▶
//	   graceful      the guardian  the agent     nothing runs any more
//	   stop begins   kills         kills itself
type LeaseEnd struct{ Stop, Kill, Force, Gone time.Duration }

// EndOfLease spreads the end of a lease over the time before its deadline. Instances are gone a margin (a sixteenth
// of the TTL) before it. Both killers act a margin before that, so a slow kill is still in time.
//
// The graceful stop begins a grace period before the kill, but never earlier than a quarter of the TTL before the
// deadline. Renewals come every third of the TTL, so losing one stops nothing. A grace longer than that is cut, or
// its instance could never run.
func EndOfLease(deadline, ttl, grace time.Duration) LeaseEnd {
	if deadline == NoDeadline {
		return LeaseEnd{NoDeadline, NoDeadline, NoDeadline, NoDeadline}
	}
	margin := min(ttl/16, longestMargin)
	kill := deadline - 2*margin
	return LeaseEnd{
		Stop: max(kill-grace, deadline-ttl/4), Kill: kill, Force: kill + margin/2, Gone: deadline - margin,
	}
}

// Patient is the end of a lease whose holder removes the deadline when it is isolated; the holder may just have
// restarted. The graceful stop begins only a margin before the kill. It begins at all only if no agent ran for most
// of a TTL.
func (e LeaseEnd) Patient() LeaseEnd {
	e.Stop = max(e.Stop, e.Kill-2*(e.Force-e.Kill))
	return e
}

// LeaseStep is what a guardian does with its instance at a given time.
type LeaseStep string

// An instance runs, is being stopped gracefully, then is killed.
const (
	LeaseRun  LeaseStep = "run"
	LeaseStop LeaseStep = "stop"
	LeaseKill LeaseStep = "kill"
)

// Step is what is due at a given time.
func (e LeaseEnd) Step(now time.Duration) LeaseStep {
	switch {
	case now >= e.Kill:
		return LeaseKill
	case now >= e.Stop:
		return LeaseStop
	}
	return LeaseRun
}

// Next is when the next step is due, NoDeadline if there is none.
func (e LeaseEnd) Next(now time.Duration) time.Duration {
	switch e.Step(now) {
	case LeaseRun:
		return e.Stop
	case LeaseStop:
		return e.Kill
	case LeaseKill:
	}
	return NoDeadline
}
