package decide

import "github.com/holdfast-io/holdfast/internal/fleet"

// NodeGap is how a node differs from the region for one instance.
type NodeGap string

// A node is level with the region, behind it, or ahead: it took a number that no record of the region can still
// explain. Unrecorded: the active holds exactly the last release, though its delivery was recorded as not applied.
const (
	GapNone       NodeGap = "none"
	GapBehind     NodeGap = "behind"
	GapAhead      NodeGap = "ahead"
	GapUnrecorded NodeGap = "unrecorded"
)

// Reconcile compares what a node reports with the deployed revision. It leaves a higher number alone if a delivery
// that is open, unknown or owed explains it. A node that is behind, but has since tried a higher number, can no
// longer take the deployed one. Neither can one with different content under the same number.
func Reconcile(c fleet.Comparison) NodeGap {
	ahead := c.Held.Version.Newer(c.Snapshot.Version) || c.Held.HighWater.Newer(c.Snapshot.Version) ||
		c.Held.Known && c.Held.Version == c.Snapshot.Version && !Applied(c.Held, c.Snapshot)
	switch {
	case unrecorded(c):
		return GapUnrecorded
	case c.Snapshot.IsZero(), Applied(c.Held, c.Snapshot):
		return GapNone
	case !c.Held.Known && c.Snapshot.Action == fleet.ActionDelete:
		return GapNone // absent, as it should be
	case ahead && c.Expected:
		return GapNone
	case ahead:
		return GapAhead
	}
	return GapBehind
}

// unrecorded comes before any repair, which would restore what a delete removed.
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

// RunState is the state of the run that serves an operation.
type RunState string

// The states of a run. Unserved: no run has taken the operation yet. Stranded: it is open and pinned to a build
// without a worker.
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

// LostOperation decides about an operation by the run that serves it (X25). A run that a person ended closes its
// operations; one that the system lost hands them over, because they are still wanted.
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
