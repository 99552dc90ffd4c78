package replicas

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Ports are chosen below the kernel's range for outgoing connections, so that no connection takes one before
// the program listens.
const (
	firstPort = 20000
	lastPort  = 32767
	tryPorts  = 200
)

// ports records which replica has which ports.
type ports struct {
	listen func(network, address string) (net.Listener, error)

	mu    sync.Mutex
	taken map[int]fleet.ReplicaID
}

func newPorts() *ports { return &ports{listen: net.Listen, taken: map[int]fleet.ReplicaID{}} }

// keep records the ports of a replica of an earlier agent.
func (p *ports) keep(id fleet.ReplicaID, at map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, port := range at {
		p.taken[port] = id
	}
}

// drop frees the ports of a replica.
func (p *ports) drop(id fleet.ReplicaID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for port, of := range p.taken {
		if of == id {
			delete(p.taken, port)
		}
	}
}

// choose gives a replica its ports: fixed ones as requested, others free ones. Ports that it had before stay
// while they are free, so its endpoint stays too.
func (p *ports) choose(id fleet.ReplicaID, want []fleet.ProcessPort, had map[string]int) (map[string]int, error) {
	p.drop(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	at := make(map[string]int, len(want))
	for _, port := range want {
		n, err := p.one(port, had[port.Name])
		if err != nil {
			for _, given := range at {
				delete(p.taken, given)
			}
			return nil, err
		}
		at[port.Name], p.taken[n] = n, id
	}
	return at, nil
}

func (p *ports) one(want fleet.ProcessPort, had int) (int, error) {
	if want.Port != 0 {
		if !p.free(want.Port) {
			return 0, &Failure{fleet.ReasonPortTaken, fleet.Errorf(fleet.Conflict, "port %d (%s) is taken on this machine", want.Port, want.Name)}
		}
		return want.Port, nil
	}
	if had != 0 && p.free(had) {
		return had, nil
	}
	for range tryPorts {
		if n := firstPort + rand.IntN(lastPort-firstPort+1); p.free(n) { //nolint:gosec // a port is no secret
			return n, nil
		}
	}
	return 0, &Failure{fleet.ReasonPortTaken, fleet.Errorf(fleet.Conflict, "no free port was found for %s between %d and %d", want.Name, firstPort, lastPort)}
}

// free tells whether a program could listen on a port: on every address, since the program's choice is unknown.
func (p *ports) free(port int) bool {
	if _, taken := p.taken[port]; taken {
		return false
	}
	listener, err := p.listen("tcp", ":"+strconv.Itoa(port))
	if err != nil { // the program may listen on a port that the agent may not
		return !errors.Is(err, syscall.EADDRINUSE)
	}
	return listener.Close() == nil
}
