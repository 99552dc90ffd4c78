package region

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/docker"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/node"
	"github.com/holdfast-io/holdfast/internal/node/replicas"
)

// nodeReplicas is a node's part in deployments: what it tells of its machine, and what it runs.
type nodeReplicas struct {
	keeper *replicas.Keeper
	facts  *nodev1.NodeFacts
	stop   bool // with the node
	log    *slog.Logger
}

func newNodeReplicas(ctx context.Context, cfg NodeConfig, agent *node.Agent, instances *guardian.Runtime, log *slog.Logger) (*nodeReplicas, error) {
	boot, err := guardian.BootID()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(filepath.Dir(instances.Root), "replicas")
	runtime := &guardian.Runtime{
		Root: filepath.Join(dir, "run"), Executable: instances.Executable, LifetimePID: instances.LifetimePID, Unleased: true, Log: log,
	}
	machine := cfg.Machine.detect(cfg.API)
	cgroups, err := replicas.FindCgroups("holdfast-" + cfg.Node)
	if err != nil {
		log.Info("replicas that are processes run without limits", "why", err)
	}
	drivers := map[fleet.Driver]replicas.Driver{fleet.DriverProcess: replicas.NewProcess(runtime, cgroups)}
	if engine := findEngine(ctx, cfg, log); engine != nil {
		drivers[fleet.DriverDocker] = engine
	}
	return &nodeReplicas{
		keeper: replicas.New(replicas.Options{
			Node: fleet.NodeName(cfg.Node), Site: fleet.SiteName(cfg.Site), Dir: dir, Address: machine.Address, Region: agent.Region(),
			Store: agent.Store, Drivers: drivers, Now: guardian.SinceBoot, Boot: boot, Log: log, BaseEnv: baseEnvironment(), GPUs: machine.GPUs,
			Enrolled: agent.Enrolled(),
		}),
		facts: machine.facts(slices.Collect(maps.Keys(drivers))), stop: cfg.StopInstances, log: log,
	}, nil
}

// engineLimit is how long an engine may take to say that it is there.
const engineLimit = 2 * time.Second

// findEngine gives the driver of the machine's engine, nil where none answers: then no container is
// placed here until the node is started again.
func findEngine(ctx context.Context, cfg NodeConfig, log *slog.Logger) replicas.Driver {
	driver, err := docker.New(fleet.NodeName(cfg.Node), cfg.Docker)
	if err == nil {
		within, cancel := context.WithTimeout(ctx, engineLimit)
		defer cancel()
		err = driver.Answers(within)
	}
	if err != nil {
		if cfg.Docker != "" { // somebody asked for it
			log.Warn("no containers run here: the engine does not answer", "engine", cfg.Docker, "err", err)
		}
		return nil
	}
	return driver
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
	if err := n.keeper.StopAll(ctx); err != nil {
		n.log.Error("replicas were not stopped", "err", err)
	}
	return err
}
