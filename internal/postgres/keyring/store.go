// Package keyring is the part of the region's store with its credentials: API and join tokens, the secrets of servers, and the keys
// that sign what nodes are asked.
package keyring

import (
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// Store is the area's part of the store.
type Store struct {
	*postgres.Store
}

// On is the area's part of a store.
func On(s *postgres.Store) *Store { return &Store{Store: s} }
