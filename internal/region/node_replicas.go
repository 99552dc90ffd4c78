package region

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/docker"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/node"
	"github.com/holdfast-io/holdfast/internal/node/isolation"
	"github.com/holdfast-io/holdfast/internal/node/replicas"
)

// nodeReplicas is a node's part in deployments: the facts about its machine, and what it runs.
type nodeReplicas struct {
	keeper *replicas.Keeper
	facts  *nodeFacts
	stop   bool // with the node
	ended  atomic.Bool
	log    *slog.Logger
}

// nodeFacts are the current facts about a node's machine. More drivers may become available.
type nodeFacts struct {
	machine NodeMachine

	mu      sync.Mutex
	drivers []fleet.Driver
	changed chan struct{} // closed when the facts change
}

func newNodeFacts(m NodeMachine, drivers ...fleet.Driver) *nodeFacts {
	return &nodeFacts{machine: m, drivers: drivers, changed: make(chan struct{})}
}

// now returns the facts, and a channel that is closed when they change.
func (f *nodeFacts) now() (*nodev1.NodeFacts, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.machine.facts(f.drivers), f.changed
}

func (f *nodeFacts) answers(driver fleet.Driver) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(f.drivers, driver) {
		return
	}
	f.drivers = append(f.drivers, driver)
	close(f.changed)
	f.changed = make(chan struct{})
}

func newNodeReplicas(ctx context.Context, cfg NodeConfig, agent *node.Agent, instances *guardian.Runtime, apart *isolation.Isolation, log *slog.Logger) (*nodeReplicas, error) {
	boot, err := guardian.BootID()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(filepath.Dir(instances.Root), "replicas")
	runtime := &guardian.Runtime{
		Root: filepath.Join(dir, "run"), Executable: instances.Executable, OwnName: instances.OwnName, LifetimePID: instances.LifetimePID,
		Unleased: true, Log: log,
	}
	machine := cfg.Machine.detect(cfg.API)
	machine.separation = apart.Separation()
	cgroups, err := replicas.FindCgroups("holdfast-" + cfg.Node)
	if err != nil {
		log.Info("process replicas run without limits", "why", err)
	}
	facts := newNodeFacts(machine, fleet.DriverProcess)
	drivers := map[fleet.Driver]replicas.Driver{fleet.DriverProcess: replicas.NewProcess(runtime, cgroups, apart)}
	engine, err := docker.New(fleet.NodeName(cfg.Node), cfg.Docker, filepath.Join(dir, "engine"))
	if err != nil {
		log.Warn("containers are not available", "why", err)
	} else {
		drivers[fleet.DriverDocker] = engine
		if findEngine(ctx, engine, cfg, log) {
			facts.answers(fleet.DriverDocker)
		}
	}
	return &nodeReplicas{
		keeper: replicas.New(replicas.Options{
			Node: fleet.NodeName(cfg.Node), Site: fleet.SiteName(cfg.Site), Dir: dir, Address: machine.Address, Region: agent.Region(),
			Store: agent.Store, Drivers: drivers, Now: guardian.SinceBoot, Boot: boot, Log: log, BaseEnv: baseEnvironment(), GPUs: machine.GPUs,
			Enrolled: agent.Enrolled(), SyncEvery: cfg.Timing.Runtime, Failpoint: cfg.Failpoint,
			OnDriver: func(name fleet.Driver) {
				log.Info("driver is now available", "driver", name)
				facts.answers(name)
			},
		}),
		facts: facts, stop: cfg.StopInstances, log: log,
	}, nil
}

// engineLimit is how long an engine may take to answer.
const engineLimit = 2 * time.Second

// findEngine checks whether the machine's engine answers. If not, it keeps checking: no container is placed here
// until then.
func findEngine(ctx context.Context, engine *docker.Driver, cfg NodeConfig, log *slog.Logger) bool {
	within, cancel := context.WithTimeout(ctx, engineLimit)
	defer cancel()
	err := engine.Answers(within)
	if err == nil {
		return true
	}
	level := slog.LevelInfo
	if cfg.Docker != "" { // it was requested explicitly
		level = slog.LevelWarn
	}
	log.Log(ctx, level, "containers are not available until an engine answers", "engine", cmp.Or(cfg.Docker, docker.DefaultHost), "why", err)
	return false
}

// stopReplicas limits the time to stop replicas that end with their node.
const stopReplicas = 15 * time.Second

// run keeps the replicas running until the context ends; they outlive the node unless configured otherwise.
func (n *nodeReplicas) run(ctx, running context.Context) error {
	err := n.keeper.Run(running)
	if !n.stop || ctx.Err() == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopReplicas)
	defer cancel()
	stopped := n.keeper.StopAll(ctx)
	if stopped != nil {
		n.log.Error("replicas were not stopped", "err", stopped)
	}
	n.ended.Store(stopped == nil)
	return err
}
