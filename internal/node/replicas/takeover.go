package replicas

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

// takeOver starts from what an earlier agent left, if anything.
func (w *worker) takeOver(ctx context.Context) {
	r := w.now()
	driver := w.driver(r)
	switch {
	case w.stranger:
		w.endSurely(ctx, driver)
	case w.unseen && driver != nil:
		w.takeUnseen(ctx, driver)
	case driver == nil && !r.Run && w.keeper.forgot():
		w.endAnywhere(ctx)
	case r.Phase.Over():
		w.is(decide.ProcessOver)
		w.gaveUp = r.Phase == fleet.PhaseFailed
		if driver != nil { // the agent was killed after a start, before it stored that
			w.endSurely(ctx, driver)
		}
	case w.left != nil && w.left.Running && driver != nil:
		w.takeRunning(ctx, driver)
	case r.Phase == fleet.PhaseStopping && w.mayRun(): // also if only a command before its start runs
	case r.Phase == fleet.PhaseRunning || r.Phase == fleet.PhaseStopping:
		w.over(ctx, fleet.PhaseExited, w.lastExit(ctx, driver))
	}
}

// endAnywhere ends a replica that the set ends by name on a node without memory: any driver may have it. A
// driver that does not answer yet ends it when it does.
func (w *worker) endAnywhere(ctx context.Context) {
	for name, driver := range w.keeper.opt.Drivers {
		if w.keeper.there(name) {
			w.endSurely(ctx, driver)
		}
	}
	w.keeper.mu.Lock()
	defer w.keeper.mu.Unlock()
	w.keeper.ends[w.id] = len(w.keeper.absent) > 0
}

// there tells whether a driver has answered.
func (k *Keeper) there(name fleet.Driver) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.absent[name] == nil
}

// forgot tells whether the agent started without a stored set.
func (k *Keeper) forgot() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.blank
}

// endSurely ends what an earlier agent left, before any other step of the replica.
func (w *worker) endSurely(ctx context.Context, driver Driver) {
	for ctx.Err() == nil && !w.end(ctx, driver) {
		_ = pause.For(ctx, lookAgain)
	}
}

// takeUnseen starts from a replica whose state is unknown, because its driver does not answer. If it ran, it
// counts as running and is probed; the driver reports its end once it can. Nothing outlives the boot of its
// machine, to which its process id belongs.
func (w *worker) takeUnseen(ctx context.Context, driver Driver) {
	r := w.now()
	switch {
	case r.Phase.Over():
		w.is(decide.ProcessOver)
		w.gaveUp = r.Phase == fleet.PhaseFailed
		w.keeper.answers(ctx, r.Driver)
		w.endSurely(ctx, driver)
	case r.Phase == fleet.PhasePreparing || r.PID == 0 && r.Asked: // its driver ends it, before a start or for good
	case r.PID == 0:
		w.over(ctx, fleet.PhaseExited, Exit{fleet.ReasonExited, "its machine was restarted"})
	default:
		w.left = &lead{Found{ID: w.id, Running: true, PID: r.PID}, r.Driver}
		w.takeRunning(ctx, driver)
	}
}

// takeRunning continues with a running replica as if the agent had run all the time: with its restarts, its
// health, and the original time of its start.
func (w *worker) takeRunning(ctx context.Context, driver Driver) {
	w.watchExit(ctx, driver)
	if w.left.Preparing || w.now().Phase == fleet.PhasePreparing {
		w.is(decide.ProcessPreStart)
		w.setProbe(w.now().Probe.StillPreStart(w.keeper.opt.Now()))
	} else {
		w.is(decide.ProcessRunning)
	}
	w.lookAgain(ctx)
}

// lastExit gives the exit of a replica that ended while no agent ran.
func (w *worker) lastExit(ctx context.Context, driver Driver) Exit {
	unseen := Exit{fleet.ReasonExited, "it ended while no agent was running"}
	if w.left == nil || driver == nil {
		return unseen
	}
	return w.exitOf(ctx, driver, unseen.Message)
}

// exitOf gives the exit of a replica of which nothing runs; unseen is the message for an unknown one.
func (w *worker) exitOf(ctx context.Context, driver Driver, unseen string) Exit {
	within, cancel := context.WithTimeout(ctx, lookAgain)
	defer cancel()
	exit, err := driver.Await(within, w.id)
	switch {
	case err != nil: // the program has ended, and its guardian does not answer
		w.end(ctx, driver)
		return Exit{fleet.ReasonExited, unseen + ", and its guardian was killed because it did not answer"}
	case exit.Reason == "":
		return Exit{fleet.ReasonExited, unseen}
	}
	return exit
}

// load reads the definition of a running replica; probes continue from their stored state.
func (w *worker) load(ctx context.Context) {
	r := w.now()
	def, err := w.keeper.definitions.get(ctx, r.Definition)
	if err != nil {
		w.keeper.opt.Log.Warn("a running replica is not probed: its definition is not available", "replica", w.id, "err", err)
		return
	}
	w.def = &def
	if w.process != decide.ProcessRunning {
		return
	}
	p := r.Probe
	if p == (decide.ProbeState{}) { // no probe was recorded yet
		p = w.startProbes()
	}
	// Spread the probes, so that not all run at the same moment from now on.
	check, _ := checkOf(w.obeyed().Health, w.def.Ports)
	spread := min(time.Duration(check.Interval*float64(time.Second)), takeOverSpread)
	p = p.Resume(check, w.keeper.opt.Now())
	p.Next = w.keeper.opt.Now() + time.Duration(rand.Float64()*float64(spread)) //nolint:gosec // a pace is no secret
	w.watch(p)
}

// takeOverSpread is the time over which the first probes of running replicas are spread.
const takeOverSpread = time.Second
