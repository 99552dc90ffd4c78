package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

func paired() Config {
	return Config{
		Site: "s", Self: "a", Others: others(0), TTL: ttl, Interval: 3 * time.Second, Boot: "boot", OnIsolation: IsolationStop,
	}
}

func with(change func(*Config)) Config {
	c := paired()
	change(&c)
	return c
}

func cordoned(c *Config) { c.Cordoned = true }

// ran is a claim whose tenure ended with another boot.
var ran = Claim{Epoch: 4, Counter: 9, Deadline: at(time.Second), Boot: "before"}

// asks says whether the candidate begins a bid at an instant.
func (c Candidate) asks(now time.Duration) (Candidate, bool) {
	c, acts := c.Tick(at(now), 0)
	for _, a := range acts {
		if a.Do == DoSend && a.Send.Call == Ask {
			return c, true
		}
	}
	return c, false
}

// wins has both others grant what the candidate asks for.
func (c Candidate) wins(t *testing.T, now time.Duration) Candidate {
	t.Helper()
	c, acts := c.Tick(at(now), 0)
	for len(acts) > 0 {
		act := acts[0]
		acts = acts[1:]
		if act.Do != DoSend || act.Send.To == c.cfg.Self {
			continue
		}
		var more []Action
		c, more = c.Answered(act.Send, Answer{Voter: act.Send.To, Granted: true, Reason: Granted}, at(now))
		acts = append(acts, more...)
	}
	require.Equal(t, Holding, c.Role())
	return c
}

// N60, X21: who waited for a holder that gives its lease back asks at once, and one that has
// only started lets the declared active be the first, unless it met a holder.
func TestFreedCandidate(t *testing.T) {
	t.Parallel()
	told := func(c Candidate, now time.Duration, v Standing, granted bool) Candidate {
		c, acts := c.Tick(at(now), 0)
		for _, act := range acts {
			if act.Do == DoSend && act.Send.To != c.cfg.Self {
				c, _ = c.Answered(act.Send, Answer{Voter: act.Send.To, Granted: granted, Reason: Held, Vote: v, Wait: ttl}, at(now))
			}
		}
		return c
	}
	heldByB := Standing{Promised: 4, Holder: "b", Epoch: 4, Counter: 10, TTL: ttl}
	given := Standing{Promised: 4, Epoch: 4, Counter: 11, TTL: ttl}
	yields := with(func(c *Config) { c.Yield = 2 * ttl })

	c, _ := NewCandidate(yields, Claim{}, 0)
	c = told(c, 0, heldByB, false)
	_, asks := c.asks(time.Second)
	require.False(t, asks, "it waits as long as it was told")
	_, asks = c.Freed(at(time.Second)).asks(time.Second)
	require.True(t, asks)
	c = told(c.Freed(at(time.Second)), time.Second, given, true)
	require.Equal(t, Promising, c.Role(), "it met the holder, and waits for nobody")

	c, _ = NewCandidate(yields, Claim{}, 0)
	c = told(c, 0, given, true)
	require.Equal(t, Idle, c.Role(), "the declared active may come")
	c = told(c, 2*ttl, given, true)
	require.Equal(t, Promising, c.Role())

	c, _ = NewCandidate(yields, Claim{}, 0)
	c = told(c.Freed(0), 0, given, true)
	require.Equal(t, Promising, c.Role(), "there was one that held")

	for other, want := range map[Standing]Role{given: Idle, heldByB: Promising} { // one voter alone may be ahead of the others
		c, _ = NewCandidate(yields, Claim{}, 0)
		c, acts := c.Tick(0, 0)
		for _, act := range acts {
			switch act.Send.To {
			case "b":
				c, _ = c.Answered(act.Send, Answer{Voter: "b", Reason: Held, Vote: heldByB, Wait: time.Second}, 0)
			case Region:
				c, _ = c.Answered(act.Send, Answer{Voter: Region, Reason: Held, Vote: other, Wait: time.Second}, 0)
			default: // its own is not needed
			}
		}
		c = told(c, time.Second+c.soon(), given, true)
		require.Equal(t, want, c.Role(), other.Holder)
	}

	c, _ = NewCandidate(yields, Claim{}, 0)
	c, acts := c.Tick(at(2*ttl-1), 0)
	for _, act := range acts {
		granted := act.Send.To != "b"
		c, _ = c.Answered(act.Send, Answer{Voter: act.Send.To, Granted: granted, Vote: given, Wait: ttl}, at(2*ttl-1))
	}
	require.Equal(t, Idle, c.Role())
	_, asks = c.asks(2*ttl + c.soon())
	require.True(t, asks, "however long one voter would have it wait")

	c, _ = NewCandidate(yields, Claim{}, 0)
	c = told(c, 0, given, true)
	now := time.Second
	c, _ = c.Configure(paired(), at(now))
	c = told(c, now, given, true)
	require.Equal(t, Promising, c.Role(), "the other is cordoned by now")

	c, _ = NewCandidate(paired(), Claim{}, 0)
	c = c.wins(t, 0)
	require.Equal(t, c, c.Freed(at(time.Second)), "a holder is not concerned")
}

// N60: a dead holder never answers: what the other voter says is enough to know when to ask again.
func TestCandidateBesideADeadHolder(t *testing.T) {
	t.Parallel()
	c, _ := NewCandidate(paired(), Claim{}, 0)
	c, acts := c.Tick(0, 0)
	const wait = 1700 * time.Millisecond
	for _, act := range acts {
		switch act.Send.To {
		case c.cfg.Self:
			c, _ = c.Answered(act.Send, Answer{Voter: "a", Granted: true, Reason: Granted}, 0)
		case Region:
			c, _ = c.Answered(act.Send, Answer{Voter: Region, Reason: Held, Wait: wait}, 0)
		default: // the holder is dead
		}
	}
	soon := c.soon()
	require.Less(t, soon, c.cfg.Interval)
	c, asks := c.asks(soon)
	require.False(t, asks)
	require.Equal(t, Idle, c.Role(), "it does not wait for the third as long as for the first two")
	c, asks = c.asks(wait - 1)
	require.False(t, asks, "nor does it ask before it can be granted")
	_, asks = c.asks(wait)
	require.True(t, asks)
}

// X5, X21: nothing new comes to a cordoned node, and it keeps what it has.
func TestCordonedCandidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		claim Claim
		do    func(c Candidate) Candidate
		want  bool
	}{
		{"does not stand", Claim{}, nil, false},
		{"stands for what it was the last to hold", ran, nil, true},
		{"stands when it is told to", Claim{}, func(c Candidate) Candidate { return c.Stand(0) }, true},
		{"and not when nobody waits for it any more", Claim{}, func(c Candidate) Candidate { return c.Stand(0).Rest() }, false},
		{"stands again when it is let in", Claim{}, func(c Candidate) Candidate {
			c, _ = c.Configure(paired(), 0)
			return c
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cand, _ := NewCandidate(with(cordoned), c.claim, 0)
			if c.do != nil {
				cand = c.do(cand)
			}
			for now := time.Duration(0); now < 5*ttl; now += time.Second {
				var asks bool
				if cand, asks = cand.asks(now); asks {
					require.True(t, c.want)
					return
				}
			}
			require.False(t, c.want, "five TTLs have passed")
		})
	}
	t.Run("a holder that is cordoned goes on, and does not stand once it gave the lease back", func(t *testing.T) {
		t.Parallel()
		c, _ := NewCandidate(paired(), Claim{}, 0)
		c = c.wins(t, 0)
		c, _ = c.Configure(with(cordoned), at(time.Second))
		_, acts := c.Tick(at(3*time.Second), 0)
		require.Equal(t, Grant, acts[0].Send.Call, "it renews")
		c, _ = c.HandOver(at(3 * time.Second))
		c, _ = c.Stopped(at(3 * time.Second))
		for now := 3 * time.Second; now < 6*ttl; now += time.Second {
			var asks bool
			c, asks = c.asks(now)
			require.False(t, asks, "after %s", now)
		}
	})
	t.Run("nor when a hand-over before was called off", func(t *testing.T) {
		t.Parallel()
		c, _ := NewCandidate(with(cordoned), ran, 0)
		c = c.wins(t, 0)
		c, _ = c.HandOver(at(time.Second))
		c, _ = c.Stand(at(time.Second)).HandOver(at(2 * time.Second))
		c, _ = c.Stopped(at(2 * time.Second))
		_, asks := c.asks(6 * ttl)
		require.False(t, asks)
	})
	t.Run("a bid under way ends with the cordon, or when another turns out to have held since", func(t *testing.T) {
		t.Parallel()
		c, _ := NewCandidate(paired(), Claim{}, 0)
		c, asks := c.asks(0)
		require.True(t, asks)
		c, _ = c.Configure(with(cordoned), 0)
		require.Equal(t, Idle, c.Role())

		c, _ = NewCandidate(with(cordoned), ran, 0)
		c, acts := c.Tick(0, 0)
		said := Answer{Voter: "b", Granted: true, Reason: Granted, Vote: Standing{Promised: 7, Holder: "b", Epoch: 7, Counter: 1, TTL: ttl}}
		for _, a := range acts {
			if a.Do == DoSend && a.Send.To == "b" {
				c, _ = c.Answered(a.Send, said, 0)
			}
		}
		require.Equal(t, Idle, c.Role())
		require.Zero(t, c.Claim())
	})
	t.Run("one that was told to stand and has held is as before afterwards", func(t *testing.T) {
		t.Parallel()
		c, _ := NewCandidate(with(cordoned), Claim{}, 0)
		c = c.Stand(0).wins(t, 0)
		c, _ = c.HandOver(at(time.Second))
		c, _ = c.Stopped(at(time.Second))
		_, asks := c.asks(6 * ttl)
		require.False(t, asks)
	})
}

// X21
func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"a pair and its region":               {func(*Config) {}, ""},
		"a node alone":                        {func(c *Config) { c.Others = [2]fleet.NodeName{} }, ""},
		"an isolated one that runs":           {func(c *Config) { c.OnIsolation = IsolationRun }, ""},
		"three heartbeats":                    {func(c *Config) { c.TTL = 3 * c.Interval }, ""},
		"no site":                             {func(c *Config) { c.Site = "" }, "a unique name"},
		"no name":                             {func(c *Config) { c.Self = "" }, "a unique name"},
		"the region's name":                   {func(c *Config) { c.Self = Region }, "a unique name"},
		"its peer's name":                     {func(c *Config) { c.Self = c.Others[0] }, "a unique name"},
		"one other voter twice":               {func(c *Config) { c.Others[1] = c.Others[0] }, "duplicate voter"},
		"two voters":                          {func(c *Config) { c.Others[1] = "" }, "want one or three"},
		"two voters, the other way round":     {func(c *Config) { c.Others[0] = "" }, "want one or three"},
		"heartbeats that are too rare":        {func(c *Config) { c.TTL = 3*c.Interval - 1 }, "too long for a lease"},
		"no heartbeats":                       {func(c *Config) { c.Interval = 0 }, "too long for a lease"},
		"an isolation that is none":           {func(c *Config) { c.OnIsolation = "hope" }, "use stop or run"},
		"an isolation that was left out":      {func(c *Config) { c.OnIsolation = "" }, "use stop or run"},
		"heartbeats that go back in time too": {func(c *Config) { c.Interval = -time.Second }, "too long for a lease"},
	} {
		err := with(c.change).Validate()
		if c.says == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.says, name)
		require.Equal(t, fleet.Invalid, fleet.KindOf(err), name)
	}
}

// N60, X21
func TestStand(t *testing.T) {
	t.Parallel()
	holding := func(t *testing.T) Candidate {
		t.Helper()
		c, _ := NewCandidate(paired(), Claim{}, 0)
		return c.wins(t, 0)
	}
	t.Run("calls off a hand-over that has not released", func(t *testing.T) {
		t.Parallel()
		c, _ := holding(t).HandOver(at(time.Second))
		require.Equal(t, Releasing, c.Role())
		c = c.Stand(at(2 * time.Second))
		require.Equal(t, Holding, c.Role())
		stopped, acts := c.Stopped(at(2 * time.Second))
		require.Empty(t, acts, "a stop that comes too late gives nothing back")
		require.Equal(t, Holding, stopped.Role())
	})
	t.Run("ends standing aside, which lasts three TTLs", func(t *testing.T) {
		t.Parallel()
		c, _ := holding(t).HandOver(at(time.Second))
		c, _ = c.Stopped(at(time.Second))
		require.Equal(t, Idle, c.Role())
		_, asks := c.asks(time.Second + 3*ttl - 1)
		require.False(t, asks)
		_, asks = c.asks(time.Second + 3*ttl)
		require.True(t, asks)
		_, asks = c.Stand(at(2 * time.Second)).asks(2 * time.Second)
		require.True(t, asks)
	})
}

// X21
func TestConfigure(t *testing.T) {
	t.Parallel()
	isolated := with(func(c *Config) { c.OnIsolation = IsolationRun })
	unbounded := Claim{Epoch: 4, Counter: 9, Deadline: at(time.Second), Boot: "boot", Unbounded: true}
	for name, c := range map[string]struct {
		now  time.Duration
		want []Do
		role Role
	}{
		"ends what runs without an end, once its deadline has passed":           {2 * time.Second, []Do{DoLost}, Idle},
		"leaves it the time that it was granted, where that has not yet passed": {time.Second / 2, nil, Holding},
	} {
		cand, acts := NewCandidate(isolated, unbounded, 0)
		require.Equal(t, DoUnbounded, acts[0].Do)
		cand, acts = cand.Configure(paired(), at(c.now))
		var did []Do
		for _, a := range acts {
			did = append(did, a.Do)
		}
		require.Equal(t, c.want, did, name)
		require.Equal(t, c.role, cand.Role(), name)
		require.False(t, cand.Claim().Unbounded, name)
	}
	c, _ := NewCandidate(isolated, unbounded, 0)
	same, acts := c.Configure(isolated, at(2*time.Second))
	require.Empty(t, acts)
	require.True(t, same.Claim().Unbounded, "what did not change does nothing")
}

// X21: a holder that says run and was restarted decides at once when there is no time left to ask,
// so that what its guardians run never comes near its deadline. An answer makes it hold again.
func TestRestartedIsolatedRun(t *testing.T) {
	t.Parallel()
	run := func(c *Config) { c.OnIsolation = IsolationRun }
	alone := func(c *Config) { run(c); c.Others = [2]fleet.NodeName{} }
	claim := Claim{Epoch: 4, Counter: 9, Deadline: at(ttl), Boot: "boot"}
	for name, c := range map[string]struct {
		change func(*Config)
		back   time.Duration
		want   []Do
	}{
		"back soon, it has time to ask": {run, ttl/2 - 1, []Do{DoStart}},
		"back late, it has none":        {run, ttl / 2, []Do{DoPersist, DoUnbounded}},
		"a site that says stop":         {func(*Config) {}, ttl / 2, []Do{DoStart}},
		"a node that votes alone":       {alone, ttl / 2, []Do{DoStart}},
		"back after its deadline":       {run, ttl, []Do{DoLost}},
	} {
		_, acts := NewCandidate(with(c.change), claim, at(c.back))
		var did []Do
		for _, a := range acts {
			did = append(did, a.Do)
		}
		require.Equal(t, c.want, did, name)
	}
	for name, c := range map[string]struct {
		answer Answer
		late   time.Duration
		want   Role
	}{
		"granted": {Answer{Granted: true, Reason: Granted}, 0, Holding},
		"a higher promise, which it answers by another bid": {Answer{Reason: Outbid, Vote: Standing{Promised: 5}}, 0, Holding},
		"granted to another": {Answer{Reason: Outbid, Vote: Standing{Promised: 5, Holder: "b", Epoch: 5, Counter: 1, TTL: ttl}}, 0, Idle},
		"too late":           {Answer{Reason: Outbid, Vote: Standing{Promised: 5}}, ttl / 2, Idle},
	} {
		cand, _ := NewCandidate(with(run), claim, at(ttl/2))
		cand, acts := cand.Tick(at(ttl/2), 0)
		for _, a := range acts {
			if a.Do == DoSend && a.Send.To == "b" {
				c.answer.Voter = "b"
				cand, _ = cand.Answered(a.Send, c.answer, at(ttl/2+c.late))
			}
		}
		require.Equal(t, c.want, cand.Role(), name)
		require.False(t, cand.Claim().Unbounded, name)
	}
}

// X21: of two unanswered renewals the first is enough, and half a TTL is left to tell guardians.
func TestIsolatedRunIsSeenEarly(t *testing.T) {
	t.Parallel()
	c, _ := NewCandidate(with(func(c *Config) { c.OnIsolation = IsolationRun }), Claim{}, 0)
	c = c.wins(t, 0)
	c, _ = c.Tick(at(ttl/2-1), 0)
	require.False(t, c.Claim().Unbounded)
	c, acts := c.Tick(at(ttl/2), 0)
	require.Equal(t, []Do{DoPersist, DoUnbounded}, []Do{acts[0].Do, acts[1].Do})
	require.Equal(t, at(ttl), c.Claim().Deadline, "it stands, should somebody answer")
}
