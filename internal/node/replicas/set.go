package replicas

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// The pauses after a set that could not be fetched.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// OnReplicaSet says that the region has a set of that number for the node.
func (k *Keeper) OnReplicaSet(era, version int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at := (fleet.SetVersion{Era: era, Number: version}); at.Newer(k.newest) {
		k.newest = at
	}
	poke(k.told)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is waiting there
	}
}

// follow asks for the set when it is told to, and now and then. What cannot be fetched changes
// nothing and is asked for again.
func (k *Keeper) follow(ctx context.Context) error {
	if err := k.enrolled(ctx); err != nil {
		return err
	}
	for failures := 0; ; {
		behind, err := k.fetch(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		wait := k.opt.FetchEvery
		switch {
		case err != nil:
			failures++
			if failures == 1 || !fleet.KindOf(err).Retryable() {
				k.opt.Log.Warn("the node's set of replicas was not read, what runs stays as it is", "err", err)
			}
		case behind:
			failures++
		default:
			failures = 0
		}
		if failures > 0 {
			wait = min(firstRetry<<min(failures-1, 6), lastRetry)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-k.told:
		}
		timer.Stop()
	}
}

// enrolled waits until the region knows the node.
func (k *Keeper) enrolled(ctx context.Context) error {
	if k.opt.Enrolled == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-k.opt.Enrolled:
		return nil
	}
}

// fetch takes the set of now; behind says that somebody spoke of a newer one.
func (k *Keeper) fetch(ctx context.Context) (behind bool, err error) {
	k.mu.Lock()
	have := k.version
	if !k.fresh { // the store may have missed something of the last one
		have = fleet.SetVersion{}
	}
	k.mu.Unlock()
	set, unchanged, err := k.opt.Region.NodeReplicas(ctx, have)
	if err != nil {
		return false, err
	}
	if !unchanged {
		if err := checkSet(set); err != nil {
			return false, err
		}
		if err := k.take(ctx, set); err != nil {
			return false, err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.newest.Newer(k.version), nil
}

// checkSet refuses what is no set, and one that is cut short.
func checkSet(set fleet.NodeReplicas) error {
	if set.Era < 1 || set.Version < 0 || len(set.Replicas) > fleet.MaxNodeReplicas {
		return fleet.Errorf(fleet.Communication, "what the region answered is no set of replicas")
	}
	if len(set.Replicas) != set.Count {
		return fleet.Errorf(fleet.Communication, "the region's set of replicas has %d lines of %d", len(set.Replicas), set.Count)
	}
	seen := make(map[fleet.ReplicaID]bool, len(set.Replicas))
	for _, r := range set.Replicas {
		if !fleet.ValidReplicaID(string(r.ID)) || seen[r.ID] {
			return fleet.Errorf(fleet.Communication, "the region's set of replicas is garbled")
		}
		seen[r.ID] = true
	}
	return nil
}

// take makes a set the one that is followed, and writes that down before anything is done. An older
// one than was taken changes nothing: it may lack what was begun since.
func (k *Keeper) take(ctx context.Context, set fleet.NodeReplicas) error {
	k.writing.Lock()
	defer k.writing.Unlock()
	at := fleet.SetVersion{Era: set.Era, Number: set.Version}
	k.mu.Lock()
	had, came := k.version, k.came
	changed, unlisted := k.changes(set)
	k.mu.Unlock()
	if had.Newer(at) {
		k.opt.Log.Warn("the region gave an older set of replicas than before", "had", had.String(), "got", at.String())
		return nil
	}
	rows := make([]sqlite.Replica, len(changed))
	for i, r := range changed {
		var err error
		if rows[i], err = r.row(); err != nil {
			return err
		}
	}
	if err := k.opt.Store.TakeReplicaSet(ctx, at, rows); err != nil {
		return err
	}
	k.opt.Failpoint("after_replica_set")
	k.mu.Lock()
	defer k.mu.Unlock()
	k.version, k.fresh = at, k.came == came
	needed := make(map[fleet.Hash]bool, len(k.replicas))
	for _, r := range changed {
		k.adopt(ctx, r)
	}
	k.leave(unlisted)
	k.tellWhole()
	for _, w := range k.replicas {
		needed[w.known.Definition] = true
	}
	return k.definitions.retain(needed)
}

// changes are the replicas of which the set says something new, in order, and those that run here and
// that it does not list; mu is held. Only by name does anything end (X3): of what was to end, the region
// knows that it did when the set lists it no more.
func (k *Keeper) changes(set fleet.NodeReplicas) (changed []known, unlisted []fleet.ReplicaID) {
	listed := make(map[fleet.ReplicaID]bool, len(set.Replicas))
	for _, line := range set.Replicas {
		listed[line.ID] = true
		w, has := k.replicas[line.ID]
		if !has {
			changed = append(changed, k.first(line))
			continue
		}
		w.unlisted = false
		r := w.known
		if r.NodeReplica, r.Gone = r.told(line), false; r.NodeReplica != w.known.NodeReplica || w.known.Gone {
			changed = append(changed, r)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(k.replicas)) {
		switch r := k.replicas[id].known; {
		case listed[id] || r.Gone:
		case r.Run:
			unlisted = append(unlisted, id)
		default:
			r.Gone = true
			changed = append(changed, r)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(k.strangers)) {
		if _, has := k.replicas[id]; !has && !listed[id] {
			unlisted = append(unlisted, id)
		}
	}
	return changed, unlisted
}

// told is what is known of a replica after the region's word: one that is to end stays what it is.
func (r known) told(line fleet.NodeReplica) fleet.NodeReplica {
	if line.Run {
		return line
	}
	out := r.NodeReplica
	if out.Run = false; line.StopSeconds > 0 {
		out.StopSeconds = line.StopSeconds
	}
	return out
}

// leave lets run what the set does not list, and has the region told, which ends it by name or has an
// operator judge (X3, X28); mu is held.
func (k *Keeper) leave(unlisted []fleet.ReplicaID) {
	n := 0
	for _, id := range unlisted {
		if w, has := k.replicas[id]; has && !w.unlisted {
			w.unlisted = true
		} else if at, is := k.strangers[id]; is && !at.unlisted {
			at.unlisted = true
			k.strangers[id] = at
		} else {
			continue
		}
		n++
		k.feed.changed(id)
	}
	if n > 0 {
		k.opt.Log.Warn("replicas run here that the region's set does not list: they run on, and the region is told", "replicas", n)
	}
}

// first is what is known of a replica when it is first heard of. One that a driver found is ended
// before anything of it is started: nobody remembers with what it was.
func (k *Keeper) first(line fleet.NodeReplica) known {
	return known{
		NodeReplica: line, Driver: k.strangers[line.ID].driver, Phase: fleet.PhasePreparing, Health: fleet.HealthNotChecked,
		Boot: k.opt.Boot, Since: k.opt.Now(),
	}
}

// adopt has what changed carried out; mu is held.
func (k *Keeper) adopt(ctx context.Context, r known) {
	w, has := k.replicas[r.ID]
	if !has {
		w = k.add(r)
		if at, stranger := k.strangers[r.ID]; stranger {
			w.stranger, w.known.Driver = true, at.driver // it may have come since the set was looked at
			delete(k.strangers, r.ID)
		}
		k.begin(ctx, w)
	}
	w.known.NodeReplica, w.known.Gone = r.NodeReplica, r.Gone
	k.feed.changed(r.ID)
	if !r.Run {
		w.interrupt()
	}
	w.poke()
}
