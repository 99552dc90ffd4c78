package replicas

import (
	"context"
	"maps"
	"slices"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// feed is what the region was not told yet. Keeper.mu guards it.
type feed struct {
	news     chan struct{} // has an item when there may be something
	dirty    map[fleet.ReplicaID]bool
	sequence uint64
	// open is what the last report told, until it was acked.
	open map[fleet.ReplicaID]bool
	// partly says that the last complete report was none of the whole, or too long to be complete.
	partly bool
}

func newFeed() feed {
	return feed{news: make(chan struct{}, 1), dirty: map[fleet.ReplicaID]bool{}}
}

func (f *feed) changed(id fleet.ReplicaID) {
	f.dirty[id] = true
	poke(f.news)
}

// Next waits for something to tell. A complete report waits until the node knows what it has: what
// is not in one is lost to the region.
func (k *Keeper) Next(ctx context.Context, complete bool) (*nodev1.ReplicasReport, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-k.ready:
	}
	for {
		if report := k.report(complete); report != nil {
			return report, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-k.feed.news:
		}
	}
}

// report is nil when there is nothing to tell. What was told before and not acked is told again. What one
// message does not hold is told in the next: a complete report without it would have the region take it for
// lost.
func (k *Keeper) report(complete bool) *nodev1.ReplicasReport { //nolint:revive // the word of the protocol
	k.mu.Lock()
	defer k.mu.Unlock()
	f := &k.feed
	maps.Copy(f.dirty, f.open)
	f.open = nil
	complete = complete || f.partly && k.whole() && len(k.all()) <= fleet.MaxReportedReplicas
	lines, cut := k.lines(complete)
	report := &nodev1.ReplicasReport{SetEra: k.version.Era, SetVersion: k.version.Number, Complete: complete && len(cut) == 0}
	report.Whole = report.GetComplete() && k.whole()
	for _, st := range lines {
		report.Replicas = append(report.Replicas, wire(st))
	}
	f.open, f.dirty = f.dirty, map[fleet.ReplicaID]bool{}
	if len(report.GetReplicas()) == 0 && !complete {
		f.open = nil
		return nil
	}
	for _, st := range cut {
		delete(f.open, st.ID)
		f.dirty[st.ID] = true
	}
	if complete {
		f.partly = !report.GetWhole()
	}
	f.sequence++
	report.Sequence = f.sequence
	return report
}

// whole says that nothing is here that the node does not know of; mu is held. A node that remembers a set
// remembers what it started: one that does not waits for all drivers.
func (k *Keeper) whole() bool { return k.fresh && (!k.blank || len(k.absent) == 0) }

// tellWhole has a complete report told again once it can be one of the whole; mu is held.
func (k *Keeper) tellWhole() {
	if k.feed.partly && k.whole() {
		poke(k.feed.news)
	}
}

// all are what a complete report says something of. Of what has ended and was told, and is left for its output
// alone, it says nothing: the region does not ask for that.
func (k *Keeper) all() []fleet.ReplicaID {
	var ids []fleet.ReplicaID
	for id, w := range k.replicas {
		if r := w.known; !r.Gone || r.Phase != fleet.PhaseStopped || k.feed.dirty[id] {
			ids = append(ids, id)
		}
	}
	for id, at := range k.strangers {
		if at.unlisted {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids) // one may be both, until it is forgotten
}

// lines are what a report says: of what changed, or of all, and what is cut off it since it is too long. What
// the set does not list comes last; of a stranger nothing is said before a set was read that does not list it.
func (k *Keeper) lines(complete bool) (told, cut []fleet.ReplicaStatus) { //nolint:revive // the word of the protocol
	ids := slices.Sorted(maps.Keys(k.feed.dirty))
	if complete {
		ids = k.all()
	}
	var all, unlisted, gone []fleet.ReplicaStatus
	for _, id := range ids {
		w, has := k.replicas[id]
		switch at := k.strangers[id]; {
		case has && w.known.Gone:
			gone = append(gone, k.line(w, complete))
		case has && w.unlisted:
			unlisted = append(unlisted, k.line(w, true))
		case has:
			all = append(all, k.line(w, complete))
		case at.unlisted:
			unlisted = append(unlisted, at.status())
		}
	}
	all = slices.Concat(all, unlisted, gone)
	n := min(len(all), fleet.MaxReportedReplicas)
	return all[:n], all[n:]
}

// line is what a report says of a replica; named says of which deployment it is.
func (k *Keeper) line(w *worker, named bool) fleet.ReplicaStatus { //nolint:revive // what is told
	st := w.known.status(k.opt.Address, k.opt.Now())
	if named {
		st.Deployment, st.Revision = w.known.Deployment, w.known.Revision
	}
	return st
}

// Acked says that the region has the report of that number.
func (k *Keeper) Acked(sequence uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if sequence == k.feed.sequence {
		k.feed.open = nil
	}
}
