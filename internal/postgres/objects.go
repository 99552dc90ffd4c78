package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Write is one change of a declared object. IfMatch is the resource version that the
// caller saw, AnyVersion for one that exists, 0 for any or none. With DryRun everything is checked and nothing kept. A Key makes
// the request repeatable: the same one again is answered from what the first started.
type Write struct {
	Request
	Key fleet.ObjectKey
	// Region that created the object; "" is the object of this region, or the only copy of a shared kind that this region owns.
	Region  fleet.RegionName
	Labels  map[string]string
	IfMatch int64
	// AllProjects is set if the caller sees the objects of all projects, not only those of Project.
	AllProjects bool
	// Service of the project, for life; "" is none, or the one that the object has.
	Service string
}

// AnyVersion is the IfMatch of an object that has to exist, whatever it is.
const AnyVersion int64 = -1

// NoVersion is the IfMatch of an object that must not exist yet.
const NoVersion int64 = -2

// Idempotency names a request that may be sent twice.
type Idempotency struct {
	Key  string
	Hash []byte
}

// Written is an object before and after a change; Before is nil when it was created,
// After when it is gone. Changed is false when the request changed nothing.
type Written struct {
	Before, After *fleet.Object
	Changed       bool
}

// LockID is the advisory lock of an object. Locks assign no transaction id, so the order
// of the feed within one object is the order in which its writers got the lock.
func LockID(k fleet.ObjectKey) int64 {
	sum := sha256.Sum256([]byte(k.String()))
	return int64(binary.BigEndian.Uint64(sum[:8])) //nolint:gosec // any 64 bits will do
}

// Lock takes the locks of a transaction in sorted order, before its first write.
func Lock(ctx context.Context, q *db.Queries, exclusive []fleet.ObjectKey, shared ...fleet.ObjectKey) error {
	ids := map[int64]bool{}
	for _, k := range shared {
		ids[LockID(k)] = false
	}
	for _, k := range exclusive {
		ids[LockID(k)] = true
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		take := q.LockShared
		if ids[id] {
			take = q.LockExclusive
		}
		if err := take(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// Find reads an object; nil when there is none.
func Find(ctx context.Context, q *db.Queries, k fleet.ObjectKey) (*fleet.Object, error) {
	row, err := q.GetObject(ctx, db.GetObjectParams{Kind: string(k.Kind), Scope: k.Scope, Name: k.Name})
	if NoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o := ObjectOf(row)
	return &o, nil
}

// ObjectOf is a row as an object.
func ObjectOf(r db.Object) fleet.Object {
	o := fleet.Object{
		ObjectKey: fleet.ObjectKey{Kind: fleet.ObjectKind(r.Kind), Scope: r.Scope, Name: r.Name},
		Version:   fleet.CopyVersion{OwnerEpoch: r.OwnerEpoch, Number: max(r.ResourceVersion, r.Refreshed)},
		UID:       r.Uid, Project: fleet.ProjectName(r.Project), Service: r.Service, Generation: r.Generation,
		ResourceVersion: r.ResourceVersion, Spec: r.Spec, Syncing: r.Syncing,
		CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, DeletingSince: r.DeletingSince,
	}
	if r.OwnerNumber != 0 {
		o.Version.Number = r.OwnerNumber
	}
	if err := json.Unmarshal(r.Labels, &o.Labels); err != nil {
		o.Labels = nil // written by this package; a row from elsewhere shows without labels
	}
	return o
}

// Write is the one write path: check the precondition, raise the generation when the spec
// changed, compute syncing, and append the event. The caller holds the object's lock.
func (s *Store) Write(ctx context.Context, q *db.Queries, w Write, spec any) (Written, error) {
	before, err := s.findWritten(ctx, q, w.named())
	if err != nil {
		return Written{}, err
	}
	if err := s.mayWrite(ctx, q, w, before); err != nil {
		return Written{}, err
	}
	body, err := json.Marshal(spec)
	if err != nil {
		return Written{}, err
	}
	if before == nil {
		return s.create(ctx, q, w, body)
	}
	if err := belongs(w, before, body); err != nil {
		return Written{}, err
	}
	w.Service = before.Service
	if body, err = asBorn(before, spec, body); err != nil {
		return Written{}, err
	}
	return s.update(ctx, q, w, before, body)
}

// belongs refuses a write that moves an object to another project or service.
func belongs(w Write, before *fleet.Object, spec json.RawMessage) error {
	if before.Project != w.Project {
		return fleet.OtherProject(w.Key, before.Project, w.AllProjects)
	}
	if err := sameOrganization(before, spec); err != nil {
		return err
	}
	if w.Service != "" && w.Service != before.Service {
		return fleet.Errorf(fleet.Conflict, "%s does not belong to service %s", w.Key, w.Service).At("/service").
			WithHint("the service of an object never changes: delete and re-create it")
	}
	return nil
}

// CheckMatch refuses a write that expects another version of the object, or is another region's to make.
func (s *Store) CheckMatch(w Write, before *fleet.Object) error {
	if before != nil {
		if err := before.CheckOwner(s.Region); err != nil {
			return err
		}
	}
	switch {
	case w.IfMatch == 0:
		return nil
	case w.IfMatch == NoVersion && before == nil:
		return nil
	case before == nil:
		return fleet.Errorf(fleet.Precondition, "%s does not exist", w.Key).At("If-Match")
	case w.IfMatch == NoVersion:
		return fleet.Errorf(fleet.Precondition, "%s already exists", w.Key).At("If-Match").
			WithHint("read it and repeat the change")
	case w.IfMatch != AnyVersion && before.ResourceVersion != w.IfMatch:
		return fleet.Errorf(fleet.Precondition, "%s has changed since it was read", w.Key).At("If-Match").
			WithHint("read it again and repeat the change")
	}
	return nil
}

func (s *Store) create(ctx context.Context, q *db.Queries, w Write, spec json.RawMessage) (Written, error) {
	governed, err := s.governOne(ctx, q, w, spec, nil)
	if err != nil {
		return Written{}, err
	}
	labels, err := labelsOf(w.Labels)
	if err != nil {
		return Written{}, err
	}
	generation := int64(1)
	if w.Key.Kind == fleet.KindTemplate { // generations of a template are referred to for ever
		last, err := q.LastTemplateGeneration(ctx, w.Key.Name)
		if err != nil {
			return Written{}, err
		}
		generation = last + 1
	}
	row, err := q.InsertObject(ctx, db.InsertObjectParams{
		Kind: string(w.Key.Kind), Scope: w.Key.Scope, Name: w.Key.Name, Project: string(w.Project), Service: w.Service,
		Labels: labels, Generation: generation, Spec: spec, Syncing: governed.Syncing, CreatedBy: w.Actor,
		After: Declared(&fleet.Object{Labels: w.Labels, Spec: spec, Syncing: governed.Syncing}),
	})
	if err != nil {
		return Written{}, err
	}
	after := ObjectOf(row)
	return Written{After: &after, Changed: true}, nil
}

func (s *Store) update(ctx context.Context, q *db.Queries, w Write, before *fleet.Object, spec json.RawMessage) (Written, error) {
	governed, err := s.governOne(ctx, q, w, spec, before)
	if err != nil {
		return Written{}, err
	}
	sameSpec := SameJSON(before.Spec, spec)
	if sameSpec && maps.Equal(before.Labels, w.Labels) && before.DeletingSince == nil {
		return refresh(ctx, q, w.Actor, before, governed)
	}
	if before.Region != "" {
		return updateCopy(ctx, q, w, before, spec, governed.Syncing)
	}
	next := *before
	next.Labels, next.Spec, next.Syncing, next.DeletingSince = w.Labels, spec, governed.Syncing, nil
	if before.DeletingSince != nil { // a PUT over a delete makes a new object
		if next.UID, err = q.NewUID(ctx); err != nil {
			return Written{}, err
		}
	}
	if !sameSpec || before.DeletingSince != nil {
		next.Generation++
	}
	return saveUpdate(ctx, q, "updated", w.Actor, before, next)
}

// saveUpdate writes an object of this region and its event.
func saveUpdate(ctx context.Context, q *db.Queries, event, actor string, before *fleet.Object, next fleet.Object) (Written, error) {
	labels, err := labelsOf(next.Labels)
	if err != nil {
		return Written{}, err
	}
	row, err := q.UpdateObject(ctx, db.UpdateObjectParams{
		Kind: string(next.Kind), Scope: next.Scope, Name: next.Name, Uid: next.UID, Labels: labels, Generation: next.Generation, Spec: next.Spec,
		Syncing: next.Syncing, DeletingSince: next.DeletingSince, Deletes: event == eventDeleting, Type: event, Project: string(next.Project), Actor: actor,
		Before: Declared(before), After: Declared(&next),
	})
	if err != nil {
		return Written{}, err
	}
	after := ObjectOf(row)
	return Written{Before: before, After: &after, Changed: true}, nil
}

// refresh repairs the syncing of an object that is declared as it is (M43).
func refresh(ctx context.Context, q *db.Queries, actor string, o *fleet.Object, next Governed) (Written, error) {
	if next.Same {
		return Written{Before: o, After: o}, nil
	}
	after := *o
	after.Syncing = next.Syncing
	if o.Region != "" {
		return Written{Before: o, After: &after, Changed: true}, SaveShared(ctx, q, actor, []SharedWrite{{Type: "updated", Before: o, After: &after}})
	}
	_, err := RefreshSyncing(ctx, q, actor, []Refreshed{{o, next.Syncing}})
	return Written{Before: o, After: &after, Changed: true}, err
}

func labelsOf(labels map[string]string) (json.RawMessage, error) {
	if labels == nil {
		return json.RawMessage("{}"), nil
	}
	b, err := json.Marshal(labels)
	return b, err
}

// eventDeleting gives an object its deletion mark, with the time of the transaction.
const eventDeleting = "deleting"

// MarkDeleting gives an object its deletion mark; it goes when its nodes have confirmed.
func MarkDeleting(ctx context.Context, q *db.Queries, actor string, before *fleet.Object) (Written, error) {
	if before.DeletingSince != nil {
		return Written{Before: before, After: before}, nil
	}
	next := *before
	next.Generation++
	return saveUpdate(ctx, q, eventDeleting, actor, before, next)
}

// Remove takes an object out of the table.
func Remove(ctx context.Context, q *db.Queries, actor string, before *fleet.Object) error {
	err := q.AppendEvent(ctx, db.AppendEventParams{
		Type: "deleted", Kind: string(before.Kind), Project: string(before.Project), Scope: before.Scope, Name: before.Name,
		Uid: before.UID, Generation: before.Generation, Actor: actor, Before: Declared(before),
	})
	if err != nil {
		return err
	}
	err = q.DeleteObject(ctx, db.DeleteObjectParams{Kind: string(before.Kind), Scope: before.Scope, Name: before.Name})
	return err
}

// AppendStatus writes to the feed what the region knew of an object before and what it knows after
// (X17); p names the object and who changed it. before is nil where nothing was known.
func AppendStatus(ctx context.Context, q *db.Queries, p db.AppendEventParams, before, after any) error {
	p.Type = "status"
	for _, side := range []struct {
		of   any
		into *json.RawMessage
	}{{before, &p.Before}, {after, &p.After}} {
		b, err := json.Marshal(side.of)
		if err != nil {
			return err
		}
		if string(b) != "null" {
			*side.into = b
		}
	}
	return q.AppendEvent(ctx, p)
}

// Declared is what events show of an object: the part that a person declares, and its syncing, so that a reader of the
// feed sees which regions gained or lost it.
func Declared(o *fleet.Object) json.RawMessage {
	if o == nil {
		return nil
	}
	number := int64(0)
	if o.Region != "" { // of a copy: its owner's, since the local event has another
		number = o.Version.Number
	}
	b, err := json.Marshal(struct {
		Labels     map[string]string `json:"labels,omitempty"`
		Spec       json.RawMessage   `json:"spec"`
		Syncing    json.RawMessage   `json:"syncing"`
		OwnerEpoch int64             `json:"ownerEpoch"`
		Number     int64             `json:"number,omitempty"`
	}{o.Labels, o.Spec, o.Syncing, o.Version.OwnerEpoch, number})
	if err != nil {
		return nil // the spec was written as JSON by this package
	}
	return b
}

// SameJSON compares two documents that this package wrote; jsonb orders keys its own way.
func SameJSON(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	ca, errA := json.Marshal(x)
	cb, errB := json.Marshal(y)
	return errA == nil && errB == nil && bytes.Equal(ca, cb)
}

// RegionActor is the actor of what the region does by itself.
const RegionActor = "region"

// KindNode is the kind of a node in events and locks. It is not declared by itself: its site
// does.
const KindNode fleet.ObjectKind = "node"

// NodeKey is the key of a node in events and locks.
func NodeKey(n db.Node) fleet.ObjectKey {
	return fleet.ObjectKey{Kind: KindNode, Scope: n.Site, Name: n.Name}
}

// LockKeys takes advisory locks in sorted order with one statement; those that are set are
// shared.
func LockKeys(ctx context.Context, q *db.Queries, shared map[int64]bool) error {
	p := db.LockKeysParams{Keys: slices.Sorted(maps.Keys(shared))}
	for _, k := range p.Keys {
		p.Shared = append(p.Shared, shared[k])
	}
	return q.LockKeys(ctx, p)
}

// LinkLock is the number of an advisory lock on parts that are no object.
func LinkLock(parts ...string) int64 {
	h := sha256.New()
	for _, p := range append([]string{"link"}, parts...) {
		h.Write([]byte(p + "\x00"))
	}
	return int64(binary.BigEndian.Uint64(h.Sum(nil)[:8])) //nolint:gosec // a lock's number is any
}

// Marked is an earlier spec with the secret marks that its instance has now.
func Marked(earlier, now json.RawMessage) (fleet.InstanceSpec, error) {
	var to, from fleet.InstanceSpec
	err := errors.Join(json.Unmarshal(earlier, &to), json.Unmarshal(now, &from))
	return to.KeepMarks(from), Unreadable("the spec", err)
}
