package fleet

import (
	"fmt"
	"math"
	"time"
)

// Strategy is how a deployment moves to a newer revision (S123, F70). Durations are in seconds; zero values mean the
// defaults.
type Strategy struct {
	// Type is how: "rolling" (default), "canary" or "recreate".
	Type StrategyType `json:"type,omitempty"`
	// Steps are those of a canary, with ascending weights (default: 20, 40, 60 and 80 %, without intervals). Then the rest follows.
	Steps []CanaryStep `json:"steps,omitempty"`
	// MaxSurge is how many replicas may run above the target (default 50 %, rounded up), MaxUnavailable how many below it
	// (default 0, rounded down).
	MaxSurge       *Share `json:"max_surge,omitempty"`
	MaxUnavailable *Share `json:"max_unavailable,omitempty"`
	// MaxInFlight is how many new replicas may be on their way at a time (default: no limit).
	MaxInFlight int `json:"max_in_flight,omitempty"`
	// MinHealthyTime is how long a replica must be routable without a break until one that works may end for it: its proof
	// (default: 10, or what its checks need to show a failure if that is longer; with a declared ProgressDeadline at most half of
	// that). 0 waits for nothing.
	MinHealthyTime *float64 `json:"min_healthy_time,omitempty"`
	// ProgressDeadline is the longest time without progress; then the rollout returns to the stable revision (default:
	// the times for the start, the check and MinHealthyTime, and 5 minutes).
	ProgressDeadline float64 `json:"progress_deadline,omitempty"`
	// PauseDeadline is the longest pause; then the rollout returns to the stable revision (default 72 hours).
	PauseDeadline float64 `json:"pause_deadline,omitempty"`
	// WhenFull is what happens when no node has room above the target: "old_first" (default) ends one replica before
	// its replacement starts, "wait" waits for room until the deadline.
	WhenFull WhenFull `json:"when_full,omitempty"`
}

// StrategyType is how replicas of the new revision take the place of the others.
type StrategyType string

// Both run beside each other, until the new one is proven (rolling) or step by step (canary, S125); or all old replicas have
// ended before the first new one starts (recreate, F37).
const (
	StrategyRolling  StrategyType = "rolling"
	StrategyCanary   StrategyType = "canary"
	StrategyRecreate StrategyType = "recreate"
)

// CanaryStep is a share of the replicas, in percent, and what follows once they are proven: an interval in seconds, or a pause
// until the rollout is resumed (F69).
type CanaryStep struct {
	Weight   int     `json:"weight"`
	Interval float64 `json:"interval,omitempty"`
	Pause    bool    `json:"pause,omitempty"`
}

// Wait is Interval as a duration.
func (s CanaryStep) Wait() time.Duration { return seconds(s.Interval) }

// DefaultStepWeight is by how much each step of a canary raises its weight, without declared steps (S125).
const DefaultStepWeight = 20

// Plan are the steps before the last, which brings all replicas: none but in a canary.
func (s Strategy) Plan() []CanaryStep {
	if s.Type != StrategyCanary || len(s.Steps) > 0 {
		return s.Steps
	}
	var steps []CanaryStep
	for w := DefaultStepWeight; w < 100; w += DefaultStepWeight {
		steps = append(steps, CanaryStep{Weight: w})
	}
	return steps
}

// Intervals are those of all steps together.
func (s Strategy) Intervals() (sum time.Duration) {
	for _, x := range s.Steps {
		sum += x.Wait()
	}
	return sum
}

// StopFirst is the strategy by which all replicas end before the first new one starts.
func (s Strategy) StopFirst() Strategy {
	s.Type, s.Steps = StrategyRecreate, nil
	return s
}

// Joining is the strategy of a rollout under way that an edit joins: of its own type, with its steps if that was another one.
func (s Strategy) Joining(under Strategy) Strategy {
	if s.Type != under.Type {
		s.Type, s.Steps = under.Type, under.Steps
	}
	return s
}

// DefaultPauseDeadline is how long a rollout may be paused.
const DefaultPauseDeadline = 72 * time.Hour

// LongestPause is PauseDeadline as a duration.
func (s Strategy) LongestPause() time.Duration {
	if s.PauseDeadline > 0 {
		return seconds(s.PauseDeadline)
	}
	return DefaultPauseDeadline
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// WhenFull is what a rollout does without room for a surge.
type WhenFull string

// One replica less, or patience.
const (
	FullOldFirst WhenFull = "old_first"
	FullWait     WhenFull = "wait"
)

// DefaultSurge is the surge without a declared one, of 100 (S123).
const DefaultSurge = 50

// Surge is how many replicas may run above a target, Unavailable how many below it: at least one of the two.
func (s Strategy) Surge(target int) int {
	surge := Share{Percent: DefaultSurge}
	if s.MaxSurge != nil {
		surge = *s.MaxSurge
	}
	n := surge.of(target, math.Ceil)
	if n == 0 && s.Unavailable(target) == 0 {
		return 1
	}
	return n
}

// Unavailable is how many replicas may be missing from a target.
func (s Strategy) Unavailable(target int) int {
	if s.MaxUnavailable == nil {
		return 0
	}
	return s.MaxUnavailable.of(target, math.Floor)
}

// DefaultMinHealthy is how long a replica must be routable until it is proven, without a declared time and with quicker checks.
const DefaultMinHealthy = 10 * time.Second

// MinHealthy is how long a replica must be routable until it is proven, whose checks show a failure after a time.
func (s Strategy) MinHealthy(shows time.Duration) time.Duration {
	if s.MinHealthyTime != nil {
		return seconds(*s.MinHealthyTime)
	}
	least := max(DefaultMinHealthy, shows)
	if s.ProgressDeadline > 0 {
		least = min(least, seconds(s.ProgressDeadline/2))
	}
	return least
}

// MostStrategySeconds bounds the times of a strategy: a week.
const MostStrategySeconds = maxTerm

// validateStrategy rejects times out of range, and a deadline that a declared start may miss.
func (s DeploymentSpec) validateStrategy() error {
	t, least := s.Strategy, 0.0
	if t.MinHealthyTime != nil {
		least = *t.MinHealthyTime
	}
	for _, x := range []struct {
		field string
		value float64
	}{{"min_healthy_time", least}, {"progress_deadline", t.ProgressDeadline}, {"pause_deadline", t.PauseDeadline}} {
		if !inTerm(x.value) {
			return Errorf(Invalid, "invalid time: want 0 to %d seconds", MostStrategySeconds).At("/strategy/" + x.field).WithHint("leave it out for the default")
		}
	}
	if err := t.validateSteps(); err != nil {
		return err
	}
	switch t.WhenFull {
	case "", FullOldFirst, FullWait:
	default:
		return Errorf(Invalid, "unknown value %.40q; use old_first or wait", t.WhenFull).At("/strategy/when_full")
	}
	if t.MaxInFlight < 0 || t.MaxInFlight > MaxReplicas {
		return Errorf(Invalid, "%d is not within 0 to %d", t.MaxInFlight, MaxReplicas).At("/strategy/max_in_flight").WithHint("use 0 for no limit")
	}
	if t.MaxSurge != nil && t.MaxSurge.Zero() && (t.MaxUnavailable == nil || t.MaxUnavailable.Zero()) {
		return Errorf(Invalid, "max_surge and max_unavailable are both 0: nothing could be replaced").At("/strategy/max_surge").
			WithHint("allow one more replica, or one less")
	}
	if s.Process.Startup != nil {
		least += s.Process.Startup.Deadline
	}
	if t.ProgressDeadline > 0 && t.ProgressDeadline < least {
		return Errorf(Invalid, "a progress_deadline of %g seconds is below the start-up deadline and min_healthy_time, together %g", t.ProgressDeadline, least).
			At("/strategy/progress_deadline").WithHint("use a longer one, or 0 for the default")
	}
	return nil
}

func inTerm(seconds float64) bool { return seconds >= 0 && seconds <= MostStrategySeconds }

// MostSteps bounds the steps of a canary.
const MostSteps = 100

func (s Strategy) validateSteps() error {
	switch s.Type {
	case "", StrategyRolling, StrategyCanary, StrategyRecreate:
	case "blue-green":
		return Errorf(Invalid, "blue-green needs routes, which deployments do not have yet; use rolling, canary or recreate").At("/strategy/type")
	default:
		return Errorf(Invalid, "unknown strategy %.40q; use rolling, canary or recreate", s.Type).At("/strategy/type")
	}
	if len(s.Steps) > 0 && s.Type != StrategyCanary {
		return Errorf(Invalid, "only a canary has steps").At("/strategy/steps").WithHint(`use "type": "canary", or remove them`)
	}
	if len(s.Steps) > MostSteps {
		return Errorf(Invalid, "%d steps; at most %d are allowed", len(s.Steps), MostSteps).At("/strategy/steps")
	}
	least := 1
	for i, x := range s.Steps {
		at := fmt.Sprintf("/strategy/steps/%d", i)
		switch {
		case x.Weight < least || x.Weight > 100:
			return Errorf(Invalid, "a weight of %d: want %d to 100, as weights ascend", x.Weight, least).At(at + "/weight")
		case !inTerm(x.Interval):
			return Errorf(Invalid, "invalid time: want 0 to %d seconds", MostStrategySeconds).At(at + "/interval")
		case x.Pause && x.Interval > 0:
			return Errorf(Invalid, "a step has an interval or a pause, not both").At(at)
		}
		least = x.Weight + 1
	}
	return nil
}
