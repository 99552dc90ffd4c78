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
	c.parting = parting{claim: c.claim, next: now}
	c.aside = now.Add(3 * c.cfg.TTL)
	c.held, c.releasing, c.outbid = false, false, false
	c.claim, c.grants = Claim{}, [seats]stamp{}
	acts = append(acts, Action{Do: DoPersist}) // a restart must not take up what is given back
	c, acts = c.sendParting(now, acts)
	return c, acts
}

// Stand ends standing aside after a hand-over, and calls off one that has not released yet.
func (c Candidate) Stand(now Instant) Candidate {
	c.releasing, c.aside = false, now
	return c
}

// Configure changes what an isolated last holder does.
func (c Candidate) Configure(to Isolation, now Instant) (Candidate, []Action) {
	c.cfg.OnIsolation = to
	if to == IsolationStop {
		c.claim.Unbounded = false
	}
	return c.settle(now)
}
