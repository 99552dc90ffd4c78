package fleet

import (
	"math"
	"time"
)

// RolloutState is the state of a rollout: the way of a deployment from its stable revision to a newer one (F67).
type RolloutState string

// The first three are active. A rollout that missed a deadline ends FAILED once the stable revision runs again.
const (
	RolloutDeploying  RolloutState = "DEPLOYING"
	RolloutPaused     RolloutState = "PAUSED"
	RolloutCanceling  RolloutState = "CANCELING" // it returns to the stable revision
	RolloutDeployed   RolloutState = "DEPLOYED"
	RolloutCanceled   RolloutState = "CANCELED"
	RolloutFailed     RolloutState = "FAILED"
	RolloutSuperseded RolloutState = "SUPERSEDED"
)

// RolloutStates lists all states; a test compares it with the SQL CHECK.
func RolloutStates() []RolloutState {
	return []RolloutState{
		RolloutDeploying, RolloutPaused, RolloutCanceling, RolloutDeployed, RolloutCanceled, RolloutFailed, RolloutSuperseded,
	}
}

// Active reports whether the rollout has not ended.
func (s RolloutState) Active() bool {
	return s == RolloutDeploying || s == RolloutPaused || s == RolloutCanceling
}

// RolloutEvent moves a rollout.
type RolloutEvent string

// Events from decisions and from requests.
const (
	RolloutPause     RolloutEvent = "paused"
	RolloutResume    RolloutEvent = "resumed"
	RolloutCancel    RolloutEvent = "cancelled"
	RolloutExpire    RolloutEvent = "expired"  // a deadline passed
	RolloutFinish    RolloutEvent = "finished" // only the new revision runs
	RolloutReturn    RolloutEvent = "returned" // only the stable revision runs, as was asked for
	RolloutFail      RolloutEvent = "failed"   // only the stable revision runs, after a deadline
	RolloutSupersede RolloutEvent = "superseded"
)

// RolloutEvents lists all events.
func RolloutEvents() []RolloutEvent {
	return []RolloutEvent{
		RolloutPause, RolloutResume, RolloutCancel, RolloutExpire, RolloutFinish, RolloutReturn, RolloutFail, RolloutSupersede,
	}
}

// rolloutMachine has every transition of a rollout (F61, F67).
var rolloutMachine = machine[RolloutState, RolloutEvent]{
	{RolloutDeploying, RolloutPause, RolloutPaused},
	{RolloutDeploying, RolloutFinish, RolloutDeployed},
	{RolloutDeploying, RolloutCancel, RolloutCanceling},
	{RolloutDeploying, RolloutExpire, RolloutCanceling},
	{RolloutDeploying, RolloutSupersede, RolloutSuperseded},
	{RolloutPaused, RolloutResume, RolloutDeploying},
	{RolloutPaused, RolloutCancel, RolloutCanceling},
	{RolloutPaused, RolloutExpire, RolloutCanceling},
	{RolloutPaused, RolloutSupersede, RolloutSuperseded},
	{RolloutCanceling, RolloutReturn, RolloutCanceled},
	{RolloutCanceling, RolloutFail, RolloutFailed},
	{RolloutCanceling, RolloutSupersede, RolloutSuperseded},
}

// Next is the only way to move a rollout; a missing transition is illegal_state.
func (s RolloutState) Next(on RolloutEvent) (RolloutState, error) {
	if to, ok := rolloutMachine.next(s, on); ok {
		return to, nil
	}
	return s, Errorf(IllegalState, "a rollout in state %s does not allow %s", s, on)
}

// Strategy is how a deployment moves to a newer revision (S123, F70). Durations are in seconds; zero values mean the
// defaults.
type Strategy struct {
	// MaxSurge is how many replicas may run above the target (default 50 %, rounded up), MaxUnavailable how many below it
	// (default 0, rounded down).
	MaxSurge       *Share `json:"max_surge,omitempty"`
	MaxUnavailable *Share `json:"max_unavailable,omitempty"`
	// MaxInFlight is how many new replicas may be on their way at a time (default: no limit).
	MaxInFlight int `json:"max_in_flight,omitempty"`
	// MinHealthyTime is how long a new replica must be healthy until it counts (default 0).
	MinHealthyTime float64 `json:"min_healthy_time,omitempty"`
	// ProgressDeadline is the longest time without progress; then the rollout returns to the stable revision (default:
	// the times for the start, the check and MinHealthyTime, and 5 minutes).
	ProgressDeadline float64 `json:"progress_deadline,omitempty"`
	// WhenFull is what happens when no node has room above the target: "old_first" (default) ends one replica before
	// its replacement starts, "wait" waits for room until the deadline.
	WhenFull WhenFull `json:"when_full,omitempty"`
}

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

// MinHealthy is MinHealthyTime as a duration.
func (s Strategy) MinHealthy() time.Duration {
	return time.Duration(s.MinHealthyTime * float64(time.Second))
}

// RolloutSeen is an active rollout as input of the decision about its deployment.
type RolloutSeen struct {
	Number int64        `json:"number"`
	State  RolloutState `json:"state"`
	// Reason is why it returns: "cancelled" or a deadline.
	Reason   string   `json:"reason,omitempty"`
	Strategy Strategy `json:"strategy"`
	// To is the revision that it brings; the deployment's own is the stable one.
	To RevisionLine `json:"to"`
	// Want is how many replicas of the new revision there were to be last, Most the highest number that was proven
	// since ProgressAt.
	Want       int       `json:"want,omitempty"`
	Most       int       `json:"most,omitempty"`
	ProgressAt time.Time `json:"progressAt"`
	// Since is when State last changed. There is 30 s after the region last became available.
	Since time.Time `json:"since,omitzero"`
	There time.Time `json:"there,omitzero"`
	// Progress is the longest time without progress, Deadline when the whole must end.
	Progress time.Duration `json:"progress"`
	Deadline time.Time     `json:"deadline,omitzero"`
	// Short is set once one replica ended to make room for its replacement.
	Short bool `json:"short,omitempty"`
	// Failure describes the newest failure of a replica of the new revision.
	Failure string `json:"failure,omitempty"`
	// AtStart is how many replicas were routable when it began.
	AtStart int `json:"atStart,omitempty"`
}

// RevisionLine is what the replicas of one of several live revisions are judged by.
type RevisionLine struct {
	Revision       int64         `json:"revision"`
	ProcessVersion int64         `json:"processVersion"`
	Terms          Recovery      `json:"terms"`
	Startup        time.Duration `json:"startup"`
	Settle         time.Duration `json:"settle,omitempty"`
	Stop           time.Duration `json:"stop"`
	Placement      PlacementSpec `json:"placement,omitzero"`
	Nodes          []NodeRoom    `json:"nodes,omitempty"`
	Crashes        int           `json:"crashes,omitempty"`
	Owed           int           `json:"owed,omitempty"`
	NextAttempt    time.Time     `json:"nextAttempt,omitzero"`
}

// RolloutPlan is what becomes of a rollout in a visit.
type RolloutPlan struct {
	// Events are applied to its state in this order.
	Events []RolloutEvent `json:"events,omitempty"`
	Reason string         `json:"reason,omitempty"`
	// Message says how far it is, or how it ended.
	Message string `json:"message,omitempty"`
	// Create is how many replicas of the new revision to create.
	Create int `json:"create,omitempty"`
	// Failure is the newest of the new revision.
	Failure string `json:"failure,omitempty"`
	// Anew asks for a higher process version of the stable revision: it returns.
	Anew        bool      `json:"anew,omitempty"`
	Want        int       `json:"want,omitempty"`
	Proven      int       `json:"proven,omitempty"`
	Most        int       `json:"most,omitempty"`
	ProgressAt  time.Time `json:"progressAt"`
	Short       bool      `json:"short,omitempty"`
	Crashes     int       `json:"crashes,omitempty"`
	Owed        int       `json:"owed,omitempty"`
	NextAttempt time.Time `json:"nextAttempt,omitzero"`
	// Until is when it is given up without progress, zero while no clock runs.
	Until time.Time `json:"until,omitzero"`
}

// MostStrategySeconds bounds the times of a strategy: a week.
const MostStrategySeconds = maxTerm

// validateStrategy rejects times out of range, and a deadline that a declared start may miss.
func (s DeploymentSpec) validateStrategy() error {
	t := s.Strategy
	for _, x := range []struct {
		field string
		value float64
	}{{"min_healthy_time", t.MinHealthyTime}, {"progress_deadline", t.ProgressDeadline}} {
		if !(x.value >= 0 && x.value <= MostStrategySeconds) {
			return Errorf(Invalid, "invalid time: want 0 to %d seconds", MostStrategySeconds).At("/strategy/" + x.field).WithHint("use 0 for the default")
		}
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
	least := t.MinHealthyTime
	if s.Process.Startup != nil {
		least += s.Process.Startup.Deadline
	}
	if t.ProgressDeadline > 0 && t.ProgressDeadline < least {
		return Errorf(Invalid, "a progress_deadline of %g seconds is below the start-up deadline and min_healthy_time, together %g", t.ProgressDeadline, least).
			At("/strategy/progress_deadline").WithHint("use a longer one, or 0 for the default")
	}
	return nil
}
