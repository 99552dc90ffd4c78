package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Registered is a new connection, and those that it took the place of.
type Registered struct {
	ID       fleet.ConnectionID
	Replaced []fleet.ConnectionID
}

// RegisterConnection writes a registration that was validated, at the server that took it.
// The connection that the same provider of the same identity had ends in the same transaction
// (C73, C82). A refusal leaves nothing behind, and that connection as it was.
func (s *Store) RegisterConnection(ctx context.Context, r fleet.Registration, server string) (Registered, error) {
	id, err := NewID()
	if err != nil {
		return Registered{}, err
	}
	out := Registered{ID: fleet.ConnectionID(id)}
	err = s.tx(ctx, "register the connection", func(q *db.Queries) error {
		out.Replaced = nil
		if err := lockKeys(ctx, q, registrationLocks(r)); err != nil {
			return err
		}
		known, err := q.LinkServerIsKnown(ctx, server)
		if err != nil {
			return failed("look for this server", err)
		}
		if !known { // the others took it for lapsed
			return fleet.Errorf(fleet.Unavailable, "this server is coming back").WithHint("try again in a moment")
		}
		if out.Replaced, err = replace(ctx, q, r, server); err != nil {
			return err
		}
		if err := mayOwn(ctx, q, r); err != nil {
			return err
		}
		if err := setPeerAddress(ctx, q, r); err != nil {
			return err
		}
		return insertConnection(ctx, q, out.ID, server, r)
	})
	return out, err
}

// registrationLocks keep two registrations of one provider, or of one module namespace, from
// judging each other's past.
func registrationLocks(r fleet.Registration) map[int64]bool {
	locks := map[int64]bool{linkLock("provider", r.Identity, string(r.Provider)): false}
	if r.Namespace != "" {
		locks[linkLock("namespace", string(r.Namespace))] = false
	}
	return locks
}

func linkLock(parts ...string) int64 {
	h := sha256.New()
	for _, p := range append([]string{"link"}, parts...) {
		h.Write([]byte(p + "\x00"))
	}
	return int64(binary.BigEndian.Uint64(h.Sum(nil)[:8])) //nolint:gosec // a lock's number is any
}

// replace ends what the same provider had; the servers that hold it are told.
func replace(ctx context.Context, q *db.Queries, r fleet.Registration, server string) ([]fleet.ConnectionID, error) {
	old, err := q.ReplaceConnection(ctx, db.ReplaceConnectionParams{
		Reason: string(fleet.Replaced), Identity: r.Identity, Provider: string(r.Provider), States: statesLeft(fleet.Replaced),
	})
	if err != nil {
		return nil, failed("end the connection before", err)
	}
	var ids []fleet.ConnectionID
	for _, o := range old {
		ids = append(ids, fleet.ConnectionID(o.ID))
		if o.Server == server {
			continue // it learns from the answer
		}
		if err := tellLink(ctx, q, fleet.ConnectionID(o.ID), fleet.Replaced); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// mayOwn refuses a module namespace that another has: it belongs to one provider, or to one
// group whose members offer the same modules (C76, C80).
func mayOwn(ctx context.Context, q *db.Queries, r fleet.Registration) error {
	if r.Namespace == "" {
		return nil
	}
	live, err := q.LiveOfNamespace(ctx, string(r.Namespace))
	if err != nil || len(live) == 0 {
		return failed("read who owns the module namespace", err)
	}
	owner := live[0]
	if r.Group == "" || owner.GroupID != string(r.Group) {
		by := "provider " + owner.Provider + " of " + owner.Identity
		if owner.GroupID != "" {
			by = "group " + owner.GroupID
		}
		return fleet.Errorf(fleet.Conflict, "the module namespace %s belongs to %s", r.Namespace, by).At("moduleNamespace").
			WithHint("it is released when its last connection ends")
	}
	rows, err := q.ModulesOfConnection(ctx, owner.ID)
	if err != nil {
		return failed("read the group's modules", err)
	}
	return sameModules(r, rows)
}

func sameModules(r fleet.Registration, rows []db.Module) error {
	offers := slices.SortedFunc(slices.Values(r.Modules), func(a, b fleet.ModuleOffer) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	same := slices.EqualFunc(offers, rows, func(o fleet.ModuleOffer, m db.Module) bool {
		return string(o.Name) == m.Name && o.InputSchema == m.InputSchema && o.OutputSchema == m.OutputSchema
	})
	if same {
		return nil
	}
	return fleet.Errorf(fleet.Conflict, "group %s offers other modules in %s, or with other schemas", r.Group, r.Namespace).At("modules").
		WithHint("all members of a group register the same modules; a new set of modules is a new group")
}

func insertConnection(ctx context.Context, q *db.Queries, id fleet.ConnectionID, server string, r fleet.Registration) error {
	p := db.InsertConnectionParams{
		ID: string(id), Identity: r.Identity, Provider: string(r.Provider), ModuleNamespace: string(r.Namespace),
		GroupID: string(r.Group), Executor: r.Executor, Protocol: int32(r.Protocol), Server: server, //nolint:gosec // negotiated: a small number
	}
	if r.Node != "" {
		name := string(r.Node)
		p.Node = &name
	}
	if err := q.InsertConnection(ctx, p); err != nil || len(r.Modules) == 0 {
		return failed("write the connection", err)
	}
	m := db.InsertModulesParams{Connection: string(id), ModuleNamespace: string(r.Namespace)}
	for _, o := range r.Modules {
		m.Names, m.Descriptions = append(m.Names, string(o.Name)), append(m.Descriptions, o.Description)
		m.InputSchemas, m.OutputSchemas = append(m.InputSchemas, o.InputSchema), append(m.OutputSchemas, o.OutputSchema)
	}
	return failed("write the modules", q.InsertModules(ctx, m))
}

// DeregisterConnection ends one connection for its provider, and only that one. An ended one
// stays as it is.
func (s *Store) DeregisterConnection(ctx context.Context, id fleet.ConnectionID, identity string) error {
	err := s.tx(ctx, "deregister the connection", func(q *db.Queries) error {
		_, err := q.DeregisterConnection(ctx, db.DeregisterConnectionParams{
			Reason: string(fleet.Deregistered), ID: string(id), Identity: identity, States: statesLeft(fleet.Deregistered),
		})
		if err != nil {
			return err
		}
		return tellLink(ctx, q, id, fleet.Deregistered)
	})
	if fleet.KindOf(err) != fleet.NotFound {
		return err
	}
	if why := s.whyNot(ctx, id, identity); fleet.KindOf(why) != fleet.Gone {
		return why
	}
	return nil
}
