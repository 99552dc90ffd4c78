package lease

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Instant is a reading, in nanoseconds, of one machine's monotonic clock that counts suspend
// (boottime.Now). Two instants compare only within one boot of one machine, so none travels.
type Instant int64

// Add gives the instant that is d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub gives how long i is after earlier.
func (i Instant) Sub(earlier Instant) time.Duration { return time.Duration(i - earlier) }

// Region is the name of the region's vote; no node can have it.
const Region fleet.NodeName = "@region"

// Call is what a candidate wants of a voter.
type Call string

// The calls, one RPC each. A renewal is a Grant of the epoch that is held, with a higher counter.
const (
	Ask     Call = "ask"
	Promise Call = "promise"
	Grant   Call = "grant"
	Release Call = "release"
)

// Reason says in one stable word why a voter answered as it did.
type Reason string

// The reasons.
const (
	Granted     Reason = "granted"
	Held        Reason = "held"         // it has not seen the holder's counter still for the TTL
	Restarted   Reason = "restarted"    // it started less than a TTL ago, and this is not its holder
	Lost        Reason = "lost"         // its vote state was lost and is not made good yet
	Withheld    Reason = "withheld"     // a forced hand-over to another is under way
	Outbid      Reason = "outbid"       // it promised this epoch or a higher one to another, or to nobody
	Behind      Reason = "behind"       // it saw this counter or a higher one before
	TTLTooLong  Reason = "ttl_too_long" // the candidate would count on longer than this voter waits
	NotAVoter   Reason = "not_a_voter"  // the candidate is none of the nodes that it votes on
	BadRequest  Reason = "bad_request"
	HolderMoved Reason = "holder_moved" // what is released is not what it has on record
)

// Standing is a voter's record as others hear of it.
type Standing struct {
	Promised int64          `json:"promised"`
	Holder   fleet.NodeName `json:"holder,omitempty"`
	Epoch    int64          `json:"epoch,omitempty"`   // of the holder, or of the last one
	Counter  int64          `json:"counter,omitempty"` // of the holder's last renewal
	TTL      time.Duration  `json:"ttl,omitempty"`     // that the holder counts on
	Lost     bool           `json:"lost,omitempty"`
	// Known is the highest epoch that a node's region told it of. It does not travel.
	Known int64 `json:"-"`
}

// top is the highest epoch in it, Most+1 where a number is impossible.
func (s Standing) top() int64 {
	if s.Promised < 0 || s.Epoch < 0 || s.Counter < 0 || s.Counter > Most || s.TTL < 0 {
		return Most + 1
	}
	return max(s.Promised, s.Epoch)
}

// vacant says that nobody holds by this vote: it was never granted, or was given back. A holder
// without a counter is one that was only declared.
func (s Standing) vacant() bool {
	return s.Holder == "" || s.Epoch == 0 || s.Counter == 0 && s.TTL == 0
}

// Request is what travels to a voter. Who calls is the transport's to prove.
type Request struct {
	Site      fleet.SiteName `json:"site"`
	Candidate fleet.NodeName `json:"candidate"`
	Epoch     int64          `json:"epoch"`
	Counter   int64          `json:"counter"`
	TTL       time.Duration  `json:"ttl"`
	// Nonce is the one of the voter's last answer: it proves that Vote was read after it.
	Nonce int64 `json:"nonce,omitempty"`
	// Vote is what the candidate's own voter has on record as this is sent; the sender sets it.
	Vote Standing `json:"vote"`
}

// Answer is what travels back.
type Answer struct {
	Voter   fleet.NodeName `json:"voter"`
	Granted bool           `json:"granted"`
	Reason  Reason         `json:"reason"`
	Vote    Standing       `json:"vote"`
	// Wait is how long until this voter could favour another than its holder, if nothing changes.
	Wait time.Duration `json:"wait"`
	// Nonce is set while a lost vote waits to hear the others.
	Nonce int64 `json:"nonce,omitempty"`
	// Resets is the number of the last reset that the region's voter knows.
	Resets int64 `json:"resets,omitempty"`
}
