//go:build slow

package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

var (
	drillFor    = flag.Duration("rollouts.for", 0, "how long deployments roll out while processes are killed; 0 skips that")
	drillKills  = flag.Int("rollouts.kills", 200, "kill -9 in that time; 0 has nothing fail")
	drillOf     = flag.String("rollouts.of", strings.Join(drillKinds, ","), "what is killed and paused")
	drillSettle = flag.Duration("rollouts.settle", 10*time.Minute, "how long an operation may take, and the end of all")
)

const (
	drillSites = 2
	// drillWatched is how long nothing may have failed for a drop of routable replicas to be a decision.
	drillWatched = 30 * time.Second
)

// drill is a region with two servers whose processes are killed while its deployments roll out.
type drill struct {
	*stack
	t       *testing.T
	seed    uint64
	servers []drillServer
	victims map[string][]victim // by kind
	actors  []*actor

	left    atomic.Int64 // kills
	failed  atomic.Int64 // when something was killed or paused last, in Unix nanoseconds
	storms  atomic.Bool
	stalled sync.Mutex // of Temporal: nobody else kills or pauses it

	mu     sync.Mutex
	wrong  []string
	kills  map[string]map[string]int // by kind and phase
	pauses map[string]int
	done   map[string]int // by act, and how operations and rollouts ended
	drift  map[string]int
}

// drillServer is one of the two.
type drillServer struct {
	name, url string
	api       *api.Client
	pid       func() int
}

// F58, F59, X1, X2, X11, X13, X18, X23: deployments that roll out by all strategies, from two doors, while servers, nodes, Temporal and
// Postgres are killed in every phase and between commit and wake: nothing is lost and nothing happens twice. F24, F66: without kills,
// nothing drifts.
func TestRolloutsHard(t *testing.T) {
	if *drillFor == 0 {
		t.Skip("takes long: task rollouts:hard")
	}
	h := newDrill(t)
	t.Logf("repeat its choices with %s=%d", seedVariable, h.seed)
	h.together(func(a *actor) { a.begin() })
	require.Empty(t, h.wrong, "all run before anything fails")
	watched := h.watched()
	h.play()
	h.together(func(a *actor) { a.finish() })
	h.quiet()
	watched()
	h.undrifted()
	t.Log(h.report())
	require.Empty(t, h.wrong)
	h.requireHit()
}

func newDrill(t *testing.T) *drill {
	h := &drill{
		t: t, seed: randomSeed(t), victims: map[string][]victim{}, kills: map[string]map[string]int{}, pauses: map[string]int{}, done: map[string]int{}, drift: map[string]int{},
		stack: startWith(t, drillSites, isolated),
	}
	h.left.Store(int64(*drillKills))
	h.servers = []drillServer{{serverName, h.doc.API, h.api, h.child(serverName)}, h.second()}
	for _, s := range h.servers {
		h.victims[serverName] = append(h.victims[serverName], victim{s.name, s.pid})
	}
	for _, site := range siteNames(drillSites) {
		for _, node := range pair(string(site)) {
			h.victims[drillNode] = append(h.victims[drillNode], victim{node, h.child(node)})
		}
	}
	for _, name := range []string{temporalName, postgresName} {
		h.victims[name] = []victim{{name, h.child(name)}}
	}
	for i, c := range drillCast() {
		h.actors = append(h.actors, &actor{
			drill: h, cast: c, d: newService(t, h.stack, c.name, c.replicas, c.puts...), draw: mathrand.New(mathrand.NewPCG(h.seed, uint64(100+i))),
			acknowledged: map[string]bool{}, doors: map[string]string{},
		})
	}
	return h
}

// cast is one of the deployments.
type cast struct {
	name     string
	replicas int
	recreate bool // by its strategy nothing runs for a while
	puts     []func(*api.DeploymentPut)
}

// drillCast are all of them. One does not heed SIGTERM.
func drillCast() []cast {
	one := &api.Share{Count: 1}
	strategy := func(s api.Strategy) func(*api.DeploymentPut) {
		return func(p *api.DeploymentPut) {
			p.Startup.Deadline = 6
			s.ProgressDeadline, s.PauseDeadline = 10, 20
			p.Strategy, p.Replicas.Max = s, new(int)
			*p.Replicas.Max = 4
		}
	}
	ready := func(p *api.DeploymentPut) {
		p.Readiness = probe()
		p.Readiness.Path = "/ready"
	}
	return []cast{
		{"rolling", 3, false, []func(*api.DeploymentPut){strategy(api.Strategy{})}},
		{"rolling-ready", 2, false, []func(*api.DeploymentPut){strategy(api.Strategy{MinHealthyTime: new(1.0)}), ready}},
		{"rolling-stubborn", 2, false, []func(*api.DeploymentPut){strategy(api.Strategy{MaxSurge: one, MaxInFlight: 1}), func(p *api.DeploymentPut) {
			p.Env["STUBBORN"], p.StopSeconds = "yes", 2
		}}},
		{"rolling-short", 3, false, []func(*api.DeploymentPut){strategy(api.Strategy{MaxSurge: &api.Share{}, MaxUnavailable: one}), func(p *api.DeploymentPut) {
			*p.Replicas.Min = 2 // one of one may be unavailable
		}}},
		{"canary-paused", 4, false, []func(*api.DeploymentPut){strategy(api.Strategy{Type: fleet.StrategyCanary, Steps: []api.CanaryStep{
			{Weight: 25, Pause: true}, {Weight: 50, Interval: 3}, {Weight: 75, Pause: true},
		}})}},
		{"canary", 3, false, []func(*api.DeploymentPut){strategy(api.Strategy{Type: fleet.StrategyCanary, MinHealthyTime: new(1.0)}), ready}},
		{"recreate", 2, true, []func(*api.DeploymentPut){strategy(api.Strategy{Type: fleet.StrategyRecreate})}},
		{"versioned", 2, false, []func(*api.DeploymentPut){strategy(api.Strategy{}), func(p *api.DeploymentPut) { p.Update = fleet.UpdateVersioned }}},
	}
}

// together has all actors do something at once.
func (h *drill) together(do func(*actor)) {
	var all sync.WaitGroup
	for _, a := range h.actors {
		all.Go(func() { do(a) })
	}
	all.Wait()
}

// watched watches the region until the function that it returns is called.
func (h *drill) watched() (stop func()) {
	ctx, cancel := context.WithCancel(h.t.Context())
	var all sync.WaitGroup
	all.Go(func() { h.watch(ctx) })
	all.Go(func() { h.watchDrift(ctx) })
	return func() { cancel(); all.Wait() }
}

// play has the actors act while processes are killed, until the time is over and so many were.
func (h *drill) play() {
	playing, stop := context.WithCancel(h.t.Context())
	defer stop()
	var all sync.WaitGroup
	for _, a := range h.actors {
		all.Go(func() { a.run(playing) })
	}
	if *drillKills > 0 {
		all.Go(func() { h.weather(playing) })
		for i := range drillStrikers {
			all.Go(func() { h.strikes(mathrand.New(mathrand.NewPCG(h.seed, uint64(1+i)))) })
		}
	}
	_ = pause.For(playing, *drillFor) // the end of the test ends it too
	if err := pollEvery(playing, time.Second, *drillFor+*drillSettle, func(context.Context) error { return unless(h.left.Load() <= 0) }); err != nil {
		h.accuse("%d kills were not done: %v", h.left.Swap(0), err)
	}
	stop()
	all.Wait()
	h.storms.Store(false)
}

func (h *drill) accuse(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := time.Now().UTC().Format("15:04:05.000 ") + fmt.Sprintf(format, args...)
	if h.wrong = append(h.wrong, text); len(h.wrong) < 50 {
		h.t.Log(text)
	}
}

func (h *drill) note(of map[string]int, what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of[what]++
}

// calm is for how long nothing was killed or paused.
func (h *drill) calm() time.Duration { return time.Since(time.Unix(0, h.failed.Load())) }

func (h *drill) report() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	total := 0
	fmt.Fprintf(&b, "%v, seed %d; kills by what and phase:\n", *drillFor, h.seed)
	for _, kind := range drillKinds {
		fmt.Fprintf(&b, "  %-9s", kind)
		for _, phase := range drillPhases {
			fmt.Fprintf(&b, " %s %d,", phase, h.kills[kind][phase])
			total += h.kills[kind][phase]
		}
		fmt.Fprintf(&b, " paused %d times\n", h.pauses[kind])
	}
	fmt.Fprintf(&b, "  %d kills\n", total)
	for _, what := range slices.Sorted(maps.Keys(h.done)) {
		fmt.Fprintf(&b, "  %s %d\n", what, h.done[what])
	}
	fmt.Fprintf(&b, "  drift %v\n  %d untruths", h.drift, len(h.wrong))
	return b.String()
}
