//go:build slow

package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// relays join nodes and region by TCP relays, where the machine lets nobody make namespaces.
// What is cut waits, as it does in TCP, until it is healed or its connection is given up. Bulk
// goes by the address that the region tells and so past the relays; to begin any, a node needs
// its link.
type relays struct {
	nodes []string
	at    map[string]place
	// peers are the relays before each node's votes, by node.
	peers map[string]*relay

	mu    sync.Mutex
	cuts  map[way]bool
	wake  chan struct{} // closed and replaced when a cut is healed
	ended chan struct{}
	wg    sync.WaitGroup
	open  map[net.Conn]bool
}

var _ wires = (*relays)(nil)

// relay is one: what it takes it brings to an address that is known only when all has started.
type relay struct {
	net.Listener
	from, to string
	target   func() (string, error)
}

func newRelays(t *testing.T, nodes []string) *relays {
	t.Helper()
	r := &relays{
		nodes: nodes, at: map[string]place{}, peers: map[string]*relay{}, cuts: map[way]bool{}, open: map[net.Conn]bool{},
		wake: make(chan struct{}), ended: make(chan struct{}),
	}
	t.Cleanup(r.close)
	return r
}

// of begins the relays.
func (r *relays) of(t *testing.T, data string) {
	t.Helper()
	doc := func() (devDoc, error) {
		var d devDoc
		err := readJSON(filepath.Join(data, devFile), &d)
		return d, err
	}
	for i, node := range r.nodes {
		api := r.serve(t, node, regionEnd, func() (string, error) {
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
		link := r.serve(t, node, regionEnd, func() (string, error) {
			d, err := doc()
			return d.Link, err
		})
		r.at[node] = place{API: "http://" + api.Addr().String(), Link: link.Addr().String()}
		r.peers[node] = r.serve(t, r.nodes[i^1], node, func() (string, error) {
			var known state
			err := readJSON(filepath.Join(data, stateFile), &known)
			a := net.TCPAddr{IP: net.ParseIP(loopback), Port: known.Ports["peer-"+node]}
			return a.String(), err
		})
	}
}

func (r *relays) serve(t *testing.T, from, to string, target func() (string, error)) *relay {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		t.Fatal(err)
	}
	y := &relay{Listener: l, from: from, to: to, target: target}
	r.wg.Go(func() { r.accept(y) })
	t.Cleanup(func() { _ = l.Close() })
	return y
}

func (r *relays) accept(y *relay) {
	for {
		client, err := y.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.join(y, client) })
	}
}

func (r *relays) join(y *relay, client net.Conn) {
	if !r.keep(client) {
		return
	}
	defer r.drop(client)
	if !r.pass(y.from, y.to) || !r.pass(y.to, y.from) { // a handshake needs both
		return
	}
	address, err := y.target()
	if err != nil {
		return
	}
	server, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil || !r.keep(server) {
		return
	}
	defer r.drop(server)
	var both sync.WaitGroup
	both.Go(func() { r.pump(client, server, y.from, y.to) })
	both.Go(func() { r.pump(server, client, y.to, y.from) })
	both.Wait()
}

func (r *relays) pump(in, out net.Conn, from, to string) {
	defer func() { _ = in.Close(); _ = out.Close() }()
	b := make([]byte, 32<<10)
	for {
		n, err := in.Read(b)
		if !r.pass(from, to) {
			return
		}
		if _, werr := out.Write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}

// pass waits until nothing is cut in a direction; it is false at the end.
func (r *relays) pass(from, to string) bool {
	for {
		r.mu.Lock()
		cut, wake := r.cuts[way{from, to}], r.wake
		r.mu.Unlock()
		if !cut {
			return true
		}
		select {
		case <-wake:
		case <-r.ended:
			return false
		}
	}
}

func (r *relays) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.ended:
		_ = c.Close()
		return false
	default:
	}
	r.open[c] = true
	return true
}

func (r *relays) drop(c net.Conn) {
	_ = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, c)
}

func (r *relays) close() {
	close(r.ended)
	r.mu.Lock()
	for c := range r.open {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

func (*relays) kind() string { return "TCP relays" }

func (r *relays) network() network { return network{Nodes: r.at} }

func (r *relays) cut(ways ...way) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range ways {
		r.cuts[w] = true
	}
	return nil
}

func (r *relays) heal(ways ...way) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range ways {
		if !r.cuts[w] {
			return fmt.Errorf("%v is not cut", w)
		}
		delete(r.cuts, w)
	}
	close(r.wake)
	r.wake = make(chan struct{})
	return nil
}

// started has the region tell each node of the relay before its peer instead of the peer.
func (r *relays) started(ctx context.Context, s *stack) error {
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
