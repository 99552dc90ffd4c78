package replicas

import (
	"context"
	"maps"
	"slices"
	"time"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/poke"
)

// feed is what the node still has to report to the region. Keeper.mu guards it.
type feed struct {
	news     chan struct{} // has an item when there may be something to report
	dirty    map[fleet.ReplicaID]bool
	urgent   bool // what is dirty is not kept back
	sequence uint64
	// open are the replicas of the last report, until the region acks it.
	open map[fleet.ReplicaID]bool
	// partly is set when the last complete report could not cover the whole, or was too long.
	partly bool
	// asked is set when the region requested a complete report, due when a digest should follow the reports.
	asked, due bool
	// found are differences that the node corrected by itself; counted those in the last digest.
	found, counted corrected
}

// corrected counts replicas that did not run, or were not remembered, and those that ran unexpectedly.
type corrected struct{ missing, stray uint32 }

func newFeed() feed {
	return feed{news: make(chan struct{}, 1), dirty: map[fleet.ReplicaID]bool{}}
}

func (f *feed) changed(id fleet.ReplicaID) {
	f.dirty[id], f.urgent = true, true
	poke.Once(f.news)
}

// lull is how long a change by which the region decides nothing is kept back, so that the one after it is in the same
// report.
const lull = 25 * time.Millisecond

// passing is for such a change; mu is held.
func (k *Keeper) passing(id fleet.ReplicaID) {
	f := &k.feed
	f.dirty[id] = true
	time.AfterFunc(lull, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		f.urgent = true
		poke.Once(f.news)
	})
}

// Next waits for the next report. A complete report waits until the node knows all its replicas: the region
// takes a replica that it lacks as lost.
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

// OnReplicasReport makes the next report complete.
func (k *Keeper) OnReplicasReport() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.feed.asked = true
	poke.Once(k.feed.news)
}

// report is nil when there is nothing to report. It repeats what was reported and not acked. What does not fit
// into one message is in the next: in a complete report a missing replica would count as lost.
func (k *Keeper) report(complete bool) *nodev1.ReplicasReport { //nolint:revive // the word of the protocol
	k.mu.Lock()
	defer k.mu.Unlock()
	f := &k.feed
	maps.Copy(f.dirty, f.open)
	f.urgent = f.urgent || len(f.open) > 0
	f.open = nil
	complete, f.asked = complete || f.asked || f.partly && k.whole() && len(k.all()) <= fleet.MaxReportedReplicas, false
	if !complete && !f.urgent && len(f.dirty) > 0 {
		return nil
	}
	f.urgent = false
	lines, cut := k.lines(complete)
	report := &nodev1.ReplicasReport{SetEra: k.version.Era, SetVersion: k.version.Number, Complete: complete && len(cut) == 0}
	report.Whole = report.GetComplete() && k.whole()
	for _, st := range lines {
		report.Replicas = append(report.Replicas, wire(st))
	}
	f.open, f.dirty = f.dirty, map[fleet.ReplicaID]bool{}
	if len(report.GetReplicas()) == 0 && !complete {
		f.open = nil
		return k.digest()
	}
	for _, st := range cut {
		delete(f.open, st.ID)
		f.changed(st.ID)
	}
	if complete {
		f.partly = !report.GetWhole()
	}
	f.sequence++
	report.Sequence = f.sequence
	return report
}

// digest is what the node believes of all its replicas, once everything else was reported and acked; nil unless it
// is due, or before the set was read. As in a complete report, the replicas of a driver that never answered are
// missing. mu is held.
func (k *Keeper) digest() *nodev1.ReplicasReport {
	f := &k.feed
	due, ids := f.due, k.all()
	if f.due = false; !due || !k.fresh || len(ids) > fleet.MaxReportedReplicas {
		return nil
	}
	f.counted = f.found
	digest := &nodev1.ReplicasDigest{Missing: f.counted.missing, Stray: f.counted.stray}
	for _, id := range ids {
		var st fleet.ReplicaStatus
		if w, has := k.replicas[id]; has {
			st = k.line(w, true)
		} else {
			st = k.strangers[id].status()
		}
		digest.Replicas = append(digest.Replicas, &nodev1.ReplicaMark{
			Id: string(st.ID), Revision: st.Revision, ProcessVersion: st.ProcessVersion, Definition: st.Definition, Phase: string(st.Phase.Known()), Health: string(st.Health), Unready: st.Unready,
		})
	}
	f.sequence++
	return &nodev1.ReplicasReport{Sequence: f.sequence, SetEra: k.version.Era, SetVersion: k.version.Number, Digest: digest}
}

// whole tells whether the node knows every replica here; mu is held. A node that remembers a set remembers what
// it started; one that does not waits for all drivers.
func (k *Keeper) whole() bool { return k.fresh && (!k.blank || len(k.absent) == 0) }

// tellWhole sends the complete report again once it can cover the whole; mu is held.
func (k *Keeper) tellWhole() {
	if k.feed.partly && k.whole() {
		poke.Once(k.feed.news)
	}
}

// all are the replicas in a complete report. It leaves out those that ended, were reported as ended and only
// wait for their output: the region does not expect them.
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
	return slices.Compact(ids) // an id may be in both, until the replica is removed
}

// lines gives the lines of a report, of changed or of all replicas, and the replicas cut from it because of its
// size. Replicas that the set does not list come last. A stranger is reported only after a set was read that
// does not list it.
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

// line is a replica's line in a report; with named it includes the deployment.
func (k *Keeper) line(w *worker, named bool) fleet.ReplicaStatus { //nolint:revive // what is reported
	st := w.known.status(k.opt.Address, k.opt.Now())
	if named {
		r := w.known
		st.Deployment, st.Revision, st.ProcessVersion, st.Definition = r.Deployment, r.Revision, r.ProcessVersion, fleet.ShortHash(r.Definition)
	}
	return st
}

// Acked records that the region has received the report of that number.
func (k *Keeper) Acked(sequence uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := &k.feed
	if sequence == f.sequence {
		f.open = nil
		f.found = corrected{f.found.missing - f.counted.missing, f.found.stray - f.counted.stray}
		f.counted = corrected{}
	}
}
