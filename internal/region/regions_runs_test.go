package region

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi"
	"github.com/holdfast-io/holdfast/internal/pause"
	"github.com/holdfast-io/holdfast/internal/testkit"
	"github.com/holdfast-io/holdfast/internal/watch"
)

var (
	regionsRuns = flag.Int("regions.runs", 8, "random histories of regions that share, in virtual time")
	regionsSeed = flag.Uint64("regions.seed", 0, "seed of the first history; 0 draws one")
)

const (
	// runSteps are the steps of one history, runPause the longest pause between two, runDelay the longest that lines are under way.
	runSteps = 60
	runPause = 200 * time.Millisecond
	runDelay = 80 * time.Millisecond
	runAgree = 2 * time.Minute // of virtual time, until all regions have what they are to have
	runLook  = 100 * time.Millisecond
)

// pipes is how one region reaches the others without a network: the clock of a test stands still while a goroutine waits for one.
type pipes struct {
	from
	readers map[fleet.RegionName]*watch.Reader
	random  *rand.Rand
	beat    time.Duration // 0 for that of peers
}

func (p pipes) Watch(ctx context.Context, peer fleet.RegionName, at fleet.StreamPlace) (io.ReadCloser, error) {
	link := [2]fleet.RegionName{p.self, peer}
	ctx, cancel := context.WithCancel(ctx)
	p.mu.Lock()
	cut, delay := p.cut[link], time.Duration(p.random.Int64N(int64(runDelay)))
	p.cuts[link] = cancel
	p.mu.Unlock()
	if cut {
		cancel()
		return nil, fleet.Errorf(fleet.Unavailable, "the link is cut")
	}
	in, out := io.Pipe()
	lines := json.NewEncoder(out)
	s := &watch.Stream{
		Source: p.regions[peer].store, Reader: p.readers[peer], Filter: watch.Filter{Owner: peer, Region: p.self}, Self: peer,
		Snapshots: make(chan struct{}, 1), View: httpapi.ViewOf, Beat: cmp.Or(p.beat, 5*time.Second),
		Send: func(all []api.WatchLine) error {
			if err := pause.For(ctx, delay); err != nil {
				return err
			}
			for _, l := range all {
				if err := lines.Encode(l); err != nil {
					return err
				}
			}
			return nil
		},
	}
	go func() { _ = out.CloseWithError(s.Run(ctx, at.Position, at.Began)) }() // as a connection that ends
	return &ended{in, cancel}, nil
}

// M14, M16, M18 to M20, M27, M29, M31, M35, M40, X24: as TestRegionsShare, in many short histories on the real stores, each with a seed
// that repeats its choices. Time is virtual: it moves while all goroutines wait.
func TestRegionsShareRuns(t *testing.T) {
	t.Parallel()
	urls := map[fleet.RegionName]string{}
	for _, name := range []fleet.RegionName{"eu", "us", "ap"} {
		urls[name] = testkit.DatabaseURL(t)
	}
	first := *regionsSeed
	if first == 0 {
		first = rand.Uint64()
	}
	synctest.Test(t, func(t *testing.T) {
		m := &mesh{t: t, regions: map[fleet.RegionName]*sharing{}, cuts: map[[2]fleet.RegionName]context.CancelFunc{}, cut: map[[2]fleet.RegionName]bool{}}
		for name, url := range urls {
			m.regions[name] = newSharing(t, name, url)
		}
		for run := range *regionsRuns {
			seed := first + uint64(run)
			m.history(seed)
			if t.Failed() {
				t.Fatalf("history %d failed; repeat it with -regions.seed=%d -regions.runs=1", run, seed)
			}
		}
	})
	t.Logf("%d histories, seed %d", *regionsRuns, first)
}

// history plays one, and empties the databases for the next.
func (m *mesh) history(seed uint64) {
	m.t.Helper()
	defer func() {
		if m.t.Failed() {
			m.t.Logf("repeat this history with -regions.seed=%d -regions.runs=1", seed)
		}
	}()
	random := rand.New(rand.NewPCG(seed, 0))
	var all []string
	for name := range m.regions {
		all = append(all, string(name))
	}
	ctx, cancel := context.WithCancel(m.t.Context())
	readers := map[fleet.RegionName]*watch.Reader{}
	for name, r := range m.regions {
		readers[name] = watch.NewReader(r.store, 100*time.Millisecond)
		r.store.OnCommit(readers[name].Wake)
	}
	wait := m.followBy(ctx, func(r *sharing) *watch.Follower {
		return &watch.Follower{
			Store: r.store, Peers: pipes{from{m, r.name}, readers, rand.New(rand.NewPCG(seed, uint64(len(r.name)))), 0}, Log: slog.New(slog.DiscardHandler),
			Turn: 3 * time.Second, Beat: time.Second, Silence: 15 * time.Second, Retry: 2 * time.Second,
		}
	})
	defer func() { cancel(); wait(); m.empty() }()
	for name := range m.regions { // of what each region declares first, the others have copies
		for _, project := range []string{"p", string(name) + "-0"} {
			m.share(name, project, all...)
		}
	}
	for range runSteps {
		m.step(random)
		if random.IntN(8) == 0 {
			m.compareOnce(m.pair(random))
		}
		_ = pause.For(ctx, time.Duration(random.Int64N(int64(runPause)))) // it ends with the test
	}
	m.healAll()
	m.agree(fmt.Sprintf("seed %d", seed))
	self, peer := m.pair(random)
	_, err := m.regions[self].raw.Exec(m.t.Context(), alterations[random.IntN(len(alterations))], peer)
	require.NoError(m.t, err)
	require.True(m.t, m.compareOnce(self, peer), "seed %d: %s compares with %s", seed, self, peer)
	require.Equal(m.t, m.owed(self), m.held(self), "seed %d: %s compared with %s", seed, self, peer)
}

// alterations change copies by hand, which no feed shows.
var alterations = []string{
	`UPDATE copies SET spec = '{"maxReplicas": 77}' WHERE kind = 'pool' AND name LIKE '%0' AND owner = $1`,
	`UPDATE copies SET number = 1 WHERE kind = 'pool' AND owner = $1`,
	`DELETE FROM copies WHERE kind = 'pool' AND name LIKE '%1' AND owner = $1`,
}

// pair is a region and one of its peers.
func (m *mesh) pair(random *rand.Rand) (self, peer fleet.RegionName) {
	names := slices.Sorted(maps.Keys(m.regions))
	i := random.IntN(len(names))
	return names[i], names[(i+1+random.IntN(len(names)-1))%len(names)]
}

// compareOnce has a region compared with a peer, as far as it goes while links are cut.
func (m *mesh) compareOnce(self, peer fleet.RegionName) (done bool) {
	m.t.Helper()
	m.ask(self, peer, false)
	c := &compare.Comparer{Store: m.regions[self].store, Peers: questions{mesh: m, self: self}}
	for range 100 {
		turn, err := c.Page(m.t.Context(), fleet.SyncVisit{Peer: peer, Run: "run"})
		if fleet.KindOf(err) == fleet.Stale {
			continue
		}
		require.NoError(m.t, err)
		if turn.Done || turn.Waits != "" {
			return turn.Done
		}
	}
	return false
}

// agree is settle in virtual time.
func (m *mesh) agree(what string) {
	m.t.Helper()
	for until := time.Now().Add(runAgree); ; {
		bad := ""
		for name := range m.regions {
			m.apply(name)
		}
		for name := range m.regions {
			if owed, held := m.owed(name), m.held(name); fmt.Sprint(owed) != fmt.Sprint(held) {
				bad = fmt.Sprintf("%s: %s is to have %v, and has %v", what, name, owed, held)
			}
		}
		if bad == "" {
			break
		}
		require.True(m.t, time.Now().Before(until), bad)
		_ = pause.For(m.t.Context(), runLook) // it ends with the test
	}
	for name, r := range m.regions {
		streams, err := r.store.Streams(m.t.Context())
		require.NoError(m.t, err)
		for _, s := range streams {
			require.Zero(m.t, s.Quarantined, "%s: %s follows %s", what, name, s.Peer)
		}
	}
}

const emptyRegion = `DELETE FROM objects WHERE kind <> 'region' AND name <> 'default'; DELETE FROM copies; DELETE FROM copy_markers;
	DELETE FROM policy_turns; DELETE FROM outbox; DELETE FROM region_streams; DELETE FROM quarantine; DELETE FROM region_syncs; DELETE FROM lost_writes`

// empty has the next history begin with nothing.
func (m *mesh) empty() {
	m.t.Helper()
	for _, r := range m.regions {
		_, err := r.raw.Exec(context.Background(), emptyRegion)
		require.NoError(m.t, err)
	}
}
