package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	loopback = "127.0.0.1"
	letGo    = time.Second
)

// listener is an address that a child process will serve.
type listener struct {
	name string // in state.json
	flag string // "" if not configurable
	want string // host:port; port 0 means any free one
}

// addresses are where the children listen; they stay the same when a child restarts.
type addresses map[string]*net.TCPAddr

// The names of the addresses.
const (
	addrAPI      = "api"
	addrLink     = "link"
	addrTemporal = "temporal"
	addrWeb      = "web"
	addrPostgres = "postgres"
	addrHistory  = "temporal-history"
	addrMatching = "temporal-matching"
	addrWorker   = "temporal-worker"
	addrPeers    = "peers" // where other regions call
)

func listeners(o options) []listener {
	inner := net.JoinHostPort(loopback, "0")
	all := []listener{
		{addrAPI, "--api", o.api},
		{addrTemporal, "--temporal", o.temporal},
		{addrWeb, "--web", o.web},
		{addrLink, "", o.network.inner()},
		{addrPostgres, "", inner},
		{addrHistory, "", inner},
		{addrMatching, "", inner},
		{addrWorker, "", inner},
	}
	if o.region != "" || o.network.Peers != "" {
		all = append(all, listener{addrPeers, "", cmp.Or(o.network.Peers, inner)})
	}
	for _, site := range siteNames(o.sites) {
		for _, n := range laptopSite(site).Nodes {
			all = append(all, listener{addrPeer(n.Name), "", inner})
		}
	}
	return all
}

// addrPeer is where a node accepts vote requests of its peer.
func addrPeer(node fleet.NodeName) string { return "peer-" + string(node) }

// choose finds an address for each listener: the requested one, else that of the last start if it is free, else a
// free one below those of outgoing connections. It holds all of them until the last is found, so that no two get
// the same.
func choose(wanted []listener, last map[string]int) (addresses, error) {
	chosen := addresses{}
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	// Fixed ports first: a free one that was picked before them could be one of theirs.
	slices.SortStableFunc(wanted, func(a, b listener) int { return cmp.Compare(a.free(), b.free()) })
	for _, w := range wanted {
		l, err := w.listen(last[w.name])
		if err != nil {
			return nil, err
		}
		held = append(held, l)
		chosen[w.name] = l.Addr().(*net.TCPAddr)
	}
	return chosen, nil
}

// free is 1 if any port will do.
func (w listener) free() int {
	if _, port, err := net.SplitHostPort(w.want); err == nil && port == "0" {
		return 1
	}
	return 0
}

func (w listener) listen(last int) (net.Listener, error) {
	host, port, err := net.SplitHostPort(w.want)
	if err != nil {
		return nil, usageError{fmt.Errorf("invalid %s %.80q: want HOST:PORT", w.flag, w.want)}
	}
	if port == "0" && last != 0 {
		if l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(last))); err == nil {
			return l, nil
		}
	}
	if port == "0" {
		if l := listenBelow(firstOutgoing(), host); l != nil {
			return l, nil
		}
	}
	var l net.Listener
	taken := func() bool {
		l, err = net.Listen("tcp", w.want)
		return errors.Is(err, syscall.EADDRINUSE)
	}
	// A region that was just killed may still be releasing it.
	if poll(context.Background(), letGo, func() bool { return !taken() }) != nil {
		return nil, fleet.Errorf(fleet.Conflict, "%s is taken by another program", w.want).
			WithHint("stop that program, or choose another port with " + w.flag + " " + net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return nil, fmt.Errorf("listen at %s (%s): %w", w.want, w.flag, err)
	}
	return l, nil
}

const (
	lowestPort = 10000
	// blockPorts are more than a small laptop region listens at.
	blockPorts = 64
	portTries  = 2 * blockPorts
)

var (
	tried atomic.Int64 // number of ports tried, from the start of this process's block
	given sync.Map     // the ports that were tried
)

// listenBelow listens at a free port below the given one, nil if there is none. The children bind their ports only
// later. A port from the range for outgoing connections could be taken by then; so could one that another region on
// this machine finds free at the same time. So each process starts in its own block, by its process id, and never
// tries a port twice.
func listenBelow(port int, host string) net.Listener {
	if port <= lowestPort {
		return nil
	}
	block := blockPorts * (os.Getpid() % max(1, (port-lowestPort)/blockPorts))
	for range portTries {
		next := int(tried.Add(1) - 1)
		free := block + next
		if next >= blockPorts { // the block is used up
			free = rand.IntN(port - lowestPort) //nolint:gosec // a port is no secret
		}
		if _, again := given.LoadOrStore(free, true); again || lowestPort+free >= port {
			continue
		}
		if l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(lowestPort+free))); err == nil {
			return l
		}
	}
	return nil
}

// firstOutgoing is the lowest port for outgoing connections, 0 if unknown.
func firstOutgoing() int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0
	}
	first := 0
	_, _ = fmt.Sscan(string(text), &first) // 0 if it is not a number
	return first
}

// dial is host:port for clients on this machine.
func (a addresses) dial(name string) string {
	addr := *a[name]
	switch {
	case addr.IP == nil || addr.IP.Equal(net.IPv4zero):
		addr.IP = net.ParseIP(loopback)
	case addr.IP.IsUnspecified():
		addr.IP = net.IPv6loopback
	}
	return addr.String()
}

func (a addresses) url(name string) string { return "http://" + a.dial(name) }

// ports are what state.json stores.
func (a addresses) ports() map[string]int {
	ports := make(map[string]int, len(a))
	for name, addr := range a {
		ports[name] = addr.Port
	}
	return ports
}
