package replicas

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
	"github.com/holdfast-io/holdfast/internal/poke"
)

// seek retries a driver that did not answer at the start until it answers: an engine may start after its node's
// agent, or be down for a while.
func (k *Keeper) seek(ctx context.Context, name fleet.Driver, driver Driver) error {
	k.mu.Lock()
	answers := k.absent[name]
	k.mu.Unlock()
	for answers != nil {
		_ = pause.For(ctx, k.opt.SeekEvery)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if found, err := driver.List(ctx); err == nil {
			k.endUnseen(ctx, driver, k.appeared(name, found))
			close(answers)
			answers = nil
			if k.opt.OnDriver != nil {
				k.opt.OnDriver(name)
			}
		}
	}
	return nil
}

// appeared adds what a driver found late, and gives the replicas that should already have ended. Strangers wait
// for the set, which is read again as a whole: it may have been applied already.
func (k *Keeper) appeared(name fleet.Driver, found []Found) (unseen []fleet.ReplicaID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.absent, name)
	for _, f := range found {
		w, has := k.replicas[f.ID]
		switch {
		case k.ends[f.ID]:
			unseen = append(unseen, f.ID)
		case !has || w.known.Driver == "": // a stranger, also once its worker has removed it
			k.strangers[f.ID] = stranger{lead: lead{f, name}}
			k.anew()
		}
	}
	k.tellWhole()
	poke.Once(k.told)
	return unseen
}

// endUnseen ends replicas that were to end before their driver answered.
func (k *Keeper) endUnseen(ctx context.Context, driver Driver, ids []fleet.ReplicaID) {
	for _, id := range ids {
		k.workers.Go(func() {
			for ctx.Err() == nil {
				err := driver.Stop(ctx, id, k.stopTime(id))
				if err == nil {
					err = driver.Remove(ctx, id)
				}
				if err == nil {
					return
				}
				k.opt.Log.Error("stop a replica that is to end, retrying", "replica", id, "err", err)
				_ = pause.For(ctx, lookAgain)
			}
		})
	}
}

// anew reads the whole set again, for strangers that it may not list; mu is held.
func (k *Keeper) anew() {
	k.fresh = false
	k.came++
	poke.Once(k.told)
}

// answers waits for a driver's first answer.
func (k *Keeper) answers(ctx context.Context, name fleet.Driver) {
	k.mu.Lock()
	wait, absent := k.absent[name]
	k.mu.Unlock()
	if !absent {
		return
	}
	select {
	case <-ctx.Done():
	case <-wait:
	}
}
