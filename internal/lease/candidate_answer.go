package lease

import (
	"cmp"
	"slices"
)

// Answered handles the answer to a Send of this process. A request without an answer needs no call. Late,
// repeated or reordered answers do no harm.
func (c Candidate) Answered(s Send, a Answer, now Instant) (Candidate, []Action) {
	c, acts := c.settle(now)
	seat := c.seatOf(s, a)
	if seat < 0 {
		return c, acts
	}
	a = c.credible(seat, a)
	c = c.note(seat, s, a)
	var more []Action
	switch s.Call {
	case Ask, Promise:
		c, more = c.counted(seat, s, a, now)
	case Grant:
		c, more = c.granted(seat, s, a, now)
	case Release:
		c, more = c.parted(seat, s, a), nil
	}
	acts = append(acts, more...)
	c, more = c.meet(seat, a, now)
	return c, append(acts, more...)
}

// credible turns an answer with impossible numbers into a refusal: a peer's numbers may exceed what the region
// reported only by a limit (see MaxJump).
func (c Candidate) credible(seat int, a Answer) Answer {
	most := int64(Most)
	if own := seat == 0; !own && a.Voter != Region {
		most = c.known + cmp.Or(c.cfg.Jump, MaxJump)/2
	}
	if a.Vote.top() > most {
		return Answer{Voter: a.Voter, Reason: BadRequest}
	}
	return a
}

// Refused handles that a voter was reached and refused this node, because its key is void there. That counts as
// no vote and says nothing about other votes. But a refused node is not isolated, and the other voters may make
// another node active.
func (c Candidate) Refused(s Send, now Instant) (Candidate, []Action) {
	c, acts := c.settle(now)
	seat := c.seatOf(s, Answer{Voter: s.To})
	if seat <= 0 {
		return c, acts
	}
	c.refused.raise(s.At)
	if c.claim.Epoch != 0 && !c.claim.Refused { // a restart must remember it
		c.claim.Refused = true
		acts = append(acts, Action{Do: DoPersist})
	}
	c, more := c.meet(seat, Answer{}, now)
	return c, append(acts, more...)
}

func (c Candidate) seatOf(s Send, a Answer) int {
	for seat := range seats {
		if v := c.voter(seat); v != "" && v == s.To && v == a.Voter && s.Request.Candidate == c.cfg.Self {
			return seat
		}
	}
	return -1
}

func (c Candidate) note(seat int, s Send, a Answer) Candidate {
	if h := &c.heard[seat]; !h.set || h.at < s.At {
		*h = stamp{true, s.At}
	}
	if s.At >= c.unheard[seat].at {
		c.unheard[seat] = stamp{}
	}
	c.nonces[seat] = a.Nonce
	c.highest = max(c.highest, a.Vote.Promised)
	switch {
	case seat == 0:
		c.known = max(c.known, a.Vote.Known)
	case a.Voter == Region:
		c.known = max(c.known, a.Vote.top())
	}
	c.named[seat] = c.named[seat] || !a.Vote.vacant() && a.Vote.Holder != c.cfg.Self
	return c
}

// meet learns from an answer that another node held after this one or may be about to, and that this node is no
// longer isolated. Then its deadline holds again; this answer moves it, or it has long passed.
func (c Candidate) meet(seat int, a Answer, now Instant) (Candidate, []Action) {
	later := a.Vote.Epoch > c.claim.Epoch && a.Vote.Holder != c.cfg.Self
	taking := a.Reason == Withheld || c.claim.Unbounded && a.Reason == Outbid
	superseded := c.claim.Epoch != 0 && (later || taking)
	over := now >= c.claim.Deadline
	var acts []Action
	switch {
	case !c.claim.Unbounded || seat == 0:
	case superseded && (later || over || c.isolated(now)), over && !c.isolated(now):
		c, acts = c.lose()
	case !c.isolated(now):
		c.claim.Unbounded = false
		acts = []Action{{Do: DoPersist}, c.hold(DoExtend)}
	}
	if superseded && !c.held {
		c.claim = Claim{}
		acts = append(acts, Action{Do: DoPersist})
		if !c.stands() {
			c.bid = bid{}
		}
	}
	return c, acts
}

// counted counts an answer to Ask or Promise.
func (c Candidate) counted(seat int, s Send, a Answer, now Instant) (Candidate, []Action) {
	b := &c.bid
	if b.call != s.Call || b.number != s.Request.Counter {
		return c, nil
	}
	b.yes[seat], b.no[seat] = a.Granted, !a.Granted
	if a.Granted {
		b.fresh = b.fresh && a.Vote.vacant()
	} else {
		b.free = max(b.free, now.Add(a.Wait))
	}
	switch {
	case count(b.no) > c.voters()-c.majority():
		return c.giveUp(now), nil
	case count(b.yes) < c.majority():
		if b.call == Ask && count(b.yes)+count(b.no) >= c.majority() { // the remaining voter may never answer
			b.until = min(b.until, now.Add(c.soon()))
		}
		return c, nil
	case b.call == Ask && b.fresh && !c.met() && now < c.started.Add(c.cfg.Yield):
		return c.yield(now), nil
	}
	return c.advance(now)
}

// met tells whether another node held since this process started: a voter reported its release, or two voters
// named it. One voter is not enough: it may have granted first what the others have not granted yet.
func (c Candidate) met() bool { return c.freed != 0 || count(c.named) >= c.majority() }

// advance makes the next call after a majority said yes.
func (c Candidate) advance(now Instant) (Candidate, []Action) {
	next := bid{call: Promise, epoch: c.highest + 1, number: c.bid.number, until: now.Add(c.cfg.Interval)}
	if c.bid.call == Promise {
		next.call, next.epoch = Grant, c.bid.epoch
	}
	c.bid = next
	if next.call == Grant {
		c.claim.Counter++
	}
	return c.sendAll(next.call, next.epoch, now, nil)
}

// granted counts an answer to a grant, of the bid, which may win by it, or of the tenure.
func (c Candidate) granted(seat int, s Send, a Answer, now Instant) (Candidate, []Action) {
	switch epoch := s.Request.Epoch; {
	case c.bid.call == Grant && epoch == c.bid.epoch:
		if !a.Granted {
			return c, nil
		}
		c.bid.grants[seat].raise(s.At)
		return c.win(now)
	case !c.held || epoch != c.claim.Epoch:
		return c, nil
	case a.Granted:
		c.grants[seat].raise(s.At)
		return c.extend(now)
	case a.Reason == Behind && a.Vote.Counter >= c.claim.Counter && seat == 0: // the vote's counter rose before this process started
		c.claim.Counter, c.renewAt = a.Vote.Counter, now
	case a.Reason == Outbid:
		c.outbid = true
	}
	return c, nil
}

// win starts a tenure, or raises the epoch of the current one: what an older epoch won stays valid until its
// own deadline.
func (c Candidate) win(now Instant) (Candidate, []Action) {
	until, ok := c.deadline(c.bid.grants)
	if !ok || now >= until {
		return c, nil
	}
	do := DoStart
	if c.held {
		do, until = DoExtend, max(until, c.claim.Deadline)
	}
	c.held, c.outbid, c.asked, c.grants = true, false, false, c.bid.grants
	c.claim.Epoch, c.claim.Deadline, c.claim.Boot, c.claim.Refused = c.bid.epoch, until, c.cfg.Boot, false
	c.bid, c.parting, c.lapsed = bid{}, parting{}, Claim{}
	c.renewAt = now.Add(c.cfg.Interval)
	return c, []Action{{Do: DoPersist}, c.hold(do)}
}

// extend moves the deadline when the majority's oldest grant is newer than before.
func (c Candidate) extend(now Instant) (Candidate, []Action) {
	until, ok := c.deadline(c.grants)
	if !ok || until <= c.claim.Deadline || now >= until {
		return c, nil
	}
	c.claim.Deadline, c.claim.Boot, c.claim.Refused = until, c.cfg.Boot, false
	return c, []Action{{Do: DoPersist}, c.hold(DoExtend)}
}

// deadline counts from when the winning requests were sent: each voter that granted one waits a TTL from when
// it received it, which was later.
func (c Candidate) deadline(grants [seats]stamp) (Instant, bool) {
	var at []Instant
	for _, g := range grants {
		if g.set {
			at = append(at, g.at)
		}
	}
	if len(at) < c.majority() {
		return 0, false
	}
	slices.Sort(at)
	return at[len(at)-c.majority()].Add(c.cfg.TTL), true
}

func (s *stamp) raise(at Instant) {
	if !s.set || s.at < at {
		*s = stamp{true, at}
	}
}

func (c Candidate) parted(seat int, s Send, a Answer) Candidate {
	if s.Request.Epoch != c.parting.claim.Epoch || a.Reason == Lost {
		return c
	}
	c.parting.told[seat] = true
	if count(c.parting.told) == c.voters() {
		c.parting = parting{}
	}
	return c
}

func count(votes [seats]bool) int {
	n := 0
	for _, v := range votes {
		if v {
			n++
		}
	}
	return n
}
