package lease

import (
	"flag"
	"fmt"
	"hash/maphash"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var bound = flag.Int("lease.bound", 0, "explore so many more beats than the default of the model check")

// next is one thing that may happen in a world.
type next struct {
	name  func() string
	apply func(*world)
	cost  fault
	paid  bool // it takes from the budget
}

// explorer visits every world that can come about, depth first.
type explorer struct {
	*model
	seen   map[uint64]struct{}
	seed   maphash.Seed
	path   []string
	trace  string
	visit  func(world) // beside the invariants
	limit  int
	capped bool
}

func explore(r rules, visit func(*model, world)) *explorer {
	e := &explorer{model: &model{rules: r}, seen: map[uint64]struct{}{}, seed: maphash.MakeSeed(), limit: 40_000_000}
	e.visit = func(w world) { visit(e.model, w) }
	e.walk(e.begin())
	return e
}

func (e *explorer) walk(w world) {
	h := maphash.Comparable(e.seed, w)
	if _, ok := e.seen[h]; ok || e.broken != "" {
		return
	}
	if len(e.seen) >= e.limit {
		e.capped = true
		return
	}
	e.seen[h] = struct{}{}
	e.visit(w)
	for _, n := range e.model.nexts(w) {
		after := w
		n.apply(&after)
		e.check(after)
		if e.broken != "" {
			if e.trace == "" {
				e.trace = strings.Join(append(e.path, n.name()), "\n")
			}
			return
		}
		e.path = append(e.path, n.name())
		e.walk(after)
		e.path = e.path[:len(e.path)-1]
		if e.broken != "" {
			return
		}
	}
}

func (m *model) nexts(w world) []next {
	var all []next
	add := func(cost fault, paid bool, apply func(*world), name string, args ...any) {
		if paid && w.budget[cost] == 0 {
			return
		}
		all = append(all, next{name: func() string { return fmt.Sprintf("t=%d ", w.now) + fmt.Sprintf(name, args...) }, cost: cost, paid: paid, apply: func(w *world) {
			if paid {
				w.budget[cost]--
			}
			apply(w)
		}})
	}
	for _, id := range w.net[:w.sent] {
		p := m.packets.get(id)
		if w.paused[p.to] {
			continue
		}
		what := "asks"
		if p.answer {
			what = "answers"
		}
		add(delay, false, func(w *world) { m.take(w, id); m.deliver(w, id) },
			"%s %s %s: %s %+v %+v", seatNames[p.from], what, seatNames[p.to], p.send.Call, p.send.Request, p.reply)
		add(repeat, true, func(w *world) { m.deliver(w, id) },
			"%s %s %s, and stays: %s %+v", seatNames[p.from], what, seatNames[p.to], p.send.Call, p.send.Request)
	}
	for seat := range m.seats() {
		add(crash, true, func(w *world) { m.restart(w, seat) }, "%s crashes", seatNames[seat])
		add(wipe, true, func(w *world) { m.wipe(w, seat) }, "%s loses its vote", seatNames[seat])
		if w.paused[seat] {
			add(delay, false, func(w *world) { w.paused[seat] = false }, "%s wakes", seatNames[seat])
			continue
		}
		if seat > 0 {
			add(aiming, true, func(w *world) { m.aim(w, seat) }, "%s is aimed at b", seatNames[seat])
		}
		if seat < 2 && w.stops[seat] {
			add(delay, false, func(w *world) { m.stopped(w, seat) }, "%s has stopped", seatNames[seat])
		} else if seat < 2 && m.cands.get(w.cands[seat]).Role() == Holding {
			add(handing, true, func(w *world) { m.handOver(w, seat) }, "%s is to hand over", seatNames[seat])
		}
	}
	if w.now < Instant(m.until)*beat {
		m.advances(w, add)
	}
	return all
}

// advances are the ways in which time goes on: who sleeps, and what stays under way.
func (m *model) advances(w world, add func(fault, bool, func(*world), string, ...any)) {
	add(delay, false, func(w *world) { m.advance(w, -1) }, "a beat")
	for _, id := range w.net[:w.sent] {
		p := m.packets.get(id)
		add(delay, true, func(w *world) { m.advance(w, -1, id) }, "a beat; %v of %s to %s is under way still", p.send.Call, seatNames[p.from], seatNames[p.to])
	}
	for seat := range m.seats() {
		add(pause, true, func(w *world) { m.advance(w, seat) }, "a beat; %s is paused", seatNames[seat])
	}
}

func (m *model) advance(w *world, sleeper int, keep ...int32) {
	w.now += beat
	for seat := range 3 {
		w.paused[seat] = seat == sleeper
	}
	for i := int(w.sent) - 1; i >= 0; i-- {
		id := w.net[i]
		late := len(keep) > 0 && keep[0] == id
		if waits := int(m.packets.get(id).to) == sleeper; !late && !waits {
			m.take(w, id)
		}
	}
	m.tick(w)
}

func (m *model) wipe(w *world, seat int) {
	w.disks[seat] = m.records.id(Joining())
	if m.bad.noLoss {
		w.disks[seat] = m.records.id(Record{})
	}
	if seat < 2 {
		w.claims[seat] = m.claims.id(Claim{})
	}
	m.restart(w, seat)
}

func (m *model) aim(w *world, seat int) {
	v, changed := m.voters.get(w.voters[seat]).Aim("b", w.now)
	m.keep(w, seat, v, changed)
}

func (m *model) handOver(w *world, seat int) {
	c, acts := m.cands.get(w.cands[seat]).HandOver(w.now)
	w.cands[seat] = m.cands.id(c)
	m.do(w, seat, acts)
}

func (m *model) stopped(w *world, seat int) {
	w.stops[seat], w.guards[seat] = false, guard{}
	c, acts := m.cands.get(w.cands[seat]).Stopped(w.now)
	w.cands[seat] = m.cands.id(c)
	m.do(w, seat, acts)
}

// calm lets the world go on without faults until somebody holds, at most so many TTLs.
func (m *model) calm(w world, ttls int) bool {
	for range ttls*m.ttl + 1 {
		for range 50 { // all that is under way arrives, in some order
			if w.sent == 0 {
				break
			}
			id := w.net[0]
			m.take(&w, id)
			m.deliver(&w, id)
			m.check(w)
		}
		for seat := range 2 {
			if w.stops[seat] {
				m.stopped(&w, seat)
			}
			if w.cands[seat] == 0 {
				continue
			}
			if t, ok := m.cands.get(w.cands[seat]).Holding(w.now); ok && t.Until > w.now+beat {
				return true
			}
		}
		m.advance(&w, -1)
		m.check(w)
	}
	return false
}

func budget(of map[fault]int8) (b [faults]int8) {
	for f, n := range of {
		b[f] = n
	}
	return b
}

var hunts = []struct {
	name  string
	until int
	of    map[fault]int8
}{
	{"nothing but loss", 6, nil},
	{"crash", 5, map[fault]int8{crash: 2}},
	{"delay", 5, map[fault]int8{delay: 2}},
	{"crash, late and twice", 5, map[fault]int8{crash: 1, delay: 1, repeat: 1}},
	{"pause", 5, map[fault]int8{pause: 2}},
	{"pause and crash", 5, map[fault]int8{pause: 1, crash: 1}},
	{"lost vote", 6, map[fault]int8{wipe: 1}},
	{"lost vote and late", 6, map[fault]int8{wipe: 1, delay: 1}},
	{"hand-over", 5, map[fault]int8{handing: 1, crash: 1}},
	{"hand-over, late", 5, map[fault]int8{handing: 1, delay: 1}},
	{"forced", 6, map[fault]int8{aiming: 2}},
	{"forced and crash", 5, map[fault]int8{aiming: 2, crash: 1}},
}

// X21, N60: whatever is lost, late, twice, paused, killed or wiped, there are never two
// actives, epochs rise, and when it is over somebody is active again.
func TestModel(t *testing.T) {
	for _, h := range hunts {
		t.Run(h.name, func(t *testing.T) {
			worlds, calmed := 0, 0
			e := explore(rules{ttl: 2, until: h.until + *bound, budget: budget(h.of)}, func(m *model, w world) {
				if worlds++; worlds%97 != 0 {
					return
				}
				calmed++
				if m.broken == "" && !m.calm(w, 10) {
					m.fail("nobody holds after 10 TTLs without a fault")
				}
			})
			t.Logf("%d worlds, %d calmed, %d packets found no room, capped %v", len(e.seen), calmed, e.dropped, e.capped)
			require.Empty(t, e.broken, e.trace+"\n"+strings.Join(e.path, "\n"))
		})
	}
}
