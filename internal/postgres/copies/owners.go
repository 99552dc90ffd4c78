package copies

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// maxWaiting is the largest change that is kept until a newer policy proves it, in bytes.
const maxWaiting = 1 << 20

// retriedAtOnce is how many changes that wait for a policy are tried again with each set.
const retriedAtOnce = 100

// waiting is the change as it is kept, "" if it does not wait.
func (r refusal) waiting() string {
	if r.rule != decide.UnprovenOwner && r.rule != decide.NotShared {
		return ""
	}
	b, err := json.Marshal(r.CopyChange)
	if err != nil || len(b) > maxWaiting {
		return "" // its owner sends it again when it changes
	}
	return string(b)
}

// waiting reads the earlier changes of the peer that wait for a newer policy.
func (a *applying) waiting(ctx context.Context) ([]fleet.CopyChange, error) {
	if !a.waits {
		return nil, nil
	}
	rows, err := a.q.WaitingChanges(ctx, db.WaitingChangesParams{Peer: string(a.peer), MaxRows: retriedAtOnce})
	if err != nil {
		return nil, err
	}
	out := make([]fleet.CopyChange, 0, len(rows))
	for _, r := range rows {
		var c fleet.CopyChange
		if json.Unmarshal(r, &c) == nil { // of an older build
			out = append(out, c)
		}
	}
	return out, nil
}

// lockShared takes the locks of shared objects below holders: their owner may change, and two peers may send them.
func (a *applying) lockShared(ctx context.Context, changes []fleet.CopyChange) error {
	ids := map[int64]bool{}
	for _, c := range changes {
		if row := c.Key.Kind.Declared(); row.Shared && !row.Holder {
			ids[postgres.LockID(c.Key.ObjectKey)] = false
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return postgres.LockKeys(ctx, a.q, ids)
}

// byLevel puts the holders of a set first, so that their policies prove who owns the rest.
func byLevel(changes []fleet.CopyChange) (out [][]fleet.CopyChange) {
	rest := changes
	for _, level := range []fleet.ObjectKind{fleet.KindOrganization, fleet.KindProject, fleet.KindService} {
		of := func(c fleet.CopyChange) bool { return c.Key.Kind == level }
		if slices.ContainsFunc(rest, of) {
			out = append(out, slices.DeleteFunc(slices.Clone(rest), func(c fleet.CopyChange) bool { return !of(c) }))
			rest = slices.DeleteFunc(slices.Clone(rest), of)
		}
	}
	if len(rest) > 0 {
		out = append(out, rest)
	}
	return out
}

// readOwn adds objects that this region created.
func (a *applying) readOwn(ctx context.Context, changes []fleet.CopyChange) error {
	var p db.ObjectsNowParams
	for _, c := range changes {
		if c.Key.Region == a.self && c.Key.Kind.Declared().Shared {
			p.Kinds, p.Scopes, p.Names = append(p.Kinds, string(c.Key.Kind)), append(p.Scopes, c.Key.Scope), append(p.Names, c.Key.Name)
		}
	}
	if len(p.Kinds) == 0 {
		return nil
	}
	rows, err := a.q.ObjectsNow(ctx, p)
	if err != nil {
		return err
	}
	for _, r := range rows {
		o := postgres.ObjectOf(r)
		key := fleet.CopyKey{Region: a.self, ObjectKey: o.ObjectKey}
		a.copies[key] = o
		a.held[key] = decide.HeldCopy{Known: true, Owner: fleet.RegionName(o.SyncingNow().OwningRegion), Version: o.Version}
	}
	return nil
}

// prove reads the policies over objects: over those whose owner is to change, and over what the peer created.
func (a *applying) prove(ctx context.Context, changes []fleet.CopyChange) error {
	objects := make(map[fleet.CopyKey]*fleet.Object, len(changes))
	all := make([]*fleet.Object, 0, len(changes))
	for _, c := range changes {
		if o := a.toProve(c); o != nil {
			objects[c.Key] = o
			all = append(all, o)
		}
	}
	over, err := a.s.PoliciesOver(ctx, a.q, all)
	if err != nil {
		return err
	}
	for key, o := range objects {
		held, by := a.held[key], over[o]
		held.Over = &by
		a.held[key] = held
	}
	return nil
}

// toProve is the object whose policy proves a change, nil if none has to.
func (a *applying) toProve(c fleet.CopyChange) *fleet.Object {
	held, row := a.held[c.Key], c.Key.Kind.Declared()
	o, known := a.copies[c.Key]
	switch same := held.Known && held.Owner == a.peer || !held.Known && c.Key.Region == a.peer; {
	case same && (c.Object == nil || row.Shared || c.Key.Region != a.peer), !same && !row.Shared:
		return nil
	case c.Object != nil && (same || !known):
		o = *c.Object
	case !known:
		return nil // it is gone, and was not here
	}
	if o.Region = c.Key.Region; o.Region == a.self {
		o.Region = ""
	}
	return &o
}

func (a *applying) own(c fleet.CopyChange) bool { return c.Key.Region == a.self }

func (a *applying) notOwn(changes []fleet.CopyChange) []fleet.CopyChange {
	return slices.DeleteFunc(slices.Clone(changes), a.own)
}

func (a *applying) actor() string { return "region:" + string(a.peer) }

// writeOwn writes objects that this region created as the peer that owns them has them.
func (a *applying) writeOwn(ctx context.Context, changes []fleet.CopyChange) error {
	var writes []postgres.SharedWrite
	for _, c := range changes {
		if !a.own(c) {
			continue
		}
		after := *c.Object
		after.Region, after.Version = "", c.Version
		w := postgres.SharedWrite{Type: "created", After: &after, Elsewhere: true}
		if was, is := a.copies[c.Key]; is {
			w.Type, w.Before = "updated", &was
		}
		writes = append(writes, w)
	}
	if len(writes) == 0 {
		return nil
	}
	if err := postgres.SaveShared(ctx, a.q, a.actor(), writes); err != nil {
		return err
	}
	return a.dropMarkers(ctx, slices.DeleteFunc(slices.Clone(changes), func(c fleet.CopyChange) bool { return !a.own(c) }))
}

func (a *applying) dropMarkers(ctx context.Context, changes []fleet.CopyChange) error {
	keys := keysIn(a.marked, changes)
	if len(keys) == 0 {
		return nil
	}
	c := columnsOf(keys)
	err := a.q.DropMarkers(ctx, db.DropMarkersParams{Regions: c.regions, Kinds: c.kinds, Scopes: c.scopes, Names: c.names})
	return err
}

// endOwn deletes objects that this region created, as the peer that owns them did.
func (a *applying) endOwn(ctx context.Context, changes []fleet.CopyChange) error {
	for _, c := range changes {
		if !a.own(c) {
			continue
		}
		if _, is := a.copies[c.Key]; is {
			was, err := a.went(c)
			if err != nil {
				return err
			}
			if err := a.passOn(ctx, c.Key, was); err != nil {
				return err
			}
			if err := postgres.Remove(ctx, a.q, a.actor(), &was); err != nil {
				return err
			}
		}
		if err := a.q.PutMarker(ctx, db.PutMarkerParams{
			Region: string(c.Key.Region), Kind: string(c.Key.Kind), Scope: c.Key.Scope, Name: c.Key.Name, Owner: string(a.peer),
			OwnerEpoch: c.Version.OwnerEpoch, Number: c.Version.Number, Reason: string(fleet.CopyDeleted),
		}); err != nil {
			return err
		}
	}
	return nil
}

// passOn writes that what this region owned has another owner, who then ended it: those that have it from this region hear of the end only
// here if their stream of the other began after that.
func (a *applying) passOn(ctx context.Context, key fleet.CopyKey, went fleet.Object) error {
	if a.held[key].Owner != a.self {
		return nil
	}
	was := a.copies[key]
	return postgres.SaveShared(ctx, a.q, a.actor(), []postgres.SharedWrite{{Type: "updated", Before: &was, After: &went, Elsewhere: true}})
}

// noteLost lists the states that new owners never had.
func (a *applying) noteLost(changes []fleet.CopyChange) {
	for _, c := range changes {
		claimed := decide.Claimed{Self: a.self, Peer: a.peer, Held: a.held[c.Key], Change: c}
		if was, is := a.copies[c.Key]; is {
			claimed.Was = &was
			claimed.Same = c.Object != nil && claimed.Held.Owner != a.peer && sameContent(&was, c.Object)
		}
		if claimed.Loses() {
			a.lose(c, "claimed")
		}
	}
}

// sameContent: people declared the same.
func sameContent(a, b *fleet.Object) bool {
	return postgres.SameJSON(unclaimed(a), unclaimed(b)) && maps.Equal(a.Labels, b.Labels)
}

// unclaimed is the spec of an object without what a claim changes in it.
func unclaimed(o *fleet.Object) json.RawMessage {
	var spec struct {
		MultiRegionPolicy map[string]json.RawMessage `json:"multiRegionPolicy"`
	}
	var all map[string]json.RawMessage
	if !o.Kind.Declared().Holder || json.Unmarshal(o.Spec, &spec) != nil || json.Unmarshal(o.Spec, &all) != nil {
		return o.Spec
	}
	delete(spec.MultiRegionPolicy, "defaultControlRegion")
	policy, errPolicy := json.Marshal(spec.MultiRegionPolicy)
	all["multiRegionPolicy"] = policy
	out, err := json.Marshal(all)
	if errPolicy != nil || err != nil {
		return o.Spec
	}
	return out
}

// follow has the policies applied again that give some of the changed objects to this region.
func (a *applying) follow(ctx context.Context, changes []fleet.CopyChange) error {
	var objects []*fleet.Object
	holders, passed := false, false
	for _, c := range changes {
		if c.Object == nil || !c.Key.Kind.Declared().Shared {
			continue
		}
		holders = holders || c.Key.Kind.Declared().Holder
		passed = passed || c.Key.Kind.Declared().Holder && a.held[c.Key].Owner == a.self
		o := *c.Object
		if o.Region = c.Key.Region; o.Region == a.self {
			o.Region = ""
		}
		objects = append(objects, &o)
	}
	if len(objects) == 0 {
		return nil
	}
	if holders {
		if err := a.compareWaiting(ctx); err != nil {
			return err
		}
	}
	if passed { // it may have deleted something that it claimed with it
		if err := a.s.wantSync(ctx, a.q, a.peer, false); err != nil {
			return err
		}
	}
	keys, err := a.s.ToFollow(ctx, a.q, objects...)
	if err != nil {
		return err
	}
	var subjects []string
	for _, key := range keys {
		p := db.WantPolicyTurnParams{Kind: string(key.Kind), Name: key.Name, Restart: true}
		if err := a.q.WantPolicyTurn(ctx, p); err != nil {
			return err
		}
		subjects = append(subjects, fleet.PolicySubject(key))
	}
	return postgres.PutOutbox(ctx, a.q, subjects...)
}

// compareWaiting has the peers compared of whose objects many wait for a policy: this one may prove more than is listed.
func (a *applying) compareWaiting(ctx context.Context) error {
	peers, err := a.q.PeersWaiting(ctx, retriedAtOnce)
	if err != nil {
		return err
	}
	for _, peer := range peers {
		if err := a.s.wantSync(ctx, a.q, fleet.RegionName(peer), false); err != nil {
			return err
		}
	}
	return nil
}
