// Package collect removes from the region's store what nothing needs any more. docs/collection.md
package collect

import (
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// Store is the area's part of the store.
type Store struct {
	*postgres.Store
}

// On is the area's part of a store.
func On(s *postgres.Store) *Store { return &Store{Store: s} }
