package decide

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// StartupProbeEvery is the pause between probes until the first success.
const StartupProbeEvery = 100 * time.Millisecond

// ProbeState is what is known of a running replica's health. Times are of a monotonic clock that
// counts suspend, since any fixed instant; a wall clock decides nothing.
type ProbeState struct {
	Health fleet.ReplicaHealth `json:"health"`
	// Passed and Failed count in a row; the one resets the other (S77, S78).
	Passed int `json:"passed,omitempty"`
	Failed int `json:"failed,omitempty"`
	// Begun says that there was a success: until then failures do not count.
	Begun bool `json:"begun,omitempty"`
	// Missed is when the last probe that failed began.
	Missed time.Duration `json:"missed,omitempty"`
	// Deadline is when the first success is too late (S48, S84).
	Deadline time.Duration `json:"deadline"`
	// Settle is when it is too late to be healthy or not at all, after the first success: one that
	// answers now and then would be neither for ever. 0 is never.
	Settle time.Duration `json:"settle,omitempty"`
	// Next is when to begin the next probe. One that takes longer is never overtaken by another.
	Next time.Duration `json:"next"`
	// Since is when Health last changed.
	Since time.Duration `json:"since"`
}

// StartProbes begins with a process that has just started. What has no probes is healthy as long as
// it runs.
func StartProbes(check fleet.HealthCheck, startup, at time.Duration) ProbeState {
	p := ProbeState{Health: fleet.HealthNotChecked, Deadline: at + startup, Next: at, Since: at}
	if check.Type == fleet.HealthNone {
		p.Health, p.Begun = fleet.HealthHealthy, true
	}
	return p
}

// Probe takes one result in. At is when that probe began, so that the pace does not drift.
func Probe(p ProbeState, check fleet.HealthCheck, ok bool, at time.Duration) ProbeState {
	check = check.WithDefaults()
	was := p.Health
	switch {
	case ok:
		if !p.Begun {
			p.Settle = max(p.Deadline, at+check.SettleTime())
		}
		p.Passed, p.Failed, p.Begun = p.Passed+1, 0, true
		if p.Passed >= check.HealthyThreshold {
			p.Health = fleet.HealthHealthy
		}
	case p.Begun:
		p.Passed, p.Failed, p.Missed = 0, p.Failed+1, at
		if p.Failed >= check.UnhealthyThreshold {
			p.Health = fleet.HealthUnhealthy
		}
	default:
		p.Missed = at
	}
	p.Next = at + StartupProbeEvery
	if p.Begun {
		p.Next = at + time.Duration(check.Interval*float64(time.Second))
	}
	if p.Health != was {
		p.Since = at
	}
	return p
}

// Resume goes on with probes after a time in which nobody looked: what is to come to an answer has
// all of its time for that again, and what may have begun to answer unseen has that of a probe.
func (p ProbeState) Resume(check fleet.HealthCheck, at time.Duration) ProbeState {
	check = check.WithDefaults()
	switch {
	case !p.Begun:
		p.Deadline = max(p.Deadline, at+StartupProbeEvery+time.Duration(check.Timeout*float64(time.Second)))
	case p.Health == fleet.HealthNotChecked:
		p.Settle = max(p.Settle, at+check.SettleTime())
	}
	return p
}

// Delay moves on, by a time in which nobody could probe, until when a replica has to come to an answer.
func (p ProbeState) Delay(by time.Duration) ProbeState {
	switch {
	case !p.Begun:
		p.Deadline += by
	case p.Health == fleet.HealthNotChecked:
		p.Settle += by
	}
	return p
}

// Due is when a replica that is not healthy yet is late; 0 is never.
func (p ProbeState) Due() time.Duration {
	switch {
	case !p.Begun:
		return p.Deadline
	case p.Health == fleet.HealthNotChecked:
		return p.Settle
	}
	return 0
}

// Late says that it was not healthy in time: the first success, or what is to follow, did not come. Only
// a probe that began then and failed says so, never the clock: of what came to answer while the machine or
// the agent was paused nobody has heard yet.
func (p ProbeState) Late() bool { return p.Due() > 0 && p.Missed >= p.Due() }
