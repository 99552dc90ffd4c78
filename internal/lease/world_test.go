package lease

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// A small world in which the real Voter and Candidate run: two nodes (voter and candidate
// in one process each) and the region (a voter), a network and a clock. What the world does
// is what the package's caller is asked to do: persist first, send then.

const (
	beat   = 2 // instants per heartbeat, so that half of one can be told
	netCap = 20
)

var seatNames = [3]fleet.NodeName{"a", "b", Region}

// fault is what may go wrong; a run has a budget of each.
type fault int

const (
	cut      fault = iota // other links are cut from now on: any of the eight patterns
	lose                  // a request is lost
	delay                 // a packet outlives the beat in which it was sent
	repeat                // a packet is delivered and stays
	crash                 // a process dies and starts again from its disk
	pause                 // a process does nothing for a beat
	wipe                  // a process dies and its vote is lost
	handing               // an operator wants a graceful hand-over
	aiming                // an operator aims one vote at node b
	deafen                // from now on nothing arrives at a node, and what it sends does
	ending                // what ran is found to have ended, after a lease ran out
	revoking              // from now on the others refuse what node a sends
	faults
)

// misuse is a way in which a caller, or a voter without one of its rules, would break the
// promise: each must be found out.
type misuse struct {
	name      string
	lateDisk  bool // answers, and persists with the next beat
	fromCome  bool // deadlines count from when the answer came
	noWait    bool // after a restart a voter favours anybody at once
	noLoss    bool // a voter that lost its state votes as a new one
	keepClaim bool // a release is sent before the claim is gone from the disk
	lateRun   bool // what runs is told its deadline one beat too late
	earlyEnd  bool // a holder gives back what it may lose, while it still runs
	unheard   bool // a refusal is taken for silence
	asleep    bool // a pause is taken for silence
}

type rules struct {
	ttl     int // in beats
	until   int // beats
	budget  [faults]int8
	single  bool
	rivals  bool // both nodes want to be the first holder
	yield   int  // beats for which b lets a be the first; 0 is one
	run     bool // onIsolation
	asyncMe bool // a node's calls of its own voter take the network's time too
	bad     misuse
	stolen  bool  // the key of node b: nothing of it runs, and whoever has the key says what it likes
	jump    int64 // MaxJump
	resets  bool  // epochs fall
}

type packet struct {
	answer bool
	from   int8
	to     int8
	send   Send
	reply  Answer
}

// guard is what a node's guardians were told; it outlives the agent.
type guard struct {
	epoch     int64
	until     Instant
	unbounded bool
}

// world is comparable, and small because its parts are numbered.
type world struct {
	now     Instant
	voters  [3]int32
	disks   [3]int32
	cands   [2]int32
	claims  [2]int32
	guards  [2]guard
	lives   [3]int8
	knowns  [3]int64
	paused  [3]bool
	gone    [2]bool    // it has not ticked since it was paused; kept for onIsolation: run, as is
	woke    [2]Instant // when it started or ticked again
	links   uint8      // those that are cut, by the seat that they leave out
	deaf    [3]bool
	void    bool // the key of node a
	stops   [2]bool
	ends    [2]bool // the lease ran out, and what ran may be found to have ended
	highest int64   // epoch that was ever held
	holder  int8    // who held it
	budget  [faults]int8
	net     [netCap]int32
	sent    int8
	late    int32 // the packet that outlives this beat
}

// pool numbers values, so that a world is small and equal worlds are equal.
type pool[T comparable] struct {
	ids  map[T]int32
	vals []T
}

func (p *pool[T]) id(v T) int32 {
	if id, ok := p.ids[v]; ok {
		return id
	}
	if p.ids == nil {
		p.ids = map[T]int32{}
		p.vals = append(p.vals, v) // 0 is no value
	}
	p.vals = append(p.vals, v)
	p.ids[v] = int32(len(p.vals) - 1)
	return p.ids[v]
}

func (p *pool[T]) get(id int32) T { return p.vals[id] }

type model struct {
	rules
	voters  pool[Voter]
	records pool[Record]
	cands   pool[Candidate]
	claims  pool[Claim]
	packets pool[packet]
	dropped int // packets for which the network had no room
	broken  string
}

func (m *model) span() Instant { return Instant(m.ttl) * beat }

func others(seat int) [2]fleet.NodeName {
	return [2]fleet.NodeName{seatNames[(seat+1)%3], seatNames[(seat+2)%3]}
}

func (m *model) begin() world {
	w := world{budget: m.budget, holder: -1}
	for seat := range m.seats() {
		w.disks[seat] = m.records.id(Record{})
		if seat < 2 {
			w.claims[seat] = m.claims.id(Claim{})
		}
	}
	for seat := range m.seats() {
		if !m.gone(seat) {
			m.boot(&w, seat)
		}
	}
	m.tick(&w)
	return w
}

// seats: a single-node site has its node alone.
func (m *model) seats() int {
	if m.single {
		return 1
	}
	return 3
}

// gone says that nothing honest runs there.
func (m *model) gone(seat int) bool { return m.stolen && seat == 1 }

func (m *model) boot(w *world, seat int) {
	w.lives[seat]++
	cfg := VoterConfig{Site: "s", Name: seatNames[seat], TTL: time.Duration(m.span()), Jump: m.jump, Known: w.knowns[seat], Nonce: int64(w.lives[seat])*10 + int64(seat)}
	if !m.single {
		cfg.Others = others(seat)
	}
	v := Start(cfg, m.records.get(w.disks[seat]), w.now)
	if m.bad.noWait {
		v.opens, v.seen = w.now, w.now.Add(-time.Duration(m.span()))
	}
	w.voters[seat] = m.voters.id(v)
	if seat == 2 {
		return
	}
	if m.run {
		w.gone[seat], w.woke[seat] = false, w.now
	}
	c, acts := NewCandidate(m.config(seat), m.claims.get(w.claims[seat]), w.now)
	w.cands[seat] = m.cands.id(c)
	m.do(w, seat, acts)
}

func (m *model) config(seat int) Config {
	cfg := Config{
		Site: "s", Self: seatNames[seat], TTL: time.Duration(m.span()), Interval: beat, Boot: "boot", OnIsolation: IsolationStop, Jump: m.jump,
	}
	if seat == 1 && !m.rivals {
		cfg.Yield = time.Duration(max(m.yield, 1) * beat)
	}
	if m.run {
		cfg.OnIsolation = IsolationRun
	}
	if !m.single {
		cfg.Others = others(seat)
	}
	return cfg
}

// do carries out actions as a node agent does.
func (m *model) do(w *world, seat int, acts []Action) {
	for len(acts) > 0 {
		act := acts[0]
		acts = acts[1:]
		c := m.cands.get(w.cands[seat])
		switch act.Do {
		case DoPersist:
			if !m.bad.keepClaim || c.claim.Epoch != 0 {
				w.claims[seat] = m.claims.id(c.Claim())
			}
		case DoSend:
			acts = append(acts, m.send(w, seat, act.Send)...)
		case DoStart, DoExtend, DoUnbounded:
			m.asked(w, seat, act)
			w.guards[seat] = guard{act.Epoch, act.Until, act.Do == DoUnbounded}
			if m.bad.lateRun {
				w.guards[seat].until += beat
			}
			w.ends[seat] = w.ends[seat] && act.Do == DoExtend
			m.epoch(w, seat, act)
		case DoStop:
			w.stops[seat] = true
		case DoLost:
			w.guards[seat], w.stops[seat], w.ends[seat] = guard{}, false, c.Lapsed()
		}
	}
}

// asked holds against what runs without an end that its node asked before, since it woke: where
// the time of what ran is over, for two thirds of a TTL.
func (m *model) asked(w *world, seat int, act Action) {
	switch {
	case act.Do != DoUnbounded:
	case w.gone[seat]:
		m.fail("%s takes the deadline off, and has not asked since it woke", seatNames[seat])
	case !w.active(seat) && w.now.Sub(w.woke[seat]) < 2*m.span().Sub(0)/3:
		m.fail("%s goes on with what was over, and has hardly asked since it woke", seatNames[seat])
	}
}

// epoch holds every tenure against all that were before it.
func (m *model) epoch(w *world, seat int, act Action) {
	switch {
	case act.Do == DoUnbounded, m.resets:
	case act.Epoch < w.highest:
		m.fail("%s holds epoch %d after %d was held", seatNames[seat], act.Epoch, w.highest)
	case act.Epoch == w.highest && w.holder != int8(seat):
		m.fail("%s holds epoch %d, which another held", seatNames[seat], act.Epoch)
	case act.Epoch > w.highest:
		w.highest, w.holder = act.Epoch, int8(seat)
	}
}

func (m *model) send(w *world, seat int, s Send) []Action {
	s.Request.Vote = m.voters.get(w.voters[seat]).Record().Standing()
	to := slices.Index(seatNames[:], s.To)
	linked := to == seat || w.links&(1<<(3-seat-to)) == 0
	if s.Call == Ask && linked && !w.paused[to] && !m.asyncMe && !m.gone(to) { // promises nothing: its order matters little
		if w.deaf[to] && to != seat {
			return nil
		}
		if a := m.handle(w, to, s); !w.deaf[seat] || to == seat {
			return m.answered(w, seat, s, a)
		}
		return nil
	}
	if to != seat || m.asyncMe {
		m.put(w, packet{from: int8(seat), to: int8(to), send: s})
		return nil
	}
	return m.answered(w, seat, s, m.handle(w, seat, s))
}

// refusal is what comes back of a call that was not looked at.
var refusal = Answer{}

// handle is the voter's side of a call: persist, then answer.
func (m *model) handle(w *world, seat int, s Send) Answer {
	if w.void && s.Request.Candidate == seatNames[0] && seat != 0 {
		return refusal
	}
	was := m.voters.get(w.voters[seat])
	v, a, changed := was.Handle(s.Call, s.Request, w.now)
	m.keep(w, seat, v, changed)
	if s.Call == Release && a.Granted && seat < 2 {
		w.cands[seat] = m.cands.id(m.cands.get(w.cands[seat]).Freed(w.now))
	}
	return a
}

func (m *model) keep(w *world, seat int, v Voter, changed bool) {
	if changed != (m.voters.get(w.voters[seat]).record != v.record) {
		m.fail("voter %s says changed=%v", seatNames[seat], changed)
	}
	if !v.record.Valid() {
		m.fail("voter %s keeps an impossible record", seatNames[seat])
	}
	w.voters[seat], w.knowns[seat] = m.voters.id(v), v.Known()
	if changed && !m.bad.lateDisk {
		w.disks[seat] = m.records.id(v.Record())
	}
}

func (m *model) answered(w *world, seat int, s Send, a Answer) []Action {
	if a == refusal && m.bad.unheard {
		return nil
	}
	if a == refusal {
		c, acts := m.cands.get(w.cands[seat]).Refused(s, w.now)
		w.cands[seat] = m.cands.id(c)
		return acts
	}
	if a.Voter != seatNames[seat] {
		v, changed := m.voters.get(w.voters[seat]).Hear(a, s.At, w.now)
		m.keep(w, seat, v, changed)
	}
	if m.bad.fromCome {
		s.At = w.now
	}
	c, acts := m.cands.get(w.cands[seat]).Answered(s, a, w.now)
	w.cands[seat] = m.cands.id(c)
	return acts
}

func (m *model) put(w *world, p packet) {
	id := m.packets.id(p)
	if p.from != p.to && w.deaf[p.to] || p.from != p.to && w.links&(1<<(3-p.from-p.to)) != 0 || slices.Contains(w.net[:w.sent], id) {
		return
	}
	if w.sent == netCap {
		m.dropped++
		return
	}
	w.net[w.sent] = id
	w.sent++
	slices.Sort(w.net[:w.sent])
}

func (m *model) take(w *world, id int32) {
	at := slices.Index(w.net[:w.sent], id)
	copy(w.net[at:w.sent], w.net[at+1:w.sent])
	w.sent--
	w.net[w.sent] = 0
}

// call is a request and its answer in one go. Within a beat nothing is lost by that: an answer
// that comes later is the same as what follows from it coming later.
func (m *model) call(w *world, p packet) {
	p.reply = m.handle(w, int(p.to), p.send)
	p.from, p.to, p.answer = p.to, p.from, true
	if w.paused[p.to] || w.deaf[p.to] {
		m.put(w, p)
		return
	}
	m.arrive(w, p)
}

// serve is a request whose answer takes its time, for ever perhaps.
func (m *model) serve(w *world, p packet) {
	p.reply = m.handle(w, int(p.to), p.send)
	p.from, p.to, p.answer = p.to, p.from, true
	m.put(w, p)
}

func (m *model) arrive(w *world, p packet) {
	m.do(w, int(p.to), m.answered(w, int(p.to), p.send, p.reply))
}

// tick lets every process that is awake do what is due.
func (m *model) tick(w *world) {
	for seat := range m.seats() {
		if w.paused[seat] || m.gone(seat) {
			continue
		}
		v, changed := m.voters.get(w.voters[seat]).Tick(w.now)
		m.keep(w, seat, v, changed)
		w.disks[seat] = m.records.id(v.Record())
		if seat == 2 {
			continue
		}
		random := float64(seat) * 0.9
		c := m.cands.get(w.cands[seat])
		if m.bad.asleep {
			c.ticked = w.now
		}
		c, acts := c.Tick(w.now, random)
		w.cands[seat] = m.cands.id(c)
		m.do(w, seat, acts)
		if w.gone[seat] {
			w.gone[seat], w.woke[seat] = false, w.now
		}
	}
}

func (m *model) restart(w *world, seat int) {
	for i := int(w.sent) - 1; i >= 0; i-- { // answers find nobody who asked
		if p := m.packets.get(w.net[i]); p.answer && int(p.to) == seat {
			m.take(w, w.net[i])
		}
	}
	w.paused[seat] = false
	if seat < 2 {
		w.stops[seat], w.ends[seat] = false, false
	}
	m.boot(w, seat)
}

// active says whether something of the node runs, or may.
func (w world) active(seat int) bool {
	g := w.guards[seat]
	return g.epoch != 0 && (g.unbounded || w.now < g.until)
}

func (m *model) fail(format string, args ...any) {
	if m.broken == "" {
		m.broken = fmt.Sprintf(format, args...)
	}
}

// check is the promise: never two actives.
func (m *model) check(w world) {
	if w.active(0) && w.active(1) && !w.guards[0].unbounded && !w.guards[1].unbounded {
		m.fail("two actives: a with epoch %d, b with epoch %d", w.guards[0].epoch, w.guards[1].epoch)
	}
	for seat := range 2 {
		if w.cands[seat] == 0 || m.bad.lateRun {
			continue
		}
		t, ok := m.cands.get(w.cands[seat]).Holding(w.now)
		if ok && !t.Unbounded && (!w.active(seat) || w.guards[seat].until < t.Until) {
			m.fail("%s holds longer than its guardians were told", seatNames[seat])
		}
	}
}
