package api

// The types of the lines of a watch.
const (
	WatchObject       = "object"       // an object as it is
	WatchGone         = "gone"         // an object that the watch shows no more
	WatchSnapshot     = "snapshot"     // the beginning of a snapshot
	WatchSnapshotSize = "snapshotSize" // the end of the snapshot: how many lines it had
	WatchCurrent      = "current"      // all that was committed has been sent
	WatchHardReset    = "hardReset"    // the place to resume from is of no use: a new snapshot follows
)

// WatchLine is one line of a watch, which is a stream of JSON lines.
//
// A watch begins with a snapshot unless it resumes: objects in any order, completed by later changes, then its
// size. If it breaks before the first current line, name the token of the first snapshot that broke as since: the next
// snapshot then tells what is gone since. Then come changes as they are committed. A state of an object may come more than once, and an older one after a
// newer one: keep the highest (ownerEpoch, number).
type WatchLine struct {
	Type string `json:"type" enum:"object,gone,snapshot,snapshotSize,current,hardReset"`
	// Region created the object; "" is the region that is watched.
	Region string `json:"region,omitempty"`
	// OwnerEpoch and Number order the states of an object: Number is that of the owner's event. Of a hard reset: the first event of
	// the place's era that a restore undid.
	OwnerEpoch int64      `json:"ownerEpoch,omitempty"`
	Number     int64      `json:"number,omitempty"`
	Object     *Object    `json:"object,omitempty"`
	Gone       *GoneNamed `json:"gone,omitempty"`
	Count      int64      `json:"count,omitempty" doc:"of a snapshot: its lines with objects or what is gone"`
	Token      string     `json:"token,omitempty" doc:"of a current line: resume a watch with the same filter there (after); of a snapshot: see since"`
	HeldBackMs int64      `json:"heldBackMs,omitempty" doc:"of a current line: how long ago a transaction began that is still open, so that what was committed since may follow, in milliseconds"`
	Reason     string     `json:"reason,omitempty" doc:"of a hard reset: collected, undone, past_the_end, other_filter"`
}

// GoneNamed names an object that a watch shows no more.
type GoneNamed struct {
	Kind   string `json:"kind"`
	Site   string `json:"site,omitempty"`
	Name   string `json:"name"`
	UID    string `json:"uid,omitempty"`
	Reason string `json:"reason" enum:"deleted,removed,moved"`
	// MovedTo is the region that owns the object now, of moved.
	MovedTo string `json:"movedTo,omitempty"`
	// TookOver is the state of the object that its owner took over from another region, if it did.
	TookOver *TookOver `json:"tookOver,omitempty"`
}
