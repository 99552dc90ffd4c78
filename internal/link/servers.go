package link

import (
	"context"
	"time"
)

// sweep ends the connections of servers that are gone.
func (s *Server) sweep(ctx context.Context) error {
	tick := time.NewTicker(s.o.Timing.HeartbeatEvery / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if err := s.sweepOnce(ctx); err != nil && ctx.Err() == nil {
			s.o.Log.Warn("failed, retrying", "what", "sweep lapsed servers", "error", err)
		}
	}
}

func (s *Server) sweepOnce(ctx context.Context) error {
	ctx, cancel := within(ctx)
	defer cancel()
	all, err := s.o.Store.LinkServers(ctx)
	if err != nil {
		return err
	}
	for _, gone := range s.watch.Lapsed(all, time.Duration(s.clock())) {
		if gone.ID == s.o.ID {
			continue
		}
		swept, err := s.o.Store.SweepLinkServer(ctx, gone)
		if err != nil {
			return err
		}
		s.metrics.swept.Add(float64(swept.Connections))
		s.turned(swept.Nodes...)
		s.o.Log.Warn("a server lapsed", "server", gone.ID, "connections", swept.Connections)
	}
	return nil
}
