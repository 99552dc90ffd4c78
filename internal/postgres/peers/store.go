// Package peers is the part of the region's store with the regions that it knows, and the invitations of new ones.
package peers

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Store is the area's part of the store.
type Store struct {
	*postgres.Store
	// copies counts what this region keeps of a peer: one with copies is not removed.
	copies func(ctx context.Context, q *db.Queries, region string) (int64, error)
}

// On is the area's part of a store.
func On(s *postgres.Store) *Store { return &Store{Store: s, copies: countCopies} }

func countCopies(ctx context.Context, q *db.Queries, region string) (int64, error) {
	n, err := q.CountCopies(ctx, region)
	return n, err
}
