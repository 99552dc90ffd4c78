package sqlite

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite/db"
)

// SeenSet is what the node remembers of its site's expected sets: the newest that it has seen, and the last one
// that it matched. A lost store forgets both.
type SeenSet struct{ Newest, Clean fleet.SetVersion }

// SeenSet reads them.
func (s *Store) SeenSet(ctx context.Context) (SeenSet, error) {
	row, err := s.q.GetExpectedSet(ctx)
	return SeenSet{
		Newest: fleet.SetVersion{Era: row.SeenEra, Number: row.SeenNumber},
		Clean:  fleet.SetVersion{Era: row.CleanEra, Number: row.CleanNumber},
	}, fail("read the seen set", err)
}

// SeeSet records a set that the node acts on; an older one changes nothing.
func (s *Store) SeeSet(ctx context.Context, v fleet.SetVersion) error {
	return fail("remember the set", s.q.SeeExpectedSet(ctx, db.SeeExpectedSetParams{Era: v.Era, Number: v.Number}))
}

// CleanSet records that the node matches the set; zero means that it may not.
func (s *Store) CleanSet(ctx context.Context, v fleet.SetVersion) error {
	return fail("remember the clean set", s.q.CleanExpectedSet(ctx, db.CleanExpectedSetParams{Era: v.Era, Number: v.Number}))
}
