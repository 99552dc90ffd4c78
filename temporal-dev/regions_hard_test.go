//go:build slow

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

var (
	hardFor     = flag.Duration("regions.for", 0, "how long three regions in network namespaces write and fail; 0 skips that")
	hardObjects = flag.Int("regions.objects", 100_000, "objects that they share")
	hardDelay   = flag.Duration("regions.delay", 80*time.Millisecond, "how long a packet between them takes, each way")
	hardSettle  = flag.Duration("regions.settle", 10*time.Minute, "how long they may take until they agree after all is healed")
)

const (
	hardPeers    = "7462"
	hardProjects = 2   // of each region
	hardChunk    = 500 // objects in one request of the load
	hardWriters  = 4   // in each region
	hardFaults   = 2   // at once
)

// hard is three regions whose network and processes fail while people write to them.
type hard struct {
	t       *testing.T
	seed    uint64
	wire    *wire
	names   []string
	regions map[string]*hardRegion
	writers []*hardWriter

	mu       sync.Mutex
	wrong    []string // what must not be
	faults   map[string]int
	written  map[string]int // by outcome
	restored map[string]bool
}

// hardRegion is one of them, in its own namespace.
type hardRegion struct {
	*stack
	at     *wireEnd
	name   string
	alone  sync.RWMutex // a restore is its only fault
	backup *hardBackup  // nil without one, or after its restore
}

// X1, X18 to X20, M18 to M20, M27, M29, M31, M35, M40: three regions in network namespaces that write, delete and change policies while
// links are cut, processes are killed and paused, projects are handed over and claimed by force, and two of the regions are restored, have
// in the end what their policies say, and nothing else; what is lost is listed.
func TestRegionsHard(t *testing.T) {
	if *hardFor == 0 {
		t.Skip("takes long: task regions:hard")
	}
	realOnly(t)
	h := newHard(t)
	t.Logf("repeat its choices with %s=%d", seedVariable, h.seed)
	h.meet()
	loaded := h.timed(h.load)
	copied := h.timed(func() { h.settle("loaded") })
	h.play()
	agreed := h.timed(func() { h.settle("healed") })
	h.check()
	t.Logf("%d objects were declared in %s, and copied %s later.\n%s", *hardObjects, loaded, copied, h.report())
	t.Logf("%s after the last fault all agreed", agreed)
	require.Empty(t, h.wrong)
}

func newHard(t *testing.T) *hard {
	h := &hard{
		t: t, seed: randomSeed(t), names: regionNames, regions: map[string]*hardRegion{}, faults: map[string]int{}, written: map[string]int{}, restored: map[string]bool{},
		wire: newWire(t, *hardDelay, regionNames...),
	}
	data := e2eData(t)
	for _, name := range h.names {
		h.regions[name] = h.start(name, filepath.Join(data, name))
	}
	return h
}

// start starts a region and connects to it inside its namespace.
func (h *hard) start(name, data string) *hardRegion {
	t, at := h.t, h.wire.ends[name]
	t.Helper()
	file := data + "-network.json"
	require.NoError(t, writeJSON(file, network{Name: name, Peers: net.JoinHostPort(at.address, hardPeers)}))
	r := &hardRegion{stack: launchBehind(t, at.enter(), data, 1, lasting(e2eLease), networkVariable+"="+file, linksVariable+"="), at: at, name: name}
	require.True(t, r.up(), "%s", r.said)
	r.doc = r.dev(t)
	var err error
	r.api, err = api.NewClient(r.doc.API, r.doc.Token, api.WithTransport(&http.Transport{DialContext: at.dial, MaxIdleConnsPerHost: 2 * hardWriters}))
	require.NoError(t, err)
	conf, err := pgxpool.ParseConfig(r.databaseURL(t))
	require.NoError(t, err)
	conf.ConnConfig.DialFunc = at.dial
	r.pg, err = pgxpool.NewWithConfig(t.Context(), conf)
	require.NoError(t, err)
	t.Cleanup(r.pg.Close)
	return r
}

// meet has the regions join each other.
func (h *hard) meet() {
	first := h.regions[h.names[0]]
	for _, name := range h.names[1:] {
		token, err := first.api.InviteRegion(h.t.Context(), api.RegionInvitation{Name: name}, api.Mutation{})
		require.NoError(h.t, err)
		_, err = h.regions[name].api.JoinRegion(h.t.Context(), api.RegionJoin{
			Address: "https://" + net.JoinHostPort(first.at.address, hardPeers), Token: token.Token,
		}, api.Mutation{})
		require.NoError(h.t, err)
	}
	h.meshed()
}

func (h *hard) meshed() {
	h.t.Helper()
	m := &mesh{regions: map[string]*stack{}}
	for name, r := range h.regions {
		m.regions[name] = r.stack
	}
	m.meshed(h.t)
}

func hardProject(control string, i int) string { return fmt.Sprintf("hard-%s-%d", control, i) }

// load declares projects that all regions share, and in each region a third of the objects.
func (h *hard) load() {
	var projects []string
	for _, control := range h.names {
		for i := range hardProjects {
			project := hardProject(control, i)
			projects = append(projects, project)
			_, err := h.regions[control].api.PutProject(h.t.Context(), project, policyOf(control, h.names), api.Mutation{})
			require.NoError(h.t, err)
		}
	}
	for _, name := range h.names {
		r := h.regions[name]
		for _, project := range projects {
			waitFor(h.t, name+" knows "+project, func(ctx context.Context) error {
				_, _, err := r.api.Object(ctx, fleet.ProjectKey(fleet.ProjectName(project)))
				return err
			})
		}
	}
	var all sync.WaitGroup
	for at, name := range h.names {
		share := make([]*hardWriter, hardWriters)
		for i := range share {
			share[i] = newHardWriter(h, h.regions[name], projects, at*hardWriters+i)
		}
		h.writers = append(h.writers, share...)
		all.Go(func() { h.declare(h.regions[name], share) })
	}
	all.Wait()
	require.False(h.t, h.t.Failed(), "the objects are declared")
}

// declare brings a region's objects into it, many at a time.
func (h *hard) declare(r *hardRegion, share []*hardWriter) {
	var chunk []api.Manifest
	put := func() {
		out, err := r.api.Apply(h.t.Context(), api.PlanRequest{Objects: chunk}, api.ReleaseNone, api.Mutation{})
		if err != nil || out.Failed > 0 {
			h.t.Errorf("%s: %d objects were not declared: %v", r.name, out.Failed, err)
		}
		chunk = chunk[:0]
	}
	for i := range *hardObjects / len(h.names) {
		w := share[i%len(share)]
		o := w.first(i)
		spec, err := json.Marshal(map[string]int{"maxReplicas": o.number})
		require.NoError(h.t, err)
		if chunk = append(chunk, api.Manifest{Kind: "Pool", Name: o.name, Project: o.project, Spec: spec}); len(chunk) == hardChunk {
			put()
		}
	}
	if len(chunk) > 0 {
		put()
	}
}

// play has people write while all kinds of faults happen; in the end everything is healed and each write is answered.
func (h *hard) play() {
	ctx, cancel := context.WithTimeout(h.t.Context(), *hardFor)
	defer cancel()
	var all sync.WaitGroup
	for _, w := range h.writers {
		all.Go(func() { w.run(ctx) })
	}
	for i := range hardFaults {
		draw, acts := mathrand.New(mathrand.NewPCG(h.seed, uint64(1+i))), slices.Clone(hardActs)
		all.Go(func() {
			for next := 0; ctx.Err() == nil; next++ {
				if next%len(hardActs) == 0 {
					draw.Shuffle(len(acts), func(i, k int) { acts[i], acts[k] = acts[k], acts[i] })
				}
				h.fault(ctx, draw, acts[next%len(hardActs)])
				_ = pause.For(ctx, time.Duration(draw.IntN(4000))*time.Millisecond) // it ends with the context
			}
		})
	}
	all.Wait()
	h.meshed()
}

func (h *hard) timed(do func()) time.Duration {
	began := time.Now()
	do()
	return time.Since(began).Round(time.Second)
}

func (h *hard) accuse(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wrong = append(h.wrong, fmt.Sprintf(format, args...)); len(h.wrong) < 50 {
		h.t.Log(h.wrong[len(h.wrong)-1])
	}
}

func (h *hard) count(of map[string]int, what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of[what]++
}

func (h *hard) report() string {
	text := "faults: "
	for _, a := range hardActs {
		text += a.name + " " + strconv.Itoa(h.faults[a.name]) + ", "
	}
	text += "\nwrites: "
	for _, outcome := range hardOutcomes {
		text += outcome + " " + strconv.Itoa(h.written[outcome]) + ", "
	}
	return fmt.Sprintf("%sseed %d, %d objects, %v of faults, %v from region to region", text, h.seed, *hardObjects, *hardFor, *hardDelay)
}
