package replicas

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// region is the node's HTTP calls to its region. The kind of an error tells whether a retry may succeed.
type region interface {
	// NodeReplicas reads the node's set; unchanged means that have is still the current version.
	NodeReplicas(ctx context.Context, have fleet.SetVersion) (set fleet.NodeReplicas, unchanged bool, err error)
	ReplicaDefinition(ctx context.Context, hash fleet.Hash) ([]byte, error)
	ReplicaLog(ctx context.Context, l LogPiece) error
	ReplicaSamples(ctx context.Context, all []Sample) error
}

// store is what the node remembers across agents.
type store interface {
	Replicas(ctx context.Context) ([]sqlite.Replica, error)
	PutReplica(ctx context.Context, r sqlite.Replica) error
	DropReplica(ctx context.Context, id fleet.ReplicaID) error
	ReplicaSet(ctx context.Context) (fleet.SetVersion, error)
	TakeReplicaSet(ctx context.Context, at fleet.SetVersion, changed []sqlite.Replica) error
	ReplicaLogOffset(ctx context.Context, id fleet.ReplicaID) (int64, error)
	SetReplicaLogOffset(ctx context.Context, id fleet.ReplicaID, at int64) error
}

// Options configure a Keeper. Those of the first group must be set.
type Options struct {
	Node fleet.NodeName
	Site fleet.SiteName
	// Dir holds a directory for each replica, and the drivers' directories.
	Dir string
	// Address is where others reach the replicas, and where the node probes them.
	Address string
	Region  region
	Store   store
	Drivers map[fleet.Driver]Driver
	// GPUs is the number of GPUs for replicas.
	GPUs int
	// Now is CLOCK_BOOTTIME; Boot is the id of this boot.
	Now  func() time.Duration
	Boot string
	Log  *slog.Logger

	// BaseEnv is in the environment of every program.
	BaseEnv []string
	// Enrolled is closed once the region knows the node; nil means at once.
	Enrolled <-chan struct{}

	// FetchEvery is how often the node reads the set without a notice of a change (30 s), LogEvery and SampleEvery
	// how often it sends output (2 s) and samples (10 s).
	FetchEvery, LogEvery, SampleEvery time.Duration
	// SeekEvery is how often the node retries a driver that did not answer at the start (5 s). OnDriver is called
	// once it answers; nil is allowed.
	SeekEvery time.Duration
	// SyncEvery is how often the node checks its drivers and sends a digest (30 s).
	SyncEvery time.Duration
	// FailingEvery is how often the node reports why checks fail, apart from transitions (10 s).
	FailingEvery time.Duration
	OnDriver     func(fleet.Driver)
	// Failpoint is for tests: it is called with the name of each step.
	Failpoint func(name string)
}

// Keeper keeps the node's replicas as its newest set lists them.
type Keeper struct {
	opt         Options
	definitions *definitions
	ports       *ports
	gpus        *gpus
	prober      *prober // of health
	readiness   *prober
	starts      map[fleet.Driver]chan struct{} // one item per replica that starts
	ship        map[fleet.Driver]chan struct{} // has an item when a replica of the driver is to be removed
	told        chan struct{}                  // has an item when the set should be read
	ready       chan struct{}                  // closed once the drivers were listed

	// writing is held while known replicas go from memory to the store; lock it before mu.
	writing sync.Mutex

	mu        sync.Mutex
	fresh     bool // this agent has read a set since strangers last appeared
	came      int  // counts how often strangers appeared late
	blank     bool // the store had no set when the agent started
	replicas  map[fleet.ReplicaID]*worker
	strangers map[fleet.ReplicaID]stranger
	ends      map[fleet.ReplicaID]bool       // to be ended, while a driver that may have them does not answer
	absent    map[fleet.Driver]chan struct{} // drivers that have not answered yet; closed when one does
	version   fleet.SetVersion               // of the set that is followed
	newest    fleet.SetVersion               // the newest version that any notice named
	heard     bool                           // a stream to the region is open
	quiet     time.Duration                  // when the last stream ended
	feed      feed
	failures  failures

	workers sync.WaitGroup
}

// maxStarts is how many replicas of a driver start at once on a node: more would slow all of them down.
const maxStarts = 8

// findLimit is how long a starting node waits for an engine's list, once it knows its processes. The node asks
// an engine that hangs again later.
const findLimit = 2 * time.Second

// New makes a keeper; it does nothing before Run.
func New(opt Options) *Keeper {
	opt.FetchEvery = orDefault(opt.FetchEvery, 30*time.Second)
	opt.LogEvery = orDefault(opt.LogEvery, 2*time.Second)
	opt.SampleEvery = orDefault(opt.SampleEvery, 10*time.Second)
	opt.SeekEvery = orDefault(opt.SeekEvery, 5*time.Second)
	opt.SyncEvery = orDefault(opt.SyncEvery, 30*time.Second)
	opt.FailingEvery = orDefault(opt.FailingEvery, 10*time.Second)
	if opt.Failpoint == nil {
		opt.Failpoint = func(string) {}
	}
	ship, starts := map[fleet.Driver]chan struct{}{fleet.DriverProcess: make(chan struct{}, 1)}, map[fleet.Driver]chan struct{}{}
	for name := range opt.Drivers {
		ship[name], starts[name] = make(chan struct{}, 1), make(chan struct{}, maxStarts)
	}
	return &Keeper{
		opt: opt, definitions: &definitions{dir: filepath.Join(opt.Dir, "definitions"), region: opt.Region},
		ports: newPorts(), gpus: newGPUs(opt.GPUs), prober: newProber(opt.Now), readiness: newProber(opt.Now), starts: starts, told: make(chan struct{}, 1),
		ship: ship, ready: make(chan struct{}), replicas: map[fleet.ReplicaID]*worker{}, strangers: map[fleet.ReplicaID]stranger{}, ends: map[fleet.ReplicaID]bool{},
		absent: map[fleet.Driver]chan struct{}{},
		feed:   newFeed(), failures: failures{ids: map[fleet.ReplicaID]bool{}},
	}
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}

// Run takes over what earlier agents left, and keeps the replicas until the context ends. It needs no region
// for what it already knows. Replicas outlive it; StopAll ends them.
func (k *Keeper) Run(ctx context.Context) error {
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := k.recover(running); err != nil {
			return err
		}
		close(k.ready)
		for _, loop := range []func(context.Context) error{k.prober.run, k.readiness.run, k.follow, k.sync} {
			group.Go(func() error { return loop(running) })
		}
		// A driver that hangs delays none of the others.
		for name, driver := range k.opt.Drivers {
			group.Go(func() error { return k.sample(running, driver) })
			group.Go(func() error { return k.seek(running, name, driver) })
		}
		for name := range k.ship {
			group.Go(func() error { return k.shipLogs(running, name) })
		}
		return nil
	})
	err := group.Wait()
	k.workers.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Heard records that a stream to the region is open.
func (k *Keeper) Heard() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heard = true
}

// Lost records that no stream to the region is open: from now on the node itself restarts what exits.
func (k *Keeper) Lost() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.heard {
		return
	}
	k.heard, k.quiet = false, k.opt.Now()
	for _, w := range k.replicas {
		w.poke()
	}
}

// recover matches the store with what the drivers find. It retries later the drivers that do not answer yet.
func (k *Keeper) recover(ctx context.Context) error {
	rows, err := k.opt.Store.Replicas(ctx)
	if err != nil {
		return err
	}
	version, err := k.opt.Store.ReplicaSet(ctx)
	if err != nil {
		return err
	}
	found, absent := k.find(ctx)
	k.sweep(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for name := range absent {
		k.absent[name] = make(chan struct{})
	}
	k.version, k.blank, k.quiet = version, version == (fleet.SetVersion{}), k.opt.Now()
	for _, row := range rows {
		r, err := recall(row, k.opt.Boot, k.opt.Now())
		if err != nil {
			return err
		}
		if !r.Phase.Over() {
			k.ports.keep(r.ID, r.Ports)
			k.gpus.keep(r.ID, r.GPUs)
		}
		w := k.add(r)
		if at, is := found[r.ID]; is {
			w.left = &at
			if r.Driver == "" { // an earlier agent was to end it, and did not find it
				w.stranger, w.known.Driver = true, at.driver
			}
			delete(found, r.ID)
		}
		w.unseen = absent[r.Driver]
		k.begin(ctx, w)
	}
	for id, at := range found {
		k.strangers[id] = stranger{lead: at}
	}
	return nil
}

// sweeper is a driver that may find more than replicas. Sweep removes what belongs to no replica; it is called
// once, before any worker starts.
type sweeper interface {
	Sweep(ctx context.Context) error
}

// sweep leaves to the next agent what it cannot remove; the node still starts.
func (k *Keeper) sweep(ctx context.Context) {
	if err := k.definitions.sweep(); err != nil {
		k.opt.Log.Error("remove unfinished files of earlier agents", "err", err)
	}
	for name, driver := range k.opt.Drivers {
		s, sweeps := driver.(sweeper)
		if !sweeps {
			continue
		}
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			k.opt.Log.Error("remove leftovers of earlier replicas", "driver", name, "err", err)
		}
	}
}

// stranger is a replica that a driver found and the store does not know; unlisted is set when the set does not
// list it either.
type stranger struct {
	lead
	unlisted bool
}

// status is its line in a report.
func (s stranger) status() fleet.ReplicaStatus {
	st := fleet.ReplicaStatus{ID: s.ID, Phase: fleet.PhaseExited, Health: fleet.HealthNotChecked, Message: "its node does not remember it"}
	if s.Running {
		st.Phase, st.PID = fleet.PhaseRunning, s.PID
	}
	return st
}

// lead is what a driver found, with the driver's name.
type lead struct {
	Found
	driver fleet.Driver
}

// answer is a driver's list of replicas, or its error.
type answer struct {
	driver fleet.Driver
	found  []Found
	err    error
}

// find lists the replicas of all drivers at once; absent are the drivers that gave no answer. An engine that
// hangs delays processes only a little.
func (k *Keeper) find(ctx context.Context) (all map[fleet.ReplicaID]lead, absent map[fleet.Driver]bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, len(k.opt.Drivers))
	all, absent = map[fleet.ReplicaID]lead{}, map[fleet.Driver]bool{}
	for name, driver := range k.opt.Drivers {
		absent[name] = true
		k.workers.Go(func() {
			found, err := driver.List(ctx)
			answers <- answer{name, found, err}
		})
	}
	var late <-chan time.Time
	for range k.opt.Drivers {
		select {
		case <-late:
			return all, absent
		case a := <-answers:
			if a.driver == fleet.DriverProcess {
				late = time.After(findLimit)
			}
			if a.err != nil {
				continue
			}
			delete(absent, a.driver)
			for _, f := range a.found {
				all[f.ID] = lead{f, a.driver}
			}
		}
	}
	return all, absent
}

// add creates the worker of a replica; mu is held.
func (k *Keeper) add(r known) *worker {
	w := &worker{keeper: k, id: r.ID, known: r, wake: make(chan struct{}, 1)}
	k.replicas[r.ID] = w
	return w
}

// begin starts a worker.
func (k *Keeper) begin(ctx context.Context, w *worker) {
	k.workers.Go(func() { w.run(ctx) })
}
