package lease

import (
	"flag"
	"fmt"
	"hash/maphash"
)

var worldsMax = flag.Int("lease.worlds", 3_000_000, "give up a hunt of the model check after so many worlds")

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
	path   []func() string
	trace  string
	visit  func(world) // beside the invariants
	limit  int
	capped bool
}

func explore(r rules, visit func(*model, world)) *explorer {
	e := &explorer{model: &model{rules: r}, seen: map[uint64]struct{}{}, seed: maphash.MakeSeed(), limit: *worldsMax}
	e.visit = func(w world) { visit(e.model, w) }
	e.walk(e.begin())
	return e
}

// canon forgets what can no longer matter, so that worlds which differ in nothing else are one.
func (m *model) canon(w world) world {
	for seat := range m.seats() {
		v := m.voters.get(w.voters[seat])
		v.seen = max(v.seen, w.now.Add(-v.patience()))
		v.opens = max(v.opens, w.now)
		if v.record.Target == "" {
			v.aimed = 0
		}
		w.voters[seat] = m.voters.id(v)
		if seat == 2 {
			continue
		}
		c := m.cands.get(w.cands[seat])
		if !m.run { // they are read for onIsolation: run alone, but for when it started
			c.heard, c.unheard, c.refused, c.ticked = [seats]stamp{}, [seats]stamp{}, stamp{}, 0
			if w.now >= c.started.Add(c.cfg.Yield) {
				c.started = 0
			}
		}
		if m.budget[wipe] == 0 {
			c.nonces = [seats]int64{}
		}
		if w.budget[ending] == 0 {
			c.lapsed, w.ends[seat] = Claim{}, false
		}
		for i := range seats {
			c.grants[i] = c.grants[i].canon(w.now.Add(-c.cfg.TTL))
			c.heard[i] = c.heard[i].canon(w.now.Add(-c.cfg.TTL))
			c.unheard[i].at = max(c.unheard[i].at, w.now.Add(-c.cfg.TTL))
			c.bid.grants[i] = c.bid.grants[i].canon(w.now.Add(-c.cfg.TTL))
		}
		c.bidAt, c.renewAt, c.aside = max(c.bidAt, w.now), max(c.renewAt, w.now), max(c.aside, w.now)
		if w.woke[seat] = max(w.woke[seat], w.now.Add(-c.cfg.TTL)); !m.run {
			w.woke[seat] = 0
		}
		w.cands[seat] = m.cands.id(c)
		if w.guards[seat].until <= w.now && !w.guards[seat].unbounded {
			w.guards[seat] = guard{}
		}
	}
	return w
}

func (s stamp) canon(expired Instant) stamp {
	if s.set && s.at <= expired {
		return stamp{}
	}
	return s
}

func (e *explorer) walk(w world) {
	w = e.canon(w)
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
				for _, name := range append(e.path, n.name) {
					e.trace += "\n" + name()
				}
			}
			return
		}
		e.path = append(e.path, n.name)
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
		if p.answer {
			add(delay, false, func(w *world) { m.take(w, id); m.arrive(w, p) }, "%s hears %s late: %s %+v", seatNames[p.to], seatNames[p.from], p.send.Call, p.reply)
			continue
		}
		add(delay, false, func(w *world) { m.take(w, id); m.call(w, p) }, "%s calls %s: %s %+v", seatNames[p.from], seatNames[p.to], p.send.Call, p.send.Request)
		add(delay, true, func(w *world) { m.take(w, id); m.serve(w, p) }, "%s calls %s, the answer is late: %s %+v", seatNames[p.from], seatNames[p.to], p.send.Call, p.send.Request)
		add(repeat, true, func(w *world) { m.call(w, p) }, "%s calls %s, and again: %s %+v", seatNames[p.from], seatNames[p.to], p.send.Call, p.send.Request)
	}
	if !w.void {
		add(revoking, true, func(w *world) { w.void = true }, "a is refused from now on")
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
		if seat < 2 && (w.ends[seat] || m.bad.earlyEnd && w.active(seat)) {
			add(ending, true, func(w *world) { m.ended(w, seat) }, "nothing runs on %s any more", seatNames[seat])
		}
	}
	if w.now < Instant(m.until)*beat {
		m.advances(w, add)
	}
	return all
}

// advances are the ways in which time goes on: what stays under way or is lost, who sleeps,
// and which links are cut from now on. What can arrive has to, or is paid for.
func (m *model) advances(w world, add func(fault, bool, func(*world), string, ...any)) {
	waiting := 0
	for _, id := range w.net[:w.sent] {
		p := m.packets.get(id)
		if p.answer || w.paused[p.to] {
			continue // a late answer is paid for, and stays under way
		}
		waiting++
		add(lose, true, func(w *world) { m.take(w, id) }, "%v of %s to %s is lost", p.send.Call, seatNames[p.from], seatNames[p.to])
		if w.late != id {
			add(delay, true, func(w *world) { w.late = id }, "%v of %s to %s is late", p.send.Call, seatNames[p.from], seatNames[p.to])
		} else {
			waiting--
		}
	}
	if waiting > 0 {
		return
	}
	add(cut, false, func(w *world) { m.advance(w, -1) }, "a beat")
	for links := range uint8(8) {
		if links != w.links && !m.single {
			add(cut, true, func(w *world) { w.links = links; m.advance(w, -1) }, "a beat; links %03b are cut", links)
		}
	}
	for seat := range 2 {
		add(deafen, true, func(w *world) { w.deaf[seat] = !w.deaf[seat]; m.advance(w, -1) }, "a beat; %s hears nobody, or again", seatNames[seat])
	}
	for seat := range m.seats() {
		add(pause, true, func(w *world) { m.advance(w, seat) }, "a beat; %s is paused", seatNames[seat])
	}
}

func (m *model) advance(w *world, sleeper int) {
	w.now += beat
	w.late = 0
	for seat := range 3 {
		w.paused[seat] = seat == sleeper
	}
	if m.run && 0 <= sleeper && sleeper < 2 {
		w.gone[sleeper] = true
	}
	m.tick(w)
}

func (m *model) wipe(w *world, seat int) {
	w.disks[seat] = m.records.id(Joining())
	if m.single { // nobody else knows: the node's store does
		w.disks[seat] = m.records.id(Joining().Above(w.highest))
	}
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

func (m *model) ended(w *world, seat int) {
	c := m.cands.get(w.cands[seat])
	if m.bad.earlyEnd && c.held {
		c.held, c.lapsed = false, c.claim
	}
	w.ends[seat] = false
	c, acts := c.Ended(w.now)
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
			if p := m.packets.get(id); p.answer {
				m.arrive(&w, p)
			} else {
				m.call(&w, p)
			}
			m.check(w)
		}
		for seat := range 2 {
			if w.stops[seat] {
				m.stopped(&w, seat)
			}
			if w.ends[seat] {
				m.ended(&w, seat)
			}
			if w.cands[seat] == 0 {
				continue
			}
			if t, ok := m.cands.get(w.cands[seat]).Holding(w.now); ok && t.Until > w.now+beat {
				return true
			}
		}
		w.links, w.deaf = 0, [3]bool{}
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
