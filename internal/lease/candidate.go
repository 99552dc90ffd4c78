package lease

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Isolation is what a last holder does when it reaches neither the peer nor the region.
type Isolation string

// The settings of onIsolation.
const (
	IsolationStop Isolation = "stop"
	IsolationRun  Isolation = "run"
)

// Config configures a candidate at its start.
type Config struct {
	Site fleet.SiteName
	Self fleet.NodeName
	// Others are the site's other voters: the peer and Region, "" for a missing one.
	Others [2]fleet.NodeName
	TTL    time.Duration
	// Interval is the heartbeat interval: at most a third of the TTL.
	Interval time.Duration
	// Jump is MaxJump unless it is set.
	Jump int64
	// Yield is how long after its start this node lets the other be the first holder, while it knows of no earlier
	// holder: in a new site, or after a release. It is zero for the declared active, and where the declared active
	// is cordoned.
	Yield time.Duration
	// Boot is the boot id; a deadline of another boot is void.
	Boot        string
	OnIsolation Isolation
	// Cordoned: the node gets nothing new.
	Cordoned bool
}

// Validate returns an error for settings that would make a lease unsafe or useless.
func (c Config) Validate() error {
	switch {
	case c.Site == "" || c.Self == "" || c.Self == Region || c.Self == c.Others[0] || c.Self == c.Others[1]:
		return fleet.Errorf(fleet.Invalid, "site and a unique name are required for a candidate")
	case c.Others[0] == c.Others[1] && c.Others[0] != "":
		return fleet.Errorf(fleet.Invalid, "duplicate voter %s", c.Others[0])
	case (c.Others[0] == "") != (c.Others[1] == ""):
		return fleet.Errorf(fleet.Invalid, "two voters for one site: want one or three, because with two each could block the other")
	case c.Interval <= 0 || c.TTL < 3*c.Interval:
		return fleet.Errorf(fleet.Invalid, "heartbeat interval %s is too long for a lease of %s", c.Interval, c.TTL).
			WithHint("make the interval at most a third of the lease")
	case c.OnIsolation != IsolationStop && c.OnIsolation != IsolationRun:
		return fleet.Errorf(fleet.Invalid, "unknown isolation setting %.20q; use stop or run", c.OnIsolation).At("/onIsolation")
	}
	return nil
}

// Claim is a candidate's durable state: the last tenure of this node, until it knows of a later one. Losing it
// costs one epoch and nothing else.
type Claim struct {
	Epoch    int64   `json:"epoch"` // 0: this node was not the last holder
	Counter  int64   `json:"counter,omitempty"`
	Deadline Instant `json:"deadline,omitempty"`
	Boot     string  `json:"boot,omitempty"`
	// Unbounded: what runs has no deadline, because the node is isolated.
	Unbounded bool `json:"unbounded,omitempty"`
	// Refused: a voter refused this node since a majority last granted it the lease.
	Refused bool `json:"refused,omitempty"`
}

// Tenure is what the node may rely on now.
type Tenure struct {
	Epoch int64
	Until Instant
	// Unbounded: the node is isolated at a site with onIsolation run, and another node may be active too.
	Unbounded bool
}

type stamp struct {
	set bool
	at  Instant
}

// Voters have fixed seats: 0 is the node's own, 1 and 2 are Config.Others.
const seats = 3

// bid is an attempt to win an epoch: ask, promise, grant, each within an interval.
type bid struct {
	call    Call // "" without a bid
	epoch   int64
	number  int64 // number of the attempt; answers to an earlier one do not count
	until   Instant
	yes, no [seats]bool
	free    Instant // when the last voter that said no may say yes
	grants  [seats]stamp
	fresh   bool // the voters that said yes know of no holder
}

// parting sends a release to the voters until they have received it.
type parting struct {
	claim Claim
	next  Instant
	until Instant // a voter without it by then has seen the counter unchanged for the TTL
	told  [seats]bool
}

// Candidate is a node's side of the protocol: what it holds, and how it tries to win it.
type Candidate struct {
	cfg       Config
	claim     Claim // while held the current tenure, else the last one
	held      bool
	releasing bool
	grants    [seats]stamp // of claim.Epoch: when the last granted request was sent
	outbid    bool         // a voter requires a higher epoch for its vote
	renewAt   Instant

	bid     bid
	tries   int64
	bidAt   Instant // the earliest time of the next bid
	highest int64   // the highest epoch that any voter promised
	known   int64   // the epoch that the region reported
	random  float64

	parting parting
	lapsed  Claim       // its tenure ended by the deadline, and the voters do not know yet
	aside   Instant     // until then it lets another node win
	freed   Instant     // until then it asks again, because voters learn of a release one by one; 0 before the first
	asked   bool        // it was asked to stand, though it may be cordoned
	named   [seats]bool // voters that named another holder since this process started
	started Instant
	ticked  Instant
	heard   [seats]stamp // when the last answered request was sent
	unheard [seats]stamp // when the first request after it was sent, in this process
	refused stamp        // when the last request was sent that a voter refused
	nonces  [seats]int64
}

// NewCandidate starts from the durable claim. A holder whose agent restarted keeps the lease while its deadline
// has not passed; after that it first ends what still runs.
func NewCandidate(cfg Config, claim Claim, now Instant) (Candidate, []Action) {
	c := Candidate{cfg: cfg, claim: claim, started: now, ticked: now, renewAt: now, bidAt: now, aside: now}
	if claim.Refused {
		c.refused.raise(now)
	}
	// This node cannot have been given a deadline too far ahead.
	runs := now < claim.Deadline && claim.Deadline <= now.Add(cfg.TTL)
	runs = runs || claim.Unbounded && cfg.OnIsolation == IsolationRun
	if claim.Epoch == 0 || claim.Boot != cfg.Boot || !runs {
		c.claim.Unbounded = false
		return c, []Action{c.hold(DoLost)} // a former agent's processes that run without a deadline
	}
	c.held = true
	for i := 1; i < seats; i++ { // the last time that a majority answered
		c.heard[i] = stamp{true, claim.Deadline.Add(-cfg.TTL)}
	}
	if claim.Unbounded {
		return c, []Action{c.hold(DoUnbounded)}
	}
	if next, acts := c.goOn(now); len(acts) > 0 { // no time is left to ask first
		return next, acts
	}
	return c, []Action{c.hold(DoStart)}
}

// Claim must be durable after an action DoPersist.
func (c Candidate) Claim() Claim { return c.claim }

// Holding gives the tenure that the node may rely on at this instant.
func (c Candidate) Holding(now Instant) (Tenure, bool) {
	t := Tenure{Epoch: c.claim.Epoch, Until: c.claim.Deadline, Unbounded: c.claim.Unbounded}
	return t, c.held && (c.claim.Unbounded || now < c.claim.Deadline)
}

// Role is the node's state in the lease protocol.
func (c Candidate) Role() Role {
	switch {
	case c.held && c.releasing:
		return Releasing
	case c.held:
		return Holding
	case c.bid.call == "":
		return Idle
	case c.bid.call == Ask:
		return Asking
	}
	return Promising
}

func (c Candidate) voter(seat int) fleet.NodeName {
	if seat == 0 {
		return c.cfg.Self
	}
	return c.cfg.Others[seat-1]
}

func (c Candidate) voters() int {
	n := 0
	for seat := range seats {
		if c.voter(seat) != "" {
			n++
		}
	}
	return n
}

func (c Candidate) majority() int { return c.voters()/2 + 1 }

func (c Candidate) hold(do Do) Action {
	return Action{Do: do, Epoch: c.claim.Epoch, Until: c.claim.Deadline}
}
