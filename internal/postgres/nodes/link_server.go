package nodes

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// LinkHeard is what a server of the link is notified of: connections, nodes that have tasks, nodes whose set of
// replicas has another version, and nodes that have to report all of their replicas.
type LinkHeard struct {
	Connection func(fleet.ConnectionID, fleet.ConnectionEvent)
	Wanted     func(fleet.NodeName, int64)
	Set        func(fleet.NodeName, int64)
	Report     func(fleet.NodeName, int64)
}

// ListenLink calls heard until ctx ends or the database's connection breaks.
func (s *Store) ListenLink(ctx context.Context, heard LinkHeard) error {
	return s.Listen(ctx, postgres.LinkChannel, func() {}, func(payload string) {
		for prefix, hear := range map[string]func(fleet.NodeName, int64){
			postgres.WantedPrefix: heard.Wanted, postgres.SetPrefix: heard.Set, postgres.ReportPrefix: heard.Report,
		} {
			if node, number, ok := postgres.NumberedOf(payload, prefix); ok {
				hear(node, number)
				return
			}
		}
		if id, event, ok := strings.Cut(payload, " "); ok {
			heard.Connection(fleet.ConnectionID(id), fleet.ConnectionEvent(event))
		}
	})
}

// ConnectionMoves are what a server saw happen to connections that it holds.
type ConnectionMoves struct {
	Ended map[fleet.ConnectionID]fleet.ConnectionEvent
	// Acked are drains with what was in flight then.
	Acked map[fleet.ConnectionID]int
}

// MoveConnections writes moves down. A connection that is elsewhere by now, or has ended
// already, stays as it is.
func (s *Store) MoveConnections(ctx context.Context, server string, moves ConnectionMoves) error {
	byEvent := map[fleet.ConnectionEvent][]string{}
	for id, on := range moves.Ended {
		byEvent[on] = append(byEvent[on], string(id))
	}
	var failures error
	for on, ids := range byEvent {
		ended, err := s.Q.EndConnections(ctx, db.EndConnectionsParams{Reason: string(on), Ids: ids, Server: server, States: statesLeft(on)})
		failures = errors.Join(failures, err, s.hurryDrains(ctx, ended))
	}
	if len(moves.Acked) == 0 {
		return failures
	}
	p := db.AckDrainsParams{Server: server, States: statesLeft(fleet.DrainAcked)}
	for id, n := range moves.Acked {
		p.Ids, p.InFlight = append(p.Ids, string(id)), append(p.InFlight, int32(n)) //nolint:gosec // bounded by the link
	}
	return errors.Join(failures, s.Q.AckDrains(ctx, p))
}

// Heartbeat is the last one of a connection.
type Heartbeat struct {
	ID       fleet.ConnectionID
	Age      time.Duration
	InFlight int
}

// heartbeatsAtOnce bounds how long the rows of one statement are held.
const heartbeatsAtOnce = 500

// RecordHeartbeats writes many with few statements: they are for people, nothing is decided
// by them, so that they may be lost with the database's host.
func (s *Store) RecordHeartbeats(ctx context.Context, server string, all []Heartbeat) error {
	for some := range slices.Chunk(all, heartbeatsAtOnce) {
		p := db.RecordHeartbeatsParams{Server: server}
		for _, h := range some {
			p.Ids, p.Ages = append(p.Ids, string(h.ID)), append(p.Ages, h.Age.Seconds())
			p.InFlight = append(p.InFlight, int32(h.InFlight)) //nolint:gosec // bounded by the link
		}
		err := s.Tx(ctx, func(q *db.Queries) error {
			if err := q.CommitLater(ctx); err != nil {
				return err
			}
			return q.RecordHeartbeats(ctx, p)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Held is what the region wants of a connection that a server holds.
type Held struct {
	Age     time.Duration
	Revoked bool // its key or token was taken back
	Drain   *HeldDrain
}

// HeldDrain is a drain that was asked for.
type HeldDrain struct {
	Reason string
	Left   time.Duration // until the deadline
}

// HeldConnections reads the live connections of a server.
func (s *Store) HeldConnections(ctx context.Context, server string) (map[fleet.ConnectionID]Held, error) {
	rows, err := s.Q.HeldConnections(ctx, server)
	out := make(map[fleet.ConnectionID]Held, len(rows))
	for _, r := range rows {
		h := Held{Age: postgres.SecondsOf(r.Age), Revoked: r.Revoked}
		if r.DrainAsked {
			h.Drain = &HeldDrain{Reason: r.DrainReason, Left: postgres.SecondsOf(r.DrainLeft)}
		}
		out[fleet.ConnectionID(r.ID)] = h
	}
	return out, err
}

// LinkServer is a server that holds streams, or did: SeenAt is zero when only its connections
// are left.
type LinkServer struct {
	ID     string
	SeenAt time.Time
}

// LinkServerSeen says that a server lives, and for how long it may be silent before nodes are taken to
// have had no server to connect to.
func (s *Store) LinkServerSeen(ctx context.Context, id string, silence time.Duration) error {
	return s.Q.LinkServerSeen(ctx, db.LinkServerSeenParams{ID: id, SilenceSeconds: silence.Seconds()})
}

// LinkServers lists all there are.
func (s *Store) LinkServers(ctx context.Context) ([]LinkServer, error) {
	rows, err := s.Q.LinkServers(ctx)
	out := make([]LinkServer, len(rows))
	for i, r := range rows {
		out[i] = LinkServer{ID: r.ID}
		if r.Known {
			out[i].SeenAt = r.SeenAt
		}
	}
	return out, err
}

// SweptServer is what a lapsed server had.
type SweptServer struct {
	Connections int
	Nodes       []fleet.NodeName
}

// SweepLinkServer ends the connections of a server that has said nothing since it was seen. One
// that said something in the meantime keeps them.
func (s *Store) SweepLinkServer(ctx context.Context, gone LinkServer) (SweptServer, error) {
	var ended []db.EndServerRow
	err := s.Tx(ctx, func(q *db.Queries) (err error) {
		ended = nil
		if !gone.SeenAt.IsZero() {
			n, err := q.ForgetLapsedServer(ctx, db.ForgetLapsedServerParams{ID: gone.ID, SeenAt: gone.SeenAt})
			if err != nil || n == 0 {
				return err
			}
		} else if known, err := q.LinkServerIsKnown(ctx, gone.ID); err != nil || known {
			return err
		}
		ended, err = endServer(ctx, q, gone.ID)
		return err
	})
	out := SweptServer{Connections: len(ended)}
	for _, r := range ended {
		if r.Node != "" {
			out.Nodes = append(out.Nodes, fleet.NodeName(r.Node))
		}
	}
	return out, err
}

func endServer(ctx context.Context, q *db.Queries, server string) ([]db.EndServerRow, error) {
	return q.EndServer(ctx, db.EndServerParams{
		Reason: string(fleet.ServerLapsed), Server: server, States: statesLeft(fleet.ServerLapsed),
	})
}

// LinkServerGone is the word of a server that stops: its connections have ended.
func (s *Store) LinkServerGone(ctx context.Context, id string) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		if err := q.ForgetLinkServer(ctx, id); err != nil {
			return err
		}
		_, err := endServer(ctx, q, id)
		return err
	})
}
