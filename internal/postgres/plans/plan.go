package plans

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// keysAtOnce bounds the keys of one query.
const keysAtOnce = 1000

// Standing is an object as a plan finds it, with what it released last (0 for nothing).
type Standing struct {
	fleet.Object       // without its history: UpdatedAt, CreatedBy and the like
	Released           fleet.Revision
	ReleasedGeneration int64
	ReleasedDurability fleet.Durability
}

// Standing reads objects by their keys with a query per thousand; what does not exist is
// missing.
func (s *Store) Standing(ctx context.Context, keys []fleet.ObjectKey) (map[fleet.ObjectKey]Standing, error) {
	out := make(map[fleet.ObjectKey]Standing, len(keys))
	err := inPages(keys, func(page []fleet.ObjectKey) error {
		var p db.StandingObjectsParams
		for _, k := range page {
			p.Kinds, p.Scopes, p.Names = append(p.Kinds, string(k.Kind)), append(p.Scopes, k.Scope), append(p.Names, k.Name)
		}
		rows, err := s.Q.StandingObjects(ctx, p)
		for _, r := range rows {
			o := standingOf(r)
			out[o.ObjectKey] = o
		}
		return err
	})
	return out, err
}

// Copied is what a name means that no object of this region has: a copy. If Other created one too, it means none.
type Copied struct {
	fleet.Object
	Other fleet.RegionName
}

// Only reports whether the name means just one.
func (c Copied) Only() bool { return c.Region != "" && c.Other == "" }

// Owner is the region that owns the copy.
func (c Copied) Owner() string { return c.SyncingNow().OwningRegion }

// Copied gives those of some keys of shared kinds that copies have.
func (s *Store) Copied(ctx context.Context, keys []fleet.ObjectKey) (map[fleet.ObjectKey]Copied, error) {
	out := map[fleet.ObjectKey]Copied{}
	err := inPages(keys, func(page []fleet.ObjectKey) error {
		var p db.CopiesPlannedParams
		for _, k := range page {
			p.Kinds, p.Names = append(p.Kinds, string(k.Kind)), append(p.Names, k.Name)
		}
		rows, err := s.Q.CopiesPlanned(ctx, p)
		for _, r := range rows {
			o := postgres.CopyOf(r)
			if first, more := out[o.ObjectKey]; more {
				first.Other = o.Region
				out[o.ObjectKey] = first
				continue
			}
			out[o.ObjectKey] = Copied{Object: o}
		}
		return err
	})
	return out, err
}

func standingOf(r db.StandingObjectsRow) Standing {
	return Standing{
		Object: postgres.ObjectOf(db.Object{
			Kind: r.Kind, Scope: r.Scope, Name: r.Name, Uid: r.Uid, Project: r.Project, Service: r.Service, Labels: r.Labels, Generation: r.Generation,
			ResourceVersion: r.ResourceVersion, Spec: r.Spec, Syncing: r.Syncing, DeletingSince: r.DeletingSince,
		}),
		Released: fleet.Revision{
			Version: fleet.Version{Revision: r.Revision}, Action: fleet.Action(r.Action),
			Content: fleet.Content{Hash: postgres.HashText(r.BodyHash)}, RunHash: postgres.HashText(r.RunHash), Enabled: r.Enabled,
		},
		ReleasedGeneration: r.RevisionGeneration, ReleasedDurability: fleet.Durability(r.Durability),
	}
}

func inPages[T any](all []T, do func([]T) error) error {
	for len(all) > 0 {
		n := min(len(all), keysAtOnce)
		if err := do(all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// HeldRevision is what one node of an instance's site holds of it. Revision is 0 where it
// holds nothing; Known says whether the region has that revision, and with it Content and
// Spec.
type HeldRevision struct {
	Node     fleet.NodeName
	Role     fleet.Role
	Revision int64
	Content  fleet.Content
	Enabled  bool
	Running  bool
	Known    bool
	Spec     fleet.InstanceSpec
}

// HeldRevisions reads what nodes hold of some instances, with a query per thousand.
func (s *Store) HeldRevisions(ctx context.Context, keys []fleet.ObjectKey) (map[fleet.ObjectKey][]HeldRevision, error) {
	out := make(map[fleet.ObjectKey][]HeldRevision, len(keys))
	err := inPages(keys, func(page []fleet.ObjectKey) error {
		var p db.HeldRevisionsParams
		for _, k := range page {
			p.Sites, p.Names = append(p.Sites, k.Scope), append(p.Names, k.Name)
		}
		rows, err := s.Q.HeldRevisions(ctx, p)
		if err != nil {
			return err
		}
		for _, r := range rows {
			h, err := heldRevisionOf(r)
			if err != nil {
				return err
			}
			key := fleet.InstanceKey(fleet.SiteName(r.Site), fleet.InstanceName(r.Name))
			out[key] = append(out[key], h)
		}
		return nil
	})
	return out, err
}

func heldRevisionOf(r db.HeldRevisionsRow) (HeldRevision, error) {
	h := HeldRevision{Node: fleet.NodeName(r.Node), Role: fleet.Role(r.Role)}
	if r.Revision == nil || *r.Deleted {
		return h, nil
	}
	h.Revision, h.Enabled, h.Running = *r.Revision, *r.Enabled, *r.Running
	h.Content = fleet.Content{Kind: fleet.ContentKind(r.ContentKind), Hash: postgres.HashText(r.Hash), Size: r.Size}
	if r.Spec == nil {
		return h, nil
	}
	h.Known = true
	return h, postgres.Unreadable("the spec of a revision", json.Unmarshal(r.Spec, &h.Spec))
}

// ApplySet reads the objects of this region that carry a label of one apply set, without the specs of those that hold no
// policies; those that are being deleted are left out. Each comes after those of its kind that refer to it, as they are deleted.
func (s *Store) ApplySet(ctx context.Context, name string) ([]fleet.Object, error) {
	rows, err := s.Q.ObjectsOfApplySet(ctx, name)
	referrers, place := make([][]string, len(rows)), make(map[string]int, len(rows))
	for i, r := range rows {
		key := fleet.ObjectKey{Kind: fleet.ObjectKind(r.Kind), Scope: r.Scope, Name: r.Name}
		place[key.String()] = i
		for _, key.Name = range r.Referrers {
			referrers[i] = append(referrers[i], key.String())
		}
	}
	order, _ := decide.ByComposition(referrers, func(key string) (int, bool) { i, found := place[key]; return i, found })
	out := make([]fleet.Object, len(rows))
	for i, at := range order {
		r := rows[at]
		out[i] = postgres.ObjectOf(db.Object{
			Kind: r.Kind, Scope: r.Scope, Name: r.Name, Project: r.Project, Service: r.Service, Labels: r.Labels,
			Generation: r.Generation, ResourceVersion: r.ResourceVersion, Spec: r.Spec, Syncing: r.Syncing,
		})
	}
	return out, err
}

// BodyOf is bytes that a project may refer to.
type BodyOf struct {
	Project fleet.ProjectName
	Hash    fleet.Hash
}

// BodySizes gives the sizes of those bytes that their project uploaded, with a query per
// thousand.
func (s *Store) BodySizes(ctx context.Context, of []BodyOf) (map[BodyOf]int64, error) {
	out := make(map[BodyOf]int64, len(of))
	err := inPages(of, func(page []BodyOf) error {
		var p db.BodiesAllowedParams
		for _, b := range page {
			p.Projects, p.Hashes = append(p.Projects, string(b.Project)), append(p.Hashes, postgres.HashBytes(b.Hash))
		}
		rows, err := s.Q.BodiesAllowed(ctx, p)
		for _, r := range rows {
			out[BodyOf{fleet.ProjectName(r.Project), postgres.HashText(r.Hash)}] = r.Size
		}
		return err
	})
	return out, err
}

// LastTemplateGenerations gives the highest generation that each template ever had.
func (s *Store) LastTemplateGenerations(ctx context.Context, names []string) (map[string]int64, error) {
	out := map[string]int64{}
	if len(names) == 0 {
		return out, nil
	}
	rows, err := s.Q.LastTemplateGenerations(ctx, names)
	for _, r := range rows {
		out[r.Name] = r.Generation
	}
	return out, err
}

// SitesOfNodes gives the sites of those nodes that have one.
func (s *Store) SitesOfNodes(ctx context.Context, nodes []string) (map[string]string, error) {
	out := map[string]string{}
	if len(nodes) == 0 {
		return out, nil
	}
	rows, err := s.Q.SitesOfNodes(ctx, nodes)
	for _, r := range rows {
		out[r.Name] = r.Site
	}
	return out, err
}

// SeenKeys gives those of an actor's idempotency keys under which something was done.
func (s *Store) SeenKeys(ctx context.Context, actor string, keys []string) (map[string]bool, error) {
	out := map[string]bool{}
	if len(keys) == 0 {
		return out, nil
	}
	rows, err := s.Q.SeenKeys(ctx, db.SeenKeysParams{Actor: actor, Keys: keys})
	for _, key := range rows {
		out[key] = true
	}
	return out, err
}

// planActor is under whom plans are kept among the idempotency keys; no token is called so.
const planActor = "plan"

// ClaimPlan lets one request apply a plan: the same request again may, any other may not.
func (s *Store) ClaimPlan(ctx context.Context, digest string, request []byte) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		row, err := q.GetIdempotency(ctx, db.GetIdempotencyParams{Actor: planActor, Key: digest})
		if postgres.NoRows(err) {
			return q.InsertIdempotency(ctx, db.InsertIdempotencyParams{Actor: planActor, Key: digest, RequestHash: request})
		}
		if err == nil && !bytes.Equal(row.RequestHash, request) {
			return fleet.Errorf(fleet.Precondition, "the plan was already applied, or is being applied").At("/plan").
				WithHint("plan again")
		}
		return err
	})
}
