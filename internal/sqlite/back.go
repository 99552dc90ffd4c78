package sqlite

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite/db"
)

// HoldBack records that the region has deleted or disabled some names in these versions.
func (s *Store) HoldBack(ctx context.Context, names map[fleet.InstanceName]fleet.Version) error {
	return s.write(ctx, "hold back", func(ctx context.Context, q *db.Queries) error {
		for name, v := range names {
			if err := q.HoldBack(ctx, db.HoldBackParams{Instance: string(name), Era: v.Era, Revision: v.Revision}); err != nil {
				return fail("hold back "+string(name), err)
			}
		}
		return nil
	})
}

// LetGo removes the records of some names: the region allows them to start after all.
func (s *Store) LetGo(ctx context.Context, names []fleet.InstanceName) error {
	return s.write(ctx, "let go", func(ctx context.Context, q *db.Queries) error {
		for _, name := range names {
			if err := q.LetGo(ctx, string(name)); err != nil {
				return fail("let go "+string(name), err)
			}
		}
		return nil
	})
}

// HeldBack gives the names of which the node still holds an older revision.
func (s *Store) HeldBack(ctx context.Context) (map[fleet.InstanceName]fleet.Version, error) {
	rows, err := s.q.ListHeldBack(ctx)
	out := make(map[fleet.InstanceName]fleet.Version, len(rows))
	for _, r := range rows {
		out[fleet.InstanceName(r.Instance)] = fleet.Version{Era: r.Era, Revision: r.Revision}
	}
	return out, fail("read what is held back", err)
}

// ForgetHeldBack removes the other records.
func (s *Store) ForgetHeldBack(ctx context.Context) error {
	return fail("forget what was held back", s.q.ForgetHeldBack(ctx))
}
