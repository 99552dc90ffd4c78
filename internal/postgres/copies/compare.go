package copies

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// SharedSums gives the sums of what this region owns and a peer is to have, in ranges of uids and in their order.
func (s *Store) SharedSums(ctx context.Context, peer fleet.RegionName, in []fleet.UIDRange) ([]fleet.CopySum, error) {
	froms, tos := ends(in)
	rows, err := s.Q.SharedSums(ctx, db.SharedSumsParams{Froms: froms, Tos: tos, Owner: s.Region, Region: string(peer)})
	out := make([]fleet.CopySum, len(rows))
	for i, r := range rows {
		out[i] = sumOf(db.HeldSumsRow(r))
	}
	return out, err
}

// HeldSums gives the sums of what this region has of a peer's objects, in ranges of uids and in their order.
func (s *Store) HeldSums(ctx context.Context, peer fleet.RegionName, in []fleet.UIDRange) ([]fleet.CopySum, error) {
	froms, tos := ends(in)
	rows, err := s.Q.HeldSums(ctx, db.HeldSumsParams{Froms: froms, Tos: tos, Owner: string(peer)})
	out := make([]fleet.CopySum, len(rows))
	for i, r := range rows {
		out[i] = sumOf(r)
	}
	return out, err
}

// SharedRanges gives one sum for each range in which this region owns something that a peer is to have.
func (s *Store) SharedRanges(ctx context.Context, peer fleet.RegionName, in fleet.UIDRange, bits int) ([]fleet.RangeSum, error) {
	rows, err := s.Q.SharedRanges(ctx, db.SharedRangesParams{
		Shift: rangeShift(bits), First: in.First, Last: in.Last, Owner: s.Region, Region: string(peer),
	})
	out := make([]fleet.RangeSum, len(rows))
	for i, r := range rows {
		out[i] = fleet.RangeSum(r)
	}
	return out, err
}

// HeldRanges gives one sum for each range in which this region has copies of a peer's objects.
func (s *Store) HeldRanges(ctx context.Context, peer fleet.RegionName, in fleet.UIDRange, bits int) ([]fleet.RangeSum, error) {
	rows, err := s.Q.HeldRanges(ctx, db.HeldRangesParams{Shift: rangeShift(bits), First: in.First, Last: in.Last, Owner: string(peer)})
	out := make([]fleet.RangeSum, len(rows))
	for i, r := range rows {
		out[i] = fleet.RangeSum(r)
	}
	return out, err
}

// rangeShift leaves of the first 32 bits of a uid those that name its range.
func rangeShift(bits int) int32 { return int32(32 - bits) } //nolint:gosec // at most 32

func ends(in []fleet.UIDRange) (froms, tos []string) {
	for _, r := range in {
		froms, tos = append(froms, r.First), append(tos, r.Last)
	}
	return froms, tos
}

func sumOf(r db.HeldSumsRow) fleet.CopySum {
	return fleet.CopySum{
		UID: r.Uid, Sum: r.Sum, Version: fleet.CopyVersion{OwnerEpoch: r.OwnerEpoch, Number: r.Number},
		Key: fleet.CopyKey{Region: fleet.RegionName(r.Region), ObjectKey: fleet.ObjectKey{Kind: fleet.ObjectKind(r.Kind), Scope: r.Scope, Name: r.Name}},
	}
}

// CountShared counts what this region owns and a peer is to have.
func (s *Store) CountShared(ctx context.Context, peer fleet.RegionName) (int64, error) {
	n, err := s.Q.CountShared(ctx, db.CountSharedParams{Owner: s.Region, Region: string(peer)})
	return n, err
}

// CountHeld counts what this region has of a peer's objects.
func (s *Store) CountHeld(ctx context.Context, peer fleet.RegionName) (int64, error) {
	n, err := s.Q.CountCopies(ctx, string(peer))
	return n, err
}

// SharedByUID reads objects that this region owns and a peer is to have; others are missing.
func (s *Store) SharedByUID(ctx context.Context, peer fleet.RegionName, uids []string) ([]fleet.Object, error) {
	if len(uids) == 0 {
		return nil, nil
	}
	rows, err := s.Q.SharedByUid(ctx, db.SharedByUidParams{Uids: uids, Owner: s.Region, Region: string(peer)})
	out := make([]fleet.Object, len(rows))
	for i, r := range rows {
		out[i] = copyOf(db.Copy(r))
	}
	return out, err
}

// AnswerFor says what became of objects that a peer names with the state that it has of each: the state as it is now, or how
// it ended. The versions of ends that left no trace are the peer's own.
func (s *Store) AnswerFor(ctx context.Context, peer fleet.RegionName, asked []fleet.CopyAsked) ([]fleet.CopyChange, error) {
	c := columnsOf(namesOf(asked))
	rows, err := s.Q.Known(ctx, db.KnownParams{Asker: string(peer), Regions: c.regions, Kinds: c.kinds, Scopes: c.scopes, Names: c.names})
	if err != nil {
		return nil, err
	}
	known := make(map[fleet.CopyKey]db.KnownRow, len(rows))
	var uids []string
	for _, r := range rows {
		key := fleet.CopyKey{Region: fleet.RegionName(r.Region), ObjectKey: fleet.ObjectKey{Kind: fleet.ObjectKind(r.Kind), Scope: r.Scope, Name: r.Name}}
		known[key] = r
		if r.Shared && r.Owner == s.Region {
			uids = append(uids, r.Uid)
		}
	}
	objects, err := s.SharedByUID(ctx, peer, uids)
	if err != nil {
		return nil, err
	}
	now := make(map[fleet.CopyKey]*fleet.Object, len(objects))
	for i := range objects {
		now[keyOf(objects[i])] = &objects[i]
	}
	out := make([]fleet.CopyChange, len(asked))
	for i, a := range asked {
		if o := now[a.Key]; o != nil {
			out[i] = fleet.CopyChange{Key: a.Key, Version: o.Version, Object: o}
			continue
		}
		if out[i], err = s.end(ctx, peer, a, known[a.Key]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// end says how what is not shared any more went.
func (s *Store) end(ctx context.Context, peer fleet.RegionName, a fleet.CopyAsked, r db.KnownRow) (fleet.CopyChange, error) {
	t := decide.Trace{
		Self: fleet.RegionName(s.Region), Asker: peer, Asked: a.Version, Owner: fleet.RegionName(r.Owner), LastOwner: fleet.RegionName(r.LastOwner),
		Version: fleet.CopyVersion{OwnerEpoch: r.OwnerEpoch, Number: r.Number},
	}
	if r.Owner == "" && r.Number == 0 {
		n, err := s.Q.FeedNumbers(ctx, fleet.EraOf(a.Version.Number))
		if err != nil {
			return fleet.CopyChange{}, err
		}
		t.Kept, t.EraEnded, t.EraEnd = n.Kept, n.EraEnded, n.EraEnd
	}
	if r.TookOver != nil {
		if err := json.Unmarshal(r.TookOver, &t.TookOver); err != nil {
			return fleet.CopyChange{}, postgres.Unreadable("what was taken over", err)
		}
	}
	out := decide.Ended(t)
	out.Key = a.Key
	return out, nil
}

func namesOf(asked []fleet.CopyAsked) []fleet.CopyKey {
	out := make([]fleet.CopyKey, len(asked))
	for i, a := range asked {
		out[i] = a.Key
	}
	return out
}

// ApplyCompared writes what the owner of objects answered, and moves the comparison on, in one transaction. It is stale if the
// comparison is elsewhere by now.
func (s *Store) ApplyCompared(ctx context.Context, in fleet.ComparedSet) (fleet.ComparedApplied, error) {
	var out fleet.ComparedApplied
	err := s.Tx(ctx, func(q *db.Queries) error {
		if err := lockPeer(ctx, q, in.Place.Peer); err != nil {
			return err
		}
		a := s.applying(q, in.Place.Peer)
		var at fleet.SyncPlace
		err := a.begin(ctx, in.Changes, func(q *db.Queries) (err error) {
			at, err = s.syncPlace(ctx, q, in.Place.Peer)
			if err == nil && (at.Pass != in.Place.Pass || at.At != in.Place.At || at.Bits != in.Place.Bits) {
				err = fleet.Errorf(fleet.Stale, "the comparison with region %s is elsewhere now", in.Place.Peer)
			}
			return err
		})
		if err != nil {
			return err
		}
		a.compared = &decide.Removals{Accept: at.Accept, Left: decide.RemovalCap(at.Objects) - at.Unshown}
		if err := a.run(ctx, in.Changes); err != nil {
			return err
		}
		counts := in.Counts
		counts.Add(fleet.SyncCounts{
			Written: int64(a.done.Written), Removed: a.removed, Lost: int64(len(a.lost)), Waiting: int64(a.done.Refused),
		})
		out = fleet.ComparedApplied{SyncCounts: counts, Doubtful: a.doubtful, Rivals: a.done.Rivals}
		return q.MoveSync(ctx, db.MoveSyncParams{
			Peer: string(in.Place.Peer), At: in.To, Compared: counts.Compared, Differed: counts.Differed, Written: counts.Written,
			Removed: counts.Removed, Unshown: a.unshown, Lost: counts.Lost, Waiting: counts.Waiting,
		})
	})
	return out, err
}

// remove bounds what a comparison takes away.
func (a *applying) remove(ctx context.Context, c fleet.CopyChange) (decide.CopyStep, string, error) {
	held, copied := a.copies[c.Key]
	if !copied {
		return decide.CopyEnd, "gone", nil
	}
	bound := *a.compared
	bound.Left -= a.unshown
	bound.Explained = func() (bool, error) {
		governed, err := a.s.Govern(ctx, a.q, &held)
		if err != nil {
			return false, err
		}
		var next fleet.Syncing
		err = json.Unmarshal(governed[0].Syncing, &next)
		return !next.In(a.self), postgres.Unreadable("how a copy went", err)
	}
	step, rule, err := decide.Remove(c, a.held[c.Key], bound)
	if step == decide.CopyEnd {
		a.removed++
	}
	if rule == decide.RemovalWithinCap {
		a.unshown++
	}
	return step, rule, err
}

// lost is a state that its owner does not know.
type lost struct {
	Region     fleet.RegionName `json:"region"`
	Kind       fleet.ObjectKind `json:"kind"`
	Scope      string           `json:"scope"`
	Name       string           `json:"name"`
	OwnerEpoch int64            `json:"owner_epoch"`
	Number     int64            `json:"number"`
	Reason     string           `json:"reason"`
	Object     *row             `json:"object,omitempty"`
}

// lose notes the state that a change replaces. A deletion that another deletion replaces is no loss, nor is a state by one of
// the same content.
func (a *applying) lose(c fleet.CopyChange, rule string) {
	held, copied := a.copies[c.Key]
	if !copied && c.Object == nil || copied && c.Object != nil && held.UID == c.Object.UID && sameContent(&held, c.Object) {
		return
	}
	l := lostOf(c.Key, a.held[c.Key].Version, rule)
	if copied {
		held.Region = c.Key.Region
		r := rowOf(a.held[c.Key].Owner, held)
		l.Object = &r
	}
	a.lost = append(a.lost, l)
}

func lostOf(k fleet.CopyKey, v fleet.CopyVersion, reason string) lost {
	return lost{Region: k.Region, Kind: k.Kind, Scope: k.Scope, Name: k.Name, OwnerEpoch: v.OwnerEpoch, Number: v.Number, Reason: reason}
}

// putLost writes what is lost where an operator finds it.
func putLost(ctx context.Context, q *db.Queries, peer fleet.RegionName, all []lost) error {
	if len(all) == 0 {
		return nil
	}
	body, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return q.PutLost(ctx, db.PutLostParams{Peer: string(peer), Rows: body})
}

// findUndone takes from the list what is there again as it was.
func (a *applying) findUndone(ctx context.Context) error {
	var rows []row
	for _, c := range a.all.written {
		if a.listed[c.Key] {
			o := *c.Object
			o.Region = c.Key.Region
			rows = append(rows, rowOf(a.peer, o))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	body, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	return a.q.FindUndone(ctx, db.FindUndoneParams{Peer: string(a.peer), Rows: body})
}

// ListUndone lists what a restore of a peer undid from an event of the era of a place on. It is for a comparison that comes before the
// stream of the new era.
func (s *Store) ListUndone(ctx context.Context, at fleet.SyncPlace, from int64) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		if err := lockPeer(ctx, q, at.Peer); err != nil {
			return err
		}
		return listUndone(ctx, q, at.Peer, at.Position, from)
	})
}

// listUndone lists what a restore of the peer undid of the era of a place, each state once: newer ones replace it. What waited is
// dropped, so that it does not come after them.
func listUndone(ctx context.Context, q *db.Queries, peer fleet.RegionName, position string, from int64) error {
	at, is := postgres.PlaceOfToken(position)
	if !is || from == 0 {
		return nil
	}
	last := fleet.FirstNumber(at.Era + 1)
	if err := q.ListUndone(ctx, db.ListUndoneParams{Peer: string(peer), FirstNumber: from, LastNumber: last}); err != nil {
		return err
	}
	if err := forgetEnds(ctx, q, db.DropUndoneMarkersParams{Peer: string(peer), FirstNumber: from, LastNumber: last}); err != nil {
		return err
	}
	waited, err := q.TakeUndone(ctx, db.TakeUndoneParams{Peer: string(peer), FirstNumber: from, LastNumber: last})
	if err != nil {
		return err
	}
	var all []lost
	for _, change := range waited {
		var c fleet.CopyChange
		if json.Unmarshal(change, &c) != nil {
			continue // of an older build
		}
		all = append(all, lostOf(c.Key, c.Version, "undone"))
		if c.Object != nil {
			c.Object.Region = c.Key.Region
			r := rowOf(peer, *c.Object)
			all[len(all)-1].Object = &r
		}
	}
	return putLost(ctx, q, peer, all)
}

// forgetEnds drops markers of deletions and removals that a restore undid, and requests comparisons with all peers: one of them may still
// own the object.
func forgetEnds(ctx context.Context, q *db.Queries, undone db.DropUndoneMarkersParams) error {
	n, err := q.DropUndoneMarkers(ctx, undone)
	if err != nil || n == 0 {
		return err
	}
	peers, err := q.PeerAllowed(ctx)
	if err != nil {
		return err
	}
	for _, p := range peers {
		if _, err := postgres.WantSync(ctx, q, p.Name, false); err != nil {
			return err
		}
	}
	return nil
}

// move has another region answer for copies, as their last owner says, whatever the policies that are known here prove. It is asked
// if this was the answer to a question: of what it never shared with this region, its stream says nothing.
func (a *applying) move(ctx context.Context) error {
	if len(a.all.moved) == 0 {
		return nil
	}
	c := columnsOf(keysOf(a.all.moved))
	p := db.MoveCopiesParams{Regions: c.regions, Kinds: c.kinds, Scopes: c.scopes, Names: c.names, Peer: string(a.peer), MovedNumber: fleet.MovedNumber}
	asked := map[fleet.RegionName]bool{a.self: true}
	for _, m := range a.all.moved {
		p.Owners, p.Epochs = append(p.Owners, string(m.MovedTo)), append(p.Epochs, m.Version.OwnerEpoch)
		if a.compared == nil || asked[m.MovedTo] || !m.Version.Newer(a.held[m.Key].Version) { // two regions that each name the other are not asked for ever
			continue
		}
		asked[m.MovedTo] = true
		if err := a.s.wantSync(ctx, a.q, m.MovedTo, false); err != nil {
			return err
		}
	}
	if err := a.q.MoveCopies(ctx, p); err != nil {
		return err
	}
	return a.q.MoveOwn(ctx, db.MoveOwnParams{
		Self: a.s.Region, Peer: p.Peer, Regions: p.Regions, Kinds: p.Kinds, Scopes: p.Scopes, Names: p.Names, Owners: p.Owners, Epochs: p.Epochs,
		MovedNumber: p.MovedNumber,
	})
}
