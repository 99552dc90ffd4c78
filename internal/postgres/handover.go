package postgres

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// syncingOf computes the syncing of an object. What its policy gives to another region stays with this one until that
// region has taken it over; the region that created it always has it.
func (s *Store) syncingOf(o *fleet.Object, was fleet.Syncing, policies []*fleet.MultiRegionPolicy) fleet.Syncing {
	next := decide.Syncing(o.Kind, cmp.Or(was.OwningRegion, s.Region), policies...)
	if policy := decide.Governing(policies...); was.OwningRegion == s.Region && next.OwningRegion != s.Region {
		next = decide.Kept(o.Kind, s.Region, policy)
		next.Fence = was.Fence
	}
	if next.OwningRegion == was.OwningRegion {
		next.TookOver = was.TookOver
	}
	if birth := string(o.Region); birth != "" && !slices.Contains(next.Regions, birth) {
		next.Regions = append(next.Regions, birth)
		slices.Sort(next.Regions)
	}
	return next
}

// fence begins a hand-over: a write of a holder that changes the control region of its own policy is the last one that
// this region makes of the holder and of what is shared under it. It reports whether this write is one.
func (s *Store) fence(ctx context.Context, q *db.Queries, before, next *fleet.Object, governed *Governed) (bool, error) {
	was, err := fleet.HolderOf(before.Kind, before.Spec)
	if err != nil {
		return false, err
	}
	own := governed.Policies[0]
	if p := was.MultiRegionPolicy; p != nil && p.DefaultControlRegion != s.Region {
		return false, fenced(before.Named(s.Region), before.ObjectKey, p.DefaultControlRegion)
	}
	if own == nil || own.DefaultControlRegion == s.Region {
		return false, nil
	}
	if err := s.mayHandOver(ctx, q, before.ObjectKey, own); err != nil {
		return false, err
	}
	if uses := next.SyncingNow().OwningRegion; uses != s.Region {
		return false, fleet.OwnedBy(before.Named(s.Region), uses)
	}
	if err := followed(ctx, q, next); err != nil {
		return false, err
	}
	at, err := q.TxPlace(ctx)
	if err != nil {
		return false, err
	}
	sync := s.syncingOf(next, next.SyncingNow(), governed.Policies)
	sync.Fence = &fleet.Fence{
		To: own.DefaultControlRegion, Epoch: before.Version.OwnerEpoch + 1, After: Cursor{Era: at.Era, Xid: at.Xid}.String(),
	}
	governed.Syncing, governed.Same = sync.JSON(), false
	return true, nil
}

// followed refuses to hand a holder on before all that is shared under it has followed it here: the next owner waits only for
// what this region wrote.
func followed(ctx context.Context, q *db.Queries, o *fleet.Object) error {
	took := o.SyncingNow().TookOver
	if took == nil {
		return nil
	}
	under, err := q.TurnUnderWay(ctx, db.TurnUnderWayParams{Kind: string(o.Kind), Name: o.Name})
	if err != nil || !under {
		return err
	}
	return fleet.Errorf(fleet.Unavailable, "this region still takes over what is shared under %s from region %s", o.ObjectKey, took.Region).
		WithHint("retry in a moment")
}

// fenced refuses a write of an object whose holder is being handed over.
func fenced(of fleet.CopyKey, holder fleet.ObjectKey, to string) error {
	e := fleet.OwnedBy(of, to)
	e.Message = holder.String() + " is being handed over to region " + to
	return e.WithHint("send the request to region " + to + " when it has claimed it, or cancel the hand-over")
}

// mayHandOver refuses a control region that could not claim, and one that would leave this region without the holder.
func (s *Store) mayHandOver(ctx context.Context, q *db.Queries, key fleet.ObjectKey, p *fleet.MultiRegionPolicy) error {
	const field = "/multiRegionPolicy/defaultControlRegion"
	if !slices.Contains(p.EnabledRegions, s.Region) {
		return fleet.Errorf(fleet.IllegalState, "region %s controls %s; it has to stay enabled until region %s has claimed it", s.Region, key, p.DefaultControlRegion).
			At(field).WithHint("hand it over first, then change enabledRegions in region " + p.DefaultControlRegion)
	}
	peers, err := q.PeerAllowed(ctx)
	if err != nil {
		return err
	}
	names := make([]string, len(peers))
	for i, peer := range peers {
		if names[i] = peer.Name; peer.Name == p.DefaultControlRegion {
			return nil
		}
	}
	e := fleet.Errorf(fleet.IllegalState, "region %s is not an enabled peer of region %s", p.DefaultControlRegion, s.Region).At(field)
	if len(names) == 0 {
		return e.WithHint("join it first: holdfast region invite " + p.DefaultControlRegion)
	}
	return e.WithHint("use " + fleet.OrList(names))
}

// claimed refuses to write what is shared under a holder that this region is to control and has not claimed.
func (s *Store) claimed(o *fleet.Object, over holders) error {
	if !o.Kind.Declared().Shared {
		return nil
	}
	by, err := over.governor(o)
	if err != nil || by.MultiRegionPolicy == nil || by.itself || by.MultiRegionPolicy.DefaultControlRegion != s.Region || by.owner == s.Region || by.owner == "" {
		return err
	}
	return s.notClaimed(by.key, by.owner)
}

func (s *Store) notClaimed(key fleet.ObjectKey, owner string) error {
	return fleet.Errorf(fleet.Unavailable, "region %s has not claimed %s from region %s yet", s.Region, key, owner).
		WithHint("retry in a moment")
}

// holdersFrom reads the holders that names mean: in this region (from ""), or in the region that created an object. That is
// the holder of the same region, or the only one of the name that the region has.
func holdersFrom(ctx context.Context, q *db.Queries, from fleet.RegionName, p db.ReadHoldersParams) ([]db.ReadHoldersRow, error) {
	if from == "" {
		return q.ReadHolders(ctx, p)
	}
	all, err := q.HoldersNamed(ctx, db.HoldersNamedParams{Kinds: p.Kinds, Names: p.Names, HasRegion: string(from)})
	if err != nil {
		return nil, err
	}
	type name struct{ kind, name string }
	named := map[name][]db.HoldersNamedRow{}
	for _, r := range all {
		named[name{r.Kind, r.Name}] = append(named[name{r.Kind, r.Name}], r)
	}
	var out []db.ReadHoldersRow
	for i := range p.Names {
		rows := named[name{p.Kinds[i], p.Names[i]}]
		at := slices.IndexFunc(rows, func(r db.HoldersNamedRow) bool { return r.Region == string(from) })
		if at < 0 {
			at = onlyOne(rows)
		}
		if at >= 0 {
			r := rows[at]
			out = append(out, db.ReadHoldersRow{Kind: r.Kind, Name: r.Name, Project: r.Project, Spec: r.Spec, Owner: r.Owner, OwnerEpoch: r.OwnerEpoch})
		}
	}
	return out, nil
}

// onlyOne is the index of the only holder, or of the only one that a region has; -1 if there are several.
func onlyOne(rows []db.HoldersNamedRow) int {
	if len(rows) == 1 {
		return 0
	}
	at := slices.IndexFunc(rows, func(r db.HoldersNamedRow) bool { return r.Has })
	if at < 0 || slices.ContainsFunc(rows[at+1:], func(r db.HoldersNamedRow) bool { return r.Has }) {
		return -1
	}
	return at
}

// PoliciesOver is what this region knows of the policies over objects that a peer sends. No lock is taken: what the region
// last knew decides.
func (s *Store) PoliciesOver(ctx context.Context, q *db.Queries, objects []*fleet.Object) (map[*fleet.Object]decide.Over, error) {
	out := make(map[*fleet.Object]decide.Over, len(objects))
	missing := map[*fleet.Object]fleet.ObjectKey{}
	for _, group := range byBirth(objects) {
		h, err := readHoldersBy(ctx, q, group, unlocked)
		if err != nil {
			return nil, err
		}
		for _, o := range group {
			chain, key, err := h.chain(o)
			if err != nil {
				return nil, err
			}
			by := governing(chain)
			if by.MultiRegionPolicy == nil {
				if i := slices.IndexFunc(chain, func(one over) bool { return !one.itself }); i >= 0 {
					by = chain[i]
				}
				if key.Name != "" {
					missing[o] = key
				}
			}
			out[o] = decide.Over{Policy: by.MultiRegionPolicy, Itself: by.itself, Owner: by.owner}
		}
	}
	return out, s.ownersGone(ctx, q, missing, out)
}

// ownersGone adds who owned the holders that objects miss when they went from this region: that of the region that created an object, or
// the only one of its name.
func (s *Store) ownersGone(ctx context.Context, q *db.Queries, missing map[*fleet.Object]fleet.ObjectKey, out map[*fleet.Object]decide.Over) error {
	var p db.HoldersGoneParams
	for _, key := range missing {
		p.Kinds, p.Names = append(p.Kinds, string(key.Kind)), append(p.Names, key.Name)
	}
	if len(p.Names) == 0 {
		return nil
	}
	rows, err := q.HoldersGone(ctx, p)
	if err != nil {
		return err
	}
	gone := map[fleet.ObjectKey]map[string]string{} // their owners, by the region that created them
	for _, r := range rows {
		key := fleet.ObjectKey{Kind: fleet.ObjectKind(r.Kind), Name: r.Name}
		if gone[key] == nil {
			gone[key] = map[string]string{}
		}
		gone[key][r.Region] = r.Owner
	}
	for o, key := range missing {
		owner := gone[key][cmp.Or(string(o.Region), s.Region)]
		if owner == "" && len(gone[key]) == 1 {
			owner = slices.Collect(maps.Values(gone[key]))[0]
		}
		out[o] = decide.Over{Owner: owner}
	}
	return nil
}

// ToFollow gives the holders whose policy gives some of these objects to this region, which does not own them: their owner
// shared them late.
func (s *Store) ToFollow(ctx context.Context, q *db.Queries, objects ...*fleet.Object) ([]fleet.ObjectKey, error) {
	var out []fleet.ObjectKey
	for _, group := range byBirth(objects) {
		over, err := readHoldersBy(ctx, q, group, unlocked)
		if err != nil {
			return nil, err
		}
		for _, o := range group {
			by, err := over.governor(o)
			if err != nil {
				return nil, err
			}
			step, _ := decide.Owner(decide.Ownership{
				Self: s.Region, Owner: o.SyncingNow().OwningRegion, Kind: o.Kind, Policy: by.MultiRegionPolicy, Itself: by.itself, HolderOwner: by.owner,
			})
			if step == decide.OwnerTakes && !slices.Contains(out, by.key) {
				out = append(out, by.key)
			}
		}
	}
	return out, nil
}

// MayDelete says of each of some objects why it is not to be deleted here; nil if it is. It takes no lock.
func (s *Store) MayDelete(ctx context.Context, objects []*fleet.Object) (map[*fleet.Object]error, error) {
	refused := make(map[*fleet.Object]error, len(objects))
	for _, group := range byBirth(objects) {
		over, err := readHoldersBy(ctx, s.Q, group, unlocked)
		if err != nil {
			return nil, err
		}
		for _, o := range group {
			if o.Kind.Declared().Shared {
				refused[o] = s.controls(o, over)
			}
		}
	}
	return refused, nil
}

// mayDelete refuses to delete what another region is to own, or this one has not claimed.
func (s *Store) mayDelete(ctx context.Context, q *db.Queries, o *fleet.Object) error {
	if !o.Kind.Declared().Shared {
		return nil
	}
	over, err := readHolders(ctx, q, []*fleet.Object{o})
	if err != nil {
		return err
	}
	return s.controls(o, over)
}

// controls refuses to change what another region is to own, as it stands, or this one has not claimed.
func (s *Store) controls(o *fleet.Object, over holders) error {
	by, err := over.governor(o)
	if err == nil && by.MultiRegionPolicy != nil && by.MultiRegionPolicy.DefaultControlRegion != s.Region {
		err = fenced(o.Named(s.Region), by.key, by.MultiRegionPolicy.DefaultControlRegion)
	}
	if err != nil {
		return err
	}
	return s.claimed(o, over)
}

// mayUngovern refuses to take the policy of a holder away where something above it is not here: what governs the holder then is not known.
func (h holders) mayUngovern(before, next *fleet.Object) error {
	was, err := fleet.HolderOf(before.Kind, before.Spec)
	if err != nil || was.MultiRegionPolicy == nil {
		return err
	}
	chain, missing, err := h.chain(next)
	if err != nil || missing.Name == "" || governing(chain).MultiRegionPolicy != nil {
		return err
	}
	return fleet.Errorf(fleet.IllegalState, "%s needs a policy of its own: %s, which would govern it, is not in this region", next.ObjectKey, missing).
		At("/multiRegionPolicy").WithHint("declare the policy again, or hand " + next.ObjectKey.String() + " over to a region that has " + missing.String())
}
