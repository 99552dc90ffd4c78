package lease

import "time"

// Handle answers one call of a candidate. The caller persists the record if it changed, and then answers. It
// writes a record that several processes share only if it is unchanged; otherwise it calls See and Handle
// again.
func (v Voter) Handle(call Call, q Request, now Instant) (Voter, Answer, bool) {
	v = v.awake(now)
	was := v.record
	reason := v.refuse(q)
	if reason == Granted {
		v = v.hearRequest(q, now)
		switch call {
		case Ask:
			reason = v.judge(q.Candidate, now)
		case Promise:
			v, reason = v.promise(q, now)
		case Grant:
			v, reason = v.grant(q, now)
		case Release:
			v, reason = v.release(q, now)
		default:
			reason = BadRequest
		}
	}
	return v, v.answer(reason, now), v.record != was
}

func (v Voter) answer(reason Reason, now Instant) Answer {
	a := Answer{
		Voter: v.cfg.Name, Granted: reason == Granted, Reason: reason, Vote: v.record.Standing(), Wait: v.wait(now),
	}
	a.Vote.Known = v.known
	if v.record.Lost && now >= v.opens {
		a.Nonce = v.cfg.Nonce
	}
	return a
}

// refuse rejects requests that no candidate of this site sends.
func (v Voter) refuse(q Request) Reason {
	switch {
	case q.Site != v.cfg.Site || !v.votesOn(q.Candidate):
		return NotAVoter
	case q.Epoch < 0 || !v.takes(q.Candidate, q.Epoch) && !v.record.Lost || q.Counter < 0 || q.Counter > Most || q.TTL < time.Nanosecond:
		return BadRequest
	case q.TTL > v.cfg.TTL:
		return TTLTooLong
	}
	return Granted
}

// promise binds this voter's epoch to one candidate; the candidate may repeat the call.
func (v Voter) promise(q Request, now Instant) (Voter, Reason) {
	if reason := v.judge(q.Candidate, now); reason != Granted {
		return v, reason
	}
	r := &v.record
	if q.Epoch < r.Promised || q.Epoch == r.Promised && r.PromisedTo != q.Candidate {
		return v, Outbid
	}
	r.Promised, r.PromisedTo = q.Epoch, q.Candidate
	return v, Granted
}

// grant gives or renews the lease. An epoch above all that this voter promised needs no promise of this voter:
// the candidate has those of a majority, so no other node has that epoch.
func (v Voter) grant(q Request, now Instant) (Voter, Reason) {
	if reason := v.judge(q.Candidate, now); reason != Granted {
		return v, reason
	}
	r := &v.record
	renewal := r.holds(q.Candidate, q.Epoch)
	switch {
	case q.Epoch == 0:
		return v, BadRequest
	case q.Epoch < r.Promised:
		return v, Outbid
	case q.Epoch == r.Promised && r.PromisedTo != q.Candidate && !renewal:
		return v, Outbid
	case renewal && q.Counter <= r.Counter:
		return v, Behind
	}
	r.Promised, r.PromisedTo = q.Epoch, q.Candidate
	r.Holder, r.Epoch, r.Counter, r.TTL = q.Candidate, q.Epoch, q.Counter, q.TTL
	if r.Target == q.Candidate {
		r.Target = ""
	}
	v.seen = now
	return v, Granted
}

// release frees the lease at once. Its epoch is used up: a Grant of it under way would otherwise bring back a
// holder that has stopped. Releasing an epoch above all that this voter promised has the conditions of a
// promise: it would otherwise depose the holder on record.
func (v Voter) release(q Request, now Instant) (Voter, Reason) {
	r := &v.record
	switch {
	case r.Lost:
		return v, Lost
	case q.Epoch < r.Promised || q.Epoch == r.Promised && r.PromisedTo != q.Candidate && !r.holds(q.Candidate, q.Epoch):
		return v, HolderMoved
	case r.holds(q.Candidate, q.Epoch) && q.Counter <= r.Counter:
		return v, Behind
	case q.Epoch > r.Promised && v.judge(q.Candidate, now) != Granted:
		return v, HolderMoved
	}
	if r.holds(q.Candidate, q.Epoch) {
		r.Holder, r.Counter = "", q.Counter
	}
	r.Promised, r.PromisedTo = q.Epoch, ""
	return v, Granted
}
