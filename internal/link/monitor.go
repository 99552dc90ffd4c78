package link

import (
	"context"
	"time"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// judged is a connection that needs an action.
type judged struct {
	*connection
	decide.LinkTurn
}

// monitor checks each connection every second (C33). It allocates nothing for live ones.
func (s *Server) monitor(ctx context.Context) error {
	tick := time.NewTicker(monitorEvery)
	defer tick.Stop()
	last, floor := s.clock(), int64(0)
	var due []judged
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now := s.clock()
		late := time.Duration(now - last)
		if decide.LinkClocksRestart(late, monitorEvery) { // this server was paused, not its providers
			s.o.Log.Warn("this server was paused; restarting the clocks of all connections", "for", late.String())
			floor = now
		}
		s.metrics.lag.Set(max(late-monitorEvery, 0).Seconds())
		last = now
		due = s.judgeAll(now, floor, due[:0])
		for _, d := range due {
			s.do(d, now)
		}
	}
}

func (s *Server) judgeAll(now, floor int64, due []judged) []judged {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, c := range s.held {
		turn, _ := decide.Link(c.seen(now, floor), s.limits)
		if turn != (decide.LinkTurn{}) {
			due = append(due, judged{c, turn})
		}
	}
	return due
}

func (s *Server) do(d judged, now int64) {
	if d.AskDrain {
		s.sendDrain(d.connection, now)
		return
	}
	if !s.end(d.connection, d.End) {
		return
	}
	s.o.Log.Info("a connection ended", "connection", d.id, "reason", d.End)
	if d.End == fleet.StreamFailed {
		s.metrics.stuck.Inc()
	}
}

// report sends each active provider its active modules (C46, C60).
func (s *Server) report(ctx context.Context) error {
	tick := time.NewTicker(s.o.Timing.Report)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		for _, c := range s.all() {
			if c.now() != fleet.ConnectionActive {
				continue
			}
			s.send(c, &nodev1.ConnectResponse{Message: &nodev1.ConnectResponse_ActiveModulesReport{
				ActiveModulesReport: &nodev1.ActiveModulesReport{ActiveModules: c.modules},
			}})
		}
	}
}

// askDrain starts the drain that a row requests, or moves its deadline forward.
func (s *Server) askDrain(c *connection, reason string, left time.Duration) {
	now := s.clock()
	if c.asked(reason, now+int64(left), now) {
		s.sendDrain(c, now)
	}
}

func (s *Server) sendDrain(c *connection, now int64) {
	if m := c.drainRequest(now); m != nil {
		s.metrics.drains.WithLabelValues("asked").Inc()
		s.send(c, m)
	}
}
