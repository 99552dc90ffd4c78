package replicas

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// seek asks a driver that did not answer at the start until it does: an engine may start after its
// node's agent, or be away for a while.
func (k *Keeper) seek(ctx context.Context, name fleet.Driver, driver Driver) error {
	k.mu.Lock()
	answers := k.absent[name]
	k.mu.Unlock()
	for answers != nil {
		pause(ctx, k.opt.SeekEvery)
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

// appeared takes in what a driver found late, and gives what was told to end before. What nobody remembers
// waits for the set, which is read whole again: it may have been taken already.
func (k *Keeper) appeared(name fleet.Driver, found []Found) (unseen []fleet.ReplicaID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.absent, name)
	for _, f := range found {
		w, has := k.replicas[f.ID]
		switch {
		case k.ends[f.ID]:
			unseen = append(unseen, f.ID)
		case !has || w.known.Driver == "": // a stranger also once its worker has forgotten it
			k.strangers[f.ID] = stranger{lead: lead{f, name}}
			k.anew()
		}
	}
	k.tellWhole()
	poke(k.told)
	return unseen
}

// endUnseen ends what was named as to end before its driver answered.
func (k *Keeper) endUnseen(ctx context.Context, driver Driver, ids []fleet.ReplicaID) {
	for _, id := range ids {
		k.workers.Go(func() {
			for ctx.Err() == nil {
				err := driver.Stop(ctx, id)
				if err == nil {
					err = driver.Remove(ctx, id)
				}
				if err == nil {
					return
				}
				k.opt.Log.Error("a replica that was told to end was not, it is tried again", "replica", id, "err", err)
				pause(ctx, lookAgain)
			}
		})
	}
}

// anew has the whole set read again, for strangers that it may not list; mu is held.
func (k *Keeper) anew() {
	k.fresh = false
	k.came++
	poke(k.told)
}

// answers waits until a driver has answered once.
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
