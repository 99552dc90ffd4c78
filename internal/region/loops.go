package region

import (
	"context"
	"slices"
	"time"
)

// every calls f at an interval until the context ends; what fails is said and tried again.
func (s *server) every(ctx context.Context, interval time.Duration, what string, f func(context.Context) error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	failed := false
	for {
		err := f(ctx)
		if err != nil && ctx.Err() == nil && !failed {
			s.log.WarnContext(ctx, "trying on", "what", what, "error", err)
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

// relay repeats the wakes that were lost between commit and call (X2).
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

// listen hears of ended operations; the connection is made anew when it breaks.
func (s *server) listen(ctx context.Context) error {
	return s.every(ctx, time.Second, "listen for ended operations", s.ends.Listen)
}

// beat says that this build has a worker. When the build that new workflows go to has
// none any more, this one takes its place.
func (s *server) beat(ctx context.Context) error {
	defer func() {
		gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if err := s.presence.gone(gone); err != nil {
			s.log.Warn("this server is forgotten later", "error", err)
		}
	}()
	return s.every(ctx, s.cfg.Timing.ServerSeen, "say that this server lives", func(ctx context.Context) error {
		if !s.serving.Load() {
			return nil
		}
		if err := s.presence.seen(ctx); err != nil {
			return err
		}
		live, err := s.presence.live(ctx)
		if err != nil {
			return err
		}
		current, err := currentBuild(ctx, s.temporal)
		if err != nil || slices.Contains(live, current) {
			return err
		}
		return becomeCurrent(ctx, s.temporal, s.cfg.Build)
	})
}
