package fleet

import (
	"slices"
	"time"
)

// FleetState is the state of one run of a fleet change.
type FleetState string

// A run is running or paused, and ends in one of the other states. A stopped one can resume; one that succeeded can
// retry its failures.
const (
	FleetRunning    FleetState = "running"
	FleetPaused     FleetState = "paused"
	FleetStopped    FleetState = "stopped"
	FleetSucceeded  FleetState = "succeeded"
	FleetCancelled  FleetState = "cancelled"
	FleetSuperseded FleetState = "superseded"
)

// FleetStates lists all states; a test compares it with the SQL CHECK.
func FleetStates() []FleetState {
	return []FleetState{FleetRunning, FleetPaused, FleetStopped, FleetSucceeded, FleetCancelled, FleetSuperseded}
}

// Live reports whether the run may still deliver, now or after a pause.
func (s FleetState) Live() bool { return s == FleetRunning || s == FleetPaused }

// FleetEvent moves a run.
type FleetEvent string

// Events from requests and from decisions.
const (
	FleetPause     FleetEvent = "pause"
	FleetResume    FleetEvent = "resume"
	FleetCancel    FleetEvent = "cancel"
	FleetRetry     FleetEvent = "retry"    // only what failed
	FleetRollback  FleetEvent = "rollback" // a new run restores what was there before
	FleetStop      FleetEvent = "stop"
	FleetFinish    FleetEvent = "finish"
	FleetSupersede FleetEvent = "supersede" // a newer run replaced it
)

// FleetEvents lists all events.
func FleetEvents() []FleetEvent {
	return []FleetEvent{
		FleetPause, FleetResume, FleetCancel, FleetRetry, FleetRollback, FleetStop, FleetFinish, FleetSupersede,
	}
}

// fleetMachine has every transition of a run; all others are refused.
var fleetMachine = machine[FleetState, FleetEvent]{
	{FleetRunning, FleetPause, FleetPaused},
	{FleetRunning, FleetStop, FleetStopped},
	{FleetRunning, FleetFinish, FleetSucceeded},
	{FleetRunning, FleetCancel, FleetCancelled},
	{FleetRunning, FleetSupersede, FleetSuperseded},
	{FleetPaused, FleetResume, FleetRunning},
	{FleetPaused, FleetStop, FleetStopped}, // its deadline passed
	{FleetPaused, FleetCancel, FleetCancelled},
	{FleetPaused, FleetSupersede, FleetSuperseded},
	{FleetStopped, FleetResume, FleetRunning},
	{FleetStopped, FleetRetry, FleetRunning},
	{FleetStopped, FleetCancel, FleetCancelled},
	{FleetStopped, FleetRollback, FleetSuperseded},
	{FleetStopped, FleetSupersede, FleetSuperseded},
	{FleetSucceeded, FleetRetry, FleetRunning},
	{FleetSucceeded, FleetRollback, FleetSuperseded},
	{FleetSucceeded, FleetSupersede, FleetSuperseded},
	{FleetCancelled, FleetRollback, FleetSuperseded},
	{FleetCancelled, FleetSupersede, FleetSuperseded},
}

// Next is the only way to move a run; a missing transition is illegal_state.
func (s FleetState) Next(on FleetEvent) (FleetState, error) {
	var can []string
	for _, a := range fleetMachine {
		if a.from == s && a.on == on {
			return a.to, nil
		}
		if a.from == s && slices.Contains([]FleetEvent{FleetPause, FleetResume, FleetCancel, FleetRetry, FleetRollback}, a.on) {
			can = append(can, string(a.on))
		}
	}
	e := Errorf(IllegalState, "a fleet change that is %s cannot be %s", s, fleetPast[on])
	if len(can) > 0 {
		return s, e.WithHint("it can " + OrList(can))
	}
	return s, e
}

// FleetRetried is the reason of a run that stops at the end of a retry.
const FleetRetried = "retried"

var fleetEnds = map[FleetEvent]OperationState{
	FleetStop: OperationFailed, FleetFinish: OperationSucceeded, FleetCancel: OperationCancelled,
}

// Ends reports whether an event that the entity decides ends a run.
func (on FleetEvent) Ends() bool { return fleetEnds[on] != "" }

// Operation is how a run's operations end with it. A retry covers only what had failed: it succeeds once no failure
// is left, even if the run stops because other instances wait.
func (on FleetEvent) Operation(reason string, all FleetCounts) OperationState {
	if on == FleetStop && reason == FleetRetried && all.Failed == 0 {
		return OperationSucceeded
	}
	return fleetEnds[on]
}

var fleetPast = map[FleetEvent]string{
	FleetPause: "paused", FleetResume: "resumed", FleetCancel: "cancelled", FleetRetry: "retried", FleetRollback: "rolled back",
	FleetStop: "stopped", FleetFinish: "finished", FleetSupersede: "superseded",
}

// FleetTargetState is the state of one instance of a run.
type FleetTargetState string

// A target waits for its batch, is delivered, perhaps staged, and then ends. Superseded: a newer write by another
// caller replaced it. Unchanged: the change has no effect on it.
const (
	FleetTargetWaiting    FleetTargetState = "waiting"
	FleetTargetDelivering FleetTargetState = "delivering"
	FleetTargetStaged     FleetTargetState = "staged"
	FleetTargetSucceeded  FleetTargetState = "succeeded"
	FleetTargetUnchanged  FleetTargetState = "unchanged"
	FleetTargetSuperseded FleetTargetState = "superseded"
	FleetTargetFailed     FleetTargetState = "failed"
)

// FleetTargetStates lists all states; a test compares it with the SQL CHECK.
func FleetTargetStates() []FleetTargetState {
	return []FleetTargetState{
		FleetTargetWaiting, FleetTargetDelivering, FleetTargetStaged, FleetTargetSucceeded,
		FleetTargetUnchanged, FleetTargetSuperseded, FleetTargetFailed,
	}
}

// FleetCounts counts the targets of a wave or of a run by state.
type FleetCounts struct {
	Total      int `json:"total"`
	Waiting    int `json:"waiting"`
	Delivering int `json:"delivering"`
	Staged     int `json:"staged"`
	Succeeded  int `json:"succeeded"`
	Unchanged  int `json:"unchanged"`
	Superseded int `json:"superseded"`
	Failed     int `json:"failed"`
}

// Add counts n targets in a state.
func (c *FleetCounts) Add(state FleetTargetState, n int) {
	c.Total += n
	switch state {
	case FleetTargetWaiting:
		c.Waiting += n
	case FleetTargetDelivering:
		c.Delivering += n
	case FleetTargetStaged:
		c.Staged += n
	case FleetTargetSucceeded:
		c.Succeeded += n
	case FleetTargetUnchanged:
		c.Unchanged += n
	case FleetTargetSuperseded:
		c.Superseded += n
	case FleetTargetFailed:
		c.Failed += n
	}
}

// Good counts those that need nothing more, including those that another caller has since rewritten.
func (c FleetCounts) Good() int { return c.Succeeded + c.Unchanged + c.Superseded }

// Over reports whether no target of the wave has anything left to do.
func (c FleetCounts) Over() bool { return c.Waiting == 0 && c.Delivering == 0 && c.Staged == 0 }

// FleetSiteSeen is a site with something left to do in the current wave.
type FleetSiteSeen struct {
	Site    SiteName `json:"site"`
	Waiting int      `json:"waiting,omitempty"`
	Staged  int      `json:"staged,omitempty"`
	// Closed is set outside of the site's windows, which open at Opens.
	Closed bool      `json:"closed,omitempty"`
	Opens  time.Time `json:"opens,omitzero"`
}

// MaxFleetSitesSeen limits the sites per read, so that workflow history stays small.
const MaxFleetSitesSeen = 128

// FleetSeen is the whole input of the decision about a fleet change. Workflow history records it, so it stays small
// and holds no config.
type FleetSeen struct {
	// At is when the database was read; deadlines use its clock.
	At     time.Time  `json:"at"`
	Run    int64      `json:"run"` // 0 if the change never ran
	State  FleetState `json:"state"`
	Reason string     `json:"reason,omitempty"`
	// Cancel is set if cancellation was requested and the run has not ended yet.
	Cancel bool `json:"cancel,omitempty"`
	// Turn counts requests: a move that was decided before the last one is void.
	Turn     int64     `json:"turn,omitempty"`
	Deadline time.Time `json:"deadline"`
	Wave     int       `json:"wave"` // the first is 1
	Waves    int       `json:"waves"`
	// Until is the wave after which the run ends by itself: a retry goes no further.
	Until            int     `json:"until"`
	SuccessThreshold float64 `json:"successThreshold"`
	ErrorThreshold   float64 `json:"errorThreshold"`
	SitesAtOnce      int     `json:"sitesAtOnce"`
	BatchSize        int     `json:"batchSize"`
	// Counts are for the current wave. During a retry they include, of the waiting targets, only those that failed
	// before. Those never tried count only in Total, and wait for a resume.
	Counts FleetCounts     `json:"counts"`
	Sites  []FleetSiteSeen `json:"sites,omitempty"`
	// Proving counts the commands that the wave started and that have not run for the spec's MinRunSeconds yet; none
	// of them has before ProvenAt.
	Proving  int       `json:"proving,omitempty"`
	ProvenAt time.Time `json:"provenAt,omitzero"`
	// Asked counts open operations, Untold ended ones whose door has not been notified.
	Asked  int `json:"asked,omitempty"`
	Untold int `json:"untold,omitempty"`
}

// FleetStartSeen is an instance that a wave delivered to, as its site's active node reports it.
type FleetStartSeen struct {
	Site     SiteName
	Instance InstanceName
	// Since is when the node reported that it had applied the revision.
	Since time.Time
	// Runs is set if the revision has a command that should run.
	Runs bool
	// Replaced is set if the node holds a newer revision, Current if it holds this one.
	Replaced, Current bool
	Running           bool
	// Exits counts how often the command has ended by itself, ExitsBefore how often it had at Since. LastExit is how it
	// ended last.
	Exits, ExitsBefore int
	LastExit           string
	// Node is the active node, "" without one, Looked when it last compared its reports with what runs.
	Node   NodeName
	Looked time.Time
}

// FleetExited and FleetNotRunning are the reasons of an instance whose command did not run for as long as its fleet
// change requires: it ended, or its node did not report that it runs.
const (
	FleetExited     = "exited"
	FleetNotRunning = "not_running"
)

// FleetVisit is one visit of a fleet change's entity: it attaches the run, and takes over the operations and the
// outbox rows.
type FleetVisit struct {
	Fleet FleetName `json:"fleet"`
	Run   string    `json:"run"`
	Build string    `json:"build,omitempty"`
}

// FleetMove moves run number Run of a fleet change on from Wave: to the next wave (On ""), or to its end. It has no
// effect if the run is in another wave, or if a request came after Turn; Turn 0 is not compared.
type FleetMove struct {
	Fleet   FleetName  `json:"fleet"`
	Run     int64      `json:"run"`
	Wave    int        `json:"wave"`
	Turn    int64      `json:"turn,omitempty"`
	On      FleetEvent `json:"on,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
}
