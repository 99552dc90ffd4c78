package lease

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const ttl = 9 * time.Second

func at(d time.Duration) Instant { return Instant(d) }

func regional() VoterConfig {
	return VoterConfig{Site: "s", Name: Region, Others: others(2), TTL: ttl, Late: 3 * time.Second, Nonce: 42}
}

func q(c string, epoch, counter int64) Request {
	r := Request{Site: "s", Candidate: seatNames[0], Epoch: epoch, Counter: counter, TTL: ttl}
	if c == "b" {
		r.Candidate = seatNames[1]
	}
	return r
}

var heldByA = Record{Promised: 4, PromisedTo: "a", Holder: "a", Epoch: 4, Counter: 10, TTL: ttl}

// steady ticks a voter each second.
func steady(v Voter, from, to time.Duration) Voter {
	for now := from; now <= to; now += time.Second {
		v, _ = v.Tick(at(now))
	}
	return v
}

// X21
func TestVoter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		rec  Record
		wait time.Duration // ticking since its start at 0
		call Call
		q    Request
		want Reason
	}{
		{"a new site is anybody's", Record{}, 0, Promise, q("a", 1, 0), Granted},
		{"a restarted voter renews its holder", heldByA, 0, Grant, q("a", 4, 11), Granted},
		{"and raises it", heldByA, 0, Promise, q("a", 5, 0), Granted},
		{"and favours nobody else", heldByA, ttl - 1, Ask, q("b", 0, 0), Restarted},
		{"until a TTL has passed", heldByA, ttl, Ask, q("b", 0, 0), Granted},
		{"an old counter", heldByA, 0, Grant, q("a", 4, 10), Behind},
		{"an old epoch", heldByA, 0, Grant, q("a", 3, 11), Outbid},
		{"a promise twice", Record{Promised: 4, PromisedTo: "a"}, ttl, Promise, q("a", 4, 0), Granted},
		{"an epoch of another", Record{Promised: 4, PromisedTo: "a"}, ttl, Promise, q("b", 4, 0), Outbid},
		{"a grant of another's epoch", Record{Promised: 4, PromisedTo: "a"}, ttl, Grant, q("b", 4, 1), Outbid},
		{"a grant above all promises", Record{Promised: 4, PromisedTo: "a"}, ttl, Grant, q("b", 5, 1), Granted},
		{"an epoch before the record began", Record{}.Above(4), ttl, Grant, q("b", 4, 1), Outbid},
		{"a release by another", heldByA, 0, Release, q("b", 4, 11), HolderMoved},
		{"a release above all promises by who does not hold", heldByA, 0, Release, q("b", 5, 1), HolderMoved},
		{"by who was promised an epoch, below the holder's", Record{Promised: 5, PromisedTo: "b", Holder: "a", Epoch: 4, Counter: 10, TTL: ttl}, 0, Release, q("b", 6, 1), HolderMoved},
		{"by who would be granted it", heldByA, ttl, Release, q("b", 5, 1), Granted},
		{"by the holder", heldByA, 0, Release, q("a", 5, 1), Granted},
		{"a counter that nothing could follow", heldByA, 0, Grant, q("a", 4, Most+1), BadRequest},
		{"the last counter", heldByA, 0, Grant, q("a", 4, Most), Granted},
		{"an epoch as far away as may be", heldByA, ttl, Promise, q("b", 4+MaxJump, 0), Granted},
		{"an epoch further away", heldByA, ttl, Promise, q("b", 4+MaxJump+1, 0), BadRequest},
		{"a lost vote", Joining(), 5 * ttl, Grant, q("a", 4, 1), Lost},
		{"a lost vote that is released", Joining(), 5 * ttl, Release, q("a", 4, 1), Lost},
		{"another site", heldByA, 0, Grant, Request{Site: "x", Candidate: "a", Epoch: 4, Counter: 11, TTL: ttl}, NotAVoter},
		{"a node of another site", heldByA, 0, Ask, Request{Site: "s", Candidate: "c", TTL: ttl}, NotAVoter},
		{"the region as a candidate", heldByA, 0, Ask, Request{Site: "s", Candidate: Region, TTL: ttl}, NotAVoter},
		{"nobody as a candidate", Record{}, 0, Ask, Request{Site: "s", TTL: ttl}, NotAVoter},
		{"a longer TTL than it waits", heldByA, 0, Grant, Request{Site: "s", Candidate: "a", Epoch: 4, Counter: 11, TTL: ttl + 1}, TTLTooLong},
		{"no TTL", heldByA, 0, Grant, Request{Site: "s", Candidate: "a", Epoch: 4, Counter: 11}, BadRequest},
		{"an epoch from nowhere", heldByA, 0, Promise, q("a", math.MaxInt64, 0), BadRequest},
		{"a negative epoch", heldByA, 0, Promise, q("a", -1, 0), BadRequest},
		{"epoch zero", Record{}, 0, Grant, q("a", 0, 1), BadRequest},
		{"a call that is none", heldByA, 0, "steal", q("a", 4, 11), BadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := steady(Start(regional(), c.rec, 0), 0, c.wait)
			v, a, changed := v.Handle(c.call, c.q, at(c.wait))
			require.Equal(t, c.want, a.Reason)
			require.Equal(t, c.want == Granted, a.Granted)
			require.Equal(t, v.Record() != c.rec, changed)
			require.True(t, v.Record().Valid())
			require.False(t, changed && c.want != Granted, "a refusal changes nothing")
		})
	}
}

// X21: a release frees at once, and its epoch does not come back.
func TestVoterRelease(t *testing.T) {
	t.Parallel()
	v := steady(Start(regional(), heldByA, 0), 0, ttl)
	v, a, _ := v.Handle(Grant, q("a", 4, 11), at(ttl))
	require.True(t, a.Granted)
	v, a, _ = v.Handle(Ask, q("b", 0, 0), at(ttl))
	require.Equal(t, Held, a.Reason)
	require.Equal(t, ttl, a.Wait)
	v, a, _ = v.Handle(Release, q("a", 4, 12), at(ttl))
	require.True(t, a.Granted)
	v, a, _ = v.Handle(Grant, q("a", 4, 13), at(ttl)) // was under way
	require.Equal(t, Outbid, a.Reason)
	_, a, _ = v.Handle(Promise, q("b", 5, 0), at(ttl))
	require.True(t, a.Granted)
}

// X21: a voter that was paused deposes nobody on waking.
func TestVoterPaused(t *testing.T) {
	t.Parallel()
	v := steady(Start(regional(), heldByA, 0), 0, time.Second)
	now := at(5 * ttl)
	_, a, _ := v.Handle(Ask, q("b", 0, 0), now)
	require.Equal(t, Held, a.Reason, "before its tick")
	v, _ = v.Tick(now)
	_, a, _ = v.Handle(Ask, q("b", 0, 0), now)
	require.Equal(t, Held, a.Reason, "after its tick")
	v = steady(v, 5*ttl, 6*ttl)
	_, a, _ = v.Handle(Ask, q("b", 0, 0), at(6*ttl))
	require.True(t, a.Granted)
}

// X21: of several processes with one record, each sees for itself that the counter is still.
func TestVoterSee(t *testing.T) {
	t.Parallel()
	v := steady(Start(regional(), heldByA, 0), 0, ttl)
	renewed := heldByA
	renewed.Counter++
	v = v.See(renewed, at(ttl))
	_, a, _ := v.Handle(Ask, q("b", 0, 0), at(ttl))
	require.Equal(t, Held, a.Reason)
	promised := renewed
	promised.Promised, promised.PromisedTo = 5, "a"
	v = v.See(promised, at(ttl+time.Second)) // a promise is no sign of life
	require.Equal(t, ttl-time.Second, v.wait(at(ttl+time.Second)))
}

// X21: the TTL that was granted is waited for, also by a voter that was told a shorter one.
func TestVoterLowerTTL(t *testing.T) {
	t.Parallel()
	cfg := regional()
	cfg.TTL = time.Second
	v := steady(Start(cfg, heldByA, 0), 0, ttl-time.Second)
	b := q("b", 0, 0)
	b.TTL = time.Second
	_, a, _ := v.Handle(Ask, b, at(ttl-time.Second))
	require.Equal(t, Restarted, a.Reason)
}

// X21: forced hand-over.
func TestVoterAim(t *testing.T) {
	t.Parallel()
	v := steady(Start(regional(), heldByA, 0), 0, ttl)
	v, changed := v.Aim("b", at(ttl))
	require.True(t, changed)
	_, a, _ := v.Handle(Grant, q("a", 4, 11), at(ttl))
	require.Equal(t, Withheld, a.Reason)
	_, a, _ = v.Handle(Promise, q("a", 9, 0), at(ttl))
	require.Equal(t, Withheld, a.Reason)
	took, a, _ := v.Handle(Grant, q("b", 5, 1), at(ttl))
	require.True(t, a.Granted)
	require.Empty(t, took.Record().Target)

	v = steady(v, ttl, 4*ttl) // the target is dead
	require.Empty(t, v.Record().Target)
	_, a, _ = v.Handle(Grant, q("a", 4, 11), at(4*ttl))
	require.True(t, a.Granted)
	_, changed = v.Aim("c", at(4*ttl))
	require.False(t, changed, "no node of this site")
}

// X21: a lost vote comes back after a TTL and both others, in either order of hearing.
func TestVoterLost(t *testing.T) {
	t.Parallel()
	from := func(c string, nonce int64, s Standing) Request {
		r := q(c, 0, 0)
		r.Nonce, r.Vote = nonce, s
		return r
	}
	ofA, ofB := heldByA.Standing(), Standing{Promised: 6}
	v := steady(Start(regional(), Joining(), 0), 0, ttl-time.Second)
	v, a, _ := v.Handle(Ask, from("a", 42, ofA), at(ttl-1))
	require.Zero(t, a.Nonce, "nobody is told before the TTL")
	v, _, _ = v.Handle(Ask, from("b", 42, ofB), at(ttl-1))
	v = steady(v, ttl, ttl)
	require.True(t, v.Record().Lost, "what was heard early does not count")

	v, a, _ = v.Handle(Ask, from("a", 0, ofA), at(ttl))
	require.EqualValues(t, 42, a.Nonce)
	v, _, _ = v.Handle(Ask, from("a", 42, ofA), at(ttl))
	v, _, _ = v.Handle(Ask, from("b", 41, ofB), at(ttl))
	v, _, _ = v.Handle(Ask, from("b", 42, Standing{Lost: true}), at(ttl))
	require.True(t, v.Record().Lost, "another life's nonce, and one lost vote for another")
	v, a, changed := v.Handle(Ask, from("b", 42, ofB), at(ttl))
	require.True(t, changed)
	require.Equal(t, Held, a.Reason, "its holder is timed anew")
	require.Equal(t, Record{Promised: 6, Holder: "a", Epoch: 4, Counter: 10, TTL: ttl}, v.Record())
}

// X21: an operator's force replaces the hearing, and not the wait.
func TestForce(t *testing.T) {
	t.Parallel()
	lost := heldByA
	lost.Lost, lost.PromisedTo, lost.Target = true, "", "a"
	forced := lost.Force(9)
	require.Equal(t, Record{Promised: 9, Holder: "a", Epoch: 4, Counter: 10, TTL: ttl}, forced)
	require.EqualValues(t, 4, lost.Force(2).Promised, "it never goes down")

	v := steady(Start(regional(), Joining().Force(9), 0), 0, ttl-time.Second)
	_, a, _ := v.Handle(Ask, q("b", 0, 0), at(ttl-1))
	require.Equal(t, Restarted, a.Reason)
	_, a, _ = v.Handle(Promise, q("b", 9, 0), at(ttl))
	require.Equal(t, Outbid, a.Reason, "nobody is granted what may have been given")
	_, a, _ = v.Handle(Promise, q("b", 10, 0), at(ttl))
	require.Equal(t, Granted, a.Reason)

	v = steady(Start(regional(), lost, 0), 0, 2*ttl)
	v = v.See(forced, at(2*ttl))
	_, a, _ = v.Handle(Ask, q("b", 0, 0), at(2*ttl))
	require.Equal(t, Held, a.Reason, "a server that saw it lost times its holder anew")
}

// X21: what others said counts for a lost vote only if they were asked after the TTL.
func TestHear(t *testing.T) {
	t.Parallel()
	said := func(by fleet.NodeName, reason Reason, v Standing) Answer {
		return Answer{Voter: by, Reason: reason, Vote: v}
	}
	theirs := Standing{Promised: 6, Holder: "a", Epoch: 5, Counter: 3, TTL: ttl}
	own := VoterConfig{Site: "s", Name: "a", Others: others(0), TTL: ttl, Nonce: 42}
	for name, c := range map[string]struct {
		a         Answer
		sent, now time.Duration
		counts    bool
	}{
		"asked after the TTL":                 {said("b", Granted, theirs), ttl, ttl, true},
		"whatever the answer was":             {said("b", Held, theirs), ttl, 2 * ttl, true},
		"asked before it, and answered after": {said("b", Granted, theirs), ttl - 1, 2 * ttl, false},
		"asked at a time that is yet to come": {said("b", Granted, theirs), 2 * ttl, 2*ttl - 1, false},
		"by who votes elsewhere":              {said("b", NotAVoter, theirs), ttl, ttl, false},
		"by who is none of the others":        {said("c", Granted, theirs), ttl, ttl, false},
		"by itself":                           {said("a", Granted, theirs), ttl, ttl, false},
		"by who lost its own":                 {said("b", Granted, Standing{Lost: true}), ttl, ttl, false},
		"by nobody":                           {said("", Granted, theirs), ttl, ttl, false},
		"with an epoch that cannot be":        {said("b", Granted, Standing{Promised: MaxJump/2 + 1}), ttl, ttl, false},
		"with a holder's that cannot be":      {said("b", Granted, Standing{Promised: 6, Holder: "a", Epoch: MaxJump/2 + 1, Counter: 3, TTL: ttl}), ttl, ttl, false},
		"with a counter that cannot be":       {said("b", Granted, Standing{Promised: 6, Holder: "a", Epoch: 5, Counter: Most + 1, TTL: ttl}), ttl, ttl, false},
		"with a negative number":              {said("b", Granted, Standing{Promised: 6, Holder: "a", Epoch: 5, Counter: -1, TTL: ttl}), ttl, ttl, false},
		"with a negative TTL":                 {said("b", Granted, Standing{Promised: 6, Holder: "a", Epoch: 5, Counter: 3, TTL: -1}), ttl, ttl, false},
		"with more TTL than anybody grants":   {said("b", Granted, Standing{Promised: 6, Holder: "a", Epoch: 5, Counter: 3, TTL: math.MaxInt64}), ttl, ttl, true},
	} {
		v := steady(Start(own, Joining(), 0), 0, ttl)
		v, changed := v.Hear(c.a, at(c.sent), at(c.now))
		require.False(t, changed, name)
		require.True(t, v.Record().Lost, "%s: one of two is not enough", name)
		v, changed = v.Hear(said(Region, Granted, Standing{Promised: 7}), at(2*ttl), at(2*ttl))
		require.Equal(t, c.counts, changed, name)
		require.Equal(t, !c.counts, v.Record().Lost, name)
		if c.counts {
			require.Equal(t, Record{Promised: 7, Holder: "a", Epoch: 5, Counter: 3, TTL: ttl}, v.Record(), name)
		}
	}
	v, changed := Start(own, heldByA, 0).Hear(said("b", Granted, theirs), at(ttl), at(ttl))
	require.False(t, changed, "a vote that is not lost has its own record")
	require.Equal(t, heldByA, v.Record())
}

// X20, X21: a node's vote takes of its peer what is near the region's word, whatever the peer said before; of
// its own candidate it takes what that has judged.
func TestVoterOfANode(t *testing.T) {
	t.Parallel()
	own := VoterConfig{Site: "s", Name: "a", Others: others(0), TTL: ttl, Known: 4}
	v := steady(Start(own, Record{Promised: 4}, 0), 0, ttl)
	far := q("b", 4+MaxJump/2, 0)
	next, a, _ := v.Handle(Promise, far, at(ttl))
	require.Equal(t, Granted, a.Reason)
	far.Epoch++
	_, a, changed := next.Handle(Promise, far, at(ttl))
	require.Equal(t, BadRequest, a.Reason, "not again as far")
	require.False(t, changed)
	_, a, _ = next.Handle(Promise, q("a", 4+MaxJump/2+1, 0), at(ttl))
	require.Equal(t, Granted, a.Reason)
	_, a, _ = next.Handle(Promise, q("a", Most+1, 0), at(ttl))
	require.Equal(t, BadRequest, a.Reason)

	heard := func(by fleet.NodeName, promised int64) Voter {
		v, _ := next.Hear(Answer{Voter: by, Reason: Held, Vote: Standing{Promised: promised}}, at(ttl), at(ttl))
		return v
	}
	require.EqualValues(t, 4, heard("b", 9).Known(), "a peer's word")
	require.EqualValues(t, 4, heard(Region, Most+1).Known())
	require.EqualValues(t, 4, heard(Region, 3).Known())
	v = heard(Region, 5)
	require.EqualValues(t, 5, v.Known())
	_, a, _ = v.Handle(Promise, far, at(ttl))
	require.Equal(t, Granted, a.Reason)
}
