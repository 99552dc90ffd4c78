package lease

// HandOver starts a graceful hand-over: the node keeps the lease while it stops what runs.
func (c Candidate) HandOver(now Instant) (Candidate, []Action) {
	c, acts := c.settle(now)
	if !c.held || c.releasing {
		return c, acts
	}
	if c.claim.Unbounded { // a stop needs a deadline
		c.claim.Unbounded, c.claim.Deadline = false, now.Add(c.cfg.TTL)
	}
	c.releasing, c.bid = true, bid{}
	return c, append(acts, c.hold(DoStop))
}

// Stopped reports that nothing runs any more, as DoStop requested. The node releases the lease and does not
// stand for three TTLs, or until it is asked to stand again.
func (c Candidate) Stopped(now Instant) (Candidate, []Action) {
	c, acts := c.settle(now)
	if !c.held || !c.releasing {
		return c, acts
	}
	c.claim.Counter++
	c.aside = now.Add(3 * c.cfg.TTL)
	c.parting = parting{claim: c.claim, next: now, until: c.aside}
	c.held, c.releasing, c.outbid, c.asked = false, false, false, false
	c.claim, c.grants = Claim{}, [seats]stamp{}
	acts = append(acts, Action{Do: DoPersist}) // a restart must not resume what was released
	c, acts = c.sendParting(now, acts)
	return c, acts
}

// Lapsed tells whether a tenure ended by its deadline and the voters may learn that, once nothing runs any
// more.
func (c Candidate) Lapsed() bool { return !c.held && c.lapsed.Epoch != 0 }

// Ended reports that nothing runs any more of the tenure that DoLost ended last. The node releases what it can
// no longer renew: the voters may have seen its counter move until the deadline, and would wait a TTL from
// there. It keeps asking for the lease like any other node.
func (c Candidate) Ended(now Instant) (Candidate, []Action) {
	was := c.lapsed
	c, acts := c.settle(now)
	if !c.Lapsed() || c.lapsed != was {
		return c, acts
	}
	was.Counter++
	c.parting = parting{claim: was, next: now, until: now.Add(c.cfg.TTL)}
	c.lapsed = Claim{}
	return c.sendParting(now, acts)
}

// Stand ends the pause after a hand-over, and cancels a hand-over that has not released yet. A cordoned node
// stands too, until it has held the lease, or Rest.
func (c Candidate) Stand(now Instant) Candidate {
	c.releasing, c.aside, c.parting, c.asked = false, now, parting{}, true
	return c
}

// Freed reports that the holder released the lease: a candidate that waited for its end asks now, and again for
// a heartbeat, because other voters may learn of it later.
func (c Candidate) Freed(now Instant) Candidate {
	if !c.held && (c.bid.call == "" || c.bid.call == Ask) {
		c.bid, c.bidAt = bid{}, now
		c.freed = now.Add(c.cfg.Interval)
	}
	return c
}

// Rest reports that no caller waits any more for a cordoned node to hold.
func (c Candidate) Rest() Candidate {
	c.asked = false
	return c
}

// Configure changes what an isolated last holder does, and whether the node is cordoned. It can shorten
// Yield, but not extend it.
func (c Candidate) Configure(to Config, now Instant) (Candidate, []Action) {
	c.cfg.OnIsolation, c.cfg.Cordoned = to.OnIsolation, to.Cordoned
	c.cfg.Yield = min(c.cfg.Yield, to.Yield)
	if to.OnIsolation == IsolationStop {
		c.claim.Unbounded = false
	}
	if !c.held && !c.stands() {
		c.bid = bid{}
	}
	return c.settle(now)
}

// stands tells whether the node may ask for the lease: a cordoned node only resumes the lease that it held
// last, unless it was asked to stand.
func (c Candidate) stands() bool {
	return !c.cfg.Cordoned || c.asked || c.claim.Epoch != 0
}
