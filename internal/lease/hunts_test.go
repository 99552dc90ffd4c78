//go:build slow && !race

package lease

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
)

var bound = flag.Int("lease.bound", 0, "explore so many more beats than the default of the model check")

var hunts = []struct {
	name   string
	ttl    int
	until  int
	of     map[fault]int8
	rivals bool
}{
	{"rivals", 2, 4, map[fault]int8{cut: 2}, true},
	{"cuts", 2, 6, map[fault]int8{cut: 3}, false},
	{"cuts, TTL of three beats", 3, 8, map[fault]int8{cut: 2}, false},
	{"crashes", 2, 6, map[fault]int8{cut: 1, crash: 1}, false},
	{"two crashes", 2, 4, map[fault]int8{cut: 1, crash: 2}, false},
	{"late", 2, 5, map[fault]int8{cut: 1, delay: 1}, false},
	{"late and lost", 2, 4, map[fault]int8{cut: 1, delay: 1, lose: 1}, false},
	{"late and twice", 2, 4, map[fault]int8{cut: 1, delay: 1, repeat: 1}, false},
	{"late after a crash", 2, 3, map[fault]int8{cut: 1, delay: 1, crash: 1}, false},
	{"paused", 2, 5, map[fault]int8{cut: 1, pause: 2}, false},
	{"a lost vote", 2, 6, map[fault]int8{cut: 1, wipe: 1}, false},
	{"a lost vote, and late", 2, 5, map[fault]int8{wipe: 1, delay: 1}, false},
	{"hand-over", 2, 3, map[fault]int8{cut: 1, handing: 1, crash: 1}, false},
	{"hand-over, late", 2, 4, map[fault]int8{handing: 1, delay: 1}, false},
	{"hears nobody", 2, 6, map[fault]int8{deafen: 2, ending: 1}, false},
	{"given back when it ran out", 2, 5, map[fault]int8{cut: 2, ending: 1}, false},
	{"given back when it ran out, crash", 2, 4, map[fault]int8{cut: 1, ending: 1, crash: 1}, false},
	{"given back when it ran out, late", 2, 4, map[fault]int8{cut: 1, ending: 1, delay: 1}, false},
	{"given back when it ran out, paused", 2, 4, map[fault]int8{cut: 1, ending: 1, pause: 1}, false},
	{"revoked", 2, 5, map[fault]int8{cut: 1, revoking: 1}, false},
	{"revoked, crash", 2, 5, map[fault]int8{crash: 1, revoking: 1}, false},
	{"forced", 2, 5, map[fault]int8{cut: 1, aiming: 2}, false},
}

// X21, N60: whatever is lost, late, twice, paused, killed or wiped, there are never two
// actives, epochs rise, and when it is over somebody is active again.
func TestModel(t *testing.T) {
	for _, h := range hunts {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			worlds, calmed := 0, 0
			e := explore(rules{ttl: h.ttl, until: h.until + *bound, budget: budget(h.of), rivals: h.rivals}, func(m *model, w world) {
				if worlds++; worlds%97 != 0 {
					return
				}
				calmed++
				if m.broken == "" && !m.calm(w, 10) {
					m.fail("nobody holds after 10 TTLs without a fault")
				}
			})
			t.Logf("%d worlds, %d calmed, %d packets found no room, capped %v", len(e.seen), calmed, e.dropped, e.capped)
			require.Empty(t, e.broken, e.trace)
			require.False(t, e.capped, "-lease.worlds stops the hunt before its end")
		})
	}
}

// X21: a single-node site is its own majority, and takes a new epoch when it was down.
func TestModelSingleNode(t *testing.T) {
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

// X21: of a site that says run, who is refused by whom it reaches is not isolated: it stops in
// time, and the other takes over. Without a cut there are never two actives.
func TestModelRevokedRun(t *testing.T) {
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
