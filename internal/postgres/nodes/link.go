package nodes

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Connection is one registration of a provider.
type Connection struct {
	ID       fleet.ConnectionID
	State    fleet.ConnectionState
	Reason   fleet.ConnectionEvent // that ended it
	Server   string                // that holds its stream, or took its registration
	InFlight int
	fleet.Registration

	RegisteredAt time.Time
	ActiveAt     *time.Time
	HeartbeatAt  *time.Time
	EndedAt      *time.Time
	Drain        *Drain // nil until one was asked for
}

// Drain is what was asked of a connection, and what it said to it.
type Drain struct {
	Reason   string
	AskedAt  time.Time
	Deadline time.Time
	AckedAt  *time.Time
}

// TakesWork says whether anything may be sent to it: not from the moment on that a drain was
// asked for, long before it is acked (C68).
func (c Connection) TakesWork() bool { return c.State == fleet.ConnectionActive && c.Drain == nil }

func connectionOf(r db.Connection) Connection {
	c := Connection{
		ID: fleet.ConnectionID(r.ID), State: fleet.ConnectionState(r.State), Reason: fleet.ConnectionEvent(r.Reason),
		Server: r.Server, InFlight: int(r.InFlight),
		Registration: fleet.Registration{
			Identity: r.Identity, Provider: fleet.ProviderName(r.Provider), Namespace: fleet.ModuleNamespace(r.ModuleNamespace),
			Group: fleet.GroupID(r.GroupID), Executor: r.Executor,
			ExecutorTLS: fleet.ExecutorTLS{On: r.ExecutorTls, ServerName: r.ExecutorServerName}, Protocol: uint32(r.Protocol), //nolint:gosec // above 0 by CHECK
		},
		RegisteredAt: r.RegisteredAt, ActiveAt: r.ActiveAt, HeartbeatAt: r.HeartbeatAt, EndedAt: r.EndedAt,
	}
	if r.Node != nil {
		c.Node = fleet.NodeName(*r.Node)
	}
	if r.DrainAskedAt != nil && r.DrainDeadline != nil {
		c.Drain = &Drain{Reason: r.DrainReason, AskedAt: *r.DrainAskedAt, Deadline: *r.DrainDeadline, AckedAt: r.DrainAckedAt}
	}
	return c
}

func statesLeft(on fleet.ConnectionEvent) []string {
	var out []string
	for _, s := range on.Leaves() {
		out = append(out, string(s))
	}
	return out
}

// GetConnection reads a connection, ended or not, without its modules.
func (s *Store) GetConnection(ctx context.Context, id fleet.ConnectionID) (Connection, error) {
	row, err := s.Q.GetConnection(ctx, string(id))
	if postgres.NoRows(err) {
		return Connection{}, postgres.OrNotFound(nil, "connection", string(id), "holdfast get providers")
	}
	return connectionOf(row), err
}

// ListConnections lists the live ones by id, which is by age; id narrows the list. Of their
// modules the names are given.
func (s *Store) ListConnections(ctx context.Context, id fleet.ConnectionID, after string, limit int32) ([]Connection, error) {
	rows, err := s.Q.ListConnections(ctx, db.ListConnectionsParams{After: after, ID: string(id), MaxRows: limit})
	if err != nil {
		return nil, err
	}
	return s.connectionsOf(ctx, rows)
}

// connectionsOf are rows with the names of their modules.
func (s *Store) connectionsOf(ctx context.Context, rows []db.Connection) ([]Connection, error) {
	out, ids, place := make([]Connection, len(rows)), make([]string, len(rows)), map[string]int{}
	for i, r := range rows {
		out[i], ids[i], place[r.ID] = connectionOf(r), r.ID, i
	}
	modules, err := s.Q.ModulesOf(ctx, ids)
	for _, m := range modules {
		c := &out[place[m.Connection]]
		c.Modules = append(c.Modules, fleet.ModuleOffer{Name: fleet.ModuleName(m.Name)})
	}
	return out, err
}

// Opening is a registration to make active, and the caller's identity.
type Opening struct {
	ID       fleet.ConnectionID
	Identity string
}

// Opened is what became of an Opening.
type Opened struct {
	Connection
	Err error
}

// OpenConnection is OpenConnections of one.
func (s *Store) OpenConnection(ctx context.Context, id fleet.ConnectionID, identity, server string) (Connection, error) {
	out, err := s.OpenConnections(ctx, []Opening{{id, identity}}, server)
	if err != nil {
		return Connection{}, err
	}
	return out[0].Connection, out[0].Err
}

// OpenConnections makes registrations active, at the server that has their streams. One is
// not_found for an id that is unknown or another's, and illegal_state for one that does not
// wait for a stream (C61): also when it is asked for twice.
func (s *Store) OpenConnections(ctx context.Context, all []Opening, server string) ([]Opened, error) {
	p := db.OpenConnectionsParams{Server: server, States: statesLeft(fleet.StreamOpened)}
	for _, o := range all {
		p.Ids, p.Identities = append(p.Ids, string(o.ID)), append(p.Identities, o.Identity)
	}
	rows, err := s.Q.OpenConnections(ctx, p)
	if err != nil {
		return nil, err
	}
	connections, err := s.connectionsOf(ctx, rows)
	if err != nil {
		return nil, err
	}
	opened := make(map[Opening]Connection, len(rows))
	for _, c := range connections {
		opened[Opening{c.ID, c.Identity}] = c
	}
	out := make([]Opened, len(all))
	for i, o := range all {
		if c, is := opened[o]; is {
			out[i].Connection = c
			delete(opened, o) // once
			continue
		}
		out[i].Err = s.whyNot(ctx, o.ID, o.Identity)
	}
	return out, nil
}

// whyNot says why a connection was not moved by who wanted to.
func (s *Store) whyNot(ctx context.Context, id fleet.ConnectionID, identity string) error {
	c, err := s.GetConnection(ctx, id)
	switch {
	case err != nil:
		return err
	case c.Identity != identity:
		return fleet.Errorf(fleet.Denied, "connection %s belongs to another provider", id)
	case c.State.Live():
		return fleet.Errorf(fleet.IllegalState, "connection %s is %s", id, c.State)
	}
	return fleet.Errorf(fleet.Gone, "%s", c.Reason)
}

// AskDrain asks for a drain of an active connection, wherever its stream is: from now on
// it gets no new work (C68), and its server is notified. One that drains already continues by the
// earlier of both deadlines.
func (s *Store) AskDrain(ctx context.Context, id fleet.ConnectionID, reason string, limit time.Duration) (Connection, error) {
	var out Connection
	err := s.Tx(ctx, func(q *db.Queries) error {
		row, err := q.AskDrain(ctx, db.AskDrainParams{Reason: reason, Seconds: limit.Seconds(), ID: string(id)})
		if postgres.NoRows(err) {
			c, err := s.GetConnection(ctx, id)
			if err != nil {
				return err
			}
			return fleet.Errorf(fleet.IllegalState, "connection %s is %s: there is nothing to drain", id, c.State).
				WithHint("only a connection with an open stream drains")
		}
		if err != nil {
			return err
		}
		out = connectionOf(row)
		return postgres.TellLink(ctx, q, id, postgres.DrainAsked)
	})
	return out, err
}

// CountConnections counts the live ones of the region by state.
func (s *Store) CountConnections(ctx context.Context) (map[fleet.ConnectionState]int64, error) {
	rows, err := s.Q.CountConnections(ctx)
	out := map[fleet.ConnectionState]int64{}
	for _, r := range rows {
		out[fleet.ConnectionState(r.State)] = r.Count
	}
	return out, err
}
