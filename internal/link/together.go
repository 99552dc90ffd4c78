package link

import (
	"context"
	"crypto/ed25519"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

const (
	// registerMost limits what one transaction locks.
	registerMost = 100
	// lookMost limits a read-only statement.
	lookMost = 500
)

// crowds are the store calls of a connecting provider: a storm of them takes few transactions.
type crowds struct {
	keys        *crowd[fleet.NodeName, []ed25519.PublicKey]
	tokens      *crowd[string, *keyring.APIToken]
	registering *crowd[fleet.Registration, registered]
	sites       *crowd[fleet.NodeName, *fleet.Membership]
	opening     *crowd[nodes.Opening, nodes.Opened]
}

// registered is a connection that this server holds, or the reason why not.
type registered struct {
	*connection
	err error
}

func (s *Server) newCrowds() *crowds {
	return &crowds{
		keys:   newCrowd(lookMost, nil, s.lookForKeys),
		tokens: newCrowd(lookMost, nil, s.lookForTokens),
		registering: newCrowd(registerMost, func(r fleet.Registration) string {
			return r.Identity + " " + string(r.Provider)
		}, s.registerAll),
		sites:   newCrowd(lookMost, nil, s.lookForSites),
		opening: newCrowd(registerMost, nil, s.openAll),
	}
}

// loops serve the crowds.
func (c *crowds) loops() []func(context.Context) error {
	return []func(context.Context) error{c.keys.run, c.tokens.run, c.registering.run, c.sites.run, c.opening.run}
}

// metrics are how many wait, and how many are served together.
func (c *crowds) metrics(sizes *prometheus.HistogramVec) []prometheus.Collector {
	c.keys.sizes, c.tokens.sizes = sizes.WithLabelValues("node_key"), sizes.WithLabelValues("token")
	c.registering.sizes, c.sites.sizes = sizes.WithLabelValues("register"), sizes.WithLabelValues("site")
	c.opening.sizes = sizes.WithLabelValues("open")
	waiting := func(kind string, count func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "holdfast_link_waiting", Help: "Calls that wait for their turn, by kind.", ConstLabels: prometheus.Labels{"kind": kind},
		}, count)
	}
	return []prometheus.Collector{
		waiting("node_key", c.keys.count), waiting("token", c.tokens.count), waiting("register", c.registering.count),
		waiting("site", c.sites.count), waiting("open", c.opening.count),
	}
}

func (s *Server) lookForKeys(ctx context.Context, names []fleet.NodeName) ([][]ed25519.PublicKey, error) {
	found, err := s.o.Store.KeysOfNodes(ctx, names)
	out := make([][]ed25519.PublicKey, len(names))
	for i, name := range names {
		out[i] = found[name]
	}
	return out, err
}

func (s *Server) lookForTokens(ctx context.Context, hashes []string) ([]*keyring.APIToken, error) {
	all := make([][]byte, len(hashes))
	for i, h := range hashes {
		all[i] = []byte(h)
	}
	found, err := s.o.Store.APITokensByHash(ctx, all)
	out := make([]*keyring.APIToken, len(hashes))
	for i, h := range hashes {
		if t, is := found[h]; is {
			out[i] = &t
		}
	}
	return out, err
}

func (s *Server) lookForSites(ctx context.Context, names []fleet.NodeName) ([]*fleet.Membership, error) {
	found, err := s.o.Store.MembershipsOf(ctx, names)
	out := make([]*fleet.Membership, len(names))
	for i, name := range names {
		if m, is := found[name]; is {
			out[i] = &m
		}
	}
	return out, err
}

// registerAll stores registrations and holds them before it answers any caller: one that no longer waits is ended
// like any other that opens no stream.
func (s *Server) registerAll(ctx context.Context, all []fleet.Registration) ([]registered, error) {
	made, err := s.o.Store.RegisterConnections(ctx, all, s.o.ID)
	if err != nil {
		return nil, err
	}
	out := make([]registered, len(all))
	for i, m := range made {
		if m.Err != nil {
			out[i].err = m.Err
			continue
		}
		for _, old := range m.Replaced {
			if c := s.find(old); c != nil {
				s.endedElsewhere(c, fleet.Replaced)
			}
		}
		c := newConnection(m.ID, fleet.ConnectionRegistered, all[i].Protocol, s.clock())
		c.node, c.identity = all[i].Node, all[i].Identity
		s.hold(c)
		out[i].connection = c
	}
	return out, nil
}

func (s *Server) openAll(ctx context.Context, all []nodes.Opening) ([]nodes.Opened, error) {
	return s.o.Store.OpenConnections(ctx, all, s.o.ID)
}
