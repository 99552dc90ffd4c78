package lease

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// MaxJump limits how far an epoch from a node may be above what is known. Epochs rise by one, so a larger step
// is invalid and would use the numbers up. The region accepts that much above what it promised, a node half of
// it above what the region last reported. So however often a stolen key is used, an epoch that an honest node
// accepted is never too high for its region.
const MaxJump = fleet.MaxEpochJump

// Most bounds every epoch and counter, so that additions do not overflow.
const Most = 1 << 62

// Record is a voter's durable state. The zero value is the vote of a site that never had a lease; use Joining
// for a voter whose site may have had one.
type Record struct {
	// Promised is the highest epoch promised, or known as given before this record started; PromisedTo is empty in
	// the second case, and that epoch is not granted again.
	Promised   int64          `json:"promised"`
	PromisedTo fleet.NodeName `json:"promisedTo,omitempty"`
	// Holder is empty when the lease was never granted, or its holder released it.
	Holder  fleet.NodeName `json:"holder,omitempty"`
	Epoch   int64          `json:"epoch,omitempty"` // stays after a release
	Counter int64          `json:"counter,omitempty"`
	TTL     time.Duration  `json:"ttl,omitempty"` // that the holder was granted
	// Target is the only node that this voter favors while a forced hand-over is under way.
	Target fleet.NodeName `json:"target,omitempty"`
	// Lost: this voter may have given answers that it no longer knows.
	Lost bool `json:"lost,omitempty"`
}

// Joining is the record of a voter without memory, of a site that may have had a lease: its state was lost, its
// region was restored, or its site has only now got this vote.
func Joining() Record { return Record{Lost: true} }

// Above returns the record with all epochs up to floor counted as given. It protects epochs from before the
// record started, such as those that the node's store has seen.
func (r Record) Above(floor int64) Record {
	if floor = min(floor, Most); floor > r.Promised {
		r.Promised, r.PromisedTo = floor, ""
	}
	return r
}

// Far tells whether no vote accepts an epoch when floor is the highest known. A reset lowers such numbers.
func Far(epoch, floor int64) bool { return epoch > floor+MaxJump/2 }

// longestReset bounds the TTL that a record keeps over a reset: a forged one must not block the vote.
const longestReset = time.Minute

// Reset is the record after an operator reset the site's epochs to floor. A promise that others can
// follow stays; a far one is dropped together with the holder. The voter that starts with this record
// waits a TTL before it favors a node, so every lease that it granted has ended by then.
func (r Record) Reset(floor int64) Record {
	if !Far(r.Promised, floor) {
		return r.Above(floor)
	}
	return Record{Promised: floor, Epoch: floor, TTL: min(r.TTL, longestReset), Lost: r.Lost}
}

// Bounded lowers numbers above Most to Most. A record with such a number is from before this limit; no voter
// can follow it, but it is not lost.
func (r Record) Bounded() Record {
	r.Promised, r.Epoch, r.Counter = min(r.Promised, Most), min(r.Epoch, Most), min(r.Counter, Most)
	return r
}

// Force restores a lost vote on the word of an operator, who guarantees that no epoch above floor was given. A
// voter that starts with the record, or sees it, still waits a TTL before it favors another node.
func (r Record) Force(floor int64) Record {
	r = r.Above(floor)
	r.PromisedTo, r.Target, r.Lost = "", "", false
	return r
}

// Valid tells whether a voter can have written the record.
func (r Record) Valid() bool {
	ordered := 0 <= r.Epoch && r.Epoch <= r.Promised && r.Counter >= 0 && r.TTL >= 0
	ordered = ordered && r.Promised <= Most && r.Counter <= Most
	held := r.Holder == "" || r.Epoch > 0 && r.TTL > 0
	return ordered && held && (r.PromisedTo == "" || r.Promised > 0)
}

// Standing is the record as sent to others.
func (r Record) Standing() Standing {
	return Standing{
		Promised: r.Promised, Holder: r.Holder, Epoch: r.Epoch, Counter: r.Counter, TTL: r.TTL, Lost: r.Lost,
	}
}

// holds tells whether the record names this tenure.
func (r Record) holds(node fleet.NodeName, epoch int64) bool {
	return r.Holder == node && r.Epoch == epoch && node != ""
}

// learn adopts what another voter has on record, where it is higher.
func (r Record) learn(s Standing) Record {
	r = r.Above(max(s.Promised, s.Epoch))
	if s.Epoch > r.Epoch || s.Epoch == r.Epoch && s.Counter > r.Counter {
		r.Holder, r.Epoch, r.Counter, r.TTL = s.Holder, s.Epoch, s.Counter, s.TTL
	}
	return r
}
