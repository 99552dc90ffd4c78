package lease

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// X21: a reset drops what nobody can follow, and nothing else.
func TestRecordReset(t *testing.T) {
	t.Parallel()
	const floor, far = 1000, 1000 + MaxJump/2 + 1
	held := Record{Promised: 7, PromisedTo: "a", Holder: "a", Epoch: 7, Counter: 3, TTL: ttl}
	above := held
	above.Promised, above.PromisedTo = floor, ""
	near := Record{Promised: far - 1, PromisedTo: "b", Holder: "a", Epoch: 7, Counter: 3, TTL: ttl}
	for name, c := range map[string]struct{ was, want Record }{
		"a vote that was never cast":     {Record{}, Record{Promised: floor}},
		"a vote that was lost":           {Joining(), Record{Promised: floor, Lost: true}},
		"a holder below it":              {held, above},
		"a promise that can be followed": {near, near},
		"a forged promise":               {Record{Promised: far, Holder: "a", Epoch: 7, Counter: 3, TTL: ttl}, Record{Promised: floor, Epoch: floor, TTL: ttl}},
		"a forged holder":                {Record{Promised: Most, Holder: "b", Epoch: Most, Counter: Most, TTL: ttl, Target: "b"}, Record{Promised: floor, Epoch: floor, TTL: ttl}},
		"a forged and lost one":          {Record{Promised: Most, Lost: true}, Record{Promised: floor, Epoch: floor, Lost: true}},
		"a forged TTL":                   {Record{Promised: Most, TTL: math.MaxInt64}, Record{Promised: floor, Epoch: floor, TTL: time.Minute}},
	} {
		got := c.was.Reset(floor)
		require.Equal(t, c.want, got, name)
		require.True(t, got.Valid(), name)
		require.Equal(t, got, got.Reset(floor), "%s: once more it changes nothing", name)
	}
	require.Equal(t, Record{Promised: Most, Epoch: Most, Counter: Most}, Record{Promised: math.MaxInt64 - 1, Epoch: math.MaxInt64 - 1, Counter: math.MaxInt64}.Bounded())
	require.EqualValues(t, Most, Record{}.Above(math.MaxInt64-1).Promised)
}

// X21: a vote that was reset waits until every lease that it granted has ended.
func TestResetVoteWaits(t *testing.T) {
	t.Parallel()
	own := VoterConfig{Site: "s", Name: "a", Others: others(0), TTL: ttl}
	for name, was := range map[string]time.Duration{"its own TTL": ttl, "the longer one that it granted": 2 * ttl} {
		v := steady(Start(own, Record{Promised: Most, Holder: "b", Epoch: Most, Counter: 9, TTL: was}.Reset(1000), 0), 0, was-1)
		_, a, _ := v.Handle(Promise, q("a", 1001, 0), at(was-1))
		require.Equal(t, Restarted, a.Reason, name)
		_, a, _ = v.Handle(Promise, q("a", 1001, 0), at(was))
		require.Equal(t, Granted, a.Reason, name)
	}
}

// forged has numbers written to votes as versions before MaxJump let anybody, and an operator reset them.
type forged struct {
	*model
	w      world
	number int64    // of the last reset
	done   [3]int64 // which one each voter followed
}

const marginOfResets = 1 << 10

func (f *forged) poison(seat int, promised int64) {
	v := f.voters.get(f.w.voters[seat])
	v.record = v.record.Above(promised)
	f.w.voters[seat], f.w.disks[seat] = f.voters.id(v), f.records.id(v.record)
}

// reset is the operator's; the region's vote follows at once.
func (f *forged) reset() {
	f.number++
	f.done[2] = f.number
	floor := f.number * marginOfResets
	was := f.records.get(f.w.disks[2])
	f.w.disks[2] = f.records.id(Record{Promised: floor, Epoch: floor, Counter: 1, TTL: was.TTL, Lost: was.Lost})
	f.restart(&f.w, 2)
}

// follow is a node's, as its keeper does it.
func (f *forged) follow(seat int) {
	if f.done[seat] == f.number {
		return
	}
	f.done[seat] = f.number
	floor := f.number * marginOfResets
	was, claim := f.records.get(f.w.disks[seat]), f.claims.get(f.w.claims[seat])
	if Far(max(was.Promised, claim.Epoch), floor) {
		f.w.claims[seat] = f.claims.id(Claim{})
	}
	if Far(f.w.knowns[seat], floor) {
		f.w.knowns[seat] = floor
	}
	f.w.disks[seat] = f.records.id(was.Reset(floor))
	f.restart(&f.w, seat)
}

// X20, X21: whatever numbers were forged, whenever an operator resets them and in whatever order the nodes
// hear of it, with all other faults in between, there are never two actives. Once all have heard of the last
// reset the site has an active node.
func TestResetsNeverMakeTwoActives(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := &forged{model: &model{rules: rules{
			ttl: rapid.IntRange(2, 4).Draw(t, "ttl"), until: 200, rivals: rapid.Bool().Draw(t, "rivals"), resets: true,
			budget: budget(map[fault]int8{
				cut: 20, lose: 100, delay: 60, repeat: 60, crash: 12, pause: 20, wipe: 1, handing: 4, aiming: 6, ending: 8, deafen: 6,
			}),
		}}}
		f.w = f.begin()
		var trace []string
		for range rapid.IntRange(50, 400).Draw(t, "steps") {
			seat := rapid.IntRange(0, 2).Draw(t, "seat")
			switch rapid.IntRange(0, 24).Draw(t, "step") {
			case 0:
				trace = append(trace, "forge at "+string(seatNames[seat]))
				f.poison(seat, int64(1)<<rapid.IntRange(5, 61).Draw(t, "bits"))
			case 1:
				trace = append(trace, "reset")
				f.reset()
			case 2, 3:
				if seat < 2 {
					trace = append(trace, "follow "+string(seatNames[seat]))
					f.follow(seat)
				}
			default:
				all := f.nexts(f.w)
				if len(all) == 0 {
					continue
				}
				n := all[rapid.IntRange(0, len(all)-1).Draw(t, "next")]
				trace = append(trace, n.name())
				n.apply(&f.w)
			}
			f.check(f.w)
			if f.broken != "" {
				t.Fatalf("%s\n%s", f.broken, strings.Join(trace, "\n"))
			}
		}
		f.reset()
		f.follow(0)
		f.follow(1)
		if !f.calm(f.w, 12) || f.broken != "" {
			t.Fatalf("not calm: %s %s\n%s", f.broken, fmt.Sprint(f.w), strings.Join(trace, "\n"))
		}
	})
}
