package peers

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Counting is the store with another count of copies.
func (s *Store) Counting(copies func(context.Context, *db.Queries, string) (int64, error)) *Store {
	return &Store{Store: s.Store, copies: copies}
}
