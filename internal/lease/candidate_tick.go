package lease

import (
	"time"
)

// Tick is called a few times per heartbeat interval. Random is in [0,1) and spreads retries.
func (c Candidate) Tick(now Instant, random float64) (Candidate, []Action) {
	c.random = random
	c, acts := c.settle(now)
	switch {
	case now.Sub(c.ticked) > c.cfg.Interval:
		c = c.wake(now)
	case len(acts) == 0:
		c, acts = c.goOn(now)
	}
	c.ticked = now
	if c.parting.claim.Epoch != 0 && now >= c.parting.next {
		c, acts = c.sendParting(now, acts)
	}
	if c.held && now >= c.renewAt {
		c, acts = c.renew(now, acts)
	}
	if c.bid.call != "" && now >= c.bid.until {
		c = c.giveUp(now)
	}
	if c.wants(now) {
		c, acts = c.startBid(now, acts)
	}
	return c, acts
}

// settle ends what has expired, before any other decision.
func (c Candidate) settle(now Instant) (Candidate, []Action) {
	if c.held && !c.claim.Unbounded && now >= c.claim.Deadline {
		c.lapsed = c.claim
		return c.lose()
	}
	return c, nil
}

// wake handles that the process or its whole machine was paused: missing answers from that time mean nothing.
// It asks with this tick, and counts as isolated at a later one at the earliest.
func (c Candidate) wake(now Instant) Candidate {
	c.unheard = [seats]stamp{}
	if c.claim.Refused {
		c.refused.raise(now)
	}
	return c
}

// goOn removes the deadline when the node is isolated at a site with onIsolation run.
func (c Candidate) goOn(now Instant) (Candidate, []Action) {
	if c.claim.Unbounded || c.releasing || !c.runs() || !c.isolated(now) {
		return c, nil
	}
	c.held, c.claim.Unbounded, c.claim.Boot, c.bid = true, true, c.cfg.Boot, bid{}
	c.lapsed, c.parting = Claim{}, parting{}
	return c, []Action{{Do: DoPersist}, c.hold(DoUnbounded)}
}

// runs tells whether this last holder keeps running when it is isolated.
func (c Candidate) runs() bool { return c.cfg.OnIsolation == IsolationRun && c.claim.Epoch != 0 }

// lose ends the tenure. The claim stays: this node was the last holder.
func (c Candidate) lose() (Candidate, []Action) {
	acts := []Action{c.hold(DoLost)}
	if c.claim.Unbounded {
		acts = append(acts, Action{Do: DoPersist})
	}
	c.held, c.claim.Unbounded, c.releasing, c.outbid = false, false, false, false
	c.grants, c.bid = [seats]stamp{}, bid{}
	return c, acts
}

// isolated tells whether neither the peer nor the region has answered for half a TTL. That is early enough: no
// other node can hold before the deadline, so removing it before it passes and then getting an answer in time
// changes nothing; a quarter of a TTL later guardians may begin to stop what runs. A node that holds nothing,
// and may be about to start something, waits two thirds of a TTL after an unanswered question: it asks rarely
// when a voter made it wait.
//
// A node that a voter refused is not isolated, and stops in time. It waits two TTLs for the next answer: by
// then its own vote has granted another node the lease, and so it knows.
func (c Candidate) isolated(now Instant) bool {
	if c.refused.set && now.Sub(c.refused.at) < 2*c.cfg.TTL {
		return false
	}
	for seat := 1; seat < seats; seat++ {
		h, u := c.heard[seat], c.unheard[seat]
		silent := u.set && now.Sub(u.at) >= 2*c.cfg.TTL/3
		if c.held {
			silent = !h.set || now.Sub(h.at) >= c.cfg.TTL/2
		}
		if !silent {
			return false
		}
	}
	return c.voters() > 1
}

func (c Candidate) renew(now Instant, acts []Action) (Candidate, []Action) {
	c.claim.Counter++
	c.renewAt = now.Add(c.cfg.Interval)
	return c.sendAll(Grant, c.claim.Epoch, now, acts)
}

// wants tells whether to start a bid: not while another node has a better claim, and as holder only for a
// higher epoch.
func (c Candidate) wants(now Instant) bool {
	if c.bid.call != "" || now < c.bidAt || c.claim.Unbounded {
		return false
	}
	if c.held {
		return c.outbid && !c.releasing
	}
	return now >= c.aside && c.stands()
}

func (c Candidate) startBid(now Instant, acts []Action) (Candidate, []Action) {
	c.tries++
	c.bid = bid{call: Ask, number: c.tries, until: now.Add(c.cfg.Interval), fresh: true}
	return c.sendAll(Ask, 0, now, acts)
}

// giveUp ends a bid that did not win. The next one waits at least as long as the voters require; after a
// promise that a rival's bid may have crossed, it waits a random time more, so that the two do not collide
// again.
func (c Candidate) giveUp(now Instant) Candidate {
	least := c.cfg.Interval / 2
	if c.bid.call == Ask {
		least = c.soon()
	}
	next := max(now.Add(least), min(c.bid.free, now.Add(c.cfg.TTL)))
	if now < c.freed { // answers from before the voter knew of the release are out of date
		next = now.Add(least / 2)
	}
	c.bid = bid{}
	c.bidAt = next.Add(time.Duration(c.random * float64(least)))
	return c
}

// yield gives up a bid that could have won, to give the other node its time. It waits no longer than that: one
// voter's answer must not leave the site without a holder.
func (c Candidate) yield(now Instant) Candidate {
	c = c.giveUp(now)
	c.bidAt = min(c.bidAt, max(c.started.Add(c.cfg.Yield), now.Add(c.soon())))
	return c
}

// soon is the shortest pause between two questions: neither promises anything.
func (c Candidate) soon() time.Duration { return max(c.cfg.Interval/4, 1) }

func (c Candidate) sendParting(now Instant, acts []Action) (Candidate, []Action) {
	if now >= c.parting.until {
		c.parting = parting{}
		return c, acts
	}
	c.parting.next = now.Add(c.cfg.Interval)
	for seat := range seats {
		if c.voter(seat) != "" && !c.parting.told[seat] {
			acts = append(acts, c.send(seat, Release, now))
		}
	}
	return c, acts
}

func (c Candidate) sendAll(call Call, epoch int64, now Instant, acts []Action) (Candidate, []Action) {
	for seat := range seats {
		if c.voter(seat) == "" {
			continue
		}
		if !c.unheard[seat].set {
			c.unheard[seat] = stamp{true, now}
		}
		act := c.send(seat, call, now)
		act.Send.Request.Epoch = epoch
		acts = append(acts, act)
	}
	return c, acts
}

// send makes a request. In a bid, the counter is the number of the attempt.
func (c Candidate) send(seat int, call Call, now Instant) Action {
	q := Request{
		Site: c.cfg.Site, Candidate: c.cfg.Self, Epoch: c.claim.Epoch, Counter: c.claim.Counter,
		TTL: c.cfg.TTL, Nonce: c.nonces[seat],
	}
	switch call {
	case Ask, Promise:
		q.Counter = c.bid.number
	case Release:
		q.Epoch, q.Counter = c.parting.claim.Epoch, c.parting.claim.Counter
	case Grant:
	}
	return Action{Do: DoSend, Send: Send{To: c.voter(seat), Call: call, Request: q, At: now}}
}
