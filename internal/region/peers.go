package region

import (
	"context"
	"net"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi"
	"github.com/holdfast-io/holdfast/internal/peers"
)

// regionKeySecret is the name of the secret that the region's key is made from.
const regionKeySecret = "region-key"

// PeerConfig is how a region meets its peers; the zero value has none.
type PeerConfig struct {
	// Listen is host:port for peers; URL is how they reach it: https://HOST:PORT (default https://Listen).
	Listen, URL string
	// Via has the address to dial instead of a peer's own, for temporal-dev and tests.
	Via map[string]string
}

func (c PeerConfig) enabled() bool { return c.Listen != "" || c.URL != "" }

// openPeers makes this server's end of the links between regions.
func (s *server) openPeers(ctx context.Context) error {
	cfg := s.cfg.Peers
	if !cfg.enabled() {
		return nil
	}
	address, err := cfg.address()
	if err != nil {
		return err
	}
	seed, err := s.store.Secret(ctx, regionKeySecret, peers.SeedSize)
	if err != nil {
		return err
	}
	id, err := peers.NewIdentity(fleet.RegionName(s.cfg.Region), seed)
	if err != nil {
		return err
	}
	s.peers, err = peers.Open(ctx, peers.Options{
		Identity: id, Address: address, Store: s.store, About: s.store.About, Every: s.cfg.Timing.Peers, Metrics: s.registry, Log: s.log, Refuse: s.refusals.Refuse,
		Dial: cfg.dial(), Failpoint: s.cfg.Failpoint,
	})
	return err
}

// address is how peers reach this region.
func (c PeerConfig) address() (string, error) {
	if c.URL != "" {
		return c.URL, fleet.ValidatePeerAddress("peers-url", c.URL)
	}
	if host, _, err := net.SplitHostPort(c.Listen); err != nil || host == "" || net.ParseIP(host).IsUnspecified() {
		return "", fleet.Errorf(fleet.Invalid, "peers cannot call %q", c.Listen).At("peers-url").WithHint("give --peers-url https://HOST:PORT")
	}
	return "https://" + c.Listen, nil
}

// dial is nil where every peer is reached at its own address.
func (c PeerConfig) dial() func(ctx context.Context, network, address string) (net.Conn, error) {
	if len(c.Via) == 0 {
		return nil
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if via := c.Via[address]; via != "" {
			address = via
		}
		return dialer.DialContext(ctx, network, address)
	}
}

// regions is what the API does with other regions; nil without peers.
func (s *server) regions() httpapi.Regions {
	if s.peers == nil {
		return nil
	}
	return s.peers
}

func (s *server) servePeers(ctx context.Context, l net.Listener) error {
	s.log.Info("serving peers", "address", l.Addr().String(), "region", s.cfg.Region)
	return s.serveHTTP(ctx, l, peers.Door, s.peers, s.peers.TLS())
}

// meetPeers keeps in touch with the peers until the context ends.
func (s *server) meetPeers(ctx context.Context) error {
	if s.peers == nil {
		return nil
	}
	return s.peers.Run(ctx)
}
