package decide

import "github.com/holdfast-io/holdfast/internal/fleet"

// NodeGap is what a node lacks of one instance, or has too much.
type NodeGap string

// A node is level with the region, behind it, or ahead: it applied a number of which the
// region has no record that could still settle it.
const (
	GapNone   NodeGap = "none"
	GapBehind NodeGap = "behind"
	GapAhead  NodeGap = "ahead"
)

// Reconcile compares what a node says it holds with the deployed revision. Expected is set
// while a delivery that could explain a higher number is open, unknown or owed.
func Reconcile(snapshot fleet.Revision, held fleet.Held, expected bool) NodeGap {
	switch {
	case snapshot.IsZero():
		return GapNone
	case !held.Known && snapshot.Action == fleet.ActionDelete:
		return GapNone // nothing there, and nothing should be
	case !held.Known || snapshot.Newer(held.Version):
		return GapBehind
	case held.Version.Newer(snapshot.Version) && !expected:
		return GapAhead
	case held.Version == snapshot.Version && held.Content.Hash != snapshot.Content.Hash:
		return GapBehind
	}
	return GapNone
}

// LostRun is what the operations sweep does about a workflow run that serves operations.
type LostRun string

// Keep it; wake the object so that another run takes over; or close the operations.
const (
	LostKeep  LostRun = "keep"
	LostMove  LostRun = "move"
	LostClose LostRun = "close"
)

// RunState is how the run that serves an operation stands.
type RunState string

// The states of a run. Unserved: no run has taken the operation yet. Stranded: it is open
// and pinned to a build that has no worker.
const (
	RunUnserved   RunState = "unserved"
	RunOpen       RunState = "open"
	RunStranded   RunState = "stranded"
	RunCompleted  RunState = "completed"
	RunTerminated RunState = "terminated"
	RunTimedOut   RunState = "timed_out"
	RunFailed     RunState = "failed"
	RunMissing    RunState = "lost"
)

// LostOperation decides what becomes of an operation by the run that serves it (X25). A
// run that a person ended takes its operations with it; one that the system lost hands
// them over, for they are still wanted.
func LostOperation(run RunState) LostRun {
	switch run {
	case RunOpen:
		return LostKeep
	case RunTerminated:
		return LostClose
	case RunUnserved, RunStranded, RunCompleted, RunTimedOut, RunFailed, RunMissing:
		return LostMove
	}
	return LostKeep
}
