package lease

import (
	"cmp"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// VoterConfig configures a voter.
type VoterConfig struct {
	Site fleet.SiteName
	Name fleet.NodeName
	// Others are the site's other voters, "" for a missing one.
	Others [2]fleet.NodeName
	TTL    time.Duration
	// Late is the gap between two ticks from which on the process counts as paused; zero means the TTL.
	Late time.Duration
	// Known is the highest epoch that the region reported to this node.
	Known int64
	// Jump is MaxJump unless it is set.
	Jump int64
	// Nonce is random, not zero, and new at each start of the process.
	Nonce int64
}

// Voter is one vote: its record, and clocks that end with the process.
type Voter struct {
	cfg    VoterConfig
	record Record
	seen   Instant // when this process last saw (holder, epoch, counter) change
	opens  Instant // from when on it favors a node other than the holder on record
	ticked Instant
	aimed  Instant // when it learned of the target
	heard  [2]bool // the others that answered, since a TTL passed after a loss
	sum    Record  // what they answered
	known  int64   // the epoch that the region itself reported
}

// Start starts a voter from its durable record.
func Start(cfg VoterConfig, r Record, now Instant) Voter {
	v := Voter{cfg: cfg, record: r, seen: now, ticked: now, aimed: now, known: cfg.Known}
	v.opens = now.Add(v.patience())
	if r == (Record{}) {
		v.opens = now // it never answered: there is nothing to wait for
	}
	return v
}

// Record must be durable before any other process learns of it.
func (v Voter) Record() Record { return v.record }

// Known is VoterConfig.Known of the next start. Losing it makes this voter stricter.
func (v Voter) Known() int64 { return v.known }

// takes tells whether another voter's numbers can be true. A node's own candidate has checked what it received,
// and the region is trusted.
func (v Voter) takes(from fleet.NodeName, top int64) bool {
	switch jump := cmp.Or(v.cfg.Jump, MaxJump); {
	case top > Most:
		return false
	case from == v.cfg.Name, from == Region:
		return true
	case v.cfg.Name == Region:
		return top <= v.record.Promised+jump
	default:
		return top <= v.known+jump/2
	}
}

// See applies the durable record where several processes share one: each measures on its own clock how long the
// counter has been unchanged.
func (v Voter) See(r Record, now Instant) Voter {
	was := v.record
	v = v.awake(now)
	if r.Holder != was.Holder || r.Epoch != was.Epoch || r.Counter != was.Counter || was.Lost && !r.Lost {
		v.seen = now
	}
	if r.Target != was.Target {
		v.aimed = now
	}
	if r.Lost && !was.Lost { // lost again: earlier answers do not count
		v.opens, v.heard, v.sum = now.Add(v.cfg.TTL), [2]bool{}, Record{}
		v.cfg.Nonce++
	}
	v.record = r
	return v
}

// Tick must be called regularly, well within the TTL. It reports whether the record changed.
func (v Voter) Tick(now Instant) (Voter, bool) {
	v = v.awake(now)
	v.ticked = now
	was := v.record
	if v.record.Target != "" && !v.aiming(now) {
		v.record.Target = ""
	}
	v = v.recover(now)
	return v, v.record != was
}

// Aim starts a forced hand-over: from now on this voter favors only the target, so that the holder's lease
// ends. It ends when the target was granted the lease, with an empty target, or after three TTLs, so that a
// dead target cannot leave the site without an active node.
func (v Voter) Aim(target fleet.NodeName, now Instant) (Voter, bool) {
	if target != "" && !v.votesOn(target) {
		return v, false
	}
	changed := v.record.Target != target
	v.record.Target, v.aimed = target, now
	return v, changed
}

// awake restarts the clock of a process that was paused: renewals may wait to be read.
func (v Voter) awake(now Instant) Voter {
	late := v.cfg.Late
	if late == 0 {
		late = v.cfg.TTL
	}
	if now.Sub(v.ticked) > late {
		v.seen = now
	}
	return v
}

// judge decides whether this voter favors the candidate now.
func (v Voter) judge(c fleet.NodeName, now Instant) Reason {
	r := v.record
	switch {
	case r.Lost:
		return Lost
	case v.aiming(now) && c != r.Target:
		return Withheld
	case c == r.Holder:
		return Granted
	case now < v.opens:
		return Restarted
	case r.Holder != "" && now < v.seen.Add(v.patience()):
		return Held
	}
	return Granted
}

// patience is how long the holder may rely on the last grant: lowering the TTL later does not shorten it.
func (v Voter) patience() time.Duration { return max(v.cfg.TTL, v.record.TTL) }

func (v Voter) aiming(now Instant) bool {
	return v.record.Target != "" && now < v.aimed.Add(3*v.patience())
}

func (v Voter) wait(now Instant) time.Duration {
	until := v.opens
	if v.record.Holder != "" {
		until = max(until, v.seen.Add(v.patience()))
	}
	return max(0, until.Sub(now))
}

func (v Voter) votesOn(node fleet.NodeName) bool {
	known := node == v.cfg.Name || node == v.cfg.Others[0] || node == v.cfg.Others[1]
	return known && node != "" && node != Region
}
