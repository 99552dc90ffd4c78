package decide

import "github.com/holdfast-io/holdfast/internal/fleet"

// NodeGap is what a node lacks of one instance, or has too much.
type NodeGap string

// A node is level with the region, behind it, or ahead: it took a number of which the region
// has no record that could still settle it. Unrecorded is the active that holds just what was
// released last, though its delivery was taken for not applied.
const (
	GapNone       NodeGap = "none"
	GapBehind     NodeGap = "behind"
	GapAhead      NodeGap = "ahead"
	GapUnrecorded NodeGap = "unrecorded"
)

// Reconcile compares what a node says it holds with the deployed revision. What is expected
// to explain a higher number (a delivery that is open, unknown or owed) is left alone. A
// node that is behind, and tried a higher number since, takes the deployed one no more; nor
// does one that has another content under the very number.
func Reconcile(c fleet.Comparison) NodeGap {
	ahead := c.Held.Version.Newer(c.Snapshot.Version) || c.Held.HighWater.Newer(c.Snapshot.Version) ||
		c.Held.Known && c.Held.Version == c.Snapshot.Version && !Applied(c.Held, c.Snapshot)
	switch {
	case unrecorded(c):
		return GapUnrecorded
	case c.Snapshot.IsZero(), Applied(c.Held, c.Snapshot):
		return GapNone
	case !c.Held.Known && c.Snapshot.Action == fleet.ActionDelete:
		return GapNone // nothing there, and nothing should be
	case ahead && c.Expected:
		return GapNone
	case ahead:
		return GapAhead
	}
	return GapBehind
}

// unrecorded comes before any repair, which would bring back what a delete took away.
func unrecorded(c fleet.Comparison) bool {
	return c.Active && !c.Expected && c.Desired.Newer(c.Snapshot.Version) && Applied(c.Held, c.Desired)
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
