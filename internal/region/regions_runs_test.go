//go:build !race

package region

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
	"github.com/holdfast-io/holdfast/internal/testkit"
	"github.com/holdfast-io/holdfast/internal/testkit/sized"
	"github.com/holdfast-io/holdfast/internal/watch"
)

var (
	regionsRuns = flag.Int("regions.runs", sized.Many(200), "random histories of regions that share, in virtual time")
	regionsSeed = flag.Uint64("regions.seed", 1000, "seed of the first history; 0 draws one")
)

const (
	// runSteps are the steps of one history, runPause the longest pause between two.
	runSteps = 60
	runPause = 200 * time.Millisecond
	runAgree = 5 * time.Minute        // of virtual time, until all regions have what they are to have
	runLook  = 990 * time.Millisecond // not a moment at which turns, beats and polls begin
	// runOperator is when an operator ends what a restore began: hand-overs whose new owners renounced them before, and claims by a policy that it undid.
	runOperator = 2 * time.Minute
	// runBatch are the histories that share databases, which grow: what was deleted stays in their files.
	runBatch = 40
)

// runs is one history of three regions.
type runs struct {
	*mesh
	seed      uint64
	random    *rand.Rand
	network   *network
	ledger    ledger
	databases map[fleet.RegionName]*runDatabase
	running   map[fleet.RegionName]context.CancelFunc // follows the others
	wait      map[fleet.RegionName]func()
	asked     []handingOver
	told      []string // what happened
	// Since a region was restored, or claimed by force, writes may be lost; they are listed then.
	restored, forced bool
}

// M14, M16, M18 to M20, M26 to M29, M31, M34, M35, M38 to M40, X1, X24: regions that write, share, delete, hand over, claim by
// force, lose their links and are restored at random have in the end what their policies say, byte for byte, and nothing else; what
// was acknowledged is there or listed. On the real stores, each history with a seed that repeats its choices. Time is virtual: it
// moves while all goroutines wait.
func TestRegionsShareRuns(t *testing.T) {
	t.Parallel()
	first := *regionsSeed
	if first == 0 {
		first = rand.Uint64()
	}
	t.Logf("%d histories, seed %d", *regionsRuns, first)
	for from := 0; from < *regionsRuns; from += runBatch {
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			t.Parallel()
			urls := map[fleet.RegionName]string{}
			for _, name := range runNames {
				urls[name] = testkit.DatabaseURL(t)
			}
			synctest.Test(t, func(t *testing.T) {
				databases := map[fleet.RegionName]*runDatabase{}
				for _, name := range runNames {
					databases[name] = keepDatabase(t, name, urls[name])
				}
				for run := from; run < min(from+runBatch, *regionsRuns) && !t.Failed(); run++ {
					history(t, databases, first+uint64(run))
				}
			})
		})
	}
}

// history plays one, on databases as they were at first.
func history(t *testing.T, databases map[fleet.RegionName]*runDatabase, seed uint64) {
	r := &runs{
		mesh: &mesh{t: t, regions: map[fleet.RegionName]*sharing{}, cuts: map[[2]fleet.RegionName]context.CancelFunc{}, cut: map[[2]fleet.RegionName]bool{}},
		seed: seed, databases: databases, random: rand.New(rand.NewPCG(seed, 0)), ledger: newLedger(t),
		running: map[fleet.RegionName]context.CancelFunc{}, wait: map[fleet.RegionName]func(){},
	}
	r.network = newNetwork(r.mesh, seed)
	defer func() {
		if t.Failed() {
			t.Logf("repeat this history with -regions.seed=%d -regions.runs=1\n%s", seed, r.tale())
		}
	}()
	for _, name := range runNames {
		d := databases[name]
		r.putBack(name, "first")
		r.regions[name] = &sharing{name: name, raw: d.raw, url: d.url, store: d.store}
		r.network.up(name, d.store, d.parts)
		if r.restores() {
			r.backUp(name)
		}
	}
	for _, name := range runNames {
		require.NoError(t, r.regions[name].store.WantSyncs(t.Context(), 0)) // as a server that starts does
		r.start(name)
	}
	defer func() {
		for _, name := range runNames {
			r.stop(name)
		}
	}()
	for _, name := range runNames { // of what each region declares first, the others have copies
		r.declareAll(name, string(name)+"-0")
		if !r.restores() {
			r.declareAll(name, everywhere)
		}
	}
	for range runSteps {
		r.step()
		_ = pause.For(t.Context(), time.Duration(r.random.Int64N(int64(runPause)))) // it ends with the test
	}
	r.healAll()
	r.agreed()
}

func (r *runs) tale() (out string) {
	for _, line := range r.told {
		out += line + "\n"
	}
	return out
}

func (r *runs) tell(format string, args ...any) {
	r.told = append(r.told, fmt.Sprintf(format, args...))
}

// start has a region follow the others.
func (r *runs) start(name fleet.RegionName) {
	ctx, cancel := context.WithCancel(r.t.Context())
	var all sync.WaitGroup
	s := r.regions[name].store
	f := &watch.Follower{
		Now: time.Now, Store: s, Peers: pipes{r.network, name}, Waiting: s, Parts: r.network.parts(name), MaxBody: 1 << 20, Log: slog.New(slog.DiscardHandler),
		// A turn does not end at the moment of a beat, which would cost the session that the beat uses.
		Turn: 9900 * time.Millisecond, Beat: 2 * time.Second, Silence: 15 * time.Second, Retry: 2 * time.Second,
	}
	for _, peer := range runNames {
		if peer == name {
			continue
		}
		all.Go(func() {
			for ctx.Err() == nil {
				_, err := f.Follow(ctx, peer, "run", func(fleet.Followed) {})
				if err != nil && !errors.Is(err, context.Canceled) && fleet.KindOf(err) != fleet.Stale && ctx.Err() == nil {
					r.t.Errorf("%s follows %s: %v", name, peer, err)
					return
				}
			}
		})
	}
	r.running[name], r.wait[name] = cancel, all.Wait
}

// stop ends the processes of a region: it follows nobody and serves nobody.
func (r *runs) stop(name fleet.RegionName) {
	r.network.down(name)
	r.running[name]()
	r.wait[name]()
}

// agreed waits until no region has anything to do and all have the same, stops them, and checks the ledger.
func (r *runs) agreed() {
	r.t.Helper()
	for began, until := time.Now(), time.Now().Add(runAgree); ; {
		if r.restored && time.Since(began) > runOperator {
			r.cancelAll()
			r.enableAgain()
		}
		for _, name := range runNames {
			r.relay(name)
		}
		_ = pause.For(r.t.Context(), runLook) // what they do comes to its end; it ends with the test
		differ := r.differ()
		if len(differ) == 0 {
			break
		}
		require.True(r.t, time.Now().Before(until), "seed %d: %v", r.seed, differ)
	}
	for _, name := range runNames {
		r.stop(name)
	}
	require.Empty(r.t, r.differ(), "seed %d: with all regions stopped", r.seed)
	r.account()
}

// pick is a region.
func (r *runs) pick() fleet.RegionName { return runNames[r.random.IntN(len(runNames))] }
