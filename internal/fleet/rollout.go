package fleet

import "time"

// RolloutState is the state of a rollout: the way of a deployment from its stable revision to a newer one (F67).
type RolloutState string

// The first four are active. A rollout that missed a deadline ends FAILED once the stable revision runs again.
const (
	RolloutDeploying  RolloutState = "DEPLOYING"
	RolloutPrepaused  RolloutState = "PREPAUSED" // on the way to a step that ends with a pause
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
		RolloutDeploying, RolloutPrepaused, RolloutPaused, RolloutCanceling, RolloutDeployed, RolloutCanceled, RolloutFailed, RolloutSuperseded,
	}
}

// Active reports whether the rollout has not ended.
func (s RolloutState) Active() bool {
	return s.Going() || s == RolloutPaused || s == RolloutCanceling
}

// Going reports whether it is on its way to the new revision.
func (s RolloutState) Going() bool { return s == RolloutDeploying || s == RolloutPrepaused }

// RolloutEvent moves a rollout.
type RolloutEvent string

// Events from decisions and from requests.
const (
	RolloutApproach  RolloutEvent = "approached" // a step that ends with a pause
	RolloutPause     RolloutEvent = "paused"
	RolloutResume    RolloutEvent = "resumed"
	RolloutPromote   RolloutEvent = "promoted" // past all steps
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
		RolloutApproach, RolloutPause, RolloutResume, RolloutPromote, RolloutCancel, RolloutExpire, RolloutFinish, RolloutReturn, RolloutFail, RolloutSupersede,
	}
}

// rolloutMachine has every transition of a rollout (F61, F67).
var rolloutMachine = machine[RolloutState, RolloutEvent]{
	{RolloutDeploying, RolloutApproach, RolloutPrepaused},
	{RolloutDeploying, RolloutPause, RolloutPaused},
	{RolloutDeploying, RolloutPromote, RolloutDeploying},
	{RolloutDeploying, RolloutFinish, RolloutDeployed},
	{RolloutDeploying, RolloutCancel, RolloutCanceling},
	{RolloutDeploying, RolloutExpire, RolloutCanceling},
	{RolloutDeploying, RolloutSupersede, RolloutSuperseded},
	{RolloutPrepaused, RolloutPause, RolloutPaused},
	{RolloutPrepaused, RolloutResume, RolloutDeploying},
	{RolloutPrepaused, RolloutPromote, RolloutDeploying},
	{RolloutPrepaused, RolloutCancel, RolloutCanceling},
	{RolloutPrepaused, RolloutExpire, RolloutCanceling},
	{RolloutPrepaused, RolloutSupersede, RolloutSuperseded},
	{RolloutPaused, RolloutResume, RolloutDeploying},
	{RolloutPaused, RolloutPromote, RolloutDeploying},
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

// RolloutPhase is what a rollout under way is at (S126).
type RolloutPhase string

// The phases.
const (
	PhaseInitializing RolloutPhase = "initializing" // no new replica is to run yet
	PhaseProvisioning RolloutPhase = "provisioning" // new replicas are on their way to being proven
	PhaseProvisioned  RolloutPhase = "provisioned"  // a step of a canary is reached: it waits for its interval, or to be resumed
	PhasePromoting    RolloutPhase = "promoting"    // past the steps of a canary, the others are on their way
	PhaseDraining     RolloutPhase = "draining"     // earlier replicas end
	PhaseRollingBack  RolloutPhase = "rolling_back"
)

// RolloutSeen is an active rollout as input of the decision about its deployment.
type RolloutSeen struct {
	Number int64        `json:"number"`
	State  RolloutState `json:"state"`
	// Reason is why it returns: "cancelled" or a deadline.
	Reason   string   `json:"reason,omitempty"`
	Strategy Strategy `json:"strategy"`
	// BeganIn is the state of the deployment in which it began: in any but RUNNING, it starts what does not run.
	BeganIn DeploymentState `json:"beganIn,omitempty"`
	// To is the revision that it brings; the deployment's own is the stable one.
	To RevisionLine `json:"to"`
	// Step counts from 0: of a canary, or of a recreation. StepAt is when a canary reached it, zero until then.
	Step   int       `json:"step,omitempty"`
	StepAt time.Time `json:"stepAt,omitzero"`
	// Want is how many replicas of the new revision there were to be last, Most the highest number that was proven
	// since ProgressAt.
	Want       int       `json:"want,omitempty"`
	Most       int       `json:"most,omitempty"`
	ProgressAt time.Time `json:"progressAt"`
	// Clock is why ProgressAt is what it is.
	Clock RolloutClock `json:"clock,omitempty"`
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
	// Failures counts the waves of failures of new replicas that had been healthy, FailedAt is when the last one began.
	Failures int       `json:"failures,omitempty"`
	FailedAt time.Time `json:"failedAt,omitzero"`
}

// RevisionLine is what the replicas of one of several live revisions are judged by.
type RevisionLine struct {
	Revision       int64         `json:"revision"`
	ProcessVersion int64         `json:"processVersion"`
	Terms          Recovery      `json:"terms"`
	Startup        time.Duration `json:"startup"`
	Settle         time.Duration `json:"settle,omitempty"`
	Stop           time.Duration `json:"stop"`
	Shows          time.Duration `json:"shows,omitempty"`
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
	Step        int       `json:"step,omitempty"`
	StepAt      time.Time `json:"stepAt,omitzero"`
	Want        int       `json:"want,omitempty"`
	Proven      int       `json:"proven,omitempty"`
	Most        int       `json:"most,omitempty"`
	ProgressAt  time.Time `json:"progressAt"`
	Short       bool      `json:"short,omitempty"`
	Failures    int       `json:"failures,omitempty"`
	FailedAt    time.Time `json:"failedAt,omitzero"`
	Crashes     int       `json:"crashes,omitempty"`
	Owed        int       `json:"owed,omitempty"`
	NextAttempt time.Time `json:"nextAttempt,omitzero"`
	// Until is when it is given up without progress, or in a pause if nobody resumes it; zero while no clock runs.
	Until time.Time `json:"until,omitzero"`
	// Clock is since what Until counts, or why no clock runs.
	Clock RolloutClock `json:"clock,omitempty"`
}

// RolloutClock is what started the time without progress again, or stops it. It is a stable word.
type RolloutClock string

// The first three stop it.
const (
	ClockPreparing    RolloutClock = "preparing"      // a new replica downloads its definition or pulls its image
	ClockNotConnected RolloutClock = "not_connected"  // the node of a new replica is not connected
	ClockOldReplicas  RolloutClock = "old_replicas"   // only earlier replicas have to end
	ClockBegan        RolloutClock = ""               // the rollout began
	ClockProven       RolloutClock = "replica_proven" // one more new replica is proven
	ClockStep         RolloutClock = "step"           // it went to another step, or reached it
	ClockReturns      RolloutClock = "returns"        // it returns to the stable revision
	ClockPaused       RolloutClock = "paused"         // it is paused, or was until then
	ClockReconnected  RolloutClock = "reconnected"    // the node of a new replica reconnected
	ClockRegionBack   RolloutClock = "region_back"    // the region was not available before
	ClockScaled       RolloutClock = "scaled"         // the target changed
	ClockJoined       RolloutClock = "joined"         // a release changed its terms and joined it
)

// Stops reports whether the time without progress does not run.
func (c RolloutClock) Stops() bool {
	return c == ClockPreparing || c == ClockNotConnected || c == ClockOldReplicas
}
