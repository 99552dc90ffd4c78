package postgres

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// FindBatch gives a batch as its release was answered; nil when there was none.
func (s *Store) FindBatch(ctx context.Context, id fleet.BatchID) (*BatchReleased, error) {
	b, err := s.q.GetBatch(ctx, string(id))
	if noRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, failed("read the batch", err)
	}
	out := batchReleased(b)
	return &out, nil
}
