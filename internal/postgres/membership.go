package postgres

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// SiteChanged is told to the servers of the link, with the site's name in place of a
// connection's id, when what its nodes know of it is no longer so.
const SiteChanged fleet.ConnectionEvent = "site_changed"

func tellSite(ctx context.Context, q *db.Queries, site string) error {
	return tellLink(ctx, q, fleet.ConnectionID(site), SiteChanged)
}

// MembershipOf is what a node is to know of its site; of a node that was removed, too.
func (s *Store) MembershipOf(ctx context.Context, node fleet.NodeName) (fleet.Membership, error) {
	var out fleet.Membership
	n, err := s.q.GetNode(ctx, string(node))
	if err != nil {
		return out, failed("read the node", err)
	}
	// The mark comes first: what changes meanwhile is told again, and nothing is missed.
	if out.Mark, err = s.q.MarkOfSite(ctx, n.Site); err != nil {
		return out, failed("read the site's mark", err)
	}
	out.Site = fleet.SiteName(n.Site)
	o, err := find(ctx, s.q, fleet.ObjectKey{Kind: fleet.KindSite, Name: n.Site})
	if err != nil {
		return out, err
	}
	if o != nil {
		var spec fleet.SiteSpec
		if err := json.Unmarshal(o.Spec, &spec); err != nil {
			return out, failed("read the site's spec", err)
		}
		out.Generation, out.OnIsolation, out.AutoFailback = o.Generation, spec.OnIsolation, spec.AutoFailback
	}
	rows, err := s.q.MembersOfSite(ctx, n.Site)
	for _, r := range rows {
		out.Members = append(out.Members, fleet.Member{
			Node: fleet.NodeName(r.Name), Role: fleet.Role(r.Role), PeerAddress: r.PeerAddress, SigningKey: r.SigningKey,
		})
	}
	return out, failed("read the site's nodes", err)
}

// MembershipMarks gives the mark of each node's site, by the connections that a server holds.
func (s *Store) MembershipMarks(ctx context.Context, server string) (map[fleet.ConnectionID]string, error) {
	rows, err := s.q.MarksOfNodes(ctx, server)
	out := make(map[fleet.ConnectionID]string, len(rows))
	for _, r := range rows {
		out[fleet.ConnectionID(r.ID)] = r.Mark
	}
	return out, failed("read the marks of sites", err)
}

// setPeerAddress keeps where a node answers its peer, which is told.
func setPeerAddress(ctx context.Context, q *db.Queries, r fleet.Registration) error {
	if r.Node == "" {
		return nil
	}
	site, err := q.SetPeerAddress(ctx, db.SetPeerAddressParams{PeerAddress: r.PeerAddress, Name: string(r.Node)})
	if noRows(err) {
		return nil
	}
	if err != nil {
		return failed("keep the node's peer address", err)
	}
	return tellSite(ctx, q, site)
}
