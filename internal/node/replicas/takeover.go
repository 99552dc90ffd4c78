package replicas

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// takeOver begins with what an earlier agent left, if one did.
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
		if driver != nil { // the agent was killed between a start and its writing that down
			w.endSurely(ctx, driver)
		}
	case w.left != nil && w.left.Running && driver != nil:
		w.takeRunning(ctx, driver)
	case r.Phase == fleet.PhaseStopping && w.mayRun(): // if only what comes before its start
	case r.Phase == fleet.PhaseRunning || r.Phase == fleet.PhaseStopping:
		w.over(ctx, fleet.PhaseExited, w.lastExit(ctx, driver))
	}
}

// endAnywhere ends what a node without memory is told to end by name: any driver may have it. What one has
// that does not answer yet is ended when it does.
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

// there says that a driver has answered.
func (k *Keeper) there(name fleet.Driver) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.absent[name] == nil
}

// forgot says that the agent started without memory of any set.
func (k *Keeper) forgot() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.blank
}

// endSurely ends what an earlier agent left, before anything else is done with the replica.
func (w *worker) endSurely(ctx context.Context, driver Driver) {
	for ctx.Err() == nil && !w.end(ctx, driver) {
		pause(ctx, lookAgain)
	}
}

// takeUnseen begins with one of which nobody can tell what became of it: its driver does not answer.
// What ran is taken for running, and probed; the driver tells of its end once it can. Nothing outlives
// the boot of its machine, which the number of its process belongs to.
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
		w.over(ctx, fleet.PhaseExited, Exit{fleet.ReasonExited, "its machine was started again"})
	default:
		w.left = &lead{Found{ID: w.id, Running: true, PID: r.PID}, r.Driver}
		w.takeRunning(ctx, driver)
	}
}

// takeRunning goes on with what runs as if the agent had never been away: with its restarts, its
// health, and a start that began when it did.
func (w *worker) takeRunning(ctx context.Context, driver Driver) {
	w.watchExit(ctx, driver)
	if w.left.Preparing || w.now().Phase == fleet.PhasePreparing {
		w.is(decide.ProcessPreparing)
	} else {
		w.is(decide.ProcessRunning)
	}
	w.lookAgain(ctx)
}

// lastExit says how something ended that no agent saw.
func (w *worker) lastExit(ctx context.Context, driver Driver) Exit {
	unseen := Exit{fleet.ReasonExited, "it ended while no agent was there"}
	if w.left == nil || driver == nil {
		return unseen
	}
	within, cancel := context.WithTimeout(ctx, lookAgain)
	defer cancel()
	exit, err := driver.Await(within, w.id)
	switch {
	case err != nil: // what ran has ended, and what guards it does not say so
		w.end(ctx, driver)
		return Exit{fleet.ReasonExited, "it ended while no agent was there, and its guardian was ended now: it did not answer"}
	case exit.Reason == "":
		return unseen
	}
	return exit
}

// load has the definition of what runs already; probes go on with what they knew.
func (w *worker) load(ctx context.Context) {
	r := w.now()
	def, err := w.keeper.definitions.get(ctx, r.Definition)
	if err != nil {
		w.keeper.opt.Log.Warn("what runs is not probed: its definition is not to be had", "replica", w.id, "err", err)
		return
	}
	w.def = &def
	if w.process != decide.ProcessRunning {
		return
	}
	p := r.Probe
	if p == (decide.ProbeState{}) { // nothing was said of it yet
		p = w.startProbes()
	}
	// Not those of all at once, now and every time from now on.
	check, _ := checkOf(def)
	spread := min(time.Duration(check.Interval*float64(time.Second)), takeOverSpread)
	p = p.Resume(check, w.keeper.opt.Now())
	p.Next = w.keeper.opt.Now() + time.Duration(rand.Float64()*float64(spread)) //nolint:gosec // a pace is no secret
	w.watch(p)
}

// takeOverSpread is over how long the first probes of what runs already are spread.
const takeOverSpread = time.Second
