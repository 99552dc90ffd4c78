package decide

import (
	"math"
	"time"
)

// NoDeadline is the deadline of what may run until it is told otherwise.
const NoDeadline = time.Duration(math.MaxInt64)

// longestMargin is enough to kill what hundreds of guardians run on a busy machine; a longer
// TTL needs no more.
const longestMargin = time.Second

// LeaseEnd says when what runs under a lease is ended: instants on the clock of its deadline.
//
//	   Stop          Kill          Force         Gone      deadline
//	───┼─────────────┼─────────────┼─────────────┼─────────┼──▶
//	   graceful      the guardian  the agent     nothing runs any more
//	   stop begins   kills         kills itself
type LeaseEnd struct{ Stop, Kill, Force, Gone time.Duration }

// EndOfLease spreads the end of a lease over the time before its deadline. What runs is gone
// a margin (a sixteenth of the TTL) before it, and both killers come a margin before that, so
// a slow kill is still in time.
//
// The graceful stop begins a grace before the kill, but never earlier than a quarter of the
// TTL before the deadline: renewals come every third of it, so one that is lost stops nothing,
// and a grace longer than the TTL is cut instead of keeping its instance from ever running.
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

// Patient is the end of a lease whose holder takes the deadline off when it is isolated: until
// then it may have been restarted a moment ago. The graceful stop begins a margin before the kill,
// and no sooner; only where no agent was there for most of a TTL does it begin at all.
func (e LeaseEnd) Patient() LeaseEnd {
	e.Stop = max(e.Stop, e.Kill-2*(e.Force-e.Kill))
	return e
}

// LeaseStep is what a guardian does with its instance at some instant.
type LeaseStep string

// An instance runs, is being stopped gracefully, and is then killed.
const (
	LeaseRun  LeaseStep = "run"
	LeaseStop LeaseStep = "stop"
	LeaseKill LeaseStep = "kill"
)

// Step says what is due at an instant.
func (e LeaseEnd) Step(now time.Duration) LeaseStep {
	switch {
	case now >= e.Kill:
		return LeaseKill
	case now >= e.Stop:
		return LeaseStop
	}
	return LeaseRun
}

// Next is the instant after now at which another step is due, NoDeadline when none is.
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
