package region

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// healWorld is one run: a region, two nodes of a site, and what has been drawn.
type healWorld struct {
	ctx    context.Context
	region *healRegion
	nodes  [2]*healNode
	active int // the node whose role is active

	entities map[string]*healEntity // open runs by subject
	runs     map[string]enumspb.WorkflowExecutionStatus
	queue    []*healEntity
	late     []func()

	random *rand.Rand
	calm   bool // nothing goes wrong any more
	depth  int
	body   int // numbers contents
	ops    []string

	gathers bool // a batch is about to be asked for
	shut    bool // sites are outside of their windows

	mu    sync.Mutex
	lines []string
	wrong []string
}

const healNames = 4

func healName(i int) string { return "press-" + string(rune('1'+i%healNames)) }

func healInstancePath(i int) string {
	return "/api/v1/sites/" + string(healSite) + "/instances/" + healName(i)
}

func newHealWorld(ctx context.Context, r *healRegion, dir string) (*healWorld, error) {
	w := &healWorld{
		ctx: ctx, region: r, entities: map[string]*healEntity{}, runs: map[string]enumspb.WorkflowExecutionStatus{},
		random: rand.New(rand.NewPCG(0, 0)), calm: true, // it has to be repeatable
	}
	r.now = w
	if err := r.empty(ctx); err != nil {
		return nil, err
	}
	if code, _ := w.put("/api/v1/sites/"+string(healSite), w.pair()); code >= 300 {
		return nil, fmt.Errorf("the site was answered %d", code)
	}
	if code, _ := w.put("/api/v1/templates/base", api.TemplatePut{Base: []byte(`{"n":0}`)}); code >= 300 {
		return nil, fmt.Errorf("the template was answered %d", code)
	}
	for i, name := range []fleet.NodeName{"plant-a", "plant-b"} {
		w.nodes[i] = w.newNode(name, dir)
		if err := w.enrol(w.nodes[i]); err != nil {
			return nil, err
		}
	}
	w.calm = false
	return w, nil
}

func (w *healWorld) pair() api.SitePut {
	roles := [2]fleet.Role{fleet.RoleStandby, fleet.RoleStandby}
	roles[w.active] = fleet.RoleActive
	return api.SitePut{Nodes: []api.SiteNode{{Name: "plant-a", Role: roles[0]}, {Name: "plant-b", Role: roles[1]}}}
}

// vote grants the lease to the node whose turn it is, as its votes do.
func (w *healWorld) vote() error {
	to := w.nodes[w.active].name
	was, err := w.region.store.VoteOf(w.ctx, healSite)
	if err != nil || was.Vote.Holder == to {
		return err
	}
	now := was.Vote
	now.Promised, now.PromisedTo, now.Holder, now.Counter, now.TTL = now.Promised+1, to, to, now.Counter+1, time.Minute
	now.Epoch = now.Promised
	_, err = w.region.store.CastVote(w.ctx, nodes.VoteChange{Site: healSite, Was: was.Vote, Now: now}, "node:"+string(to))
	return err
}

func (w *healWorld) node(name fleet.NodeName) *healNode {
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	panic("no node " + name) //nolint:forbidigo // the test itself is wrong
}

// say writes the log that a failure shows; ids are not in it, so that runs can be compared.
func (w *healWorld) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, strings.Repeat("  ", w.depth)+fmt.Sprintf(format, args...))
}

// fail records what must never be.
func (w *healWorld) fail(format string, args ...any) {
	w.say("WRONG: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// chance is true once in n times, never when all is calm.
func (w *healWorld) chance(n int) bool { return !w.calm && w.random.IntN(n) == 0 }

func (w *healWorld) wakeIsLost(subject string) bool {
	if !w.chance(15) {
		return false
	}
	w.say("lost: wake of %s", subject)
	return true
}

// meanwhile lets other work go first, at any point where two could meet.
func (w *healWorld) meanwhile(where string) {
	if w.depth >= 2 || !w.chance(5) {
		return
	}
	w.say("meanwhile (%s):", where)
	w.depth++
	defer func() { w.depth-- }()
	kinds := healKinds
	if w.random.IntN(2) == 0 {
		kinds = healFaults
	}
	w.take(healStep{Kind: kinds[w.random.IntN(len(kinds))], Name: w.random.IntN(healNames), Node: w.random.IntN(2), Pick: w.random.IntN(100)})
}

// runSome executes a queued run.
func (w *healWorld) runSome(pick int) {
	if len(w.queue) == 0 {
		return
	}
	i := pick % len(w.queue)
	e := w.queue[i]
	w.queue = append(w.queue[:i:i], w.queue[i+1:]...)
	w.execute(e)
}

func (w *healWorld) close() {
	for _, n := range w.nodes {
		if n != nil {
			n.kill()
		}
	}
}
