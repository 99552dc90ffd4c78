package decide

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// StartupProbeEvery is the pause between probes until the first success.
const StartupProbeEvery = 100 * time.Millisecond

// ProbeState is the known health of a running replica. Times are from a monotonic clock that counts suspend, since
// any fixed instant; no wall clock is used.
type ProbeState struct {
	Health fleet.ReplicaHealth `json:"health"`
	// Passed and Failed count consecutive results; each resets the other (S77, S78).
	Passed int `json:"passed,omitempty"`
	Failed int `json:"failed,omitempty"`
	// Begun is set by the first success: until then failures do not count.
	Begun bool `json:"begun,omitempty"`
	// Missed is when the last probe that failed began.
	Missed time.Duration `json:"missed,omitempty"`
	// Deadline is the latest time for the first success; it runs from the first preStart command on (S48, S84).
	Deadline time.Duration `json:"deadline"`
	// Settle is the latest time, after the first success, to become healthy: a replica that answers only now and
	// then would never become healthy or unhealthy. 0 means never.
	Settle time.Duration `json:"settle,omitempty"`
	// Next is when to start the next probe. Probes never overlap.
	Next time.Duration `json:"next"`
	// Since is when Health last changed.
	Since time.Duration `json:"since"`
	// Failure is the last failure since it was healthy, zero while it is healthy and the last probe succeeded.
	Failure ProbeFailure `json:"failure,omitzero"`
}

// ProbeFailure is why a probe failed, and how many in a row did for that, since the first of them.
type ProbeFailure struct {
	Cause string        `json:"cause,omitempty"`
	Times int           `json:"times,omitempty"`
	First time.Duration `json:"first,omitempty"`
}

// again counts a failure with those before it of the same cause. Successes between them do not matter.
func (f ProbeFailure) again(cause string, at time.Duration) ProbeFailure {
	if f.Cause != cause {
		f = ProbeFailure{Cause: cause, First: at}
	}
	f.Times++
	return f
}

// StartProbes starts with a new process. Without probes it is healthy while it runs.
func StartProbes(check fleet.HealthCheck, startup, at time.Duration) ProbeState {
	p := ProbeState{Health: fleet.HealthNotChecked, Deadline: at + startup, Next: at, Since: at}
	if check.Type == fleet.HealthNone {
		p.Health, p.Begun = fleet.HealthHealthy, true
	}
	return p
}

// PreStart is the start-up time of a new process whose preStart commands begin; its probes share it.
func PreStart(startup, at time.Duration) ProbeState {
	return ProbeState{Deadline: at + startup, Missed: at}
}

// StillPreStart records that the preStart commands still ran at an instant.
func (p ProbeState) StillPreStart(at time.Duration) ProbeState {
	p.Missed = at
	return p
}

// PreStartLate reports that the preStart commands did not end in time. As with Late, only an observation counts.
func (p ProbeState) PreStartLate() bool { return p.Deadline > 0 && p.Missed >= p.Deadline }

// StartReadiness starts with the probes of a readiness check. It knows only ready (HEALTHY) and not ready (UNHEALTHY), and
// no deadline: failures count from the first on.
func StartReadiness(from fleet.ReplicaHealth, at time.Duration) ProbeState {
	return ProbeState{Health: from, Begun: true, Next: at, Since: at}
}

// Probe records one result: why the probe failed, "" if it succeeded. At is when that probe began, so that the pace does
// not drift.
func Probe(p ProbeState, check fleet.HealthCheck, cause string, at time.Duration) ProbeState {
	check = check.WithDefaults()
	was := p.Health
	if cause != "" {
		p.Failure = p.Failure.again(cause, at)
	}
	switch {
	case cause == "":
		if !p.Begun {
			p.Settle = max(p.Deadline, at+check.SettleTime())
		}
		p.Passed, p.Failed, p.Begun = p.Passed+1, 0, true
		if p.Passed >= check.HealthyThreshold {
			p.Health = fleet.HealthHealthy
		}
		if p.Health == fleet.HealthHealthy {
			p.Failure = ProbeFailure{}
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

// Resume continues probing after a pause. A replica that has not answered yet gets time for one more probe; one
// that is settling gets its full time again.
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

// Amend continues under another check: the next probe keeps its distance from the last one, or is due at once.
func (p ProbeState) Amend(was, check fleet.HealthCheck, at time.Duration) ProbeState {
	was, check = was.WithDefaults(), check.WithDefaults()
	p = p.Resume(check, at)
	if p.Begun {
		p.Next = max(at, p.Next+time.Duration((check.Interval-was.Interval)*float64(time.Second)))
	}
	return p
}

// Delay extends the deadlines by a time in which no probe was possible.
func (p ProbeState) Delay(by time.Duration) ProbeState {
	switch {
	case !p.Begun:
		p.Deadline += by
	case p.Health == fleet.HealthNotChecked:
		p.Settle += by
	}
	return p
}

// Due is when a replica that is not yet healthy is late; 0 means never.
func (p ProbeState) Due() time.Duration {
	switch {
	case !p.Begun:
		return p.Deadline
	case p.Health == fleet.HealthNotChecked:
		return p.Settle
	}
	return 0
}

// Late reports that it did not become healthy in time. Only a failed probe that began after the deadline counts,
// never the clock: after a pause of the machine or the agent, a replica may have become healthy unnoticed.
func (p ProbeState) Late() bool { return p.Due() > 0 && p.Missed >= p.Due() }
