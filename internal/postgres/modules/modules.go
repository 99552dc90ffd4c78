package modules

import (
	"context"
	"net/netip"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// ListModules gives a page of what live connections offer, of one namespace or of all, in
// the order of the names.
func (s *Store) ListModules(ctx context.Context, namespace fleet.ModuleNamespace, after fleet.ModuleRef, limit int32) ([]fleet.Module, error) {
	page, err := s.Q.ModulesAfter(ctx, db.ModulesAfterParams{
		Namespace: string(namespace), AfterNamespace: string(after.Namespace), AfterName: string(after.Name), MaxRows: limit,
	})
	if err != nil || len(page) == 0 {
		return nil, err
	}
	first, last := page[0], page[len(page)-1]
	all, err := s.modulesBetween(ctx, db.MembersOfModulesParams{
		FromNamespace: first.ModuleNamespace, FromName: first.Name, ToNamespace: last.ModuleNamespace, ToName: last.Name,
	})
	return all[:min(len(all), int(limit))], err
}

// ModuleMembers gives the live connections that offer a module, the newest first; none is no
// error.
func (s *Store) ModuleMembers(ctx context.Context, of fleet.ModuleRef) ([]fleet.ModuleMember, error) {
	namespace, name := string(of.Namespace), string(of.Name)
	all, err := s.modulesBetween(ctx, db.MembersOfModulesParams{
		FromNamespace: namespace, FromName: name, ToNamespace: namespace, ToName: name,
	})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return all[0].Members, nil
}

func (s *Store) modulesBetween(ctx context.Context, p db.MembersOfModulesParams) ([]fleet.Module, error) {
	rows, err := s.Q.MembersOfModules(ctx, p)
	if err != nil {
		return nil, err
	}
	var out []fleet.Module
	for _, r := range rows {
		ref := fleet.ModuleRef{Namespace: fleet.ModuleNamespace(r.ModuleNamespace), Name: fleet.ModuleName(r.Name)}
		if len(out) == 0 || out[len(out)-1].ModuleRef != ref {
			out = append(out, fleet.Module{ModuleRef: ref})
		}
		of := &out[len(out)-1]
		m := memberOf(r)
		if r.Same {
			before := of.Members[len(of.Members)-1]
			m.InputSchema, m.OutputSchema = before.InputSchema, before.OutputSchema
		}
		of.Members = append(of.Members, m)
	}
	return out, nil
}

func memberOf(r db.MembersOfModulesRow) fleet.ModuleMember {
	m := fleet.ModuleMember{
		Connection: fleet.ConnectionID(r.ID), Provider: fleet.ProviderName(r.Provider), Group: fleet.GroupID(r.GroupID),
		Executor: r.Executor, ExecutorTLS: fleet.ExecutorTLS{On: r.ExecutorTls, ServerName: r.ExecutorServerName},
		State: fleet.ConnectionState(r.State), Drains: r.DrainAskedAt != nil, Cordoned: r.Cordoned, Description: r.Description,
		InputSchema: r.InputSchema, OutputSchema: r.OutputSchema, Registered: r.RegisteredAt,
	}
	m.Caller, _ = netip.ParseAddr(r.Caller) // "" is unknown
	if r.Node != nil {
		m.Node = fleet.NodeName(*r.Node)
	}
	return m
}

// LastOffer returns who offers or last offered a module; nil if no stored provider did.
func (s *Store) LastOffer(ctx context.Context, of fleet.ModuleRef) (*fleet.LastOffer, error) {
	r, err := s.Q.LastOffer(ctx, db.LastOfferParams{Namespace: string(of.Namespace), Name: string(of.Name)})
	if postgres.NoRows(err) {
		return nil, nil
	}
	return &fleet.LastOffer{
		Provider: fleet.ProviderName(r.Provider), State: fleet.ConnectionState(r.State), Reason: r.Reason, Ended: r.EndedAt,
		Drains: r.DrainAskedAt != nil, Cordoned: r.Cordoned,
	}, err
}

// ListenConnections calls heard with the id of each connection that changed, until ctx ends
// or the connection to the database breaks. Began is called once nothing is missed any more.
func (s *Store) ListenConnections(ctx context.Context, began func(), heard func(fleet.ConnectionID)) error {
	return s.Listen(ctx, postgres.LinkChannel, began, func(payload string) {
		id, _, _ := strings.Cut(payload, " ") // what happened follows
		heard(fleet.ConnectionID(id))
	})
}
