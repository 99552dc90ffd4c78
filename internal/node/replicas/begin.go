package replicas

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

// The pauses between attempts after a failure that a retry may fix.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 15 * time.Second
)

// prepare fetches all that a start needs, without a start slot. It retries failures that may pass, up to the
// time limit; at that limit it also cancels a step that hangs, and the caller gives up.
func (w *worker) prepare(ctx context.Context) {
	w.is(decide.ProcessPreparing)
	ctx, done := w.interruptible(ctx)
	defer done()
	within := w.within(ctx, w.since+decide.PrepareLimit)
	for failures := 0; within.Err() == nil; failures++ {
		err := w.ready(within)
		switch {
		case err == nil:
			w.is(decide.ProcessPrepared)
			return
		case within.Err() != nil && ctx.Err() == nil:
			w.tried = err.Error()
			return
		}
		w.failed(ctx, err)
		if ctx.Err() != nil {
			break
		}
		if w.process != decide.ProcessPreparing || w.next().Do != decide.DoRest {
			return
		}
		_ = pause.For(within, min(firstPause<<min(failures, 6), lastPause))
	}
	if ctx.Err() != nil {
		w.is(decide.ProcessNone)
	}
}

// within gives a context that ends at an instant of the agent's clock, which counts suspend, or with its
// parent. The parent must end.
func (w *worker) within(ctx context.Context, until time.Duration) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	w.keeper.workers.Go(func() {
		for ctx.Err() == nil && w.keeper.opt.Now() < until {
			_ = pause.For(ctx, lookAgain)
		}
		cancel(errTooLong)
	})
	return ctx
}

// errTooLong is the cause when a replica was not ready in time.
var errTooLong = fleet.Errorf(fleet.Unavailable, "the time limit is over")

func (w *worker) ready(ctx context.Context) error {
	r := w.now()
	def, err := w.keeper.definitions.get(ctx, r.Definition)
	if err != nil {
		return err
	}
	w.def = &def
	name := def.Driver
	if name == "" {
		name = fleet.DriverProcess
	}
	driver, has := w.keeper.opt.Drivers[name]
	if !has {
		return &Failure{fleet.ReasonNoDriver, fleet.Errorf(fleet.Precondition, "this node has no driver %q", name)}
	}
	if r.Driver != name {
		w.note(ctx, func(k *known) { k.Driver = name })
	}
	l := w.launch(w.now(), def)
	if len(def.PreStart) > 0 {
		if l.OutputFrom, err = w.keeper.opt.Store.ReplicaLogOffset(ctx, w.id); err != nil {
			return err
		}
		if err := driver.Stop(ctx, w.id, w.stopTime()); err != nil { // commands of an earlier agent
			return err
		}
		if err := writeFiles(l.Dir, l.Process.Files); err != nil {
			return err
		}
		w.note(ctx, func(k *known) { k.Asked = true })
	}
	err = driver.Prepare(ctx, l)
	if w.fresh = err == nil; w.fresh {
		w.tried = ""
	}
	return err
}

// failed ends a replica for a failure of its own; any other error is reported and retried.
func (w *worker) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // it must not run any more, or the agent ends
	}
	switch reason := failure(err); reason {
	case "":
		w.tried = err.Error()
		w.say(ctx, func(k *known) { k.Message = "not started yet, the agent retries: " + w.tried })
	case fleet.ReasonExited, fleet.ReasonOutOfMemory:
		w.fresh = false // before its next start its commands run again
		w.over(ctx, fleet.PhaseExited, Exit{reason, err.Error()})
	default:
		w.ending = Exit{reason, err.Error()}
		w.is(decide.ProcessBroken)
	}
}

// start starts the program. Few replicas start at the same time.
func (w *worker) start(agent context.Context, a decide.ReplicaAction) {
	w.say(agent, func(k *known) {
		k.Phase, k.Health, k.Probe, k.Unready = fleet.PhasePreparing, fleet.HealthNotChecked, decide.ProbeState{}, false
		switch {
		case !a.Restart:
		case w.again && k.Reason == decide.ReasonPrepareLimit: // no probe failed
			k.Restarts++
		case w.again:
			k.Restarts, k.Used = k.Restarts+1, k.Used+1
		default: // it ended, and no region is connected that decides what to do
			k.Restarts, k.Alone = k.Restarts+1, k.Alone+1
		}
	})
	w.again = false
	if !w.fresh { // its commands run before each start
		if w.prepare(agent); w.process != decide.ProcessPrepared {
			return
		}
	}
	ctx, done := w.interruptible(agent)
	defer done()
	found, err := w.startOne(ctx)
	if err != nil {
		w.is(decide.ProcessPrepared)
		if w.failed(ctx, err); w.process == decide.ProcessPrepared {
			_ = pause.For(ctx, lookAgain)
		}
		return
	}
	w.watchExit(agent, w.driver(w.now()))
	if !found.Preparing {
		w.running(ctx, found)
		return
	}
	w.say(ctx, func(k *known) { k.PID = found.PID })
	w.is(decide.ProcessPreparing)
}

// startOne waits for a start slot of its driver.
func (w *worker) startOne(ctx context.Context) (Found, error) {
	starts := w.keeper.starts[w.now().Driver] // an engine that hangs in all its slots delays no process
	select {
	case starts <- struct{}{}:
		defer func() { <-starts }()
		found, err := w.launchNow(ctx)
		w.fresh = err != nil
		return found, err
	case <-ctx.Done():
		return Found{}, ctx.Err()
	}
}

func (w *worker) launchNow(ctx context.Context) (Found, error) {
	k, r := w.keeper, w.now()
	driver := w.driver(r)
	if err := driver.Stop(ctx, w.id, w.stopTime()); err != nil { // nothing of an earlier start runs beside it
		return Found{}, err
	}
	at, err := k.ports.choose(w.id, w.def.Ports, r.Ports)
	if err != nil {
		return Found{}, err
	}
	gpus, err := k.gpus.choose(w.id, w.def.Resources.GPUs, r.GPUs)
	if err != nil {
		return Found{}, err
	}
	first := ""
	if len(w.def.Ports) > 0 {
		first = w.def.Ports[0].Name
	}
	// Written first: if this agent is killed now, the next one must know that the replica may run, on which ports
	// and on which GPUs.
	w.note(ctx, func(k *known) { k.Asked, k.Ports, k.First, k.GPUs = true, at, first, gpus })
	l := w.launch(w.now(), *w.def)
	if err := l.Process.CheckArguments(); err != nil {
		return Found{}, &Failure{fleet.ReasonNotStarted, fmt.Errorf("the program could not be run: %w", err)}
	}
	if l.OutputFrom, err = k.opt.Store.ReplicaLogOffset(ctx, w.id); err != nil {
		return Found{}, err
	}
	if err := writeFiles(l.Dir, l.Process.Files); err != nil {
		return Found{}, err
	}
	k.opt.Failpoint("before_replica_start")
	found, err := driver.Start(ctx, l)
	k.opt.Failpoint("after_replica_start")
	return found, err
}

func (w *worker) launch(r known, def fleet.Definition) Launch {
	k, dir := w.keeper, w.dir()
	l := Launch{
		ID: w.id, Node: k.opt.Node, Definition: r.Definition, Project: r.Project, Epoch: r.ProcessVersion, Resources: def.Resources, Base: k.opt.BaseEnv,
		Dir: dir, GPUs: r.GPUs,
	}
	config := ""
	if len(def.Files) > 0 {
		l.Config = filepath.Clean(def.Files[0].Path)
		config = filepath.Join(dir, l.Config)
		if r.Driver == fleet.DriverDocker {
			config = filepath.Join(ContainerDir, l.Config)
		}
	}
	names := k.names(r, def, config)
	l.Process = expanded(def.Process, names)
	l.Process.StopSeconds = r.StopSeconds
	l.Env = envOf(l.Process, names)
	for _, port := range def.Ports {
		l.Ports = append(l.Ports, fleet.ProcessPort{Name: port.Name, Port: r.Ports[port.Name]})
	}
	return l
}

// began checks whether the program itself runs now, after its commands.
func (w *worker) began(ctx context.Context) {
	found, err := w.driver(w.now()).Look(ctx, w.id)
	if err == nil && found.Running && !found.Preparing && w.def != nil {
		w.running(ctx, found)
	}
}

// running records that the program runs, and starts its probes.
func (w *worker) running(ctx context.Context, found Found) {
	w.is(decide.ProcessRunning)
	p := w.startProbes()
	ready, _ := checkOf(w.def.Readiness, w.def.Ports)
	w.say(ctx, func(k *known) {
		k.Phase, k.PID, k.Message, k.Probe, k.Unready = fleet.PhaseRunning, found.PID, "", p, ready.Type != fleet.HealthNone
	})
	w.watch(p)
}

func (w *worker) startProbes() decide.ProbeState {
	check, _ := checkOf(w.obeyed().Health, w.def.Ports)
	limit := time.Duration(fleet.DefaultStartup) * time.Second
	if w.def.Startup != nil && w.def.Startup.Deadline > 0 {
		limit = time.Duration(w.def.Startup.Deadline * float64(time.Second))
	}
	return decide.StartProbes(check, limit, w.keeper.opt.Now())
}

// watchExit sends the exit once, when nothing of the replica runs any more.
func (w *worker) watchExit(ctx context.Context, driver Driver) {
	exited, ended := make(chan Exit, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	w.exited = exited
	w.unwatch = func() {
		cancel()
		<-ended
	}
	w.keeper.workers.Go(func() {
		defer close(ended)
		defer cancel()
		for failures := 0; ctx.Err() == nil; failures++ {
			exit, err := driver.Await(ctx, w.id)
			if err == nil {
				exited <- exit
				return
			}
			if ctx.Err() == nil && failures == 0 {
				w.keeper.opt.Log.Error("wait for the end of a replica, retrying", "replica", w.id, "err", err)
			}
			_ = pause.For(ctx, lookAgain)
		}
	})
}

// watch starts the probes of a replica from a known state of its health, and those of its readiness beside them.
func (w *worker) watch(p decide.ProbeState) {
	w.obeys = w.now().Terms
	def := w.def.Under(w.obeys)
	w.probing(w.keeper.prober, def.Health, p, w.setProbe)
	w.probing(w.keeper.readiness, def.Readiness, decide.StartReadiness(w.now().readiness(), p.Next), w.setReadiness)
}

// probing has a prober keep the state of one check.
func (w *worker) probing(by *prober, of *fleet.HealthCheck, p decide.ProbeState, keep func(decide.ProbeState)) {
	check, port := checkOf(of, w.def.Ports)
	keep(p)
	if check.Type == fleet.HealthNone {
		return
	}
	by.watch(&watch{
		id: w.id, check: check, state: p,
		address: net.JoinHostPort(w.keeper.opt.Address, strconv.Itoa(w.now().Ports[port])),
		changed: func(p decide.ProbeState) {
			keep(p)
			w.poke()
		},
	})
}

// unwatched ends all probes.
func (w *worker) unwatched() {
	w.keeper.prober.forget(w.id)
	w.keeper.readiness.forget(w.id)
}

// checkOf gives a check of a definition with its defaults (S75), and its port. A replica without ports is not probed.
func checkOf(of *fleet.HealthCheck, ports []fleet.ProcessPort) (check fleet.HealthCheck, port string) {
	if of == nil || of.Type == fleet.HealthNone || len(ports) == 0 {
		return fleet.HealthCheck{Type: fleet.HealthNone}, ""
	}
	check = of.WithDefaults()
	if check.Port == "" {
		return check, ports[0].Name
	}
	return check, check.Port
}
