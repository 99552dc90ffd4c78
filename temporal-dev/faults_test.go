//go:build slow

package main

import (
	"context"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

var (
	faultRounds = flag.Int("faults.rounds", 1, "rounds of each fault")
	faultSites  = flag.Int("faults.sites", 4, "sites that faults happen to at once")
	faultOnly   = flag.String("faults.only", "", "play these faults alone, names with a ; between them")
)

// schedule has every fault as often as it is played, in a random order.
func schedule(draw *mathrand.Rand, of []fault) []fault {
	var all []fault
	for range *faultRounds {
		for _, f := range of {
			if *faultOnly == "" || slices.Contains(strings.Split(*faultOnly, ";"), f.name) {
				all = append(all, f)
			}
		}
	}
	draw.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all
}

// N7, N38, N60 to N64, X2, X5, X21
func TestFaultSites(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	t.Logf("repeat its choices with %s=%d", seedVariable, seed)
	a := newArena(t, *faultSites, ttl)
	draw := mathrand.New(mathrand.NewPCG(seed, 1))
	notes := newLedger()
	t.Cleanup(func() { t.Logf("measured, by %s:\n%s", a.kind(), notes.table()) })
	all, ofServer := schedule(draw, siteFaults), schedule(draw, serverFaults)
	require.NotEmpty(t, append(all, ofServer...), "no fault is called %q", *faultOnly)
	var parts []part
	for i, site := range a.sites {
		own := mathrand.New(mathrand.NewPCG(seed, uint64(2+i)))
		parts = append(parts, part{site, func(t *testing.T) {
			th := a.open(t, site, own, notes)
			for k := i; k < len(all); k += len(a.sites) {
				th.play(all[k])
			}
			th.close()
		}})
	}
	together(t, parts)
	t.Run("server", func(t *testing.T) { a.serverFaults(t, ofServer, draw, notes) })
}

// serverFaults are done to the whole region, while two of its sites are under load.
func (a *arena) serverFaults(t *testing.T, faults []fault, draw *mathrand.Rand, notes *ledger) {
	if len(faults) == 0 {
		return
	}
	var all []*theatre
	for _, site := range a.sites[:min(2, len(a.sites))] {
		all = append(all, a.open(t, site, draw, notes))
	}
	for _, f := range faults {
		strike(t, all, f)
	}
	for _, th := range all {
		th.close()
	}
}

// open declares the instances of a site, and begins to load them.
func (a *arena) open(t *testing.T, site string, draw *mathrand.Rand, notes *ledger) *theatre {
	t.Helper()
	th := &theatre{arena: a, t: t, site: site, draw: draw, notes: notes}
	for i, durability := range []fleet.Durability{fleet.DurabilitySync, fleet.DurabilitySync, fleet.DurabilityAsync} {
		c := &cargo{
			stack: a.stack, key: instanceKey(site, fmt.Sprintf("press-%d", i)), durability: durability, witness: a.witness,
			lives: lives{dir: folder(t), ended: map[string]life{}}, hurry: make(chan struct{}, 1), numbers: map[string]int{},
			draw: mathrand.New(mathrand.NewPCG(draw.Uint64(), 0)),
		}
		th.cargo = append(th.cargo, c)
	}
	th.load()
	waitFor(t, site+" runs", func(ctx context.Context) error { return th.whole(ctx, make([]int, len(th.cargo))) })
	return th
}

// load has the instances get revisions until stop.
func (th *theatre) load() {
	ctx, cancel := context.WithCancel(context.Background())
	var loads sync.WaitGroup
	for _, c := range th.cargo {
		loads.Go(func() { c.load(ctx) })
	}
	th.stop = sync.OnceFunc(func() { cancel(); loads.Wait() })
	th.t.Cleanup(th.stop)
}

// close ends the load: every operation of it ends, with a reason where it did not succeed.
func (th *theatre) close() {
	th.t.Helper()
	th.stop()
	ends := map[string]int{}
	for _, c := range th.cargo {
		for _, id := range c.asked {
			op := th.ended(th.t, id)
			require.True(th.t, op.State == fleet.OperationSucceeded || op.Reason != "", "%+v", op)
			ends[fmt.Sprintf("%s %s", op.State, op.Reason)]++
			if op.State == fleet.OperationFailed {
				th.t.Logf("%+v", op)
			}
		}
	}
	th.t.Logf("operations ended as %v", ends)
	th.check()
}
