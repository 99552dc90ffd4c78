package deliveries

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// FindBatch gives a batch as its release was answered; nil when there was none.
func (s *Store) FindBatch(ctx context.Context, id fleet.BatchID) (*BatchReleased, error) {
	b, err := s.Q.GetBatch(ctx, string(id))
	if postgres.NoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := batchReleased(b)
	return &out, nil
}
