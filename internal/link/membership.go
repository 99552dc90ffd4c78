package link

import (
	"context"
	"slices"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// welcome returns what a registering node has to know about its site; nil for other providers.
func (s *Server) welcome(ctx context.Context, c *connection, node fleet.NodeName) (*nodev1.Site, error) {
	if node == "" {
		return nil, nil
	}
	m, err := s.siteOf(ctx, node)
	if err != nil {
		return nil, err
	}
	c.site.Store(&m.Mark)
	return siteMessage(*m), nil
}

func (s *Server) siteOf(ctx context.Context, node fleet.NodeName) (*fleet.Membership, error) {
	m, err := s.crowds.sites.ask(ctx, string(node), node)
	if err == nil && m == nil {
		err = fleet.Errorf(fleet.NotFound, "node %s no longer exists", node)
	}
	return m, err
}

// tellSites sends nodes their site descriptions if these changed since the last one sent.
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
	var news []*connection
	for _, c := range nodes {
		known := c.site.Load()
		if mark, ok := marks[c.id]; !ok || known != nil && *known == mark {
			continue
		}
		news = append(news, c)
	}
	for some := range slices.Chunk(news, lookMost) {
		if err := s.tellAll(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) tellAll(ctx context.Context, nodes []*connection) error {
	names := make([]fleet.NodeName, len(nodes))
	for i, c := range nodes {
		names[i] = c.node
	}
	found, err := s.o.Store.MembershipsOf(ctx, names)
	if err != nil {
		return err
	}
	for _, c := range nodes {
		m, is := found[c.node]
		if !is {
			continue // its row's end disconnects it
		}
		s.send(c, &nodev1.ConnectResponse{Message: &nodev1.ConnectResponse_Site{Site: siteMessage(m)}})
		c.site.Store(&m.Mark)
	}
	return nil
}

func siteMessage(m fleet.Membership) *nodev1.Site {
	out := &nodev1.Site{
		Name: string(m.Site), Project: string(m.Project), Generation: m.Generation, OnIsolation: string(m.OnIsolation), AutoFailback: m.AutoFailback,
		Resets: m.Resets, ResetEpoch: m.ResetEpoch,
	}
	for _, n := range m.Members {
		out.Members = append(out.Members, &nodev1.Member{
			Node: string(n.Node), Role: string(n.Role), PeerAddress: n.PeerAddress,
			SigningKey: n.SigningKey, NextSigningKey: n.NextSigningKey, Cordoned: n.Cordoned,
		})
	}
	return out
}
