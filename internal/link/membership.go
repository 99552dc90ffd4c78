package link

import (
	"context"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// welcome gives a node that registers what it is to know of its site; nil for other providers.
func (s *Server) welcome(ctx context.Context, c *connection, node fleet.NodeName) (*nodev1.Site, error) {
	if node == "" {
		return nil, nil
	}
	m, err := s.o.Store.MembershipOf(ctx, node)
	if err != nil {
		return nil, err
	}
	c.site.Store(&m.Mark)
	return siteMessage(m), nil
}

// tellSites tells nodes of their sites where that is another than they were told.
func (s *Server) tellSites(ctx context.Context, mine []*connection) error {
	var nodes []*connection
	for _, c := range mine {
		if c.node != "" && c.now().Live() && c.now() != fleet.ConnectionRegistered {
			nodes = append(nodes, c)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	marks, err := s.o.Store.MembershipMarks(ctx, s.o.ID)
	if err != nil {
		return err
	}
	for _, c := range nodes {
		known := c.site.Load()
		if mark, ok := marks[c.id]; !ok || known != nil && *known == mark {
			continue
		}
		m, err := s.o.Store.MembershipOf(ctx, c.node)
		if err != nil {
			return err
		}
		s.send(c, &nodev1.ConnectResponse{Message: &nodev1.ConnectResponse_Site{Site: siteMessage(m)}})
		c.site.Store(&m.Mark)
	}
	return nil
}

func siteMessage(m fleet.Membership) *nodev1.Site {
	out := &nodev1.Site{
		Name: string(m.Site), Generation: m.Generation, OnIsolation: string(m.OnIsolation), AutoFailback: m.AutoFailback,
	}
	for _, n := range m.Members {
		out.Members = append(out.Members, &nodev1.Member{
			Node: string(n.Node), Role: string(n.Role), PeerAddress: n.PeerAddress, SigningKey: n.SigningKey,
		})
	}
	return out
}
