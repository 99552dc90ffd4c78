package region

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/node"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// healNode is a machine: its disk, what runs on it, its link, and the agent that lives now.
type healNode struct {
	world   *healWorld
	name    fleet.NodeName
	dir     string
	runtime *healRuntime
	cut     bool
	life    *healLife // nil while it is stopped
	// dieAt is where the agent is killed next, and after how many times that it got there.
	dieAt    string
	dieAfter int
	dying    sync.Mutex                           // several deliveries get there at once
	seen     map[fleet.InstanceName]fleet.Version // the highest that its store held
	tombs    map[fleet.InstanceName]fleet.Version
}

// healLife is one life of an agent. After its death nothing that it still does has an effect.
type healLife struct {
	node      *healNode
	agent     *node.Agent
	client    *node.Client
	work      *activities.Node
	dead      atomic.Bool
	comparing atomic.Bool // it may do several things at once
	busy      int
	started   bool
	page      node.StartedPage
	told      map[fleet.InstanceName]fleet.NodeInstance
}

func (w *healWorld) newNode(name fleet.NodeName, dir string) *healNode {
	n := &healNode{
		world: w, name: name, dir: filepath.Join(dir, string(name)), runtime: &healRuntime{running: map[fleet.InstanceName]guardian.Status{}},
	}
	n.forget()
	return n
}

// forget is for a store that holds less than it did.
func (n *healNode) forget() {
	n.seen, n.tombs = map[fleet.InstanceName]fleet.Version{}, map[fleet.InstanceName]fleet.Version{}
}

// start is a new agent process: it opens its store and recovers. The region is told later.
func (n *healNode) start(ctx context.Context) error {
	if n.life != nil {
		return nil
	}
	l := &healLife{node: n, told: map[fleet.InstanceName]fleet.NodeInstance{}}
	web := &http.Client{Transport: &healLink{l}}
	log := slog.New(slog.DiscardHandler)
	agent, err := node.Open(ctx, node.AgentOptions{
		Node: n.name, Site: healSite, Dir: n.dir, API: healURL, Runtime: healHands{n.runtime, l}, Log: log, Now: healNow, HTTP: web,
	})
	if err != nil {
		return err
	}
	// The agent's own applier waits for real seconds between two tries of a download.
	agent.Applier = node.NewApplier(node.ApplierOptions{
		Site: healSite, Node: n.name, Dir: n.dir, Store: agent.Store, Keys: healKeys{agent}, Runtime: healHands{n.runtime, l}, Log: log,
		Fetcher:   &node.Fetcher{Client: web, Counters: agent.Counters(), Log: log, Attempts: 2, Backoff: time.Nanosecond},
		Failpoint: func(at string) { n.reached(l, at) }, Told: l.hears,
	})
	l.agent = agent
	l.client = &node.Client{API: healURL, HTTP: web, Key: agent.Key, Now: healNow}
	l.work = &activities.Node{Applier: agent.Applier, Batches: agent.Applier, Reconciler: agent}
	n.life = l
	return agent.Applier.Recover(ctx)
}

type healKeys struct{ agent *node.Agent }

func (k healKeys) Open(sealed string) (string, error) { return k.agent.Key().Open(sealed) }

// reached kills the agent where it was said to die.
func (n *healNode) reached(l *healLife, at string) {
	n.dying.Lock()
	defer n.dying.Unlock()
	if n.life != l || n.dieAt != at {
		return
	}
	if n.dieAfter--; n.dieAfter < 0 {
		n.world.say("killed: %s at %s", n.name, at)
		n.kill()
	}
}

// kill ends the agent at this instant: the link, the runtime and the store are out of its
// reach from here on.
func (n *healNode) kill() {
	l := n.life
	if l == nil {
		return
	}
	n.life, n.dieAt = nil, ""
	l.dead.Store(true)
	if err := l.agent.Close(); err != nil {
		n.world.fail("close the store of %s: %v", n.name, err)
	}
}

func (n *healNode) store() string  { return filepath.Join(n.dir, "node.db") }
func (n *healNode) backup() string { return filepath.Join(n.dir, "backup") }

// lose takes the store of a stopped node away, and keeps its key.
func (n *healNode) lose() error {
	n.kill()
	n.forget()
	for _, tail := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(n.store() + tail); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// save keeps a copy of the store of a stopped node; restore brings it back.
func (n *healNode) save() error {
	n.kill()
	raw, err := os.ReadFile(n.store())
	if err == nil {
		err = os.WriteFile(n.backup(), raw, 0o600)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (n *healNode) restore() error {
	raw, err := os.ReadFile(n.backup())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := n.lose(); err != nil {
		return err
	}
	return os.WriteFile(n.store(), raw, 0o600)
}

// tick is what an agent does by itself: it settles, says that it started, and reports.
func (n *healNode) tick(ctx context.Context) {
	l := n.life
	if l == nil || l.busy > 0 { // settling would wait for the task that it happens in
		return
	}
	if err := l.agent.Applier.Recover(ctx); err != nil && !l.dead.Load() {
		n.world.fail("%s does not settle: %v", n.name, err)
	}
	var at node.Placement
	var err error
	if l.started {
		at, err = l.report(ctx)
	} else {
		at, err = l.sayStarted(ctx)
	}
	if err != nil || at.Role == "" || l.dead.Load() {
		return
	}
	if err := l.agent.Applier.Adopt(ctx, sqlite.Right{Role: at.Role, Epoch: at.Epoch}, ""); err != nil && !l.dead.Load() {
		n.world.fail("%s does not adopt: %v", n.name, err)
	}
}

// sayStarted says what the store held when the agent came up, until that is answered: what is
// repeated is old by then.
func (l *healLife) sayStarted(ctx context.Context) (node.Placement, error) {
	if l.page.StartID == "" {
		id, _, err := identity.NewToken(16)
		if err != nil {
			return node.Placement{}, err
		}
		if err := l.agent.Store.SetStartID(ctx, id); err != nil {
			return node.Placement{}, err
		}
		all, err := l.agent.Applier.Instances(ctx)
		if err != nil {
			return node.Placement{}, err
		}
		l.page = node.StartedPage{StartID: id, Instances: all, Last: true}
	}
	at, err := l.client.Started(ctx, l.page)
	l.started = err == nil
	return at, err
}

// hears notes what the region was told with the results of a batch: no report says it again.
func (l *healLife) hears(held []fleet.NodeInstance) {
	for _, in := range held {
		l.told[in.Instance] = in
	}
}

// report says what changed since it was told last, and at least that the node lives.
func (l *healLife) report(ctx context.Context) (node.Placement, error) {
	all, err := l.agent.Applier.Instances(ctx)
	if err != nil {
		return node.Placement{}, err
	}
	changed := []fleet.NodeInstance{}
	for _, in := range all {
		if before, ok := l.told[in.Instance]; !ok || before != in {
			changed = append(changed, in)
		}
	}
	at, err := l.client.Report(ctx, node.Report{Instances: changed, Progress: []node.DeliveryProgress{}})
	if err == nil {
		for _, in := range changed {
			l.told[in.Instance] = in
		}
	}
	return at, err
}
