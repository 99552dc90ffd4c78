package activities

import (
	"context"
	"errors"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// fail turns an error into Temporal's, with the kind as its type. It is the only place
// that decides whether Temporal may retry.
func fail(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	kind := fleet.KindOf(err)
	message := string(kind)
	var known *fleet.Error
	if errors.As(err, &known) {
		message = known.Error()
	}
	// The cause does not go into the history (X10), so it is said here or nowhere.
	if activity.IsActivity(ctx) && fleet.Detail(err) != message {
		activity.GetLogger(ctx).Warn("activity failed", "kind", kind, "err", err)
	}
	if kind.Retryable() {
		return temporal.NewApplicationErrorWithOptions(message, string(kind), temporal.ApplicationErrorOptions{})
	}
	return temporal.NewNonRetryableApplicationError(message, string(kind), nil)
}
