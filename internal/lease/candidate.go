package lease

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Isolation is what a last holder does when it reaches neither peer nor region.
type Isolation string

// The settings of onIsolation.
const (
	IsolationStop Isolation = "stop"
	IsolationRun  Isolation = "run"
)

// Config is what a candidate is told at its start.
type Config struct {
	Site fleet.SiteName
	Self fleet.NodeName
	// Others are the site's other voters: the peer and Region, "" where there is none.
	Others [2]fleet.NodeName
	TTL    time.Duration
	// Interval is the heartbeat's: at most a third of the TTL.
	Interval time.Duration
	// Jump is MaxJump unless it is set.
	Jump int64
	// Yield is how long after its start this node lets another be the first holder, where it
	// met none: of a new site, or of one that gave its lease back; zero for the declared active,
	// and where that one is cordoned.
	Yield time.Duration
	// Boot is the boot id; a deadline of another boot means nothing.
	Boot        string
	OnIsolation Isolation
	// Cordoned: nothing new is to come to this node.
	Cordoned bool
}

// Validate refuses what would make a lease unsafe or useless.
func (c Config) Validate() error {
	switch {
	case c.Site == "" || c.Self == "" || c.Self == Region || c.Self == c.Others[0] || c.Self == c.Others[1]:
		return fleet.Errorf(fleet.Invalid, "a candidate needs a site and a name of its own")
	case c.Others[0] == c.Others[1] && c.Others[0] != "":
		return fleet.Errorf(fleet.Invalid, "voter %s stands here twice", c.Others[0])
	case (c.Others[0] == "") != (c.Others[1] == ""):
		return fleet.Errorf(fleet.Invalid, "a site has one voter or three: with two, each could stop the other")
	case c.Interval <= 0 || c.TTL < 3*c.Interval:
		return fleet.Errorf(fleet.Invalid, "heartbeats every %s are too rare for a lease of %s", c.Interval, c.TTL).
			WithHint("three of them must fit into it")
	case c.OnIsolation != IsolationStop && c.OnIsolation != IsolationRun:
		return fleet.Errorf(fleet.Invalid, "%.20q is none of stop, run", c.OnIsolation).At("/onIsolation")
	}
	return nil
}

// Claim is a candidate's durable half: the last tenure of this node, as long as it knows of
// no later one. Losing it costs an epoch and nothing else.
type Claim struct {
	Epoch    int64   `json:"epoch"` // 0: this node was not the last holder
	Counter  int64   `json:"counter,omitempty"`
	Deadline Instant `json:"deadline,omitempty"`
	Boot     string  `json:"boot,omitempty"`
	// Unbounded: what runs has no deadline, because the node is isolated.
	Unbounded bool `json:"unbounded,omitempty"`
	// Refused: a voter that was reached took nothing from this node since a majority last did.
	Refused bool `json:"refused,omitempty"`
}

// Tenure is what a node may act on now.
type Tenure struct {
	Epoch int64
	Until Instant
	// Unbounded: it is isolated, its site says run, and another node may be active too.
	Unbounded bool
}

type stamp struct {
	set bool
	at  Instant
}

// voters have fixed seats: 0 is the node's own, 1 and 2 are Config.Others.
const seats = 3

// bid is a try to win an epoch: ask, promise, grant, each within an interval.
type bid struct {
	call    Call // "" when there is none
	epoch   int64
	number  int64 // which try; answers to an earlier one do not count
	until   Instant
	yes, no [seats]bool
	free    Instant // when the last of those who said no may say yes
	grants  [seats]stamp
	fresh   bool // by the votes of those who said yes nobody holds
}

// parting tells the voters of a release until they have heard it.
type parting struct {
	claim Claim
	next  Instant
	until Instant // who has not heard it by then has seen the counter still
	told  [seats]bool
}

// Candidate is a node's side: what it holds, and how it tries to.
type Candidate struct {
	cfg       Config
	claim     Claim // while held, the tenure; else the last one
	held      bool
	releasing bool
	grants    [seats]stamp // of claim.Epoch: when the last granted request was sent
	outbid    bool         // a voter wants a higher epoch for its vote
	renewAt   Instant

	bid     bid
	tries   int64
	bidAt   Instant // not before
	highest int64   // epoch that any voter promised
	known   int64   // epoch that the region told of
	random  float64

	parting parting
	lapsed  Claim       // its tenure ended by the deadline, and the voters were not told yet
	aside   Instant     // until then it lets another take
	freed   Instant     // until then it asks on, for the voters hear of a release one by one; 0 before the first
	asked   bool        // to stand, though it may be cordoned
	named   [seats]bool // who said, since this process started, that another holds by its vote
	started Instant
	ticked  Instant
	heard   [seats]stamp // when the last answered request was sent
	unheard [seats]stamp // when the first after it was, since the process is there
	refused stamp        // when the last was sent that a voter would not look at
	nonces  [seats]int64
}

// NewCandidate begins from what is durable. A holder whose agent restarted goes on holding
// while its deadline runs, and else first ends what still runs.
func NewCandidate(cfg Config, claim Claim, now Instant) (Candidate, []Action) {
	c := Candidate{cfg: cfg, claim: claim, started: now, ticked: now, renewAt: now, bidAt: now, aside: now}
	if claim.Refused {
		c.refused.raise(now)
	}
	// A deadline too far ahead is none that this node can have been given.
	runs := now < claim.Deadline && claim.Deadline <= now.Add(cfg.TTL)
	runs = runs || claim.Unbounded && cfg.OnIsolation == IsolationRun
	if claim.Epoch == 0 || claim.Boot != cfg.Boot || !runs {
		c.claim.Unbounded = false
		return c, []Action{c.hold(DoLost)} // what a former agent left running without an end
	}
	c.held = true
	for i := 1; i < seats; i++ { // when a majority was heard last
		c.heard[i] = stamp{true, claim.Deadline.Add(-cfg.TTL)}
	}
	if claim.Unbounded {
		return c, []Action{c.hold(DoUnbounded)}
	}
	if next, acts := c.goOn(now); len(acts) > 0 { // there is no time left to ask first
		return next, acts
	}
	return c, []Action{c.hold(DoStart)}
}

// Claim is what must be durable when an action says persist.
func (c Candidate) Claim() Claim { return c.claim }

// Holding says what the node may act on at this instant.
func (c Candidate) Holding(now Instant) (Tenure, bool) {
	t := Tenure{Epoch: c.claim.Epoch, Until: c.claim.Deadline, Unbounded: c.claim.Unbounded}
	return t, c.held && (c.claim.Unbounded || now < c.claim.Deadline)
}

// Role says what the node is doing about the lease.
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
