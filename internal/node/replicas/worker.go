package replicas

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/poke"
)

// worker keeps one replica. It does one thing at a time, and decides again after each.
type worker struct {
	keeper *Keeper
	id     fleet.ReplicaID
	wake   chan struct{}

	// Keeper.mu guards known, doubted, tells, unlisted (it should run, but the set does not list it) and cleared (all of it
	// is to be removed, and its worker has ended).
	known             known
	unlisted, cleared bool
	// doubted is set when its driver's list contradicted its phase, tells when it is to report why its checks fail.
	doubted, tells bool
	// sent is the offset up to which its output was sent, once located; it belongs to shipLogs.
	sent    int64
	located bool

	// left is what a driver found of it when the agent started; unseen is set if its driver did not answer,
	// stranger if the store does not know it.
	left             *lead
	unseen, stranger bool

	def     *fleet.Definition
	obeys   fleet.ReplicaTerms // those of its probes
	fresh   bool               // it is prepared, and was not started since
	process decide.ReplicaProcess
	since   time.Duration // when process changed
	ending  Exit          // why it ends, or has ended
	tried   string        // the error of the last attempt to prepare it, "" after a success
	again   bool          // the stop is for a restart
	refused time.Duration // when its driver last failed to stop it, 0 after a success
	gaveUp  bool
	exited  <-chan Exit // of what runs, nil when nothing runs
	unwatch func()      // ends that wait

	mu        sync.Mutex
	probe     decide.ProbeState // the newest state from the prober
	readiness decide.ProbeState // the same of its readiness check
	cancel    context.CancelFunc
}

func (w *worker) poke() { poke.Once(w.wake) }

// interrupt cancels a preparation or start.
func (w *worker) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil {
		w.cancel()
	}
}

// interruptible gives a context that ends when the replica must not run any more.
func (w *worker) interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	w.cancel = cancel
	w.mu.Unlock()
	if !w.now().Run {
		cancel()
	}
	return ctx, cancel
}

// now is the current state.
func (w *worker) now() known {
	w.keeper.mu.Lock()
	defer w.keeper.mu.Unlock()
	return w.known
}

// say changes the state, stores it and reports it. It reports also what it could not store: the next agent will
// find out by itself.
func (w *worker) say(ctx context.Context, change func(*known)) {
	if !w.note(ctx, change) {
		return
	}
	k := w.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if w.known.passing() {
		k.passing(w.id)
		return
	}
	k.feed.changed(w.id)
}

// note changes the state and stores it, without a report, and tells whether anything changed.
func (w *worker) note(ctx context.Context, change func(*known)) bool {
	k := w.keeper
	k.mu.Lock()
	was := w.known
	change(&w.known)
	if w.known.Phase != fleet.PhasePreparing {
		w.known.Exact = ""
	}
	if was.Phase != w.known.Phase || was.Exact != w.known.Exact || was.Health != w.known.Health || was.Restarts != w.known.Restarts {
		w.known.Since = k.opt.Now()
	}
	same := reflect.DeepEqual(was, w.known)
	k.mu.Unlock()
	if same {
		return false
	}
	if err := w.write(context.WithoutCancel(ctx)); err != nil {
		k.opt.Log.Error("store the state of a replica", "replica", w.id, "err", err)
	}
	return true
}

// write stores the state for the next agent.
func (w *worker) write(ctx context.Context) error {
	w.keeper.writing.Lock()
	defer w.keeper.writing.Unlock()
	row, err := w.now().row()
	if err != nil {
		return err
	}
	return w.keeper.opt.Store.PutReplica(ctx, row)
}

// is sets the state of the process.
func (w *worker) is(p decide.ReplicaProcess) { w.process, w.since = p, w.keeper.opt.Now() }

// run keeps the replica until all of it is to be removed, or the context ends.
func (w *worker) run(ctx context.Context) {
	w.takeOver(ctx)
	for ctx.Err() == nil {
		w.obey()
		w.verify(ctx)
		w.keepFailing()
		w.heed(ctx)
		w.heedReadiness(ctx)
		switch a := w.next(); a.Do {
		case decide.DoPrepare:
			w.prepare(ctx)
		case decide.DoStart:
			w.start(ctx, a)
		case decide.DoStop, decide.DoKill:
			w.stop(ctx, a)
		case decide.DoGiveUp:
			w.giveUp(ctx, a.Reason)
		case decide.DoForget:
			if w.forget(ctx) {
				return
			}
		case decide.DoRest:
			w.rest(ctx, a)
		}
	}
}

// next decides the next step.
func (w *worker) next() decide.ReplicaAction {
	k := w.keeper
	k.mu.Lock()
	r, away := w.known, k.quiet
	if k.heard {
		away = 0
	}
	k.mu.Unlock()
	here := decide.ReplicaHere{
		Run: r.Run, Process: w.process, Since: w.since, Probe: w.probed(), Reason: w.ending.Reason, Again: w.again,
		Restarts: r.Used, Alone: r.Alone, GaveUp: w.gaveUp, Stop: time.Duration(r.StopSeconds) * time.Second, Refused: w.refused, Away: away,
	}
	if w.def != nil {
		here.Terms = w.def.Under(r.Terms).Recovery
	} else {
		here.Probe.Begun = true // a replica without probes is not late
	}
	return decide.Replica(here, k.opt.Now())
}

func (w *worker) probed() decide.ProbeState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.probe
}

func (w *worker) setProbe(p decide.ProbeState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.probe = p
}

func (w *worker) setReadiness(p decide.ProbeState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readiness = p
}

// obeyed is its definition, once loaded, under the terms of the newest set.
func (w *worker) obeyed() fleet.Definition { return w.def.Under(w.now().Terms) }

// stopTime is the time between the graceful and the forced stop, by the newest set.
func (w *worker) stopTime() time.Duration { return w.keeper.stopTime(w.id) }

// obey has what runs probed by the terms of the newest set (F13). Whatever else follows from terms is decided anew
// with each step.
func (w *worker) obey() {
	terms := w.now().Terms
	if w.def == nil || terms == w.obeys {
		return
	}
	w.obeys = terms
	def := w.def.Under(terms)
	check, _ := checkOf(def.Health, def.Ports)
	w.keeper.prober.amend(w.id, check)
	check, _ = checkOf(def.Readiness, def.Ports)
	w.keeper.readiness.amend(w.id, check)
}

// lookAgain is the pause between looks at a replica that sends no events: one without probes because its
// definition is missing, and one whose first commands run.
const lookAgain = time.Second

// rest returns on a change, or at a given instant.
func (w *worker) rest(ctx context.Context, a decide.ReplicaAction) {
	if a.Anew {
		w.say(ctx, func(k *known) { k.Used, k.Alone = 0, 0 })
		return
	}
	until := a.Until
	if soon := w.keeper.opt.Now() + lookAgain; w.exited != nil && (w.def == nil || w.process == decide.ProcessPreStart) && (until == 0 || until > soon) {
		until = soon
	}
	var rings <-chan time.Time
	if until > 0 {
		timer := time.NewTimer(max(until-w.keeper.opt.Now(), time.Millisecond))
		defer timer.Stop()
		rings = timer.C
	}
	select {
	case <-ctx.Done():
	case <-w.wake:
	case exit := <-w.exited:
		w.ended(ctx, exit)
	case <-rings:
		w.lookAgain(ctx)
	}
}

// lookAgain checks for changes that send no event.
func (w *worker) lookAgain(ctx context.Context) {
	if w.exited == nil {
		return
	}
	if w.def == nil {
		w.load(ctx)
	}
	if w.process == decide.ProcessPreStart {
		w.began(ctx)
	}
}

// ended records that nothing runs any more.
func (w *worker) ended(ctx context.Context, exit Exit) {
	if ctx.Err() != nil {
		return
	}
	w.exited = nil
	if exit.Reason == "" {
		exit = Exit{fleet.ReasonExited, "it was ended on its machine from outside"}
	}
	w.over(ctx, fleet.PhaseExited, exit)
}

// heedReadiness applies the results of the readiness check: they are reported, and nothing else follows (F72, F77).
func (w *worker) heedReadiness(ctx context.Context) {
	w.mu.Lock()
	unready := w.readiness.Health == fleet.HealthUnhealthy
	w.mu.Unlock()
	if r := w.now(); r.Phase == fleet.PhaseRunning && r.Unready != unready {
		w.say(ctx, func(k *known) { k.Unready = unready })
	}
}

// heed applies the probes' results. It stores the first success and a moved deadline before any transition: the
// next agent must not treat as late what is in time.
func (w *worker) heed(ctx context.Context) {
	p, r := w.probed(), w.now()
	switch {
	case r.Phase != fleet.PhaseRunning || p.Health == "":
		return
	case p.Health == r.Health:
		if p.Begun && !r.Probe.Begun || p.Due() > r.Probe.Due() {
			w.note(ctx, func(k *known) { k.Probe = p })
		}
		return
	}
	w.keeper.opt.Failpoint("before_replica_health")
	w.say(ctx, func(k *known) {
		k.Health, k.Probe, k.Reason, k.Message = p.Health, p, "", ""
		if p.Health == fleet.HealthUnhealthy {
			k.Reason, k.Message = fleet.ReasonProbesFailed, "its probes fail"
		}
	})
}

// over records that nothing of it runs. It frees ports and GPUs before the report: the region may give them to
// another replica at once.
func (w *worker) over(ctx context.Context, phase fleet.ReplicaPhase, exit Exit) {
	w.unwatched()
	w.keeper.ports.drop(w.id)
	w.keeper.gpus.drop(w.id)
	w.is(decide.ProcessOver)
	w.setProbe(decide.ProbeState{})
	w.say(ctx, func(k *known) {
		k.Phase, k.Health, k.Probe, k.Unready, k.PID, k.Asked = phase, fleet.HealthNotChecked, decide.ProbeState{}, false, 0, false
		k.Reason, k.Message = exit.Reason, exit.Message
	})
}

// mayRun tells whether its driver may still run something of it, though no exit was seen.
func (w *worker) mayRun() bool {
	r := w.now()
	return r.Asked && w.driver(r) != nil
}

// driver is the replica's driver, nil before it is known.
func (w *worker) driver(r known) Driver { return w.keeper.opt.Drivers[r.Driver] }

func (w *worker) dir() string { return filepath.Join(w.keeper.opt.Dir, string(w.id)) }

// failure is the reason of an error that is the replica's own, "" for one that a retry may fix.
func failure(err error) string {
	var f *Failure
	switch kind := fleet.KindOf(err); {
	case errors.As(err, &f):
		return f.Reason
	case kind == fleet.Invalid || kind == fleet.ApplyFailed:
		return fleet.ReasonNotStarted
	}
	return ""
}
