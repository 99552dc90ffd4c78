package region

import (
	"context"
	"time"
)

// every calls f at an interval until the context ends; it logs failures and retries.
func (s *server) every(ctx context.Context, interval time.Duration, what string, f func(context.Context) error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	failed := false
	for {
		err := f(ctx)
		if err != nil && ctx.Err() == nil && !failed {
			s.log.WarnContext(ctx, "failed, retrying", "what", what, "error", err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

const relayAtOnce = 200

// relay repeats wakes that were lost between commit and call (X2).
func (s *server) relay(ctx context.Context) error {
	return s.every(ctx, s.cfg.Timing.Relay, "relay the outbox", func(ctx context.Context) error {
		subjects, err := s.store.WaitingWakes(ctx, s.cfg.Timing.Relay, relayAtOnce)
		if err != nil {
			return err
		}
		for _, subject := range subjects {
			if err := s.again.Wake(ctx, subject); err != nil {
				return err
			}
		}
		return nil
	})
}

// listen learns of ended operations; it reconnects when the connection breaks.
func (s *server) listen(ctx context.Context) error {
	return s.every(ctx, time.Second, "listen for ended operations", s.ends.Listen)
}
