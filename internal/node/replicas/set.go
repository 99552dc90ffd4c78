package replicas

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/poke"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// The pauses between attempts to read the set.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// OnReplicaSet notifies the keeper of the version of the node's set at the region.
func (k *Keeper) OnReplicaSet(era, version int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at := (fleet.SetVersion{Era: era, Number: version}); at.Newer(k.newest) {
		k.newest = at
	}
	poke.Once(k.told)
}

// follow reads the set after a notice, and periodically. A failed read changes nothing and is retried.
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
				k.opt.Log.Warn("read the node's set of replicas; replicas stay as they are", "err", err)
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

// fetch reads and applies the current set; behind means that a notice named a newer one.
func (k *Keeper) fetch(ctx context.Context) (behind bool, err error) {
	k.mu.Lock()
	have := k.version
	if !k.fresh { // the last set may not be in the store completely
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

// checkSet returns an error for a set that is invalid or cut short.
func checkSet(set fleet.NodeReplicas) error {
	if set.Era < 1 || set.Version < 0 || len(set.Replicas) > fleet.MaxNodeReplicas {
		return fleet.Errorf(fleet.Communication, "the region's answer is not a set of replicas")
	}
	if len(set.Replicas) != set.Count {
		return fleet.Errorf(fleet.Communication, "the region's set of replicas is cut short: %d of %d lines", len(set.Replicas), set.Count)
	}
	seen := make(map[fleet.ReplicaID]bool, len(set.Replicas))
	for _, r := range set.Replicas {
		if !fleet.ValidReplicaID(string(r.ID)) || seen[r.ID] {
			return fleet.Errorf(fleet.Communication, "the region's set of replicas is invalid")
		}
		seen[r.ID] = true
	}
	return nil
}

// take makes a set the current one, and stores it before anything is done. An older set changes nothing: it may
// lack replicas that started since.
func (k *Keeper) take(ctx context.Context, set fleet.NodeReplicas) error {
	k.writing.Lock()
	defer k.writing.Unlock()
	at := fleet.SetVersion{Era: set.Era, Number: set.Version}
	k.mu.Lock()
	had, came := k.version, k.came
	changed, unlisted := k.changes(set)
	k.mu.Unlock()
	if had.Newer(at) {
		k.opt.Log.Warn("the region sent an older set of replicas than before", "had", had.String(), "got", at.String())
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
		k.remember(r.NodeReplica, had == at)
		k.adopt(ctx, r)
	}
	k.leave(unlisted)
	k.tellWhole()
	for _, w := range k.replicas {
		needed[w.known.Definition] = true
	}
	return k.definitions.retain(needed)
}

// changes gives, in order, the replicas that the set changes, and those that run here and are not in it; mu is
// held. Only the set's word ends a replica, by name (X3). If one that was to end is no longer listed, the
// region knows that it ended.
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

// told is the replica's line after a set's line for it; for one that is to end it changes only the stop time.
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

// leave keeps replicas running that the set does not list, and reports them; the region ends them by name, or
// an operator decides (X3, X28); mu is held.
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
		k.opt.Log.Warn("replicas run here that the region's set does not list; they keep running and are reported", "replicas", n)
	}
}

// first is the state of a replica that the node meets first in a set. One that a driver found is ended before a
// new start: its ports, GPUs and definition are unknown.
func (k *Keeper) first(line fleet.NodeReplica) known {
	return known{
		NodeReplica: line, Driver: k.strangers[line.ID].driver, Phase: fleet.PhasePreparing, Health: fleet.HealthNotChecked,
		Boot: k.opt.Boot, Since: k.opt.Now(),
	}
}

// remember counts a replica to run that the node should have known: a set that it had names it, or a driver found
// it; mu is held.
func (k *Keeper) remember(line fleet.NodeReplica, hadSet bool) { //nolint:revive // an observation
	_, has := k.replicas[line.ID]
	if _, found := k.strangers[line.ID]; line.Run && !has && (hadSet || found) {
		k.feed.found.missing++
	}
}

// adopt applies a change of a replica; mu is held.
func (k *Keeper) adopt(ctx context.Context, r known) {
	w, has := k.replicas[r.ID]
	if !has {
		w = k.add(r)
		if at, stranger := k.strangers[r.ID]; stranger {
			w.stranger, w.known.Driver = true, at.driver // it may have appeared after the set was compared
			delete(k.strangers, r.ID)
		}
		k.begin(ctx, w)
	}
	w.known.NodeReplica, w.known.Gone = r.NodeReplica, r.Gone
	if r.Gone { // the region waits for the word that nothing of it is left here
		k.feed.changed(r.ID)
	} else {
		k.passing(r.ID)
	}
	if !r.Run {
		w.interrupt()
	}
	w.poke()
}
