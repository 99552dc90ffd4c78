//go:build slow

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// regionEnd is the region as one end of a cut; every other end is a node.
const regionEnd = "region"

// wires are what nodes and their region are joined by. A cut is silent: nobody is told.
type wires interface {
	// kind is said in the log, so that nobody takes one for the other.
	kind() string
	network() network
	cut(ways ...way) error
	heal(ways ...way) error
	// of tells where the region's data lies; started, that it is up.
	of(t *testing.T, data string)
	started(ctx context.Context, s *stack) error
}

// newWires joins nodes by network namespaces where the machine lets us, else by TCP relays.
func newWires(t *testing.T, nodes []string) wires {
	t.Helper()
	if os.Getenv(relaysVariable) == "" {
		n, err := newNamespaces(t, nodes)
		if err == nil {
			return n
		}
		t.Logf("no network namespaces here: %v", err)
	}
	return newNodeRelays(t, nodes)
}

// relaysVariable has relays join the nodes though there might be namespaces.
const relaysVariable = "HOLDFAST_E2E_RELAYS"

// namespaces give each node a network of its own, joined by a switch that forwards between
// them:
//
//	region (this machine) ── veth ──┐
//	node a (its namespace) ─ veth ──┤ switch (its namespace): a rule per cut and direction
//	node b (its namespace) ─ veth ──┘
//
// Each lives as long as the process that holds it, which dies with the test.
type namespaces struct {
	at    int // 198.18.at.0/24 is theirs
	ends  map[string]*space
	ports map[string]int // last byte of each end's address
	hub   *space

	mu sync.Mutex
}

var _ wires = (*namespaces)(nil)

const (
	nets     = 255
	netTries = 50
	hubPort  = 254
	peerPort = 7470
)

// space is a process that keeps a namespace.
type space struct{ pid int }

func newSpace(t *testing.T) (*space, error) {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := spawn(cmd, syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	return &space{pid: cmd.Process.Pid}, nil
}

// enter is put before a command that is to run there.
func (s *space) file() string { return fmt.Sprintf("/proc/%d/ns/net", s.pid) }

func (s *space) enter() []string {
	return []string{"nsenter", "--net=" + s.file(), "--"}
}

func (s *space) run(input string, command ...string) error {
	if s != nil {
		command = append(s.enter(), command...)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin = strings.NewReader(input)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, said)
	}
	return nil
}

// ip runs commands of ip(8), one a line; on this machine for none.
func (s *space) ip(lines ...string) error {
	return s.run(strings.Join(lines, "\n")+"\n", "ip", "-batch", "-")
}

func newNamespaces(t *testing.T, nodes []string) (*namespaces, error) {
	t.Helper()
	n := &namespaces{ends: map[string]*space{}, ports: map[string]int{regionEnd: 1}}
	var err error
	if n.hub, err = newSpace(t); err != nil {
		return nil, err
	}
	if err := n.hub.run("", "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"); err != nil {
		return nil, err
	}
	if err := n.joinRegion(); err != nil {
		return nil, err
	}
	for i, node := range nodes {
		n.ports[node] = 11 + i
		if n.ends[node], err = newSpace(t); err != nil {
			return nil, err
		}
		inside := []string{"link set lo up", fmt.Sprintf("link add eth0 type veth peer name port%d netns %d", n.ports[node], n.hub.pid)}
		if err := n.join(n.ends[node], "eth0", n.ports[node], inside); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// joinRegion picks a network that nobody else on this machine has.
func (n *namespaces) joinRegion() error {
	var err error
	for range netTries {
		n.at = rand.IntN(nets)
		name := fmt.Sprintf("hf%d", n.at)
		if err = (*space)(nil).ip(fmt.Sprintf("link add %s type veth peer name port1 netns %d", name, n.hub.pid)); err == nil {
			return n.join(nil, name, n.ports[regionEnd], nil)
		}
	}
	return err
}

// join gives both ends of a veth pair their addresses and routes.
func (n *namespaces) join(end *space, link string, port int, first []string) error {
	hub := n.address(hubPort)
	if err := end.ip(append(first,
		fmt.Sprintf("address add %s/32 dev %s", n.address(port), link),
		"link set "+link+" up",
		fmt.Sprintf("route add %s dev %s scope link src %s", hub, link, n.address(port)),
		fmt.Sprintf("route add %s/24 via %s dev %s src %s", n.address(0), hub, link, n.address(port)),
	)...); err != nil {
		return err
	}
	return n.hub.ip(
		fmt.Sprintf("address add %s/32 dev port%d", hub, port),
		fmt.Sprintf("link set port%d up", port),
		fmt.Sprintf("route add %s dev port%d src %s", n.address(port), port, hub),
	)
}

func (n *namespaces) address(port int) string { return fmt.Sprintf("198.18.%d.%d", n.at, port) }

func (*namespaces) kind() string { return "network namespaces" }

func (*namespaces) of(*testing.T, string) {}

func (*namespaces) started(context.Context, *stack) error { return nil }

func (n *namespaces) network() network {
	out := network{Region: n.address(n.ports[regionEnd]), Nodes: map[string]place{}}
	for node, s := range n.ends {
		out.Nodes[node] = place{Enter: s.enter(), Peer: net.JoinHostPort(n.address(n.ports[node]), fmt.Sprint(peerPort))}
	}
	return out
}

// cut drops what goes from one end to another, all of it at one instant.
func (n *namespaces) cut(ways ...way) error { return n.rules("add", ways) }

func (n *namespaces) heal(ways ...way) error { return n.rules("del", ways) }

func (n *namespaces) rules(verb string, ways []way) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var lines []string
	for _, w := range ways {
		lines = append(lines, fmt.Sprintf("rule %s from %s to %s blackhole", verb, n.address(n.ports[w.from]), n.address(n.ports[w.to])))
	}
	return n.hub.ip(lines...)
}
