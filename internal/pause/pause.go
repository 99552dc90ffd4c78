// Package pause waits no longer than its caller does.
package pause

import (
	"context"
	"time"
)

// For waits for d. It gives the cause of the context's end if that comes first.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
