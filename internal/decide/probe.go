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
	// Deadline is when the first success is too late (S48, S84).
	Deadline time.Duration `json:"deadline"`
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
		p.Passed, p.Failed, p.Begun = p.Passed+1, 0, true
		if p.Passed >= check.HealthyThreshold {
			p.Health = fleet.HealthHealthy
		}
	case p.Begun:
		p.Passed, p.Failed = 0, p.Failed+1
		if p.Failed >= check.UnhealthyThreshold {
			p.Health = fleet.HealthUnhealthy
		}
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

// Late says that the first success did not come in time.
func (p ProbeState) Late(now time.Duration) bool { return !p.Begun && now >= p.Deadline }
