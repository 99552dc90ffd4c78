// Package reconcile is the part of the region's store that compares what nodes hold with what the region expects of them.
// docs/reconcile.md
package reconcile

import (
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// Store is the area's part of the store.
type Store struct {
	*postgres.Store
}

// On is the area's part of a store.
func On(s *postgres.Store) *Store { return &Store{Store: s} }
