package lease

// HandOver begins a graceful hand-over: the node goes on holding while it stops what runs.
func (c Candidate) HandOver(now Instant) (Candidate, []Action) {
	c, acts := c.settle(now)
	if !c.held || c.releasing {
		return c, acts
	}
	if c.claim.Unbounded { // a stop has an end
		c.claim.Unbounded, c.claim.Deadline = false, now.Add(c.cfg.TTL)
	}
	c.releasing, c.bid = true, bid{}
	return c, append(acts, c.hold(DoStop))
}

// Stopped says that nothing runs any more, as DoStop asked. The node gives the lease back
// and stands aside for three TTLs, or until it is asked to stand again.
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
	acts = append(acts, Action{Do: DoPersist}) // a restart must not take up what is given back
	c, acts = c.sendParting(now, acts)
	return c, acts
}

// Lapsed says that a tenure ended by its deadline and that the voters may be told, once nothing
// runs any more.
func (c Candidate) Lapsed() bool { return !c.held && c.lapsed.Epoch != 0 }

// Ended says that nothing runs any more of the tenure that DoLost ended last. The node gives back
// what it can no longer renew: the voters may have seen its counter move until the deadline, and
// would wait a TTL from there. It goes on asking, as any other.
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

// Stand ends standing aside after a hand-over, and calls off one that has not released yet. A
// cordoned node stands too, until it has held, or Rest.
func (c Candidate) Stand(now Instant) Candidate {
	c.releasing, c.aside, c.parting, c.asked = false, now, parting{}, true
	return c
}

// Freed says that the holder gave the lease back: who waited for it to run out asks now, and
// again for a heartbeat, because another voter may hear of it later.
func (c Candidate) Freed(now Instant) Candidate {
	if !c.held && (c.bid.call == "" || c.bid.call == Ask) {
		c.bid, c.bidAt = bid{}, now
		c.freed = now.Add(c.cfg.Interval)
	}
	return c
}

// Rest says that nobody waits any more for a cordoned node to hold.
func (c Candidate) Rest() Candidate {
	c.asked = false
	return c
}

// Configure changes what an isolated last holder does, and whether the node is cordoned; for whom
// it yields it may only stop to.
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

// stands says whether the node may ask for the lease: one that is cordoned only goes on with
// what it was the last to hold, unless it was told to stand.
func (c Candidate) stands() bool {
	return !c.cfg.Cordoned || c.asked || c.claim.Epoch != 0
}
