package region

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
	"github.com/holdfast-io/holdfast/internal/testkit/sized"
	"github.com/holdfast-io/holdfast/internal/watch"
)

var (
	regionsRuns = flag.Int("regions.runs", sized.Many(40), "random histories of regions that share, in virtual time")
	regionsSeed = flag.Uint64("regions.seed", 1000, "seed of the first history; 0 draws one")
)

const (
	// runSteps are the steps of one history, runPause the longest pause between two, runDelay the longest that lines are under way.
	runSteps = 60
	runPause = 200 * time.Millisecond
	runDelay = 80 * time.Millisecond
	runAgree = 5 * time.Minute // of virtual time, until all regions have what they are to have
	runLook  = time.Second
	// runOperator is when an operator cancels hand-overs that a restore began again, whose new owners renounced them before it.
	runOperator = 2 * time.Minute
	// runBatch are the histories that share databases, which grow: what was deleted stays in their files.
	runBatch = 40
)

var runNames = []fleet.RegionName{"ap", "eu", "us"}

// runs is one history of three regions.
type runs struct {
	*mesh
	seed    uint64
	states  map[fleet.RegionName]*pgx.Conn // of the databases, for their states
	random  *rand.Rand
	network *network
	ledger  ledger
	running map[fleet.RegionName]context.CancelFunc // follows the others
	wait    map[fleet.RegionName]func()
	asked   []handingOver
	told    []string // what happened
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
			states := map[fleet.RegionName]*pgx.Conn{}
			for _, name := range runNames {
				states[name] = keepStates(t, name, testkit.DatabaseURL(t))
			}
			for run := from; run < min(from+runBatch, *regionsRuns) && !t.Failed(); run++ {
				synctest.Test(t, func(t *testing.T) { history(t, states, first+uint64(run)) })
			}
		})
	}
}

// history plays one, on databases as they were at first.
func history(t *testing.T, states map[fleet.RegionName]*pgx.Conn, seed uint64) {
	r := &runs{
		mesh: &mesh{t: t, regions: map[fleet.RegionName]*sharing{}, cuts: map[[2]fleet.RegionName]context.CancelFunc{}, cut: map[[2]fleet.RegionName]bool{}},
		seed: seed, states: states, random: rand.New(rand.NewPCG(seed, 0)), ledger: newLedger(t),
		running: map[fleet.RegionName]context.CancelFunc{}, wait: map[fleet.RegionName]func(){},
	}
	r.network = newNetwork(r.mesh, seed)
	defer func() {
		if t.Failed() {
			t.Logf("repeat this history with -regions.seed=%d -regions.runs=1\n%s", seed, r.tale())
		}
	}()
	for _, name := range runNames {
		url := states[name].Config().ConnString()
		raw, err := pgxpool.New(t.Context(), url)
		require.NoError(t, err)
		t.Cleanup(raw.Close)
		r.regions[name] = &sharing{name: name, raw: raw, url: url}
		r.putBack(name, "first")
		r.open(name)
		t.Cleanup(func() { r.regions[name].store.Close() })
		if r.restores() {
			r.backUp(name)
		}
	}
	for _, name := range runNames {
		r.start(name)
	}
	defer func() {
		for _, name := range runNames {
			r.stop(name)
		}
	}()
	for _, name := range runNames { // of what each region declares first, the others have copies
		r.declarePolicy(name, string(name)+"-0", runNames)
		if !r.restores() {
			r.declarePolicy(name, "p", runNames)
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

// open opens the store of a region whose processes do not run.
func (r *runs) open(name fleet.RegionName) {
	r.t.Helper()
	s, err := store.Open(r.t.Context(), r.regions[name].url, string(name))
	require.NoError(r.t, err)
	r.regions[name].store = s
	r.network.up(name, s)
}

// start has a region follow the others.
func (r *runs) start(name fleet.RegionName) {
	ctx, cancel := context.WithCancel(r.t.Context())
	var all sync.WaitGroup
	s := r.regions[name].store
	f := &watch.Follower{
		Now: time.Now, Store: s, Peers: pipes{r.network, name}, Waiting: s, Parts: r.network.parts(name), MaxBody: 1 << 20, Log: slog.New(slog.DiscardHandler),
		Turn: 10 * time.Second, Beat: 2 * time.Second, Silence: 15 * time.Second, Retry: 2 * time.Second,
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
	var differ []string
	for began, until := time.Now(), time.Now().Add(runAgree); ; {
		if r.restored && time.Since(began) > runOperator {
			r.cancelAll()
		}
		for _, name := range runNames {
			r.relay(name)
		}
		if differ = r.differ(); len(differ) == 0 {
			break
		}
		require.True(r.t, time.Now().Before(until), "seed %d: %v", r.seed, differ)
		_ = pause.For(r.t.Context(), runLook) // it ends with the test
	}
	for _, name := range runNames {
		r.stop(name)
	}
	require.Empty(r.t, r.differ(), "seed %d: with all regions stopped", r.seed)
	r.account()
}

// pick is a region.
func (r *runs) pick() fleet.RegionName { return runNames[r.random.IntN(len(runNames))] }

// others are the regions but one.
func others(self fleet.RegionName) []fleet.RegionName {
	return slices.DeleteFunc(slices.Clone(runNames), func(n fleet.RegionName) bool { return n == self })
}
