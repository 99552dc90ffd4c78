// Package deployments is the part of the region's store with deployments and their replicas. docs/deployments.md
package deployments

import (
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// Store is the area's part of the store.
type Store struct {
	*postgres.Store
	// placing bounds the visits that choose nodes.
	placing chan struct{}
	// looked, where a test sets it, is called between what a visit of a deployment sees and what it does.
	looked func(fleet.DeploymentName)
}

// On is the area's part of a store.
func On(s *postgres.Store) *Store {
	return &Store{Store: s, placing: make(chan struct{}, placingAtOnce)}
}
