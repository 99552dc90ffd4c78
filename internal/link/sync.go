package link

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// syncRest limits the share of its time that a server spends on requested comparisons: while other servers have a
// storm, comparing thousands of connections leaves the rest for its callers.
const syncRest = 4

// sync reports that this server is alive, writes heartbeats, and compares its connections with its rows: at an
// interval, and at once on a notification.
func (s *Server) sync(ctx context.Context) error {
	tick := time.NewTicker(s.o.Timing.HeartbeatEvery)
	defer tick.Stop()
	failed := false
	for {
		began := s.clock()
		err := s.syncOnce(ctx)
		rested := time.NewTimer(syncRest * time.Duration(s.clock()-began))
		if err != nil && ctx.Err() == nil && !failed {
			s.o.Log.Warn("failed, retrying", "what", "compare connections with their rows", "error", err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-s.look:
			select {
			case <-ctx.Done():
			case <-tick.C:
			case <-rested.C:
			}
		}
		rested.Stop()
	}
}

// hurry requests a comparison soon.
func (s *Server) hurry() {
	select {
	case s.look <- struct{}{}:
	default:
	}
}

func (s *Server) syncOnce(ctx context.Context) error {
	ctx, cancel := within(ctx)
	defer cancel()
	if err := s.o.Store.LinkServerSeen(ctx, s.o.ID, s.o.Timing.HeartbeatTimeout); err != nil {
		return err
	}
	if err := s.o.Store.RecordHeartbeats(ctx, s.o.ID, s.heartbeats()); err != nil {
		return err
	}
	mine, ended := s.all(), s.moves.unwritten() // in this order, and before the rows are read
	rows, err := s.o.Store.HeldConnections(ctx, s.o.ID)
	if err != nil {
		return err
	}
	for _, c := range mine {
		if err := s.compare(ctx, c, rows); err != nil {
			return err
		}
		delete(rows, c.id)
	}
	s.abandon(rows, ended)
	return errors.Join(s.tellSites(ctx, mine), s.wakeWanted(ctx), s.tellSets(ctx, mine))
}

// heartbeats returns those since the last call.
func (s *Server) heartbeats() []nodes.Heartbeat {
	now := s.clock()
	var out []nodes.Heartbeat
	for _, c := range s.all() {
		if c.beaten.Swap(false) {
			out = append(out, nodes.Heartbeat{ID: c.id, Age: time.Duration(now - c.heard.Load()), InFlight: int(c.inFlight.Load())})
		}
	}
	return out
}

// compare applies changes of a row by others to its connection.
func (s *Server) compare(ctx context.Context, c *connection, rows map[fleet.ConnectionID]nodes.Held) error {
	row, live := rows[c.id]
	switch {
	case !live:
		return s.follow(ctx, c)
	case row.Revoked:
		s.end(c, fleet.Revoked)
	case row.Drain != nil && c.now() != fleet.ConnectionRegistered:
		s.askDrain(c, row.Drain.Reason, row.Drain.Left)
	}
	return nil
}

// follow ends a connection whose row no longer belongs to this server.
func (s *Server) follow(ctx context.Context, c *connection) error {
	if !c.now().Live() {
		return nil
	}
	row, err := s.o.Store.GetConnection(ctx, c.id)
	switch {
	case fleet.KindOf(err) == fleet.NotFound: // collected long ago
		s.endedElsewhere(c, fleet.ServerLapsed)
	case err != nil:
		return err
	case !row.State.Live():
		s.endedElsewhere(c, row.Reason)
		s.endedElsewhere(c, fleet.ServerLapsed) // if the row's event does not apply to our state
	case row.Server != s.o.ID: // its stream is open at another server
		s.forget(c)
	}
	return nil
}

// unheld is how old a row may be that this server does not hold, because it is about to.
const unheld = 2 * storeLimit

// abandon ends rows of which this server has no connection: their call broke off. A connection that has ended, but
// whose row has not yet, keeps its own reason.
func (s *Server) abandon(rows map[fleet.ConnectionID]nodes.Held, ended map[fleet.ConnectionID]bool) {
	for id, row := range rows {
		if row.Age > unheld && !ended[id] && s.find(id) == nil {
			s.moves.end(newConnection(id, fleet.ConnectionDisconnected, protocolOldest, 0), fleet.StreamFailed)
		}
	}
}

// listen receives notifications of changes by other servers, and hurries.
func (s *Server) listen(ctx context.Context) error {
	again := time.NewTicker(saveAgain)
	defer again.Stop()
	for {
		err := s.o.Store.ListenLink(ctx, nodes.LinkHeard{
			Connection: func(id fleet.ConnectionID, on fleet.ConnectionEvent) {
				if on == postgres.SiteChanged || s.find(id) != nil {
					s.hurry()
				}
			},
			Wanted: s.wakeNode, Set: s.setChanged, Report: s.askReport,
		})
		if err != nil && ctx.Err() == nil {
			s.o.Log.Warn("failed, retrying", "what", "listen for connections", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again.C:
		}
	}
}
