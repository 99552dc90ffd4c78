package compose

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Budget bounds how many bytes of JSON are flattened at once, and with it the memory of a
// server whatever its callers ask for together. Who waits is served in order, so a large
// request is not starved by small ones.
type Budget struct {
	bytes int64
	free  *semaphore.Weighted
}

// NewBudget gives a budget of so many bytes, at least one.
func NewBudget(bytes int64) *Budget {
	bytes = max(bytes, 1)
	return &Budget{bytes: bytes, free: semaphore.NewWeighted(bytes)}
}

// Do waits for its share and calls f. A request larger than the whole budget takes all of
// it, and so runs alone. The error is f's, or unavailable when ctx ended first.
func (b *Budget) Do(ctx context.Context, bytes int64, f func() error) error {
	share := min(max(bytes, 0), b.bytes)
	if err := b.free.Acquire(ctx, share); err != nil {
		return fleet.Errorf(fleet.Unavailable, "wait for other configs to be flattened: %w", err).
			WithHint("try again later")
	}
	defer b.free.Release(share)
	return f()
}
