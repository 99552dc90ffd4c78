package link

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/postgres"
)

// serverWatch times the other servers on this one's clock: their word in the database is a
// counter to it, never a time. When it could not look itself, all are timed anew, so that a
// database that was away makes nobody lapse.
type serverWatch struct {
	limit  time.Duration
	since  map[postgres.LinkServer]int64
	looked int64
}

func newServerWatch(limit time.Duration) *serverWatch {
	return &serverWatch{limit: limit, since: map[postgres.LinkServer]int64{}}
}

// lapsed gives those that have said nothing for longer than the limit.
func (w *serverWatch) lapsed(all []postgres.LinkServer, now int64) []postgres.LinkServer {
	if time.Duration(now-w.looked) > w.limit/2 {
		clear(w.since)
	}
	w.looked = now
	var out []postgres.LinkServer
	next := make(map[postgres.LinkServer]int64, len(all))
	for _, server := range all {
		since, known := w.since[server]
		if !known {
			since = now
		}
		next[server] = since
		if time.Duration(now-since) > w.limit {
			out = append(out, server)
		}
	}
	w.since = next
	return out
}

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
			s.o.Log.Warn("trying on", "what", "sweep lapsed servers", "error", err)
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
	for _, gone := range s.watch.lapsed(all, s.clock()) {
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
