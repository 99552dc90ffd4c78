package lease

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Instant is a reading, in nanoseconds, of one machine's monotonic clock that counts suspend (boottime.Now).
// Two instants compare only within one boot of one machine, so none is ever sent.
type Instant int64

// Add gives the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub gives the time from earlier to i.
func (i Instant) Sub(earlier Instant) time.Duration { return time.Duration(i - earlier) }

// Region is the name of the region's vote; no node can have it.
const Region fleet.NodeName = "@region"

// Call is a candidate's request to a voter.
type Call string

// The calls, one RPC each. A renewal is a Grant of the held epoch with a higher counter.
const (
	Ask     Call = "ask"
	Promise Call = "promise"
	Grant   Call = "grant"
	Release Call = "release"
)

// Reason is a voter's reason for its answer, one stable word.
type Reason string

// The reasons.
const (
	Granted     Reason = "granted"
	Held        Reason = "held"         // it has not seen the holder's counter unchanged for the TTL
	Restarted   Reason = "restarted"    // it started less than a TTL ago, and this is not its holder
	Lost        Reason = "lost"         // its vote state was lost and is not restored yet
	Withheld    Reason = "withheld"     // a forced hand-over to another node is under way
	Outbid      Reason = "outbid"       // it promised this epoch or a higher one to another node, or counts it as given
	Behind      Reason = "behind"       // it saw this counter or a higher one before
	TTLTooLong  Reason = "ttl_too_long" // the candidate would rely on the lease longer than this voter waits
	NotAVoter   Reason = "not_a_voter"  // the candidate is not a node that it votes on
	BadRequest  Reason = "bad_request"
	HolderMoved Reason = "holder_moved" // the release does not match its record
)

// Standing is a voter's record as sent to others.
type Standing struct {
	Promised int64          `json:"promised"`
	Holder   fleet.NodeName `json:"holder,omitempty"`
	Epoch    int64          `json:"epoch,omitempty"`   // of the holder, or of the last one
	Counter  int64          `json:"counter,omitempty"` // of the holder's last renewal
	TTL      time.Duration  `json:"ttl,omitempty"`     // that the holder relies on
	Lost     bool           `json:"lost,omitempty"`
	// Known is the highest epoch that the region reported to this node. It is not sent.
	Known int64 `json:"-"`
}

// top is the highest epoch in it, Most+1 if a number is impossible.
func (s Standing) top() int64 {
	if s.Promised < 0 || s.Epoch < 0 || s.Counter < 0 || s.Counter > Most || s.TTL < 0 {
		return Most + 1
	}
	return max(s.Promised, s.Epoch)
}

// vacant tells whether this vote knows of no holder: the lease was never granted, or was released. A holder
// without a counter was only declared.
func (s Standing) vacant() bool {
	return s.Holder == "" || s.Epoch == 0 || s.Counter == 0 && s.TTL == 0
}

// Request is sent to a voter. The transport must prove the caller's identity.
type Request struct {
	Site      fleet.SiteName `json:"site"`
	Candidate fleet.NodeName `json:"candidate"`
	Epoch     int64          `json:"epoch"`
	Counter   int64          `json:"counter"`
	TTL       time.Duration  `json:"ttl"`
	// Nonce is from the voter's last answer: it proves that Vote was read after it.
	Nonce int64 `json:"nonce,omitempty"`
	// Vote is the record of the candidate's own voter when this is sent; the sender sets it.
	Vote Standing `json:"vote"`
}

// Answer is sent back.
type Answer struct {
	Voter   fleet.NodeName `json:"voter"`
	Granted bool           `json:"granted"`
	Reason  Reason         `json:"reason"`
	Vote    Standing       `json:"vote"`
	// Wait is how long until this voter could favor a node other than its holder, if nothing changes.
	Wait time.Duration `json:"wait"`
	// Nonce is set while a lost vote waits for the other voters.
	Nonce int64 `json:"nonce,omitempty"`
	// Resets is the number of the last reset that the region's voter knows.
	Resets int64 `json:"resets,omitempty"`
}
