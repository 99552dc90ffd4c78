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

// nodeReplicas is a node's part in deployments: what it tells of its machine, and what it runs.
type nodeReplicas struct {
	keeper *replicas.Keeper
	facts  *nodeFacts
	stop   bool // with the node
	ended  atomic.Bool
	log    *slog.Logger
}

// nodeFacts are what a node tells of its machine now. More drivers may come to answer.
type nodeFacts struct {
	machine NodeMachine

	mu      sync.Mutex
	drivers []fleet.Driver
	changed chan struct{} // closed when what was told is true no more
}

func newNodeFacts(m NodeMachine, drivers ...fleet.Driver) *nodeFacts {
	return &nodeFacts{machine: m, drivers: drivers, changed: make(chan struct{})}
}

// now gives the facts, and what is closed once there are others.
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
		Root: filepath.Join(dir, "run"), Executable: instances.Executable, LifetimePID: instances.LifetimePID, Unleased: true, Log: log,
	}
	machine := cfg.Machine.detect(cfg.API)
	machine.separation = apart.Separation()
	cgroups, err := replicas.FindCgroups("holdfast-" + cfg.Node)
	if err != nil {
		log.Info("replicas that are processes run without limits", "why", err)
	}
	facts := newNodeFacts(machine, fleet.DriverProcess)
	drivers := map[fleet.Driver]replicas.Driver{fleet.DriverProcess: replicas.NewProcess(runtime, cgroups, apart)}
	engine, err := docker.New(fleet.NodeName(cfg.Node), cfg.Docker, filepath.Join(dir, "engine"))
	if err != nil {
		log.Warn("no containers run here", "why", err)
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
			Enrolled: agent.Enrolled(), Failpoint: cfg.Failpoint,
			OnDriver: func(name fleet.Driver) {
				log.Info("replicas of this driver run here from now on", "driver", name)
				facts.answers(name)
			},
		}),
		facts: facts, stop: cfg.StopInstances, log: log,
	}, nil
}

// engineLimit is how long an engine may take to say that it is there.
const engineLimit = 2 * time.Second

// findEngine says whether the machine's engine is there. Where it is not, it is looked for until it is:
// no container is placed here before.
func findEngine(ctx context.Context, engine *docker.Driver, cfg NodeConfig, log *slog.Logger) bool {
	within, cancel := context.WithTimeout(ctx, engineLimit)
	defer cancel()
	err := engine.Answers(within)
	if err == nil {
		return true
	}
	level := slog.LevelInfo
	if cfg.Docker != "" { // somebody asked for it
		level = slog.LevelWarn
	}
	log.Log(ctx, level, "no containers run here before an engine answers", "engine", cmp.Or(cfg.Docker, docker.DefaultHost), "why", err)
	return false
}

// stopReplicas is how long replicas that end with their node have for it.
const stopReplicas = 15 * time.Second

// run keeps the replicas until the context ends; they outlive the node unless it was told otherwise.
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
