package deployments

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// HoldPlacement has nobody choose nodes until what it gives is called.
func (s *Store) HoldPlacement(ctx context.Context) (release func() error, err error) {
	tx, err := s.Pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return func() error { return tx.Rollback(ctx) }, postgres.Lock(ctx, db.New(tx), []fleet.ObjectKey{placementKey})
}

// WhenLooked has a function called between what each visit of a deployment sees and what it does.
func (s *Store) WhenLooked(do func(fleet.DeploymentName)) { s.looked = do }
