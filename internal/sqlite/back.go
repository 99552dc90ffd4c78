package sqlite

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite/db"
)

// HoldBack remembers that the region has deleted or disabled some names by these versions.
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

// HeldBack gives those of which the node still holds an older revision, and forgets the others.
func (s *Store) HeldBack(ctx context.Context) (map[fleet.InstanceName]fleet.Version, error) {
	out := map[fleet.InstanceName]fleet.Version{}
	err := s.write(ctx, "read what is held back", func(ctx context.Context, q *db.Queries) error {
		if err := q.LetGo(ctx); err != nil {
			return fail("forget what has come", err)
		}
		rows, err := q.ListHeldBack(ctx)
		for _, r := range rows {
			out[fleet.InstanceName(r.Instance)] = fleet.Version{Era: r.Era, Revision: r.Revision}
		}
		return fail("read what is held back", err)
	})
	return out, err
}
