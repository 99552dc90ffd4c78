package policies

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// RepairSyncing finds what this region owns whose syncing is not what its policy says, for example because it was altered
// by hand, repairs it as a policy's turn does, and counts it. It reads without locks, and writes only what is wrong.
func (s *Store) RepairSyncing(ctx context.Context) (int64, error) {
	own, err := s.repairOwn(ctx)
	if err != nil {
		return own, err
	}
	copied, err := s.repairCopies(ctx)
	return own + copied, err
}

func (s *Store) repairOwn(ctx context.Context) (repaired int64, err error) {
	var after db.SyncingAfterParams
	for after.MaxRows = pageSize; ; {
		rows, err := s.Q.SyncingAfter(ctx, after)
		if err != nil || len(rows) == 0 {
			return repaired, err
		}
		all := make([]db.Object, len(rows))
		for i, r := range rows {
			all[i] = db.Object{
				Uid: r.Uid, Kind: r.Kind, Scope: r.Scope, Name: r.Name, Project: r.Project, Service: r.Service, Syncing: r.Syncing,
				OwnerNumber: r.OwnerNumber, Spec: r.Spec,
			}
		}
		wrong, err := s.wrong(ctx, s.Q, all, s.GovernUnlocked)
		if err != nil {
			return repaired, err
		}
		for _, keys := range together(wrong) {
			n, err := s.repair(ctx, keys)
			if repaired += n; err != nil {
				return repaired, err
			}
		}
		last := rows[len(rows)-1]
		after.Kind, after.Scope, after.Name = last.Kind, last.Scope, last.Name
	}
}

// together are the keys of what one transaction repairs: policy holders one by one, since their locks come last.
func together(wrong []postgres.Refreshed) (out [][]fleet.ObjectKey) {
	var rest []fleet.ObjectKey
	for _, r := range wrong {
		if key := r.Object.ObjectKey; key.Kind.Declared().Holder {
			out = append(out, []fleet.ObjectKey{key})
		} else {
			rest = append(rest, key)
		}
	}
	if len(rest) > 0 {
		out = append(out, rest)
	}
	return out
}

func (s *Store) repair(ctx context.Context, keys []fleet.ObjectKey) (repaired int64, err error) {
	var p db.ObjectsNowParams
	locks := make(map[int64]bool, len(keys))
	for _, k := range keys {
		p.Kinds, p.Scopes, p.Names = append(p.Kinds, string(k.Kind)), append(p.Scopes, k.Scope), append(p.Names, k.Name)
		locks[postgres.LockID(k)] = false
	}
	err = s.Tx(ctx, func(q *db.Queries) error {
		if err := postgres.LockKeys(ctx, q, locks); err != nil {
			return err
		}
		rows, err := q.ObjectsNow(ctx, p)
		if err != nil {
			return err
		}
		wrong, err := s.wrong(ctx, q, rows, s.Govern)
		if err != nil || len(wrong) == 0 {
			return err
		}
		repaired, err = postgres.RefreshSyncing(ctx, q, postgres.RegionActor, wrong)
		return err
	})
	return repaired, err
}

// govern computes the syncing of objects.
type govern func(ctx context.Context, q *db.Queries, objects ...*fleet.Object) ([]postgres.Governed, error)

// wrong gives those of some objects whose syncing is wrong, and the right one. A row without the number of another owner
// is this region's, whatever its syncing says.
func (s *Store) wrong(ctx context.Context, q *db.Queries, rows []db.Object, by govern) (out []postgres.Refreshed, err error) {
	var stored, owned []*fleet.Object
	for _, r := range rows {
		if r.OwnerNumber != 0 {
			continue
		}
		o := postgres.ObjectOf(r)
		stored, owned = append(stored, &o), append(owned, s.ownedHere(o))
	}
	governed, err := by(ctx, q, owned...)
	if err != nil {
		return nil, err
	}
	for i, g := range governed {
		never := string(stored[i].Syncing) == "{}" && len((&fleet.Object{Syncing: g.Syncing}).SyncingNow().Regions) == 1 // by an older build, and it stays here
		if !never && (!g.Same || stored[i].CheckOwner(s.Region) != nil) {
			out = append(out, postgres.Refreshed{Object: stored[i], Syncing: g.Syncing})
		}
	}
	return out, nil
}

// ownedHere is an object as this region owns it.
func (s *Store) ownedHere(o fleet.Object) *fleet.Object {
	if o.CheckOwner(s.Region) != nil {
		share := o.SyncingNow()
		share.OwningRegion = s.Region
		o.Syncing = share.JSON()
	}
	return &o
}

// repairCopies repairs what another region created and this one owns.
func (s *Store) repairCopies(ctx context.Context) (repaired int64, err error) {
	p := db.WatchCopiesParams{WantedOwner: s.Region, MaxRows: pageSize}
	for {
		rows, err := s.Q.WatchCopies(ctx, p)
		if err != nil || len(rows) == 0 {
			return repaired, err
		}
		all := make([]*fleet.Object, len(rows))
		for i, r := range rows {
			o := postgres.CopyOf(r)
			all[i] = &o
		}
		governed, err := s.GovernUnlocked(ctx, s.Q, all...)
		if err != nil {
			return repaired, err
		}
		for i, g := range governed {
			if g.Same {
				continue
			}
			n, err := s.refreshHolder(ctx, all[i].ObjectKey)
			if repaired += n; err != nil {
				return repaired, err
			}
		}
		last := rows[len(rows)-1]
		p.AfterKind, p.AfterScope, p.AfterName, p.AfterRegion = last.Kind, last.Scope, last.Name, last.Region
	}
}
