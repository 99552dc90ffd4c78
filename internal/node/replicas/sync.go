package replicas

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/poke"
)

// sync periodically compares what the drivers run with what the node believes, and then sends a digest. The events
// of the drivers come first: this finds what they missed. docs/sync.md draws it.
func (k *Keeper) sync(ctx context.Context) error {
	every := time.NewTicker(k.opt.SyncEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
		}
		k.check(k.knows(), func() (map[fleet.ReplicaID]lead, map[fleet.Driver]bool) { return k.find(ctx) })
	}
}

// knows are the replicas that the node knows.
func (k *Keeper) knows() map[fleet.ReplicaID]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make(map[fleet.ReplicaID]bool, len(k.replicas)+len(k.strangers))
	for id := range k.replicas {
		all[id] = true
	}
	for id := range k.strangers {
		all[id] = true
	}
	return all
}

// check compares the lists of the drivers with the replicas that were known before, or are now. A driver that gives
// no list says nothing. Workers verify the differences of their replicas: the lists may already be old.
func (k *Keeper) check(before map[fleet.ReplicaID]bool, find func() (map[fleet.ReplicaID]lead, map[fleet.Driver]bool)) {
	found, silent := find()
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, at := range found {
		_, has := k.replicas[id]
		_, strange := k.strangers[id]
		if !has && !strange && !before[id] && k.absent[at.driver] == nil {
			k.strangers[id] = stranger{lead: at}
			k.feed.found.stray++
			k.anew()
		}
	}
	for id, w := range k.replicas {
		if r := w.known; r.Driver != "" && !silent[r.Driver] && found[id].Running != (r.Phase == fleet.PhaseRunning) {
			w.doubted = true
			w.poke()
		}
	}
	k.feed.due = true
	poke.Once(k.feed.news)
}

// verify asks the driver about a replica whose phase its list contradicted, and corrects the phase. What runs
// although it has ended is ended again.
func (w *worker) verify(ctx context.Context) {
	k := w.keeper
	k.mu.Lock()
	doubted, r := w.doubted, w.known
	w.doubted = false
	k.mu.Unlock()
	driver := w.driver(r)
	if !doubted || driver == nil {
		return
	}
	found, err := driver.Look(ctx, w.id)
	switch {
	case err != nil: // it cannot be asked
	case w.process == decide.ProcessOver && found.Running:
		k.opt.Log.Warn("a replica that has ended runs again; it is ended", "replica", w.id)
		k.correct(corrected{stray: 1})
		w.end(ctx, driver)
	case w.process == decide.ProcessRunning && !found.Running && w.exited != nil:
		w.endedUnseen(ctx, driver)
	}
}

// endedUnseen records the end of a replica of which nothing runs. Its event may be on its way.
func (w *worker) endedUnseen(ctx context.Context, driver Driver) {
	soon := time.NewTimer(lookAgain)
	defer soon.Stop()
	select {
	case <-ctx.Done():
	case exit := <-w.exited:
		w.ended(ctx, exit)
	case <-soon.C:
		w.unwatch()
		w.keeper.opt.Log.Warn("a replica has ended without notice", "replica", w.id)
		w.keeper.correct(corrected{missing: 1})
		w.ended(ctx, w.exitOf(ctx, driver, "it ended without notice"))
	}
}

// correct counts differences that the node corrects by itself.
func (k *Keeper) correct(more corrected) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.feed.found.missing += more.missing
	k.feed.found.stray += more.stray
}
