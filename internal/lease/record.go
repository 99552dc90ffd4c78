package lease

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// MaxJump is how far above what is known an epoch may be that a node tells of. Epochs rise by one, so
// only nonsense is further away, and it would use the numbers up. The region takes so much above what
// it promised, a node half of it above what the region last said: however often a stolen key is used,
// what an honest node has taken in is never too much for its region.
const MaxJump = fleet.MaxEpochJump

// Most bounds every epoch and counter, so that what is added to one stays a number.
const Most = 1 << 62

// Record is a voter's durable half. The zero value is the vote of a site that never had a
// lease; use Joining for a voter whose site may have had one.
type Record struct {
	// Promised is the highest epoch promised, or known to have been given before this record
	// began; PromisedTo is empty in the second case, and nobody is granted that epoch anew.
	Promised   int64          `json:"promised"`
	PromisedTo fleet.NodeName `json:"promisedTo,omitempty"`
	// Holder is empty when nobody was granted the lease, or its holder released it.
	Holder  fleet.NodeName `json:"holder,omitempty"`
	Epoch   int64          `json:"epoch,omitempty"` // stays after a release
	Counter int64          `json:"counter,omitempty"`
	TTL     time.Duration  `json:"ttl,omitempty"` // that the holder was granted
	// Target is the only node that this voter favours while a forced hand-over is under way.
	Target fleet.NodeName `json:"target,omitempty"`
	// Lost says that this voter answered in a life of which it knows nothing.
	Lost bool `json:"lost,omitempty"`
}

// Joining is the record of a voter that knows nothing, of a site that may have had a lease:
// its state was lost, its region restored, or its site has only now got this vote.
func Joining() Record { return Record{Lost: true} }

// Above returns the record with all epochs up to floor counted as given. It guards against
// what was before the record began, such as epochs that the node's store has seen.
func (r Record) Above(floor int64) Record {
	if floor = min(floor, Most); floor > r.Promised {
		r.Promised, r.PromisedTo = floor, ""
	}
	return r
}

// Far says that no vote takes an epoch where floor is the highest known. A reset lowers such numbers.
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

// Bounded lowers numbers above Most to Most. Such a record was written before there was a bound; no
// voter can follow it, but it is not lost.
func (r Record) Bounded() Record {
	r.Promised, r.Epoch, r.Counter = min(r.Promised, Most), min(r.Epoch, Most), min(r.Counter, Most)
	return r
}

// Force makes good a lost vote by an operator's word, who vouches that no epoch above floor
// was given. Who starts with it, or sees it, still waits a TTL before favouring another.
func (r Record) Force(floor int64) Record {
	r = r.Above(floor)
	r.PromisedTo, r.Target, r.Lost = "", "", false
	return r
}

// Valid says whether the record can be one that a voter wrote.
func (r Record) Valid() bool {
	ordered := 0 <= r.Epoch && r.Epoch <= r.Promised && r.Counter >= 0 && r.TTL >= 0
	ordered = ordered && r.Promised <= Most && r.Counter <= Most
	held := r.Holder == "" || r.Epoch > 0 && r.TTL > 0
	return ordered && held && (r.PromisedTo == "" || r.Promised > 0)
}

// Standing is what others are told of the record.
func (r Record) Standing() Standing {
	return Standing{
		Promised: r.Promised, Holder: r.Holder, Epoch: r.Epoch, Counter: r.Counter, TTL: r.TTL, Lost: r.Lost,
	}
}

// holds says whether it is this tenure that the record names.
func (r Record) holds(node fleet.NodeName, epoch int64) bool {
	return r.Holder == node && r.Epoch == epoch && node != ""
}

// learn takes over what another voter has on record, where it is higher.
func (r Record) learn(s Standing) Record {
	r = r.Above(max(s.Promised, s.Epoch))
	if s.Epoch > r.Epoch || s.Epoch == r.Epoch && s.Counter > r.Counter {
		r.Holder, r.Epoch, r.Counter, r.TTL = s.Holder, s.Epoch, s.Counter, s.TTL
	}
	return r
}
