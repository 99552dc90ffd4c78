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

// report is nil when there is nothing to tell. What was told before and not acked is told again.
func (k *Keeper) report(complete bool) *nodev1.ReplicasReport { //nolint:revive // the word of the protocol
	k.mu.Lock()
	defer k.mu.Unlock()
	f := &k.feed
	maps.Copy(f.dirty, f.open)
	f.open = nil
	report := &nodev1.ReplicasReport{SetEra: k.version.Era, SetVersion: k.version.Number, Complete: complete}
	for _, st := range k.lines(complete) {
		report.Replicas = append(report.Replicas, wire(st))
	}
	f.open, f.dirty = f.dirty, map[fleet.ReplicaID]bool{}
	if len(report.GetReplicas()) == 0 && !complete {
		f.open = nil
		return nil
	}
	f.sequence++
	report.Sequence = f.sequence
	return report
}

// lines are what a report says: of what changed, or of all. What the set does not list comes last, and is
// left out of what is too long; of a stranger nothing is said before a set was read that does not list it.
func (k *Keeper) lines(complete bool) []fleet.ReplicaStatus { //nolint:revive // the word of the protocol
	ids := slices.Sorted(maps.Keys(k.feed.dirty))
	if complete {
		ids = slices.AppendSeq(slices.Collect(maps.Keys(k.replicas)), maps.Keys(k.strangers))
		slices.Sort(ids)
	}
	var all, unlisted []fleet.ReplicaStatus
	for _, id := range ids {
		w, has := k.replicas[id]
		switch at := k.strangers[id]; {
		case has && w.unlisted:
			st := w.known.status(k.opt.Address, k.opt.Now())
			st.Deployment, st.Revision = w.known.Deployment, w.known.Revision
			unlisted = append(unlisted, st)
		case has:
			all = append(all, w.known.status(k.opt.Address, k.opt.Now()))
		case at.unlisted:
			unlisted = append(unlisted, at.status())
		}
	}
	all = append(all, unlisted...)
	return all[:min(len(all), fleet.MaxReportedReplicas)]
}

// Acked says that the region has the report of that number.
func (k *Keeper) Acked(sequence uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if sequence == k.feed.sequence {
		k.feed.open = nil
	}
}
