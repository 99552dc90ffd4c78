// Package nodes is the part of the region's store with sites and their nodes: leases, the link, cordons and drains. docs/link.md,
// docs/lease.md, docs/drain.md
package nodes

import (
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// Store is the area's part of the store.
type Store struct {
	*postgres.Store
}

// On is the area's part of a store.
func On(s *postgres.Store) *Store { return &Store{Store: s} }
