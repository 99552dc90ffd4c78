package fleet

import "fmt"

// OperationSync is a request to compare the copies of what a peer owns with the peer.
const OperationSync OperationKind = "sync"

// EntitySync compares what this region has of a peer's objects with the peer.
var EntitySync = EntityKind{"sync", 1}

// SyncSubject is the subject under which copies are compared with a peer.
func SyncSubject(peer RegionName) string { return EntitySync.Subject(string(peer)) }

// SyncVisit names a peer, and the run that compares with it.
type SyncVisit struct {
	Peer  RegionName `json:"peer"`
	Run   string     `json:"run"`
	Build string     `json:"build,omitempty"`
}

// SyncTurn is how far a comparison is. Of Ranges ranges of objects, those before At are compared.
type SyncTurn struct {
	Pass   int64 `json:"pass"`
	At     int64 `json:"at"`
	Ranges int64 `json:"ranges"`
	SyncCounts
	Done bool `json:"done"`
	// Waits says why the comparison does not continue, "" if it does.
	Waits string `json:"waits,omitempty"`
	// Left: the region is no peer any more, or a disabled one.
	Left bool `json:"left,omitempty"`
}

// SyncCounts counts what a comparison found: the objects that it compared, how many differed, and what became of those.
type SyncCounts struct {
	Compared int64 `json:"compared"`
	Differed int64 `json:"differed"`
	Written  int64 `json:"written"`
	Removed  int64 `json:"removed"`
	Lost     int64 `json:"lost"`    // replaced, and listed: their owner does not know them
	Waiting  int64 `json:"waiting"` // set aside, for an operator to see
}

// Add adds the counts of a part.
func (c *SyncCounts) Add(part SyncCounts) {
	c.Compared += part.Compared
	c.Differed += part.Differed
	c.Written += part.Written
	c.Removed += part.Removed
	c.Lost += part.Lost
	c.Waiting += part.Waiting
}

// Message is what an operator reads of a comparison.
func (t SyncTurn) Message(peer RegionName) string {
	text := fmt.Sprintf("%d objects compared with region %s, %d differed; %d written, %d removed", t.Compared, peer, t.Differed, t.Written, t.Removed)
	if t.Lost > 0 {
		text += fmt.Sprintf(", %d lost: holdfast sync lost", t.Lost)
	}
	if t.Waiting > 0 {
		text += fmt.Sprintf(", %d set aside: holdfast sync quarantine %s", t.Waiting, peer)
	}
	return text
}

// SyncPlace is where a comparison is: ranges are named by the first Bits bits of uids, and At is the next.
type SyncPlace struct {
	Peer    RegionName
	Pass    int64
	Bits    int
	At      int64
	Accept  bool  // the operator accepts all removals
	Objects int64 // in the region that has more, when the comparison began
	Unshown int64 // removed without an event of the owner that is newer, or a policy
	// Position is how far the peer's stream was followed.
	Position string
}

// Ranges is how many ranges there are.
func (p SyncPlace) Ranges() int64 { return 1 << p.Bits }

// UIDRange is a range of uids, both ends included.
type UIDRange struct{ First, Last string }

// RangeSum is what two regions compare of all objects in a range.
type RangeSum struct {
	Range, Objects int64
	Sum            []byte // 32 bytes
}

// CopySum is what two regions compare of an object.
type CopySum struct {
	UID string
	Key CopyKey
	// Version is that of the state whose sum it is.
	Version CopyVersion
	Sum     []byte // 16 bytes
}

// CopyAsked names an object, and the state that the region that asks has of it: a copy, or a marker.
type CopyAsked struct {
	Key     CopyKey
	Version CopyVersion
}

// ComparedSet is a part of what the owner of objects answered, at most 500 changes.
type ComparedSet struct {
	Place   SyncPlace
	Changes []CopyChange
	// To is the next range after the set, or the place's own while more of the same page follows.
	To     int64
	Counts SyncCounts // of the page, without what the set itself does
}

// ComparedApplied is what became of a set. Doubtful are those that are older here than a marker: only the owner's answer
// by name, asked after the marker was seen, tells whether the marker still holds.
type ComparedApplied struct {
	SyncCounts
	Doubtful []CopyAsked
	Rivals   int // two regions claimed the object in one epoch
}
