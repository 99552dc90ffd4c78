// Package deliveries is the part of the region's store with instances, their revisions, and the steps of a delivery, alone or in a
// batch. docs/delivery.md, docs/batches.md
package deliveries

import (
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// Store is the area's part of the store.
type Store struct {
	*postgres.Store
}

// On is the area's part of a store.
func On(s *postgres.Store) *Store { return &Store{Store: s} }
