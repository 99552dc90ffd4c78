package replicas

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
	"github.com/holdfast-io/holdfast/internal/poke"
)

// stop ends what runs, for good or for a restart.
func (w *worker) stop(ctx context.Context, a decide.ReplicaAction) {
	r := w.now()
	w.again = w.again || a.Restart
	switch {
	case !r.Run && r.Phase != fleet.PhaseStopping:
		w.say(ctx, func(k *known) { k.Phase, k.Reason, k.Message = fleet.PhaseStopping, "", "" })
	case a.Reason != "":
		w.say(ctx, func(k *known) { k.Reason, k.Message = a.Reason, messageOf(a.Reason) })
	}
	switch {
	case a.Do == decide.DoKill:
		w.is(decide.ProcessKilled)
	case w.process != decide.ProcessStopping: // a retry counts from the first attempt
		w.is(decide.ProcessStopping)
	}
	w.keeper.opt.Failpoint("before_replica_stop")
	if driver := w.driver(r); driver != nil && !w.end(ctx, driver) {
		return
	}
	w.keeper.opt.Failpoint("after_replica_stop")
	switch {
	case !w.now().Run:
		w.over(ctx, fleet.PhaseStopped, Exit{})
	case w.gaveUp:
		w.over(ctx, fleet.PhaseFailed, w.ending)
	default:
		w.is(decide.ProcessOver)
	}
}

// end ends what runs, whatever it is, and tells whether that worked; if not, the worker retries it.
func (w *worker) end(ctx context.Context, driver Driver) bool {
	w.unwatched()
	if err := driver.Stop(ctx, w.id, w.stopTime()); err != nil {
		if ctx.Err() == nil && w.refused == 0 {
			w.keeper.opt.Log.Error("stop a replica, retrying", "replica", w.id, "err", err)
		}
		if ctx.Err() == nil {
			w.sayNotStopped(ctx, err.Error())
		}
		w.refused = w.keeper.opt.Now()
		return false
	}
	w.refused = 0
	w.sayNotStopped(ctx, "")
	if w.exited != nil {
		w.unwatch()
		w.exited = nil
	}
	w.setProbe(decide.ProbeState{})
	return true
}

// notStopped starts the part of a message about a failed stop.
const notStopped = "stop failed, the agent retries: "

// sayNotStopped adds to the message, once, why a stop failed; "" removes it.
func (w *worker) sayNotStopped(ctx context.Context, why string) {
	r := w.now()
	text, _, said := strings.Cut(r.Message, notStopped)
	if said == (why != "") || r.Phase.Over() {
		return
	}
	if text = strings.TrimSuffix(text, "; "); why != "" && text != "" {
		text += "; "
	}
	if why != "" {
		text += notStopped + why
	}
	w.say(ctx, func(k *known) { k.Message = text })
}

func messageOf(reason string) string {
	switch reason {
	case fleet.ReasonStartupDeadline:
		return "it was not healthy before its startup deadline"
	case fleet.ReasonRestartsUsedUp:
		return "its probes failed again after its last restart"
	case fleet.ReasonProbesFailed:
		return "its probes fail"
	case decide.ReasonPrepareLimit:
		return "it could not be prepared in time"
	}
	return ""
}

// givenUp is the last exit of a replica; for one that was never ready it includes what failed.
func (w *worker) givenUp(reason string) Exit {
	text := messageOf(reason)
	if w.lateBefore() {
		text = "its preStart commands did not end before its startup deadline"
	}
	if w.tried != "" && (reason == decide.ReasonPrepareLimit || w.lateBefore()) {
		text += ": " + w.tried
	}
	return Exit{reason, text}
}

// giveUp ends a replica that cannot be kept running here and leaves it to the region. Whatever may run ends
// before that is reported.
func (w *worker) giveUp(ctx context.Context, reason string) {
	w.gaveUp = true
	if w.process != decide.ProcessBroken {
		w.ending = w.givenUp(reason)
	}
	switch {
	case w.exited != nil:
	case w.mayRun():
		w.is(decide.ProcessPreparing)
	default: // it never started
		w.over(ctx, fleet.PhaseFailed, w.ending)
	}
}

// forget makes sure that nothing runs of a replica that must not run, and is done when the region knows that.
// What may still run is ended first: a start may have failed halfway, or an agent was killed during it.
func (w *worker) forget(ctx context.Context) bool {
	if w.mayRun() {
		w.is(decide.ProcessPreparing)
		return false
	}
	r := w.now()
	if r.Phase != fleet.PhaseStopped {
		w.over(ctx, fleet.PhaseStopped, Exit{})
	}
	if r.Gone {
		w.keeper.clearing(w.id)
		return true
	}
	w.rest(ctx, decide.ReplicaAction{})
	return false
}

// clearing leaves a replica to shipLogs, which removes it after the last byte of its output.
func (k *Keeper) clearing(id fleet.ReplicaID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w, has := k.replicas[id]; has {
		w.cleared = true
		poke.Once(k.ship[k.shipper(w.known)])
	}
}

// clear removes everything of a replica.
func (k *Keeper) clear(ctx context.Context, id fleet.ReplicaID) error {
	k.mu.Lock()
	w, has := k.replicas[id]
	if !has {
		k.mu.Unlock()
		return nil
	}
	r := w.known
	k.mu.Unlock()
	var errs []error
	switch driver := w.driver(r); {
	case driver != nil:
		errs = append(errs, driver.Remove(ctx, id))
	case r.Driver != "":
		errs = append(errs, fleet.Errorf(fleet.Precondition, "this node has no driver %q any more", r.Driver))
	}
	if err := os.RemoveAll(w.dir()); err != nil {
		errs = append(errs, fleet.Errorf(fleet.Unavailable, "remove the replica's directory: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	k.opt.Failpoint("before_replica_drop")
	if err := k.opt.Store.DropReplica(ctx, id); err != nil {
		return err
	}
	k.ports.drop(id)
	k.gpus.drop(id)
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.replicas, id)
	k.tellWhole() // with fewer replicas, one report may hold all
	switch at, is := k.strangers[id]; {
	case is && at.driver == r.Driver:
		delete(k.strangers, id) // its driver removed it
	case is:
		k.anew()
	}
	return nil
}

// StopAll ends all replicas of the node at once, after Run has ended. The store keeps them as ended.
func (k *Keeper) StopAll(ctx context.Context) error {
	results := make(chan error, len(k.opt.Drivers))
	for name, driver := range k.opt.Drivers { // all drivers at the same time
		go func() { results <- k.stopThose(ctx, name, driver) }()
	}
	var errs []error
	for range k.opt.Drivers {
		errs = append(errs, <-results)
	}
	return errors.Join(errs...)
}

// stopThose ends all replicas of one driver.
func (k *Keeper) stopThose(ctx context.Context, name fleet.Driver, driver Driver) error {
	found, err := driver.List(ctx)
	if err != nil {
		if k.there(name) || k.mayRun(name) { // the driver answers, now or to an earlier agent
			return err
		}
		return nil
	}
	results := make(chan error, len(found))
	for _, f := range found {
		go func() {
			err := driver.Stop(ctx, f.ID, k.stopTime(f.ID))
			for err != nil {
				if pause.For(ctx, lookAgain) != nil {
					break
				}
				err = driver.Stop(ctx, f.ID, k.stopTime(f.ID))
			}
			results <- err
		}()
	}
	var errs []error
	for range found {
		errs = append(errs, <-results)
	}
	return errors.Join(errs...)
}

// stopTime is the stop time of a replica now, 0 for a stranger.
func (k *Keeper) stopTime(id fleet.ReplicaID) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w, has := k.replicas[id]; has {
		return time.Duration(w.known.StopSeconds) * time.Second
	}
	return 0
}

// mayRun tells whether replicas of a driver may still run.
func (k *Keeper) mayRun(name fleet.Driver) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.replicas {
		if w.known.Driver == name && !w.known.Phase.Over() {
			return true
		}
	}
	return false
}
