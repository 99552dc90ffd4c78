package nodes

import (
	"context"
	"maps"
	"net/netip"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Registered is a new connection, and those that it took the place of; or why there is none.
type Registered struct {
	ID       fleet.ConnectionID
	Replaced []fleet.ConnectionID
	Err      error
}

// RegisterConnection is RegisterConnections of one.
func (s *Store) RegisterConnection(ctx context.Context, r fleet.Registration, server string) (Registered, error) {
	out, err := s.RegisterConnections(ctx, []fleet.Registration{r}, server)
	if err != nil {
		return Registered{}, err
	}
	return out[0], out[0].Err
}

// RegisterConnections writes registrations that were validated, each of another provider, at the
// server that took them, as though they came one after the other. The connection that the same
// provider of the same identity had ends in the same transaction (C73, C82). A refused one leaves
// nothing behind, and that connection as it was. The error is that of all.
func (s *Store) RegisterConnections(ctx context.Context, all []fleet.Registration, server string) ([]Registered, error) {
	var out []Registered
	err := s.Tx(ctx, func(q *db.Queries) error {
		locks := map[int64]bool{}
		for _, r := range all {
			maps.Copy(locks, registrationLocks(r))
		}
		if err := postgres.LockKeys(ctx, q, locks); err != nil {
			return err
		}
		known, err := q.LinkServerIsKnown(ctx, server)
		if err != nil {
			return err
		}
		if !known { // the others took it for lapsed
			return fleet.Errorf(fleet.Unavailable, "this server is still registering").WithHint("try again in a moment")
		}
		var taken []int
		if out, taken, err = judgeAll(ctx, q, all); err != nil {
			return err
		}
		return writeAll(ctx, q, all, taken, out, server)
	})
	return out, err
}

// judgeAll gives each registration its id or its refusal, and the places of those that were
// taken.
func judgeAll(ctx context.Context, q *db.Queries, all []fleet.Registration) ([]Registered, []int, error) {
	l, err := readLive(ctx, q, all)
	if err != nil {
		return nil, nil, err
	}
	out, taken := make([]Registered, len(all)), []int{}
	for i, r := range all {
		if out[i].Err, err = l.mayOwn(ctx, q, r); err != nil {
			return nil, nil, err
		}
		if out[i].Err != nil {
			continue
		}
		id, err := postgres.NewID()
		if err != nil {
			return nil, nil, err
		}
		out[i].ID, out[i].Replaced = fleet.ConnectionID(id), l.take(r)
		taken = append(taken, i)
	}
	return out, taken, nil
}

func writeAll(ctx context.Context, q *db.Queries, all []fleet.Registration, taken []int, out []Registered, server string) error {
	if len(taken) == 0 {
		return nil
	}
	if err := replaceAll(ctx, q, all, out, server); err != nil {
		return err
	}
	var accepted []fleet.Registration
	var ids []string
	for _, i := range taken {
		accepted, ids = append(accepted, all[i]), append(ids, string(out[i].ID))
	}
	if err := setPeerAddresses(ctx, q, accepted); err != nil {
		return err
	}
	if err := setNodeFacts(ctx, q, accepted); err != nil {
		return err
	}
	return insertConnections(ctx, q, accepted, ids, server)
}

// registrationLocks keep two registrations of one provider, or of one module namespace, from
// judging each other's past.
func registrationLocks(r fleet.Registration) map[int64]bool {
	locks := map[int64]bool{postgres.LinkLock("provider", r.Identity, string(r.Provider)): false}
	if r.Namespace != "" {
		locks[postgres.LinkLock("namespace", string(r.Namespace))] = false
	}
	return locks
}

// replaceAll ends earlier connections of the same providers, and notifies their servers.
func replaceAll(ctx context.Context, q *db.Queries, all []fleet.Registration, out []Registered, server string) error {
	p := db.ReplaceConnectionsParams{Reason: string(fleet.Replaced), States: statesLeft(fleet.Replaced)}
	by := map[pairName]int{}
	for i, r := range all {
		for _, id := range out[i].Replaced {
			p.Ids, by[pairOf(r)] = append(p.Ids, string(id)), i
		}
		out[i].Replaced = nil
	}
	if len(p.Ids) == 0 {
		return nil
	}
	old, err := q.ReplaceConnections(ctx, p)
	if err != nil {
		return err
	}
	for _, o := range old { // the others have just ended by themselves
		of := &out[by[pairName{o.Identity, o.Provider}]]
		of.Replaced = append(of.Replaced, fleet.ConnectionID(o.ID))
		if o.Server == server {
			continue // it learns from the answer
		}
		if err := postgres.TellLink(ctx, q, fleet.ConnectionID(o.ID), fleet.Replaced); err != nil {
			return err
		}
	}
	return nil
}

func insertConnections(ctx context.Context, q *db.Queries, all []fleet.Registration, ids []string, server string) error {
	p := db.InsertConnectionsParams{Server: server, Ids: ids}
	m := db.InsertModulesParams{}
	for i, r := range all {
		p.Identities, p.Providers, p.Nodes = append(p.Identities, r.Identity), append(p.Providers, string(r.Provider)), append(p.Nodes, string(r.Node))
		p.Namespaces, p.Groups = append(p.Namespaces, string(r.Namespace)), append(p.Groups, string(r.Group))
		p.ExecutorTls, p.ExecutorServerNames = append(p.ExecutorTls, r.ExecutorTLS.On), append(p.ExecutorServerNames, r.ExecutorTLS.ServerName)
		p.Callers, p.SignedBy = append(p.Callers, callerText(r.Caller)), append(p.SignedBy, r.Key)
		p.Executors, p.Protocols = append(p.Executors, r.Executor), append(p.Protocols, int32(r.Protocol)) //nolint:gosec // negotiated: a small number
		for _, o := range r.Modules {
			m.Connections, m.Namespaces = append(m.Connections, ids[i]), append(m.Namespaces, string(r.Namespace))
			m.Names, m.Descriptions = append(m.Names, string(o.Name)), append(m.Descriptions, o.Description)
			m.InputSchemas, m.OutputSchemas = append(m.InputSchemas, o.InputSchema), append(m.OutputSchemas, o.OutputSchema)
		}
	}
	if err := q.InsertConnections(ctx, p); err != nil || len(m.Names) == 0 {
		return err
	}
	return q.InsertModules(ctx, m)
}

// callerText is "" for an unknown caller.
func callerText(ip netip.Addr) string {
	if !ip.IsValid() {
		return ""
	}
	return ip.Unmap().WithZone("").String()
}

// DeregisterConnection ends one connection for its provider, and only that one. An ended one
// stays as it is.
func (s *Store) DeregisterConnection(ctx context.Context, id fleet.ConnectionID, identity string) error {
	return s.Deregister(ctx, id, identity, func(*db.Queries, string) error { return nil })
}

// Deregister does more with it in its transaction where it is that of a node.
func (s *Store) Deregister(ctx context.Context, id fleet.ConnectionID, identity string, ofNode func(q *db.Queries, node string) error) error {
	err := s.Tx(ctx, func(q *db.Queries) error {
		node, err := q.DeregisterConnection(ctx, db.DeregisterConnectionParams{
			Reason: string(fleet.Deregistered), ID: string(id), Identity: identity, States: statesLeft(fleet.Deregistered),
		})
		if err != nil {
			return err
		}
		if node != nil {
			if err := ofNode(q, *node); err != nil {
				return err
			}
		}
		return postgres.TellLink(ctx, q, id, fleet.Deregistered)
	})
	if fleet.KindOf(err) != fleet.NotFound {
		return err
	}
	if why := s.whyNot(ctx, id, identity); fleet.KindOf(why) != fleet.Gone {
		return why
	}
	return nil
}
