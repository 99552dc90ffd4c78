package lease

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// X21: a single-node site is its own majority, and takes a new epoch when it was down.
func TestModelSingleNode(t *testing.T) {
	hunt(t)
	t.Parallel()
	e := explore(rules{ttl: 3, until: 8, single: true, budget: budget(map[fault]int8{
		crash: 2, pause: 2, wipe: 1, handing: 1, ending: 1,
	})}, func(m *model, w world) {
		if m.broken == "" && !m.calm(w, 10) {
			m.fail("nobody holds after 10 TTLs without a fault")
		}
	})
	t.Logf("%d worlds", len(e.seen))
	require.Empty(t, e.broken, e.trace)
	require.False(t, e.capped)
}

// X21: what onIsolation: run gives up is exactly this: two may be active, and only while one
// of them, a last holder, hears nobody. Bounded tenures keep the whole promise among them.
func TestModelIsolatedRun(t *testing.T) {
	hunt(t)
	t.Parallel()
	both, never := 0, 0
	e := explore(rules{ttl: 3, until: 7, run: true, budget: budget(map[fault]int8{cut: 2, crash: 1, ending: 1})}, func(m *model, w world) {
		for seat := range 2 {
			c := m.cands.get(w.cands[seat])
			if !w.guards[seat].unbounded {
				continue
			}
			if c.claim.Epoch == 0 {
				m.fail("%s runs without an end, and was not the last holder", seatNames[seat])
			}
			if w.active(1 - seat) {
				both++
				if m.reaches(w, seat) && c.claim.Unbounded && c.heard[1].set && c.heard[1].at == w.now {
					m.fail("%s runs without an end, and hears somebody", seatNames[seat])
				}
			} else {
				never++
			}
		}
	})
	t.Logf("%d worlds, two actives in %d, a lonely one in %d", len(e.seen), both, never)
	require.Empty(t, e.broken, e.trace)
	require.Positive(t, both, "the promise does not hold there, as the docs say")
	require.Positive(t, never)
}

// reaches says whether a node has any link.
func (m *model) reaches(w world, seat int) bool {
	for other := range m.seats() {
		if other != seat && w.links&(1<<(3-seat-other)) == 0 {
			return true
		}
	}
	return false
}

// X21: an isolated node ends as soon as it hears that another has held since.
func TestIsolatedRunEnds(t *testing.T) {
	t.Parallel()
	m := &model{rules: rules{ttl: 3, run: true}}
	w := m.begin()
	require.True(t, m.calm(w, 2))
	for range 3 {
		m.settleAll(&w)
		m.advance(&w, -1)
	}
	require.Equal(t, Holding, m.cands.get(w.cands[0]).Role())
	w.links = 0b110 // the links of a
	for range 12 {
		m.settleAll(&w)
		m.advance(&w, -1)
	}
	require.True(t, w.guards[0].unbounded)
	require.True(t, w.active(1), "peer and region made another active")
	w.links = 0
	m.advance(&w, -1)
	m.settleAll(&w)
	require.False(t, w.active(0))
	require.True(t, w.active(1))
	require.Zero(t, m.claims.get(w.claims[0]), "it is no longer the last holder")
}

// X21: of a site that says run, who is refused by whom it reaches is not isolated: it stops in
// time, and the other takes over. Without a cut there are never two actives.
func TestModelRevokedRun(t *testing.T) {
	hunt(t)
	t.Parallel()
	hunt := func(bad misuse) (e *explorer, followed int) {
		all := rules{ttl: 3, until: 9, run: true, bad: bad, budget: budget(map[fault]int8{revoking: 1, crash: 1, ending: 1})}
		e = explore(all, func(m *model, w world) {
			if w.active(0) && w.active(1) { // without an end or with one
				m.fail("two actives, and everybody is there")
			}
			if w.void && w.active(1) {
				followed++
			}
		})
		return e, followed
	}
	e, followed := hunt(misuse{})
	t.Logf("%d worlds, the other took over in %d", len(e.seen), followed)
	require.Empty(t, e.broken, e.trace)
	require.False(t, e.capped)
	require.Positive(t, followed)
	e, _ = hunt(misuse{name: "a refusal is taken for silence", unheard: true})
	require.NotEmpty(t, e.broken)
}

// X21: at a site that says run, a pause is no isolation: what was over when the agent woke starts
// only after it has asked. Without a cut there are never two actives.
func TestModelPausedRun(t *testing.T) {
	hunt(t)
	t.Parallel()
	for _, h := range []struct {
		name string
		of   map[fault]int8
	}{
		{"paused", map[fault]int8{pause: 3}},
		{"paused, and hears late", map[fault]int8{pause: 2, delay: 1}},
		{"paused, and given back when it ran out", map[fault]int8{pause: 2, ending: 1}},
		{"paused, and cut off", map[fault]int8{pause: 2, cut: 1}}, // asked after it was, in any case
	} {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			hunt := func(bad misuse) (e *explorer, followed int) {
				all := rules{ttl: 3, until: 8, run: true, bad: bad, budget: budget(h.of)}
				e = explore(all, func(m *model, w world) {
					if w.active(0) && w.active(1) && m.budget[cut] == 0 { // without an end or with one
						m.fail("two actives, and everybody is there")
					}
					if w.active(1) {
						followed++
					}
				})
				return e, followed
			}
			e, followed := hunt(misuse{})
			t.Logf("%d worlds, the other took over in %d", len(e.seen), followed)
			require.Empty(t, e.broken, e.trace)
			require.False(t, e.capped)
			require.Positive(t, followed)
			e, _ = hunt(misuse{name: "a pause is taken for silence", asleep: true})
			require.NotEmpty(t, e.broken)
		})
	}
}

// X21: one that runs on because it was isolated ends with the first refusal, and does not begin
// again between two of them.
func TestRevokedRunEnds(t *testing.T) {
	t.Parallel()
	m := &model{rules: rules{ttl: 3, run: true}}
	w := m.begin()
	require.True(t, m.calm(w, 2))
	for range 3 {
		m.settleAll(&w)
		m.advance(&w, -1)
	}
	w.links = 0b110 // the links of a
	for range 12 {
		m.settleAll(&w)
		m.advance(&w, -1)
	}
	require.True(t, w.guards[0].unbounded)
	require.True(t, w.active(1), "peer and region made another active")
	w.links, w.void = 0, true
	m.advance(&w, -1)
	m.settleAll(&w)
	require.False(t, w.active(0))
	for range 12 {
		m.advance(&w, -1)
		m.settleAll(&w)
		require.False(t, w.active(0))
	}
	require.True(t, w.active(1))
	require.Zero(t, m.claims.get(w.claims[0]), "its own vote told it that another holds")
}

// settleAll lets everything that is under way arrive.
func (m *model) settleAll(w *world) {
	for w.sent > 0 {
		id := w.net[0]
		m.take(w, id)
		m.call(w, m.packets.get(id))
	}
}

// N60, N64: the active dies, the standby takes over with peer away and region there, in about
// a TTL; and with the region away a pair goes on.
func TestFailOver(t *testing.T) {
	t.Parallel()
	start := func() (*model, world) {
		m := &model{rules: rules{ttl: 3}}
		w := m.begin()
		for range 4 {
			m.settleAll(&w)
			m.advance(&w, -1)
		}
		m.settleAll(&w)
		require.True(t, w.active(0))
		return m, w
	}
	t.Run("the active dies", func(t *testing.T) {
		m, w := start()
		died := w.now
		for !w.active(1) {
			w.paused[0] = true
			w.now += beat
			m.tick(&w)
			for w.sent > 0 {
				id := w.net[0]
				m.take(&w, id)
				if p := m.packets.get(id); p.to != 0 {
					m.call(&w, p)
				}
			}
			m.check(w)
			require.Less(t, w.now.Sub(died), 2*m.span().Sub(0), "two TTLs are enough")
		}
		require.Empty(t, m.broken)
		require.Greater(t, w.guards[1].epoch, w.guards[0].epoch)
	})
	t.Run("the active hears nobody, and its renewals arrive", func(t *testing.T) {
		m, w := start()
		w.deaf[0] = true
		cut := w.now
		for !w.active(1) {
			m.advance(&w, -1)
			if w.ends[0] {
				m.ended(&w, 0)
			}
			m.settleAll(&w)
			m.check(w)
			require.LessOrEqual(t, w.now.Sub(cut), (m.span() + beat).Sub(0), "it gives back what it could not renew")
		}
		require.Empty(t, m.broken)
		require.Greater(t, w.guards[1].epoch, int64(1))
	})
	t.Run("the region is away", func(t *testing.T) {
		m, w := start()
		epoch := w.guards[0].epoch
		w.links = 0b011 // those of the region
		for range 20 {
			m.advance(&w, -1)
			m.settleAll(&w)
			m.check(w)
			require.True(t, w.active(0))
		}
		require.Equal(t, epoch, w.guards[0].epoch)
	})
}
