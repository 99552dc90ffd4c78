package lease

import "github.com/holdfast-io/holdfast/internal/fleet"

// A lost vote is restored once a TTL has passed, which outlasts every lease that it may have granted, and both
// other voters have answered after that; together they know every epoch that it helped to give. An earlier
// answer does not count: that voter may have granted a lease since, together with the lost vote.

// Hear handles the answer of another voter to a request that this voter's own node sent at the given instant.
// It reports whether the record changed.
func (v Voter) Hear(a Answer, sent, now Instant) (Voter, bool) {
	if a.Reason == NotAVoter || now < sent {
		return v, false
	}
	if top := a.Vote.top(); a.Voter == Region && v.cfg.Name != Region && top <= Most {
		v.known = max(v.known, top)
	}
	if sent < v.opens {
		return v, false
	}
	was := v.record
	v = v.hear(a.Voter, a.Vote, now)
	return v, v.record != was
}

// hearRequest uses the vote in a request that was sent after this process gave out its nonce.
func (v Voter) hearRequest(q Request, now Instant) Voter {
	if q.Nonce == 0 || q.Nonce != v.cfg.Nonce || now < v.opens {
		return v
	}
	return v.hear(q.Candidate, q.Vote, now)
}

func (v Voter) hear(from fleet.NodeName, s Standing, now Instant) Voter {
	if !v.record.Lost || s.Lost || from == "" || !v.takes(from, s.top()) {
		return v
	}
	if s.TTL = min(s.TTL, v.cfg.TTL); s.TTL == 0 { // that grant ended before this answer arrived
		s.Holder = ""
	}
	for i, other := range v.cfg.Others {
		if other == from {
			v.heard[i] = true
			v.sum = v.sum.learn(s)
		}
	}
	return v.recover(now)
}

// recover restores the vote once all other voters were heard. The holder then on record gets a full TTL.
func (v Voter) recover(now Instant) Voter {
	if !v.record.Lost || now < v.opens {
		return v
	}
	for i, other := range v.cfg.Others {
		if other != "" && !v.heard[i] {
			return v
		}
	}
	v.record = v.record.learn(v.sum.Standing())
	v.record.Lost = false
	v.seen = now
	return v
}
