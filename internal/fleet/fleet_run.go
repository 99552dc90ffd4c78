package fleet

import (
	"slices"
	"time"
)

// FleetState is where one run of a fleet change stands.
type FleetState string

// A run is running or paused, and then in one of the four that follow. A stopped one can go
// on; one that succeeded can try those again that failed.
const (
	FleetRunning    FleetState = "running"
	FleetPaused     FleetState = "paused"
	FleetStopped    FleetState = "stopped"
	FleetSucceeded  FleetState = "succeeded"
	FleetCancelled  FleetState = "cancelled"
	FleetSuperseded FleetState = "superseded"
)

// FleetStates lists them; the SQL CHECK is compared with it.
func FleetStates() []FleetState {
	return []FleetState{FleetRunning, FleetPaused, FleetStopped, FleetSucceeded, FleetCancelled, FleetSuperseded}
}

// Live says that the run may still deliver by itself or once it is resumed from a pause.
func (s FleetState) Live() bool { return s == FleetRunning || s == FleetPaused }

// FleetEvent moves a run.
type FleetEvent string

// What people ask for, and what the decision comes to.
const (
	FleetPause     FleetEvent = "pause"
	FleetResume    FleetEvent = "resume"
	FleetCancel    FleetEvent = "cancel"
	FleetRetry     FleetEvent = "retry"    // those that failed, and no others
	FleetRollback  FleetEvent = "rollback" // a new run writes what was there before
	FleetStop      FleetEvent = "stop"
	FleetFinish    FleetEvent = "finish"
	FleetSupersede FleetEvent = "supersede" // a newer run took its place
)

// FleetEvents lists them.
func FleetEvents() []FleetEvent {
	return []FleetEvent{
		FleetPause, FleetResume, FleetCancel, FleetRetry, FleetRollback, FleetStop, FleetFinish, FleetSupersede,
	}
}

// fleetMachine has every arrow of a run; what is not in it is refused.
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

// Next is the only way to move a run; an arrow that is not there is illegal_state.
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

// FleetRetried is the reason of a run that stops because a retry has come to its end.
const FleetRetried = "retried"

var fleetEnds = map[FleetEvent]OperationState{
	FleetStop: OperationFailed, FleetFinish: OperationSucceeded, FleetCancel: OperationCancelled,
}

// Ends says whether a run has ended with an event, as its entity decides it.
func (on FleetEvent) Ends() bool { return fleetEnds[on] != "" }

// Operation is how the operations of a run end with it. A retry is for those that had failed:
// it succeeds when none has any more, though the run stops where others wait.
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

// FleetTargetState is where one instance of a run stands.
type FleetTargetState string

// A target waits for its batch, is delivered, perhaps staged, and then ends. Superseded: a
// newer write of somebody else took its place; unchanged: the change changes nothing of it.
const (
	FleetTargetWaiting    FleetTargetState = "waiting"
	FleetTargetDelivering FleetTargetState = "delivering"
	FleetTargetStaged     FleetTargetState = "staged"
	FleetTargetSucceeded  FleetTargetState = "succeeded"
	FleetTargetUnchanged  FleetTargetState = "unchanged"
	FleetTargetSuperseded FleetTargetState = "superseded"
	FleetTargetFailed     FleetTargetState = "failed"
)

// FleetTargetStates lists them; the SQL CHECK is compared with it.
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

// Add counts targets of one state.
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

// Good counts those that need nothing more: whatever somebody else wrote since counts too.
func (c FleetCounts) Good() int { return c.Succeeded + c.Unchanged + c.Superseded }

// Over says that no target of the wave has anything left to do.
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

// MaxFleetSitesSeen bounds the sites of one look, so that workflow history stays small.
const MaxFleetSitesSeen = 128

// FleetSeen is all that the decision about a fleet change looks at. It is recorded in
// workflow history, so it stays small and holds no config.
type FleetSeen struct {
	// At is when the database looked; deadlines are by its clock.
	At     time.Time  `json:"at"`
	Run    int64      `json:"run"` // 0 when the change was never run
	State  FleetState `json:"state"`
	Reason string     `json:"reason,omitempty"`
	// Cancel is set when a person asked for the end and the run has not ended yet.
	Cancel bool `json:"cancel,omitempty"`
	// Turn counts what people asked for: a move that was decided before the last is void.
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
	// Counts are of the current wave. A retry has only those of its waiting targets that failed
	// before: those that were never tried are in Total, and wait on for a resume.
	Counts FleetCounts     `json:"counts"`
	Sites  []FleetSiteSeen `json:"sites,omitempty"`
	// Asked counts open operations, Untold ended ones whose door has not heard of it.
	Asked  int `json:"asked,omitempty"`
	Untold int `json:"untold,omitempty"`
}

// FleetVisit is one look of a fleet change's entity: it attaches the run, and takes over the operations and the
// outbox rows.
type FleetVisit struct {
	Fleet FleetName `json:"fleet"`
	Run   string    `json:"run"`
	Build string    `json:"build,omitempty"`
}

// FleetMove takes run number Run of a fleet change one step on from Wave: to the next wave (On ""), or to its
// end. It changes nothing once the run is in another wave, or a person turned it after Turn; 0 is not compared.
type FleetMove struct {
	Fleet   FleetName  `json:"fleet"`
	Run     int64      `json:"run"`
	Wave    int        `json:"wave"`
	Turn    int64      `json:"turn,omitempty"`
	On      FleetEvent `json:"on,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
}
