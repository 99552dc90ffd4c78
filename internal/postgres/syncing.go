package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Governed is an object as its policy holders have it: their policies in the order in which the first one governs, and
// the syncing that follows from them. Was is the syncing that the object has, Same that both are equal.
type Governed struct {
	Policies []*fleet.MultiRegionPolicy
	Syncing  json.RawMessage
	Was      fleet.Syncing
	Same     bool
}

// Govern computes the syncing of objects (M4). The caller holds their locks; those of all possible holders are taken
// here, shared, until the transaction ends. They come last, in the order service, project, organization: whoever
// holds one of them alone waits only for later ones. Nothing of the project default is governed, so that costs no query.
func (s *Store) Govern(ctx context.Context, q *db.Queries, objects ...*fleet.Object) ([]Governed, error) {
	over, err := readHolders(ctx, q, objects)
	if err != nil {
		return nil, err
	}
	out := make([]Governed, len(objects))
	var last *fleet.Object
	var of Governed
	for i, o := range objects {
		if last == nil || !alike(o, last) {
			if of, err = s.governed(o, over); err != nil {
				return nil, err
			}
		}
		out[i], last = of, o
	}
	return out, nil
}

// alike are objects that are governed alike: most of a page of a policy are.
func alike(a, b *fleet.Object) bool {
	return !a.Kind.Declared().Holder && a.Kind == b.Kind && a.Project == b.Project && a.Service == b.Service && a.Region == b.Region &&
		bytes.Equal(a.Syncing, b.Syncing)
}

// GovernUnlocked computes the syncing of objects, wherever they were created, and takes no lock.
func (s *Store) GovernUnlocked(ctx context.Context, q *db.Queries, objects ...*fleet.Object) ([]Governed, error) {
	over := make(map[fleet.RegionName]holders)
	for _, group := range byBirth(objects) {
		h, err := readHoldersBy(ctx, q, group, unlocked)
		if err != nil {
			return nil, err
		}
		over[group[0].Region] = h
	}
	out := make([]Governed, len(objects))
	for i, o := range objects {
		var err error
		if out[i], err = s.governed(o, over[o.Region]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *Store) governed(o *fleet.Object, over holders) (Governed, error) {
	policies, err := over.policies(o)
	if err != nil {
		return Governed{}, err
	}
	was := o.SyncingNow()
	next := s.syncingOf(o, was, policies)
	b, err := json.Marshal(next)
	return Governed{policies, b, was, was.Same(next)}, err
}

// holders are what governs some objects.
type holders map[fleet.ObjectKey]holder

type holder struct {
	fleet.ProjectSpec
	project fleet.ProjectName
	owner   string
	epoch   int64
}

func readHolders(ctx context.Context, q *db.Queries, objects []*fleet.Object) (holders, error) {
	return readHoldersBy(ctx, q, objects, func(all ...map[int64]bool) []map[int64]bool { return all })
}

// unlocked reads the holders of some objects, which may change at once.
func unlocked(...map[int64]bool) []map[int64]bool { return nil }

// readHoldersBy reads the holders of objects that one region created, and locks levels of them.
func readHoldersBy(ctx context.Context, q *db.Queries, objects []*fleet.Object, levels func(...map[int64]bool) []map[int64]bool) (holders, error) {
	var from fleet.RegionName
	if len(objects) > 0 {
		from = objects[0].Region
	}
	services, projects, organizations := map[int64]bool{}, map[int64]bool{}, map[int64]bool{}
	var below, above []fleet.ObjectKey
	want := func(level map[int64]bool, keys *[]fleet.ObjectKey, key fleet.ObjectKey) {
		if id := LockID(key); key.Name != "" && !level[id] {
			level[id] = true
			*keys = append(*keys, key)
		}
	}
	for _, o := range objects {
		switch {
		case o.Kind == fleet.KindProject:
			spec, err := fleet.HolderOf(o.Kind, o.Spec)
			if err != nil {
				return nil, err
			}
			want(organizations, &above, fleet.OrganizationKey(spec.Organization))
		case o.Kind != fleet.KindOrganization && o.Project != fleet.DefaultProject:
			want(services, &below, fleet.ServiceKey(o.Service))
			want(projects, &below, fleet.ProjectKey(o.Project))
		}
	}
	out := holders{}
	if err := out.read(ctx, q, from, below, levels(services, projects)...); err != nil {
		return nil, err
	}
	for _, key := range below {
		want(organizations, &above, fleet.OrganizationKey(out[key].Organization))
	}
	return out, out.read(ctx, q, from, above, levels(organizations)...)
}

// read locks holders level by level, and then reads them.
func (h holders) read(ctx context.Context, q *db.Queries, from fleet.RegionName, keys []fleet.ObjectKey, levels ...map[int64]bool) error {
	if len(keys) == 0 {
		return nil
	}
	for _, level := range levels {
		if len(level) == 0 {
			continue
		}
		if err := LockKeys(ctx, q, level); err != nil {
			return err
		}
	}
	var p db.ReadHoldersParams
	for _, key := range keys {
		p.Kinds, p.Names = append(p.Kinds, string(key.Kind)), append(p.Names, key.Name)
	}
	rows, err := holdersFrom(ctx, q, from, p)
	if err != nil {
		return err
	}
	for _, r := range rows {
		key := fleet.ObjectKey{Kind: fleet.ObjectKind(r.Kind), Name: r.Name}
		spec, err := fleet.HolderOf(key.Kind, r.Spec)
		if err != nil {
			return err
		}
		h[key] = holder{spec, fleet.ProjectName(r.Project), r.Owner, r.OwnerEpoch}
	}
	return nil
}

// over is one of the holders of an object.
type over struct {
	holder
	key    fleet.ObjectKey
	itself bool
}

// chain are the holders of an object, itself among them, in the order in which the first one with a policy governs. It ends at one
// that is not here, which it names: the region may lack that because of its policy, so what comes after it does not govern.
func (h holders) chain(o *fleet.Object) (out []over, missing fleet.ObjectKey, err error) {
	organization := ""
	if o.Kind.Declared().Holder {
		spec, err := fleet.HolderOf(o.Kind, o.Spec)
		if err != nil {
			return nil, missing, err
		}
		out, organization = append(out, over{holder{ProjectSpec: spec}, o.ObjectKey, true}), spec.Organization
	}
	for _, key := range above(o) {
		one, is := h[key]
		if !is {
			return out, key, nil
		}
		out, organization = append(out, over{one, key, false}), one.Organization
	}
	if organization == "" {
		return out, missing, nil
	}
	key := fleet.OrganizationKey(organization)
	one, is := h[key]
	if !is {
		return out, key, nil
	}
	return append(out, over{one, key, false}), missing, nil
}

// policies are those of the holders of an object; some are nil.
func (h holders) policies(o *fleet.Object) ([]*fleet.MultiRegionPolicy, error) {
	chain, _, err := h.chain(o)
	out := make([]*fleet.MultiRegionPolicy, len(chain))
	for i, one := range chain {
		out[i] = one.MultiRegionPolicy
	}
	return out, err
}

// governor is the holder whose policy governs an object; without one, its policy is nil.
func (h holders) governor(o *fleet.Object) (over, error) {
	chain, _, err := h.chain(o)
	return governing(chain), err
}

func governing(chain []over) over {
	if i := slices.IndexFunc(chain, func(one over) bool { return one.MultiRegionPolicy != nil }); i >= 0 {
		return chain[i]
	}
	return over{}
}

// above are the service and the project that an object names.
func above(o *fleet.Object) []fleet.ObjectKey {
	switch {
	case o.Kind == fleet.KindProject || o.Kind == fleet.KindOrganization || o.Project == fleet.DefaultProject:
		return nil
	case o.Kind == fleet.KindService || o.Service == "":
		return []fleet.ObjectKey{fleet.ProjectKey(o.Project)}
	}
	return []fleet.ObjectKey{fleet.ServiceKey(o.Service), fleet.ProjectKey(o.Project)}
}

// governOne computes the syncing of what a write declares, and refuses the write where the policy over it does not
// allow it.
func (s *Store) governOne(ctx context.Context, q *db.Queries, w Write, spec json.RawMessage, before *fleet.Object) (Governed, error) {
	next, named := &fleet.Object{ObjectKey: w.Key, Project: w.Project, Service: w.Service, Spec: spec}, fleet.CopyKey{ObjectKey: w.Key}
	if before != nil {
		next.Syncing, next.Region, named = before.Syncing, before.Region, before.Named(s.Region)
	}
	over, err := readHolders(ctx, q, []*fleet.Object{next})
	if err != nil {
		return Governed{}, err
	}
	if before == nil {
		if err := over.checkPlace(ctx, q, next); err != nil {
			return Governed{}, err
		}
	}
	governed, err := s.governed(next, over)
	if err == nil {
		err = s.recovered(ctx, q, governed.Policies)
	}
	if err != nil {
		return Governed{}, err
	}
	if before != nil && w.Key.Kind.Declared().Holder {
		fenced, err := s.fence(ctx, q, before, next, &governed)
		if err != nil || fenced {
			return governed, err
		}
		if err := s.controls(before, over); err != nil { // a policy of its own does not end a hand-over of what is above it
			return governed, err
		}
		if err := over.mayUngovern(before, next); err != nil {
			return governed, err
		}
	}
	if err := s.claimed(next, over); err != nil {
		return Governed{}, err
	}
	return governed, decide.MayDeclare(named, s.Region, governed.Policies...)
}

// Declaring is an object as it is to be declared here. Before is what stands, or nil.
type Declaring struct{ Object, Before *fleet.Object }

// MayDeclare says of each of some objects that are declared together why the policy over it then does not allow that; nil if it does. It
// takes no lock.
func (s *Store) MayDeclare(ctx context.Context, all []Declaring) ([]error, error) {
	objects := make([]*fleet.Object, len(all))
	for i, d := range all {
		objects[i] = d.Object
	}
	over := map[fleet.RegionName]holders{}
	for _, group := range byBirth(objects) {
		h, err := readHoldersBy(ctx, s.Q, group, unlocked)
		if err != nil {
			return nil, err
		}
		for _, o := range group {
			if !o.Kind.Declared().Holder {
				continue
			}
			spec, err := fleet.HolderOf(o.Kind, o.Spec)
			if err != nil {
				return nil, err
			}
			h[o.ObjectKey] = holder{ProjectSpec: spec, project: o.Project, owner: s.Region}
		}
		over[group[0].Region] = h
	}
	refused := make([]error, len(all))
	for i, d := range all {
		refused[i] = s.mayDeclare(d, over[d.Object.Region])
	}
	return refused, nil
}

func (s *Store) mayDeclare(d Declaring, over holders) error {
	o, named := d.Object, fleet.CopyKey{ObjectKey: d.Object.ObjectKey}
	if d.Before != nil {
		named = d.Before.Named(s.Region)
		fence := d.Before.SyncingNow().Fence
		switch {
		case fence != nil:
			return fenced(named, d.Before.ObjectKey, fence.To)
		case o.Kind.Declared().Holder: // another control region begins a hand-over
			return cmp.Or(s.controls(d.Before, over), over.mayUngovern(d.Before, o))
		}
	} else if o.Service != "" && o.Project != fleet.DefaultProject && over[fleet.ServiceKey(o.Service)].project != o.Project {
		return noService(o.Service, o.Project)
	}
	policies, err := over.policies(o)
	if err != nil {
		return err
	}
	return decide.MayDeclare(named, s.Region, policies...)
}

// MayTurn refuses to have anything done with an object in a region where the policy over it does not allow writing it:
// there it can only be deleted.
func (s *Store) MayTurn(ctx context.Context, q *db.Queries, o *fleet.Object) error {
	governed, err := s.Govern(ctx, q, o)
	if err == nil {
		err = s.recovered(ctx, q, governed[0].Policies)
	}
	if err != nil {
		return err
	}
	return decide.MayDeclare(o.Named(s.Region), s.Region, governed[0].Policies...)
}

// checkPlace refuses a new object whose project or service is not declared.
func (h holders) checkPlace(ctx context.Context, q *db.Queries, o *fleet.Object) error {
	if o.Kind == fleet.KindProject || o.Kind == fleet.KindOrganization {
		return nil
	}
	if key := fleet.ProjectKey(o.Project); o.Project != fleet.DefaultProject {
		if _, is := h[key]; !is {
			_, err := FindHere(ctx, q, key) // several regions may have created one
			return cmp.Or(err, noProject(o.Project))
		}
	}
	if o.Service == "" {
		return nil
	}
	if o.Project == fleet.DefaultProject {
		if err := h.read(ctx, q, "", []fleet.ObjectKey{fleet.ServiceKey(o.Service)}, map[int64]bool{LockID(fleet.ServiceKey(o.Service)): true}); err != nil {
			return err
		}
	}
	if of, is := h[fleet.ServiceKey(o.Service)]; !is || of.project != o.Project {
		return noService(o.Service, o.Project)
	}
	return nil
}

func noService(name string, project fleet.ProjectName) error {
	return fleet.Errorf(fleet.NotFound, "service %s not found in project %s", name, project).At("/service").
		WithHint("declare it first: PUT /api/v1/services/" + name)
}

// Refreshed is an object as it is, and its new syncing.
type Refreshed struct {
	Object  *fleet.Object
	Syncing json.RawMessage
}

// RefreshSyncing writes the syncing of objects whose declared part stays as it is, and counts them: neither ETag nor
// generation change, but the feed shows it.
func RefreshSyncing(ctx context.Context, q *db.Queries, actor string, refreshed []Refreshed) (int64, error) {
	p, pairs := db.RefreshSyncingParams{Actor: actor}, map[[2]string]int32{}
	for _, r := range refreshed {
		pair := [2]string{string(r.Object.Syncing), string(r.Syncing)}
		if pairs[pair] == 0 {
			p.Befores, p.Afters = append(p.Befores, r.Object.Syncing), append(p.Afters, r.Syncing)
			pairs[pair] = int32(len(p.Afters)) //nolint:gosec // at most a page; arrays count from 1
		}
		p.Uids, p.Pairs = append(p.Uids, r.Object.UID), append(p.Pairs, pairs[pair])
	}
	n, err := q.RefreshSyncing(ctx, p)
	return n, err
}
