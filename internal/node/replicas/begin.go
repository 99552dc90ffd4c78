package replicas

import (
	"cmp"
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

// prepare fetches all that a start needs, and has the driver run the preStart commands that it does not run itself with
// the start. It holds no start slot. It retries failures that may pass, up to the time limit; at that limit it also
// cancels a step that hangs, and the caller gives up.
func (w *worker) prepare(ctx context.Context) {
	w.is(decide.ProcessPreparing)
	w.note(ctx, func(k *known) { k.Exact, k.Probe = "", decide.ProbeState{} })
	ctx, done := w.interruptible(ctx)
	defer done()
	within := w.within(ctx, w.since+decide.PrepareLimit)
	for failures := 0; within.Err() == nil; failures++ {
		err := w.ready(within)
		switch {
		case err == nil:
			w.is(decide.ProcessPrepared)
			return
		case within.Err() != nil && ctx.Err() == nil || w.lateBefore():
			w.tried = err.Error()
			return
		}
		w.failed(ctx, err)
		if ctx.Err() != nil {
			break
		}
		if w.process != decide.ProcessPreparing && w.process != decide.ProcessPreStart || w.next().Do != decide.DoRest {
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
	if err = driver.Prepare(ctx, l); err == nil && len(def.PreStart) > 0 {
		err = w.runBefore(ctx, driver, l)
	}
	if w.fresh = err == nil; w.fresh {
		w.tried = ""
	}
	return err
}

// runBefore runs the preStart commands that the driver runs before a start.
func (w *worker) runBefore(ctx context.Context, driver Driver, l Launch) error {
	commands, runs := driver.(before)
	if !runs {
		return nil
	}
	w.preStart(ctx, 0)
	ctx, done := context.WithCancel(ctx)
	defer done()
	err := commands.RunBefore(w.within(ctx, w.probed().Deadline), l)
	if err != nil {
		w.setProbe(w.probed().StillPreStart(w.keeper.opt.Now()))
	}
	return err
}

// preStart records that the preStart commands run. Their time, which the first success of a probe shares, runs from the
// first of them in this start.
func (w *worker) preStart(ctx context.Context, pid int) {
	if w.process != decide.ProcessPreStart {
		w.is(decide.ProcessPreStart)
	}
	p := w.now().Probe
	if p.Deadline == 0 {
		p = decide.PreStart(w.startup(), w.keeper.opt.Now())
	}
	w.setProbe(p)
	w.say(ctx, func(k *known) { k.Exact, k.Probe, k.PID = fleet.PhasePreStart, p, pid })
}

// lateBefore reports whether the preStart commands did not end in time.
func (w *worker) lateBefore() bool {
	return w.process == decide.ProcessPreStart && w.probed().PreStartLate()
}

// failed ends a replica for a failure of its own; any other error is reported and retried.
func (w *worker) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // it must not run any more, or the agent ends
	}
	switch reason := failure(err); reason {
	case "":
		w.tried = err.Error()
		w.say(ctx, func(k *known) {
			if k.Message = "not started yet, the agent retries: " + w.tried; w.process == decide.ProcessPrepared {
				k.Exact = fleet.PhaseLaunching
			}
		})
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
		k.Phase, k.Health, k.Unready = fleet.PhasePreparing, fleet.HealthNotChecked, false
		switch {
		case !a.Restart:
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
	w.preStart(ctx, found.PID)
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

// began checks whether the program itself runs now, after its preStart commands. Time in which the agent did not run
// counts towards no deadline.
func (w *worker) began(ctx context.Context) {
	at, p := w.keeper.opt.Now(), w.probed()
	found, err := w.driver(w.now()).Look(ctx, w.id)
	switch {
	case err != nil || !found.Running || w.def == nil:
	case !found.Preparing:
		w.running(ctx, found)
	case p.Deadline == 0: // an agent of the build before began it
		w.preStart(ctx, found.PID)
	default:
		if missed := at - p.Missed; missed > lookAgain+away {
			p = p.Delay(missed)
		}
		w.setProbe(p.StillPreStart(at))
	}
}

// running records that the program runs, and starts its probes.
func (w *worker) running(ctx context.Context, found Found) {
	w.is(decide.ProcessRunning)
	p := w.startProbes()
	if has := w.now().Probe; has.Deadline > 0 {
		p.Deadline = has.Deadline
	}
	ready, _ := checkOf(w.def.Readiness, w.def.Ports)
	w.say(ctx, func(k *known) {
		k.Phase, k.PID, k.Message, k.Probe, k.Unready = fleet.PhaseRunning, found.PID, "", p, ready.Type != fleet.HealthNone
		k.Failing = failing{}
	})
	w.watch(p)
}

func (w *worker) startProbes() decide.ProbeState {
	check, _ := checkOf(w.obeyed().Health, w.def.Ports)
	return decide.StartProbes(check, w.startup(), w.keeper.opt.Now())
}

// startup is the time for the preStart commands and the first success of a probe.
func (w *worker) startup() time.Duration {
	if w.def.Startup != nil && w.def.Startup.Deadline > 0 {
		return time.Duration(w.def.Startup.Deadline * float64(time.Second))
	}
	return time.Duration(fleet.DefaultStartup) * time.Second
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
		id: w.id, check: check, state: p, address: w.addressOf(port),
		changed: func(p decide.ProbeState) {
			keep(p)
			w.poke()
		},
		failed: func(p decide.ProbeState) {
			keep(p)
			w.keeper.failing(w.id)
		},
	})
}

// addressOf is where one of its ports is probed.
func (w *worker) addressOf(port string) string {
	return net.JoinHostPort(w.keeper.opt.Address, strconv.Itoa(w.now().Ports[port]))
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
	return check, cmp.Or(check.Port, ports[0].Name)
}
