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

// region is what the node asks of its region over HTTP. Errors say by their kind whether the call
// may succeed later.
type region interface {
	// NodeReplicas reads the node's set; unchanged says that it still is the one of have.
	NodeReplicas(ctx context.Context, have fleet.SetVersion) (set fleet.NodeReplicas, unchanged bool, err error)
	ReplicaDefinition(ctx context.Context, hash fleet.Hash) ([]byte, error)
	ReplicaLog(ctx context.Context, l LogPiece) error
	ReplicaSamples(ctx context.Context, all []Sample) error
}

// store is what the node remembers.
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
	// Dir holds a directory for each replica, and those of the drivers.
	Dir string
	// Address is where others reach what listens here, and where replicas are probed.
	Address string
	Region  region
	Store   store
	Drivers map[fleet.Driver]Driver
	// GPUs is how many the machine has for replicas.
	GPUs int
	// Now is CLOCK_BOOTTIME; Boot names the boot whose it is.
	Now  func() time.Duration
	Boot string
	Log  *slog.Logger

	// BaseEnv is what every program finds in its environment.
	BaseEnv []string
	// Enrolled is closed when the region knows the node; nil is at once.
	Enrolled <-chan struct{}

	// FetchEvery is how often the set is asked for though nobody said that it changed (30 s),
	// LogEvery and SampleEvery how often output (2 s) and samples (10 s) are sent.
	FetchEvery, LogEvery, SampleEvery time.Duration
	// SeekEvery is how often a driver is asked that did not answer at the start (5 s), OnDriver is told
	// once it does; nil tells nobody.
	SeekEvery time.Duration
	OnDriver  func(fleet.Driver)
	// Failpoint is for tests: it is called with the name of each step.
	Failpoint func(name string)
}

// Keeper keeps the node's replicas as its newest set says.
type Keeper struct {
	opt         Options
	definitions *definitions
	ports       *ports
	gpus        *gpus
	prober      *prober
	starts      map[fleet.Driver]chan struct{} // holds an item for each replica that starts
	ship        map[fleet.Driver]chan struct{} // has an item when a replica of the driver is gone
	told        chan struct{}                  // has an item when the set is to be asked for
	ready       chan struct{}                  // closed when the drivers were asked what there is

	// writing is held while what is known goes from memory to the store; it comes before mu.
	writing sync.Mutex

	mu        sync.Mutex
	fresh     bool // a set was read by this agent, since strangers came last
	came      int  // counts strangers that came late
	blank     bool // there was no memory of any set when the agent started
	replicas  map[fleet.ReplicaID]*worker
	strangers map[fleet.ReplicaID]stranger
	ends      map[fleet.ReplicaID]bool       // told to end, and a driver that may have them did not answer
	absent    map[fleet.Driver]chan struct{} // drivers that did not answer yet; closed when one does
	version   fleet.SetVersion               // of the set that was taken last
	newest    fleet.SetVersion               // that anybody spoke of
	heard     bool                           // there is a stream to the region
	quiet     time.Duration                  // since when there is none
	feed      feed

	workers sync.WaitGroup
}

// maxStarts is how many replicas of a driver start at once on a node: more would make all of them slow.
const maxStarts = 8

// findLimit is how long a node that starts waits for what an engine has, once it knows which processes run: an
// engine that hangs is asked again later.
const findLimit = 2 * time.Second

// New makes a keeper that does nothing before Run.
func New(opt Options) *Keeper {
	opt.FetchEvery = orDefault(opt.FetchEvery, 30*time.Second)
	opt.LogEvery = orDefault(opt.LogEvery, 2*time.Second)
	opt.SampleEvery = orDefault(opt.SampleEvery, 10*time.Second)
	opt.SeekEvery = orDefault(opt.SeekEvery, 5*time.Second)
	if opt.Failpoint == nil {
		opt.Failpoint = func(string) {}
	}
	ship, starts := map[fleet.Driver]chan struct{}{fleet.DriverProcess: make(chan struct{}, 1)}, map[fleet.Driver]chan struct{}{}
	for name := range opt.Drivers {
		ship[name], starts[name] = make(chan struct{}, 1), make(chan struct{}, maxStarts)
	}
	return &Keeper{
		opt: opt, definitions: &definitions{dir: filepath.Join(opt.Dir, "definitions"), region: opt.Region},
		ports: newPorts(), gpus: newGPUs(opt.GPUs), prober: newProber(opt.Now), starts: starts, told: make(chan struct{}, 1),
		ship: ship, ready: make(chan struct{}), replicas: map[fleet.ReplicaID]*worker{}, strangers: map[fleet.ReplicaID]stranger{}, ends: map[fleet.ReplicaID]bool{},
		absent: map[fleet.Driver]chan struct{}{},
		feed:   newFeed(),
	}
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}

// Run takes over what earlier agents left and keeps replicas until the context ends. It needs the
// region for nothing that it knows already. Replicas outlive it; StopAll ends them.
func (k *Keeper) Run(ctx context.Context) error {
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := k.recover(running); err != nil {
			return err
		}
		close(k.ready)
		for _, loop := range []func(context.Context) error{k.prober.run, k.follow} {
			group.Go(func() error { return loop(running) })
		}
		// One that hangs holds up nothing of the others.
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

// Heard says that there is a stream to the region.
func (k *Keeper) Heard() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heard = true
}

// Lost says that there is no stream to the region: what exits from now on is the node's to start
// again.
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

// recover matches what the store remembers with what the drivers find. One that does not answer yet
// is asked later.
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
			if r.Driver == "" { // it was told to end by an agent that did not see it
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

// sweeper is a driver that may find more than replicas. Sweep removes what belongs to none, and is called
// before any worker begins, never again.
type sweeper interface {
	Sweep(ctx context.Context) error
}

// sweep leaves what cannot be removed to the next agent: it is no reason to run nothing.
func (k *Keeper) sweep(ctx context.Context) {
	if err := k.definitions.sweep(); err != nil {
		k.opt.Log.Error("what earlier agents had not finished to write was not removed", "err", err)
	}
	for name, driver := range k.opt.Drivers {
		s, sweeps := driver.(sweeper)
		if !sweeps {
			continue
		}
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			k.opt.Log.Error("what earlier replicas left was not removed", "driver", name, "err", err)
		}
	}
}

// stranger is what a driver found and nobody remembers; unlisted says that the set does not list it either.
type stranger struct {
	lead
	unlisted bool
}

// status is what the region is told of it.
func (s stranger) status() fleet.ReplicaStatus {
	st := fleet.ReplicaStatus{ID: s.ID, Phase: fleet.PhaseExited, Health: fleet.HealthNotChecked, Message: "its node does not remember it"}
	if s.Running {
		st.Phase, st.PID = fleet.PhaseRunning, s.PID
	}
	return st
}

// lead is what a driver found, and which one.
type lead struct {
	Found
	driver fleet.Driver
}

// answer is what a driver says that there is, or why it does not.
type answer struct {
	driver fleet.Driver
	found  []Found
	err    error
}

// find asks all drivers at once what there is; absent are those that gave no answer. Processes are not held
// up for long by an engine that hangs.
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

// add makes the worker of a replica; mu is held.
func (k *Keeper) add(r known) *worker {
	w := &worker{keeper: k, id: r.ID, known: r, wake: make(chan struct{}, 1)}
	k.replicas[r.ID] = w
	return w
}

// begin lets a worker work.
func (k *Keeper) begin(ctx context.Context, w *worker) {
	k.workers.Go(func() { w.run(ctx) })
}
