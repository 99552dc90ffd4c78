package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// A shared object keeps its place for life, whichever region owns it: it is an object of the region that created it, and a
// copy in every other one. This file is what writes it in either place.

// CopyOf is a row of a copy as an object.
func CopyOf(r db.Copy) fleet.Object {
	o := fleet.Object{
		ObjectKey: fleet.ObjectKey{Kind: fleet.ObjectKind(r.Kind), Scope: r.Scope, Name: r.Name}, Region: fleet.RegionName(r.Region),
		Version: fleet.CopyVersion{OwnerEpoch: r.OwnerEpoch, Number: r.Number}, UID: r.Uid, Project: fleet.ProjectName(r.Project), Service: r.Service,
		Generation: r.Generation, ResourceVersion: r.Event, Spec: r.Spec, Syncing: r.Syncing,
		CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, DeletingSince: r.DeletingSince,
	}
	if err := json.Unmarshal(r.Labels, &o.Labels); err != nil {
		o.Labels = nil // written by this store
	}
	return o
}

func (w Write) named() fleet.CopyKey { return fleet.CopyKey{Region: w.Region, ObjectKey: w.Key} }

// FindHere finds an object of this region; without one, the only copy of a shared kind with that name. It is nil when
// there is neither, and conflict when several regions created one.
func FindHere(ctx context.Context, q *db.Queries, key fleet.ObjectKey) (*fleet.Object, error) {
	o, err := Find(ctx, q, key)
	if err != nil || o != nil || !key.Kind.Declared().Shared {
		return o, err
	}
	return findCopy(ctx, q, fleet.CopyKey{ObjectKey: key})
}

// FindNamed finds an object by the region that created it, and without one as FindHere does. It is nil when this region does not
// have it.
func (s *Store) FindNamed(ctx context.Context, q *db.Queries, key fleet.CopyKey) (*fleet.Object, error) {
	switch string(key.Region) {
	case "":
		return FindHere(ctx, q, key.ObjectKey)
	case s.Region:
		return Find(ctx, q, key.ObjectKey)
	}
	return findCopy(ctx, q, key)
}

// findCopy finds a copy; without a region, the only one of its name.
func findCopy(ctx context.Context, q *db.Queries, key fleet.CopyKey) (*fleet.Object, error) {
	rows, err := q.FindCopies(ctx, db.FindCopiesParams{Kind: string(key.Kind), Scope: key.Scope, Name: key.Name, Region: string(key.Region)})
	switch {
	case err != nil || len(rows) == 0:
		return nil, err
	case len(rows) > 1:
		return nil, fleet.Ambiguous(key.ObjectKey, rows[0].Region, rows[1].Region)
	}
	copied := CopyOf(rows[0])
	return &copied, nil
}

// Elsewhere refuses to write what another region created and this region has no copy of: it is declared there.
func (s *Store) Elsewhere(ctx context.Context, key fleet.CopyKey) error {
	return s.elsewhere(ctx, s.Q, key)
}

func (s *Store) elsewhere(ctx context.Context, q *db.Queries, key fleet.CopyKey) error {
	if key.Region == "" || string(key.Region) == s.Region {
		return nil
	}
	peers, err := q.PeerAllowed(ctx)
	if err != nil {
		return err
	}
	names := []string{s.Region}
	for _, p := range peers {
		if p.Name == string(key.Region) {
			return fleet.OwnedBy(key, p.Name)
		}
		names = append(names, p.Name)
	}
	return fleet.Errorf(fleet.NotFound, "region %s is not an enabled peer of region %s", key.Region, s.Region).At("region").
		WithHint("use " + fleet.OrList(names))
}

// findWritten finds what a write of a name changes: the object of this region, or the copy, which its caller refuses to write unless
// this region owns it. What this region is to own, it takes over with its first write (M34).
func (s *Store) findWritten(ctx context.Context, q *db.Queries, key fleet.CopyKey) (*fleet.Object, error) {
	o, err := s.FindNamed(ctx, q, key)
	if err == nil && o == nil {
		return nil, s.elsewhere(ctx, q, key)
	}
	if err != nil || o.CheckOwner(s.Region) == nil {
		return o, err
	}
	if !key.Kind.Declared().Shared {
		return o, nil
	}
	taken, err := s.TakeOver(ctx, q, RegionActor, o)
	if err != nil {
		return nil, err
	}
	if len(taken) == 1 {
		return taken[0], nil
	}
	if o.Region == "" {
		return o, nil
	}
	spec, err := fleet.HolderOf(o.Kind, o.Spec)
	if err != nil {
		return nil, err
	}
	if p := spec.MultiRegionPolicy; p != nil && p.DefaultControlRegion == s.Region {
		return nil, s.notClaimed(o.ObjectKey, o.SyncingNow().OwningRegion)
	}
	return o, nil
}

// mayWrite checks the precondition. Where this region may declare an object that has the name of another's, it says how.
func (s *Store) mayWrite(ctx context.Context, q *db.Queries, w Write, o *fleet.Object) error {
	err := s.CheckMatch(w, o)
	var e *fleet.Error
	if !errors.As(err, &e) || e.Kind != fleet.NotOwner || o.Region == "" || w.Region != "" {
		return err
	}
	if w.Key.Kind != fleet.KindProject && w.Key.Kind != fleet.KindOrganization {
		if home, failed := Find(ctx, q, fleet.ProjectKey(w.Project)); failed != nil || home == nil {
			return cmp.Or(failed, err)
		}
	}
	return e.WithHint(fmt.Sprintf("name region %s to declare another %s of this name here, otherwise %s", s.Region, w.Key.Kind, e.Hint))
}

// TakeOver takes over those of some shared objects that follow a holder which this region has claimed, and gives them as they are then.
// What it owns itself in a lower epoch follows too: a region that lost the holder may have taken it over in one between (M38). The caller
// holds their locks.
func (s *Store) TakeOver(ctx context.Context, q *db.Queries, actor string, objects ...*fleet.Object) ([]*fleet.Object, error) {
	var taken []*fleet.Object
	var writes []SharedWrite
	for _, group := range byBirth(objects) {
		over, err := readHolders(ctx, q, group)
		if err != nil {
			return nil, err
		}
		for _, o := range group {
			by, err := over.governor(o)
			if err != nil {
				return nil, err
			}
			step, _ := decide.Owner(decide.Ownership{
				Self: s.Region, Owner: cmp.Or(o.SyncingNow().OwningRegion, s.Region), Kind: o.Kind, Policy: by.MultiRegionPolicy, Itself: by.itself,
				HolderOwner: by.owner, Epoch: o.Version.OwnerEpoch, HolderEpoch: by.epoch,
			})
			if step != decide.OwnerTakes {
				continue
			}
			after, err := s.owned(o, over, by.epoch)
			if err != nil {
				return nil, err
			}
			taken = append(taken, after)
			writes = append(writes, SharedWrite{Type: "updated", Before: o, After: after})
		}
	}
	return taken, SaveShared(ctx, q, actor, writes)
}

// owned is an object as this region takes it over: in a higher epoch, at least that of its holder.
func (s *Store) owned(o *fleet.Object, over holders, least int64) (*fleet.Object, error) {
	after := *o
	was := o.SyncingNow()
	after.Version = fleet.CopyVersion{OwnerEpoch: max(o.Version.OwnerEpoch+1, least)}
	policies, err := over.policies(o)
	if err != nil {
		return nil, err
	}
	next := s.syncingOf(o, fleet.Syncing{OwningRegion: s.Region}, policies)
	next.TookOver = fleet.TookOver{
		Region: fleet.RegionName(was.OwningRegion), OwnerEpoch: o.Version.OwnerEpoch, Number: o.Version.Number, WrittenAt: o.UpdatedAt.UTC(),
	}.After(was.TookOver)
	after.Syncing = next.JSON()
	return &after, nil
}

func byBirth(objects []*fleet.Object) [][]*fleet.Object {
	var out [][]*fleet.Object
	at := map[fleet.RegionName]int{}
	for _, o := range objects {
		i, is := at[o.Region]
		if !is {
			i = len(out)
			at[o.Region] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], o)
	}
	return out
}

// ClaimHolder makes this region the owner of a policy holder that another one owns, in an epoch. The caller holds its lock.
func (s *Store) ClaimHolder(ctx context.Context, q *db.Queries, actor string, before, next *fleet.Object, epoch int64) (*fleet.Object, error) {
	over, err := readHolders(ctx, q, []*fleet.Object{next})
	if err != nil {
		return nil, err
	}
	after, err := s.owned(next, over, epoch)
	if err != nil {
		return nil, err
	}
	return after, SaveShared(ctx, q, actor, []SharedWrite{{Type: "updated", Before: before, After: after}})
}

// SharedWrite is a new state of a shared object, which is written where the object is. If another region owns it, its
// version has the number that the owner gave; else it gets one.
type SharedWrite struct {
	Type          string // of its event
	Before, After *fleet.Object
	// Owned elsewhere: the version is the owner's.
	Elsewhere bool
}

type sharedRow struct {
	Type          string            `json:"type"`
	Region        fleet.RegionName  `json:"region"`
	Kind          fleet.ObjectKind  `json:"kind"`
	Scope         string            `json:"scope"`
	Name          string            `json:"name"`
	Owner         string            `json:"owner"`
	OwnerEpoch    int64             `json:"owner_epoch"`
	OwnerNumber   int64             `json:"owner_number"`
	Number        int64             `json:"number"`
	UID           string            `json:"uid"`
	Project       fleet.ProjectName `json:"project"`
	Service       string            `json:"service"`
	Labels        map[string]string `json:"labels"`
	Generation    int64             `json:"generation"`
	Spec          json.RawMessage   `json:"spec"`
	Syncing       json.RawMessage   `json:"syncing"`
	CreatedBy     string            `json:"created_by"`
	CreatedAt     time.Time         `json:"created_at"`
	UpdatedAt     time.Time         `json:"updated_at"`
	DeletingSince *time.Time        `json:"deleting_since"`
	Event         int64             `json:"event"`
	Resource      int64             `json:"resource_version"`
	Before        json.RawMessage   `json:"before"`
	After         json.RawMessage   `json:"after"`
}

func sharedRowOf(w SharedWrite) sharedRow {
	o := w.After
	r := sharedRow{
		Type: w.Type, Region: o.Region, Kind: o.Kind, Scope: o.Scope, Name: o.Name, Owner: o.SyncingNow().OwningRegion, OwnerEpoch: o.Version.OwnerEpoch,
		UID: o.UID, Project: o.Project, Service: o.Service, Labels: o.Labels, Generation: o.Generation, Spec: o.Spec, Syncing: o.Syncing,
		CreatedBy: o.CreatedBy, CreatedAt: o.CreatedAt, UpdatedAt: o.UpdatedAt, DeletingSince: o.DeletingSince,
		Before: Declared(w.Before), After: Declared(o),
	}
	if w.Elsewhere {
		r.OwnerNumber = o.Version.Number
	}
	if r.Labels == nil {
		r.Labels = map[string]string{}
	}
	return r
}

// SaveShared writes states of shared objects with their events, and sets their versions.
func SaveShared(ctx context.Context, q *db.Queries, actor string, writes []SharedWrite) error {
	if len(writes) == 0 {
		return nil
	}
	rows := make([]sharedRow, len(writes))
	for i, w := range writes {
		rows[i] = sharedRowOf(w)
	}
	body, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	numbers, err := q.AppendCopyEvents(ctx, db.AppendCopyEventsParams{Actor: actor, Rows: body})
	if err != nil {
		return err
	}
	events := map[fleet.CopyKey]int64{}
	for _, n := range numbers {
		events[fleet.CopyKey{Region: fleet.RegionName(n.Region), ObjectKey: fleet.ObjectKey{Kind: fleet.ObjectKind(n.Kind), Scope: n.Scope, Name: n.Name}}] = n.Seq
	}
	var own, copied []sharedRow
	for i, w := range writes {
		n := events[fleet.CopyKey{Region: w.After.Region, ObjectKey: w.After.ObjectKey}]
		rows[i].Event, rows[i].Number, rows[i].Resource, w.After.ResourceVersion = n, n, n, n
		if !w.Elsewhere {
			w.After.Version.Number = n
		}
		if w.After.Region == "" {
			own = append(own, rows[i])
		} else {
			copied = append(copied, rows[i])
		}
	}
	for _, put := range []struct {
		rows []sharedRow
		in   func(context.Context, json.RawMessage) error
	}{{own, q.PutOwned}, {copied, q.PutCopies}} {
		if len(put.rows) == 0 {
			continue
		}
		if body, err = json.Marshal(put.rows); err != nil {
			return err
		}
		if err := put.in(ctx, body); err != nil {
			return err
		}
	}
	return nil
}

// asBorn is a spec as the region that created the object would write it.
func asBorn(before *fleet.Object, spec any, body json.RawMessage) (json.RawMessage, error) {
	t, is := spec.(fleet.TemplateSpec)
	if !is || before.Region == "" {
		return body, nil
	}
	t, err := t.AsBorn(before.Region)
	if err != nil {
		return nil, err
	}
	body, err = json.Marshal(t)
	return body, err
}

// updateCopy writes a copy that this region owns, as a person declares it.
func updateCopy(ctx context.Context, q *db.Queries, w Write, before *fleet.Object, spec, syncing json.RawMessage) (Written, error) {
	now, err := q.Now(ctx)
	if err != nil {
		return Written{}, err
	}
	after := *before
	after.Labels, after.Spec, after.Syncing, after.DeletingSince, after.UpdatedAt = w.Labels, spec, syncing, nil, now
	if !SameJSON(before.Spec, spec) || before.DeletingSince != nil {
		after.Generation++
	}
	err = SaveShared(ctx, q, w.Actor, []SharedWrite{{Type: "updated", Before: before, After: &after}})
	return Written{Before: before, After: &after, Changed: true}, err
}

// removeShared takes an object away, wherever its row is. A marker keeps what its owner wrote before from coming back.
func (s *Store) removeShared(ctx context.Context, q *db.Queries, actor string, o *fleet.Object) error {
	if !o.Kind.Declared().Shared || o.Project == fleet.DefaultProject && o.Kind != fleet.KindOrganization {
		return Remove(ctx, q, actor, o)
	}
	seq, err := q.AppendDeletion(ctx, db.AppendDeletionParams{
		Kind: string(o.Kind), Project: string(o.Project), Scope: o.Scope, Name: o.Name, Uid: o.UID, Generation: o.Generation, Actor: actor,
		Before: Declared(o), Region: string(o.Region),
	})
	if err != nil {
		return err
	}
	birth := cmp.Or(string(o.Region), s.Region)
	if o.Region == "" {
		err = q.DeleteObject(ctx, db.DeleteObjectParams{Kind: string(o.Kind), Scope: o.Scope, Name: o.Name})
	} else {
		err = q.DropCopies(ctx, db.DropCopiesParams{Regions: []string{birth}, Kinds: []string{string(o.Kind)}, Scopes: []string{o.Scope}, Names: []string{o.Name}})
	}
	if err != nil {
		return err
	}
	return q.PutMarker(ctx, db.PutMarkerParams{
		Region: birth, Kind: string(o.Kind), Scope: o.Scope, Name: o.Name, Owner: s.Region, OwnerEpoch: o.Version.OwnerEpoch, Number: seq,
		Reason: string(fleet.CopyDeleted),
	})
}

// sameOrganization refuses to move a project to another organization.
func sameOrganization(before *fleet.Object, spec json.RawMessage) error {
	if before.Kind != fleet.KindProject {
		return nil
	}
	was, errWas := fleet.HolderOf(before.Kind, before.Spec)
	is, errIs := fleet.HolderOf(before.Kind, spec)
	if err := errors.Join(errWas, errIs); err != nil || was.Organization == is.Organization {
		return err
	}
	return fleet.Errorf(fleet.Conflict, "the organization of %s never changes: it is %q", before, was.Organization).At("/organization").
		WithHint("declare another project")
}
