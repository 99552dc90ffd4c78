//go:build slow

package main

import (
	"context"
	"net"
	"net/url"
	"path/filepath"
	"testing"
)

// nodeRelays join nodes and region by TCP relays, where the machine lets nobody make namespaces. Bulk
// goes by the address that the region tells and so past the relays; to begin any, a node needs
// its link.
type nodeRelays struct {
	*relays
	nodes []string
	at    map[string]place
	// peers are the relays before each node's votes, by node.
	peers map[string]*relay
}

var _ wires = (*nodeRelays)(nil)

func newNodeRelays(t *testing.T, nodes []string) *nodeRelays {
	t.Helper()
	r := &nodeRelays{relays: newRelays(), nodes: nodes, at: map[string]place{}, peers: map[string]*relay{}}
	t.Cleanup(r.close)
	return r
}

func (r *nodeRelays) begin(t *testing.T, from, to string, target func() (string, error)) *relay {
	t.Helper()
	y, err := r.serve(from, to, target)
	if err != nil {
		t.Fatal(err)
	}
	return y
}

// of begins the relays.
func (r *nodeRelays) of(t *testing.T, data string) {
	t.Helper()
	doc := func() (devDoc, error) {
		var d devDoc
		err := readJSON(filepath.Join(data, devFile), &d)
		return d, err
	}
	for i, node := range r.nodes {
		api := r.begin(t, node, regionEnd, func() (string, error) {
			d, err := doc()
			if err != nil {
				return "", err
			}
			u, err := url.Parse(d.API)
			if err != nil {
				return "", err
			}
			return u.Host, nil
		})
		link := r.begin(t, node, regionEnd, func() (string, error) {
			d, err := doc()
			return d.Link, err
		})
		r.at[node] = place{API: "http://" + api.Addr().String(), Link: link.Addr().String()}
		r.peers[node] = r.begin(t, r.nodes[i^1], node, func() (string, error) {
			var known state
			err := readJSON(filepath.Join(data, stateFile), &known)
			a := net.TCPAddr{IP: net.ParseIP(loopback), Port: known.Ports["peer-"+node]}
			return a.String(), err
		})
	}
}

func (*nodeRelays) kind() string { return "TCP relays" }

func (r *nodeRelays) network() network { return network{Nodes: r.at} }

// started has the region tell each node of the relay before its peer instead of the peer.
func (r *nodeRelays) started(ctx context.Context, s *stack) error {
	if _, err := s.pg.Exec(ctx, `CREATE TABLE relays (node text PRIMARY KEY, address text NOT NULL)`); err != nil {
		return err
	}
	for node, y := range r.peers {
		if _, err := s.pg.Exec(ctx, `INSERT INTO relays VALUES ($1, $2)`, node, y.Addr().String()); err != nil {
			return err
		}
	}
	_, err := s.pg.Exec(ctx, `CREATE FUNCTION relayed() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN NEW.peer_address := (SELECT address FROM relays WHERE node = NEW.name); RETURN NEW; END $$;
		CREATE TRIGGER relayed BEFORE INSERT OR UPDATE ON nodes FOR EACH ROW EXECUTE FUNCTION relayed();
		UPDATE nodes SET peer_address = peer_address`)
	return err
}
