package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X21: a record that no voter can have written is refused, whatever is wrong with it.
func TestRecordValid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Record)
		valid  bool
	}{
		"as it was written":                  {func(*Record) {}, true},
		"of a new site":                      {func(r *Record) { *r = Record{} }, true},
		"promised above what is held":        {func(r *Record) { r.Promised++ }, true},
		"promised below what is held":        {func(r *Record) { r.Promised-- }, false},
		"the highest epoch":                  {func(r *Record) { r.Promised = Most }, true},
		"above the highest epoch":            {func(r *Record) { r.Promised = Most + 1 }, false},
		"the highest counter":                {func(r *Record) { r.Counter = Most }, true},
		"above the highest counter":          {func(r *Record) { r.Counter = Most + 1 }, false},
		"no counter yet":                     {func(r *Record) { r.Counter = 0 }, true},
		"a negative counter":                 {func(r *Record) { r.Counter = -1 }, false},
		"a negative epoch":                   {func(r *Record) { r.Epoch, r.Holder = -1, "" }, false},
		"a holder without an epoch":          {func(r *Record) { r.Epoch = 0 }, false},
		"a holder without a TTL":             {func(r *Record) { r.TTL = 0 }, false},
		"a released epoch keeps its numbers": {func(r *Record) { r.Holder = "" }, true},
		"no holder and no TTL":               {func(r *Record) { r.Holder, r.TTL = "", 0 }, true},
		"no holder and a negative TTL":       {func(r *Record) { r.Holder, r.TTL = "", -1 }, false},
		"a promise of nothing":               {func(r *Record) { *r = Record{PromisedTo: "a"} }, false},
		"a promise of the first epoch":       {func(r *Record) { *r = Record{PromisedTo: "a", Promised: 1} }, true},
	} {
		r := heldByA
		c.change(&r)
		require.Equal(t, c.valid, r.Valid(), name)
	}
}

// X21: what was given before a record began binds no promise that it made since.
func TestRecordAbove(t *testing.T) {
	t.Parallel()
	require.Equal(t, heldByA, heldByA.Above(3))
	require.Equal(t, heldByA, heldByA.Above(4), "its own promise stands")
	above := heldByA
	above.Promised, above.PromisedTo = 5, ""
	require.Equal(t, above, heldByA.Above(5))
}

// X21: of two tenures a record keeps the later one: the epoch decides, and the counter only within an epoch.
func TestRecordLearns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		said Standing
		want Record
	}{
		"an older epoch with a higher counter":  {Standing{Promised: 3, Holder: "b", Epoch: 3, Counter: 99, TTL: 1}, heldByA},
		"the same epoch with a lower counter":   {Standing{Promised: 4, Holder: "b", Epoch: 4, Counter: 9, TTL: 1}, heldByA},
		"the same epoch and counter":            {Standing{Promised: 4, Holder: "b", Epoch: 4, Counter: 10, TTL: 1}, heldByA},
		"the same epoch with a higher counter":  {Standing{Promised: 4, Epoch: 4, Counter: 11, TTL: 1}, Record{Promised: 4, PromisedTo: "a", Epoch: 4, Counter: 11, TTL: 1}},
		"a later epoch with a lower counter":    {Standing{Promised: 5, Holder: "b", Epoch: 5, Counter: 1, TTL: 1}, Record{Promised: 5, Holder: "b", Epoch: 5, Counter: 1, TTL: 1}},
		"a later epoch that was promised since": {Standing{Promised: 7, Holder: "b", Epoch: 5, Counter: 1, TTL: 1}, Record{Promised: 7, Holder: "b", Epoch: 5, Counter: 1, TTL: 1}},
	} {
		require.Equal(t, c.want, heldByA.learn(c.said), name)
	}
}

// X21: what is impossible in a voter's word is above everything.
func TestStandingBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		said Standing
		top  int64
	}{
		{Standing{}, 0},
		{Standing{Promised: 3, Epoch: 2}, 3},
		{Standing{Promised: 2, Epoch: 3}, 3},
		{Standing{Promised: Most, Counter: Most}, Most},
		{Standing{Promised: Most + 1}, Most + 1},
		{Standing{Promised: -1}, Most + 1},
		{Standing{Epoch: -1}, Most + 1},
		{Standing{Counter: -1}, Most + 1},
		{Standing{Counter: Most + 1}, Most + 1},
		{Standing{TTL: -1}, Most + 1},
	} {
		require.Equal(t, c.top, c.said.top(), c.said)
	}
	for said, vacant := range map[Standing]bool{
		{}: true,
		{Holder: "b", Epoch: 4, Counter: 1, TTL: 1}: false,
		{Epoch: 4, Counter: 1, TTL: 1}:              true, // given back
		{Holder: "b", Counter: 1, TTL: 1}:           true,
		{Holder: "b", Epoch: 4}:                     true, // only declared
		{Holder: "b", Epoch: 4, Counter: 1}:         false,
		{Holder: "b", Epoch: 4, TTL: 1}:             false,
	} {
		require.Equal(t, vacant, said.vacant(), said)
	}
}

// X20, X21: a candidate believes its own vote and the region, and a peer as far as the region's word goes.
func TestCandidateBelieves(t *testing.T) {
	t.Parallel()
	const region = 10
	told := func(t *testing.T, voter fleet.NodeName, v Standing) Candidate {
		t.Helper()
		c, _ := NewCandidate(paired(), Claim{}, 0)
		c, acts := c.Tick(0, 0)
		asked := func(of fleet.NodeName) Send { return sentTo(acts, string(of), Ask)[0] }
		c, _ = c.Answered(asked(Region), Answer{Voter: Region, Reason: Held, Vote: Standing{Promised: region}}, 0)
		require.EqualValues(t, region, c.known)
		c, _ = c.Answered(asked(voter), Answer{Voter: voter, Reason: Held, Vote: v}, 0)
		return c
	}
	for name, c := range map[string]struct {
		voter          fleet.NodeName
		said           Standing
		highest, known int64
	}{
		"a peer, near":               {"b", Standing{Promised: region + MaxJump/2}, region + MaxJump/2, region},
		"a peer, too far":            {"b", Standing{Promised: region + MaxJump/2 + 1}, region, region},
		"a peer, of what it may not": {"b", Standing{Promised: region + 1, Known: region + 5}, region + 1, region},
		"its own vote, far":          {"a", Standing{Promised: Most}, Most, region},
		"its own vote, of the known": {"a", Standing{Promised: region + 3, Known: region + 2}, region + 3, region + 2},
		"its own vote, impossible":   {"a", Standing{Promised: Most + 1}, region, region},
		"the region, far":            {Region, Standing{Promised: Most}, Most, Most},
		"the region, by its holder":  {Region, Standing{Promised: 3, Epoch: region + 1}, region, region + 1},
		"the region, impossible":     {Region, Standing{Promised: Most + 1}, region, region},
	} {
		cand := told(t, c.voter, c.said)
		require.Equal(t, c.highest, cand.highest, name)
		require.Equal(t, c.known, cand.known, name)
	}
	c, _ := NewCandidate(with(func(c *Config) { c.Jump = 20 }), Claim{}, 0)
	require.Equal(t, BadRequest, c.credible(1, Answer{Voter: "b", Vote: Standing{Promised: 11}}).Reason)
	require.Equal(t, Held, c.credible(1, Answer{Voter: "b", Reason: Held, Vote: Standing{Promised: 10}}).Reason)
}

// X21: an answer that belongs to no request of this node says nothing.
func TestStrangeAnswers(t *testing.T) {
	t.Parallel()
	c, _ := NewCandidate(paired(), Claim{}, 0)
	c, acts := c.Tick(0, 0)
	s := sentTo(acts, "b", Ask)[0]
	for name, change := range map[string]func(*Send, *Answer){
		"by another voter":     func(_ *Send, a *Answer) { a.Voter = Region },
		"by nobody":            func(_ *Send, a *Answer) { a.Voter = "" },
		"to a stranger":        func(s *Send, a *Answer) { s.To, a.Voter = "c", "c" },
		"to another candidate": func(s *Send, _ *Answer) { s.Request.Candidate = "b" },
	} {
		s, a := s, Answer{Voter: "b", Granted: true, Reason: Granted, Vote: Standing{Promised: 3}}
		change(&s, &a)
		next, acts := c.Answered(s, a, 0)
		require.Equal(t, c, next, name)
		require.Empty(t, acts, name)
	}
	own := sentTo(acts, "a", Ask)[0]
	next, acts := c.Refused(own, 0)
	require.Equal(t, c, next, "its own vote refuses nobody")
	require.Empty(t, acts)
}

// X21: what was given back was not taken by another, so that its last holder stays the last one.
func TestLastHolderStays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		vote Standing
		want Claim
	}{
		"its own release":       {Standing{Promised: 4, Epoch: 4, Counter: 10}, ran},
		"its own tenure":        {Standing{Promised: 9, Holder: "a", Epoch: 4, Counter: 9, TTL: ttl}, ran},
		"an earlier one":        {Standing{Promised: 4, Holder: "b", Epoch: 3, Counter: 9, TTL: ttl}, ran},
		"another's later one":   {Standing{Promised: 5, Holder: "b", Epoch: 5, Counter: 1, TTL: ttl}, Claim{}},
		"a later one, released": {Standing{Promised: 5, Epoch: 5, Counter: 1, TTL: ttl}, Claim{}},
	} {
		cand, _ := NewCandidate(paired(), ran, 0)
		cand, acts := cand.Tick(0, 0)
		cand, _ = cand.Answered(sentTo(acts, "b", Ask)[0], Answer{Voter: "b", Reason: Held, Vote: c.vote}, 0)
		require.Equal(t, c.want, cand.Claim(), name)
	}
}

// X21: an isolated holder whom a voter answers keeps what is left of its deadline, and not an instant more.
func TestIsolatedRunIsAnswered(t *testing.T) {
	t.Parallel()
	claim := Claim{Epoch: 4, Counter: 9, Deadline: at(ttl), Boot: "boot"}
	for name, c := range map[string]struct {
		now  time.Duration
		want []Do
	}{
		"before its deadline": {ttl - 1, []Do{DoPersist, DoExtend}},
		"at its deadline":     {ttl, []Do{DoLost, DoPersist}},
	} {
		cand, acts := NewCandidate(with(func(c *Config) { c.OnIsolation = IsolationRun }), claim, at(ttl/2))
		require.Equal(t, DoUnbounded, acts[len(acts)-1].Do)
		cand, acts = cand.Tick(at(ttl-time.Second), 0)
		cand, acts = cand.Answered(sentTo(acts, "b", Grant)[0], Answer{Voter: "b", Reason: Held}, at(c.now))
		require.Equal(t, c.want, dos(acts), name)
		require.False(t, cand.Claim().Unbounded, name)
	}
}

func dos(acts []Action) (all []Do) {
	for _, a := range acts {
		all = append(all, a.Do)
	}
	return all
}

// bids answers all that a candidate asks with yes, until it sends what is named.
func bids(t *testing.T, c Candidate, until Call, now time.Duration) (Candidate, []Action) {
	t.Helper()
	c, acts := c.Tick(at(now), 0)
	for _, call := range []Call{Ask, Promise} {
		if call == until {
			break
		}
		var next []Action
		for _, to := range []string{"b", string(Region)} {
			s := sentTo(acts, to, call)
			require.Len(t, s, 1, "%s to %s", call, to)
			var more []Action
			c, more = c.Answered(s[0], Answer{Voter: s[0].To, Granted: true, Reason: Granted}, at(now))
			next = append(next, more...)
		}
		acts = next
	}
	require.NotEmpty(t, sentTo(acts, "b", until))
	return c, acts
}

// X21: a lease is held until a TTL after the requests that won it were sent; what wins at that instant has won
// nothing. The same grant twice extends nothing.
func TestGrantedLate(t *testing.T) {
	t.Parallel()
	yes := func(s Send) Answer { return Answer{Voter: s.To, Granted: true, Reason: Granted} }
	for late, role := range map[time.Duration]Role{ttl - 1: Holding, ttl: Promising} {
		c, _ := NewCandidate(paired(), Claim{}, 0)
		c, acts := bids(t, c, Grant, 0)
		require.EqualValues(t, 1, c.claim.Counter, "each grant has its number")
		b, region := sentTo(acts, "b", Grant)[0], sentTo(acts, string(Region), Grant)[0]
		c, _ = c.Answered(b, yes(b), at(late))
		c, _ = c.Answered(region, yes(region), at(late))
		require.Equal(t, role, c.Role(), late)
	}
	c, acts, now := renews(t)
	b, region := sentTo(acts, "b", Grant)[0], sentTo(acts, string(Region), Grant)[0]
	c, _ = c.Answered(b, yes(b), at(now))
	c, acts = c.Answered(region, yes(region), at(now))
	require.Equal(t, []Do{DoPersist, DoExtend}, dos(acts))
	require.Equal(t, at(now+ttl), acts[1].Until)
	_, acts = c.Answered(region, yes(region), at(now))
	require.Empty(t, acts)

	isolated, _ := NewCandidate(with(func(c *Config) { c.OnIsolation = IsolationRun }), Claim{Epoch: 4, Counter: 9, Deadline: at(ttl), Boot: "boot"}, at(ttl/2))
	isolated, acts = isolated.Tick(at(ttl/2), 0)
	b = sentTo(acts, "b", Grant)[0]
	isolated.grants[0] = stamp{true, b.At} // its own vote, at once
	_, acts = isolated.Answered(b, yes(b), b.At.Add(ttl))
	require.NotContains(t, dos(acts), DoExtend)
}

// N60: a bid that failed is followed by the next after its time: soon after a question, half a heartbeat after a
// promise, spread by chance.
func TestNextBid(t *testing.T) {
	t.Parallel()
	no := func(c Candidate, acts []Action, call Call, wait time.Duration, now time.Duration) Candidate {
		for _, to := range []string{"b", string(Region)} {
			s := sentTo(acts, to, call)[0]
			c, _ = c.Answered(s, Answer{Voter: s.To, Reason: Outbid, Wait: wait}, at(now))
		}
		return c
	}
	interval := paired().Interval
	soon := interval / 4
	for name, c := range map[string]struct {
		call   Call
		wait   time.Duration
		random float64
		want   time.Duration
	}{
		"after a question":                  {Ask, 0, 0, soon},
		"after a question, spread":          {Ask, 0, 0.5, soon + soon/2},
		"after a promise":                   {Promise, 0, 0, interval / 2},
		"after a promise, spread":           {Promise, 0, 0.5, interval/2 + interval/4},
		"after as long as the voters said":  {Ask, 2 * interval, 0, 2 * interval},
		"after a TTL, whatever they said":   {Ask, 2 * ttl, 0, ttl},
		"not at once, whatever they said":   {Promise, 1, 0, interval / 2},
		"not at once, whatever they say of": {Ask, -1, 0, soon},
	} {
		cand, _ := NewCandidate(paired(), Claim{}, 0)
		cand, acts := bids(t, cand, c.call, 0)
		cand.random = c.random
		cand = no(cand, acts, c.call, c.wait, 0)
		require.Equal(t, Idle, cand.Role(), name)
		_, asks := cand.asks(c.want - 1)
		require.False(t, asks, name)
		_, asks = cand.asks(c.want)
		require.True(t, asks, name)
	}

	freed, _ := NewCandidate(paired(), Claim{}, 0)
	freed, acts := freed.Freed(0).Tick(0, 0)
	freed = no(freed, acts, Ask, ttl, 0) // they have not heard of the release
	_, asks := freed.asks(soon/2 - 1)
	require.False(t, asks)
	freed, acts = freed.Tick(at(soon/2), 0)
	require.NotEmpty(t, sentTo(acts, "b", Ask), "it asks on")
	freed = no(freed, acts, Ask, ttl, interval)
	_, asks = freed.asks(interval + ttl - 1)
	require.False(t, asks, "for a heartbeat")
}

// N60, X21: who asks drops the question when the holder gives back, and asks anew; who was promised something goes on.
func TestFreedWhileAsking(t *testing.T) {
	t.Parallel()
	c, _ := NewCandidate(paired(), Claim{}, 0)
	asking, _ := bids(t, c, Ask, 0)
	next, asks := asking.Freed(at(1)).asks(1)
	require.True(t, asks)
	require.Equal(t, asking.tries+1, next.tries)
	promising, _ := bids(t, c, Promise, 0)
	require.Zero(t, promising.claim.Counter, "a promise is no grant")
	require.Equal(t, promising, promising.Freed(at(1)))
}

// N60: one answer of three decides nothing, and shortens no question.
func TestOneAnswerIsWaitedOn(t *testing.T) {
	t.Parallel()
	c, _ := NewCandidate(paired(), Claim{}, 0)
	c, acts := c.Tick(0, 0)
	s := sentTo(acts, "b", Ask)[0]
	c, _ = c.Answered(s, Answer{Voter: "b", Reason: Held}, 0)
	c, _ = c.Tick(at(c.cfg.Interval-1), 0)
	require.Equal(t, Asking, c.Role())
	c, _ = c.Tick(at(c.cfg.Interval), 0)
	require.Equal(t, Idle, c.Role())
}

// X21: a release counts on from the last renewal, and is told for as long as somebody may wait for it.
func TestReleaseCountsOn(t *testing.T) {
	t.Parallel()
	c, _, now := renews(t)
	last := c.claim.Counter
	c, _ = c.HandOver(at(now))
	c, acts := c.Stopped(at(now))
	require.Equal(t, last+1, sentTo(acts, "b", Release)[0].Request.Counter)
	c.parting.next = 0
	before, acts := c.Tick(c.parting.until-1, 0)
	require.Len(t, sentTo(acts, "b", Release), 1)
	require.NotZero(t, before.parting)
	after, acts := c.Tick(c.parting.until, 0)
	require.Empty(t, sentTo(acts, "b", Release))
	require.Zero(t, after.parting)
}

// X21: a voter is late when the gap between two ticks is longer than it may be, and at no gap that is as long.
func TestVoterLate(t *testing.T) {
	t.Parallel()
	for late, want := range map[time.Duration]map[time.Duration]Reason{
		3 * time.Second: {3 * time.Second: Granted, 3*time.Second + 1: Held},
		0:               {ttl: Granted, ttl + 1: Held}, // then it is the TTL
	} {
		for gap, reason := range want {
			cfg := regional()
			cfg.Late = late
			v := steady(Start(cfg, heldByA, 0), 0, ttl)
			_, a, _ := v.Handle(Ask, q("b", 0, 0), at(ttl+gap))
			require.Equal(t, reason, a.Reason, "%s after a tick, late after %s", gap, late)
		}
	}
}

// X21: what another process wrote counts from when this one saw it, and only what is new.
func TestVoterSeesTarget(t *testing.T) {
	t.Parallel()
	aimed := heldByA
	aimed.Target = "b"
	reason := func(v Voter, now time.Duration) Reason {
		_, a, _ := v.Handle(Ask, q("a", 0, 0), at(now))
		return a.Reason
	}
	v := steady(Start(regional(), heldByA, 0), 0, ttl).See(aimed, at(ttl))
	require.Equal(t, Withheld, reason(v, 4*ttl-1))
	require.Equal(t, Granted, reason(v, 4*ttl))
	v = v.See(aimed, at(2*ttl))
	require.Equal(t, Granted, reason(v, 4*ttl), "it saw the target before")

	for name, change := range map[string]func(*Record){
		"a renewal":           func(r *Record) { r.Counter++ },
		"another epoch":       func(r *Record) { r.Epoch, r.Promised = 5, 5 },
		"a release":           func(r *Record) { r.Holder = "" },
		"nothing":             func(*Record) {},
		"a promise":           func(r *Record) { r.Promised = 5 },
		"a loss, made good":   func(r *Record) { r.Lost = false },
		"a loss, as it stood": func(r *Record) { r.Lost = true },
	} {
		was := heldByA
		was.Lost = name == "a loss, made good" || name == "a loss, as it stood"
		v, r := Start(regional(), was, 0), was
		change(&r)
		want := Instant(1)
		if name == "nothing" || name == "a promise" || name == "a loss, as it stood" {
			want = 0
		}
		require.Equal(t, want, v.See(r, 1).seen, name)
	}

	lost := heldByA
	lost.Lost = true
	v = steady(Start(regional(), heldByA, 0), 0, ttl)
	v.heard, v.sum = [2]bool{true, true}, heldByA
	v = v.See(lost, at(ttl))
	require.Equal(t, at(2*ttl), v.opens, "lost again: it waits as one that starts")
	require.Zero(t, v.heard)
	require.Zero(t, v.sum)
	require.EqualValues(t, 43, v.cfg.Nonce, "what was told of the life before is void")
	require.Equal(t, v, v.See(lost, at(ttl+1)), "and waits once")
}

// X21: the shortest lease is one, and no lease is none.
func TestVoterShortest(t *testing.T) {
	t.Parallel()
	for short, want := range map[time.Duration]Reason{1: Granted, 0: BadRequest, -1: BadRequest} {
		ask := q("a", 4, 11)
		ask.TTL = short
		_, a, _ := Start(regional(), heldByA, 0).Handle(Grant, ask, 0)
		require.Equal(t, want, a.Reason, short)
	}
	v := Start(VoterConfig{Site: "s", Name: "a", Others: others(0), TTL: ttl}, Record{}, 0)
	_, a, _ := v.Handle(Promise, q("a", Most, 0), 0)
	require.Equal(t, Granted, a.Reason, "its own candidate judged it")
}

// X21: what a node was promised it may give back, and the holder on record stays; a holder gives back by a counter
// that the voter has not seen.
func TestVoterReleaseBounds(t *testing.T) {
	t.Parallel()
	promised := Record{Promised: 5, PromisedTo: "b", Holder: "a", Epoch: 4, Counter: 10, TTL: ttl}
	v, a, _ := Start(regional(), promised, 0).Handle(Release, q("b", 5, 1), 0)
	require.Equal(t, Granted, a.Reason)
	promised.PromisedTo = ""
	require.Equal(t, promised, v.Record())
	for counter, want := range map[int64]Reason{9: Behind, 10: Behind, 11: Granted} {
		_, a, _ := Start(regional(), heldByA, 0).Handle(Release, q("a", 4, counter), 0)
		require.Equal(t, want, a.Reason, counter)
	}
}

// X21: a node's vote knows what the region said, up to the highest epoch.
func TestVoterKnows(t *testing.T) {
	t.Parallel()
	own := VoterConfig{Site: "s", Name: "a", Others: others(0), TTL: ttl, Known: 4}
	for said, known := range map[int64]int64{3: 4, 5: 5, Most: Most, Most + 1: 4} {
		v, _ := Start(own, heldByA, 0).Hear(Answer{Voter: Region, Reason: Held, Vote: Standing{Promised: said}}, 1, 1)
		require.Equal(t, known, v.Known(), said)
	}
	v, _ := Start(own, heldByA, 0).Hear(Answer{Voter: Region, Reason: NotAVoter, Vote: Standing{Promised: 9}}, 1, 1)
	require.EqualValues(t, 4, v.Known(), "it votes elsewhere")
}
