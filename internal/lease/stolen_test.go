package lease

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// thief has the key of node b, and says anything to anybody at any time.
type thief struct {
	*model
	t     *rapid.T
	w     world
	lies  bool    // also that it grants, which is to have two votes
	said  int64   // calls and answers
	given Instant // when the region last granted it the lease
}

// number is one that matters near a known one, or far from all.
func (h *thief) number(near int64, what string) int64 {
	switch i := rapid.IntRange(0, 12).Draw(h.t, what); i {
	case 0:
		return -1
	case 1:
		return Most
	case 2:
		return Most + 1
	case 3:
		return math.MaxInt64 - 1
	case 4:
		return math.MaxInt64
	default:
		return near + []int64{-1, 0, 1, 2, h.jump / 2, h.jump/2 + 1, h.jump, h.jump + 1}[i-5]
	}
}

func (h *thief) span(what string) time.Duration {
	return rapid.SampledFrom([]time.Duration{0, 1, time.Duration(h.model.span()), time.Duration(h.model.span()) + 1, math.MaxInt64, -1}).Draw(h.t, what)
}

func (h *thief) standing(near Record) Standing {
	return Standing{
		Promised: h.number(near.Promised, "promised"), Epoch: h.number(near.Epoch, "epoch"), Counter: h.number(near.Counter, "counter"),
		Holder: rapid.SampledFrom([]fleet.NodeName{"", "a", "b", "c", Region}).Draw(h.t, "holder"), TTL: h.span("TTL"), Lost: rapid.Bool().Draw(h.t, "lost"),
	}
}

// calls is a request of the thief to an honest voter.
func (h *thief) calls(seat int) {
	of := h.voters.get(h.w.voters[seat])
	q := Request{
		Site: "s", Candidate: "b", Epoch: h.number(of.record.Promised, "epoch"), Counter: h.number(of.record.Counter, "counter"), TTL: h.span("TTL"),
		Nonce: rapid.SampledFrom([]int64{0, of.cfg.Nonce}).Draw(h.t, "nonce"), Vote: h.standing(of.record),
	}
	call := rapid.SampledFrom([]Call{Ask, Promise, Grant, Release, "steal"}).Draw(h.t, "call")
	a := h.handle(&h.w, seat, Send{To: seatNames[seat], Call: call, Request: q, At: h.w.now})
	h.note("%s to %s: %+v, answered %+v", call, seatNames[seat], q, a)
	h.said++
	if seat == 2 {
		if a.Granted && call == Grant {
			h.given = h.w.now
		}
		if a.Granted && call == Release {
			h.given = -h.model.span()
		}
	}
}

// answers is what the thief says to a's request.
func (h *thief) answers(p packet) {
	own := h.voters.get(h.w.voters[0]).record
	p.reply = Answer{
		Voter: "b", Granted: h.lies && rapid.Bool().Draw(h.t, "granted"), Vote: h.standing(own), Wait: h.span("wait"),
		Reason: rapid.SampledFrom([]Reason{Granted, Held, Restarted, Lost, Withheld, Outbid, Behind, HolderMoved, BadRequest, NotAVoter}).Draw(h.t, "reason"),
		Nonce:  rapid.Int64().Draw(h.t, "nonce"),
	}
	h.said++
	p.from, p.to, p.answer = p.to, p.from, true
	h.note("answer to %s: %+v", p.send.Call, p.reply)
	h.arrive(&h.w, p)
}

func (h *thief) note(format string, args ...any) {
	h.t.Logf("t=%d: "+format, append([]any{h.w.now}, args...)...)
}

// step is the thief's, or of the world.
func (h *thief) step() {
	switch rapid.IntRange(0, 4).Draw(h.t, "step") {
	case 0:
		h.beat()
	case 1:
		h.calls(0)
	case 2:
		h.calls(2)
	default:
		for _, id := range h.w.net[:h.w.sent] {
			if p := h.packets.get(id); p.to == 1 && !p.answer {
				h.take(&h.w, id)
				h.answers(p)
				return
			}
		}
	}
}

// beat brings what is under way between the honest, and lets time go on.
func (h *thief) beat() {
	for {
		at := slices.IndexFunc(h.w.net[:h.w.sent], func(id int32) bool { return h.packets.get(id).to != 1 && !h.w.paused[h.packets.get(id).to] })
		if at < 0 {
			break
		}
		id := h.w.net[at]
		h.take(&h.w, id)
		if p := h.packets.get(id); p.answer {
			h.arrive(&h.w, p)
		} else {
			h.call(&h.w, p)
		}
	}
	for h.w.sent > 0 && h.packets.get(h.w.net[0]).to == 1 { // nobody reads them any more
		h.take(&h.w, h.w.net[0])
	}
	h.advance(&h.w, -1)
}

func (h *thief) holds() {
	a := h.voters.get(h.w.voters[0])
	region := h.voters.get(h.w.voters[2]).record
	h.check(h.w)
	if a.record.Promised > region.Promised+h.jump || a.known > region.Promised {
		h.fail("a promised %d and knows of %d, the region promised %d", a.record.Promised, a.known, region.Promised)
	}
	if region.Promised > h.said*h.jump+int64(h.w.now) {
		h.fail("the region promised %d after %d calls and answers", region.Promised, h.said)
	}
	if !h.lies && h.w.active(0) && region.Holder == "b" && h.w.now < h.given+h.model.span() {
		h.fail("two actives: a until %d, b by a grant of %d", h.w.guards[0].until, h.given)
	}
	require.Empty(h.t, h.broken)
}

func steal(t *rapid.T) *thief {
	h := &thief{t: t, lies: rapid.Bool().Draw(t, "lies"), model: &model{rules: rules{ttl: rapid.IntRange(2, 4).Draw(t, "ttl"), stolen: true, jump: 1 << 10}}}
	h.w = h.begin()
	h.given = -h.model.span()
	return h
}

// X20, X21: who stole the standby's key deposes nobody, whatever it says and however often.
func TestStolenKeyDeposesNobody(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := steal(t)
		for range 10 * h.ttl {
			h.beat()
		}
		require.True(t, h.w.active(0), "it holds with the region's vote")
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			h.step()
			h.holds()
			require.True(t, h.w.active(0), "a is not active any more")
		}
	})
}

// X20, X21: also while the others are killed and paused there are never two actives by honest votes, all
// numbers stay within their bounds, and once the key is revoked the site has its active node back.
func TestStolenKeyIsRevoked(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := steal(t)
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 12).Draw(t, "fault") {
			case 0:
				h.restart(&h.w, 0)
			case 1:
				h.restart(&h.w, 2)
			case 2:
				h.advance(&h.w, rapid.SampledFrom([]int{0, 2}).Draw(t, "sleeper"))
			case 3: // a hears and reaches nobody, or again
				h.w.links ^= 0b010
				h.advance(&h.w, -1)
			default:
				h.step()
			}
			h.holds()
		}
		h.w.links, h.w.paused = 0, [3]bool{}
		for range 10 * h.ttl {
			h.beat()
			h.holds()
		}
		require.True(t, h.w.active(0), "nobody holds ten TTLs after the key was revoked")
	})
}
