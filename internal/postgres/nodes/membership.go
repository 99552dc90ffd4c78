package nodes

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// MembershipsOf are what nodes are to know of their sites; of nodes that were removed, too. A
// node that is unknown is not in it.
func (s *Store) MembershipsOf(ctx context.Context, nodes []fleet.NodeName) (map[fleet.NodeName]fleet.Membership, error) {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = string(n)
	}
	// Read the marks first: concurrent changes are then sent again, and none is missed.
	rows, err := s.Q.SitesByNode(ctx, names)
	if err != nil {
		return nil, err
	}
	sites := make([]string, len(rows))
	for i, r := range rows {
		sites[i] = r.Site
	}
	members, err := s.membersOf(ctx, sites)
	if err != nil {
		return nil, err
	}
	out := make(map[fleet.NodeName]fleet.Membership, len(rows))
	for _, r := range rows {
		m := fleet.Membership{
			Site: fleet.SiteName(r.Site), Project: fleet.ProjectName(r.Project), Mark: r.Mark, Generation: r.Generation, Members: members[r.Site],
			Resets: r.Resets, ResetEpoch: r.ResetEpoch,
		}
		if r.Spec != nil {
			var spec fleet.SiteSpec
			if err := json.Unmarshal(r.Spec, &spec); err != nil {
				return nil, postgres.Unreadable("the spec of site "+r.Site, err)
			}
			m.OnIsolation, m.AutoFailback = spec.OnIsolation, spec.AutoFailback
		}
		out[fleet.NodeName(r.Name)] = m
	}
	return out, nil
}

func (s *Store) membersOf(ctx context.Context, sites []string) (map[string][]fleet.Member, error) {
	rows, err := s.Q.MembersOfSites(ctx, sites)
	out := map[string][]fleet.Member{}
	for _, r := range rows {
		out[r.Site] = append(out[r.Site], fleet.Member{
			Node: fleet.NodeName(r.Name), Role: fleet.Role(r.Role), PeerAddress: r.PeerAddress,
			SigningKey: r.SigningKey, NextSigningKey: r.NextSigningKey, Cordoned: r.Cordoned,
		})
	}
	return out, err
}

// MembershipMarks gives the mark of each node's site, by the connections that a server holds.
func (s *Store) MembershipMarks(ctx context.Context, server string) (map[fleet.ConnectionID]string, error) {
	rows, err := s.Q.MarksOfNodes(ctx, server)
	out := make(map[fleet.ConnectionID]string, len(rows))
	for _, r := range rows {
		out[fleet.ConnectionID(r.ID)] = r.Mark
	}
	return out, err
}

// setPeerAddresses stores where nodes answer their peers, and notifies the peers.
func setPeerAddresses(ctx context.Context, q *db.Queries, all []fleet.Registration) error {
	var p db.SetPeerAddressesParams
	for _, r := range all {
		if r.Node != "" {
			p.Names, p.PeerAddresses = append(p.Names, string(r.Node)), append(p.PeerAddresses, r.PeerAddress)
		}
	}
	if len(p.Names) == 0 {
		return nil
	}
	sites, err := q.SetPeerAddresses(ctx, p)
	if err != nil {
		return err
	}
	slices.Sort(sites)
	for _, site := range slices.Compact(sites) {
		if err := postgres.TellSite(ctx, q, site); err != nil {
			return err
		}
	}
	return nil
}
