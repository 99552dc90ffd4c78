package replicas

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// gpus records which replica has which of the machine's GPUs. They are numbered from 0, as in the vendor's
// tools.
type gpus struct {
	mu    sync.Mutex
	taken []fleet.ReplicaID // by number, "" for a free one
}

func newGPUs(count int) *gpus { return &gpus{taken: make([]fleet.ReplicaID, max(count, 0))} }

// keep records the GPUs of a replica of an earlier agent; it ignores those that the machine no longer has.
func (g *gpus) keep(id fleet.ReplicaID, at []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range at {
		if n >= 0 && n < len(g.taken) {
			g.taken[n] = id
		}
	}
}

// drop frees the GPUs of a replica.
func (g *gpus) drop(id fleet.ReplicaID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dropped(id)
}

func (g *gpus) dropped(id fleet.ReplicaID) {
	for n, of := range g.taken {
		if of == id {
			g.taken[n] = ""
		}
	}
}

// choose gives a replica as many GPUs as it requests: those that it had before while they are free, else the
// lowest free ones.
func (g *gpus) choose(id fleet.ReplicaID, count int, had []int) ([]int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dropped(id)
	var free []int
	for _, again := range []bool{true, false} {
		for n, of := range g.taken {
			if of == "" && slices.Contains(had, n) == again {
				free = append(free, n)
			}
		}
	}
	if len(free) < count {
		return nil, &Failure{fleet.ReasonGPUTaken, fleet.Errorf(fleet.Conflict, "%d of the machine's %d GPUs are free; %d requested",
			len(free), len(g.taken), count)}
	}
	at := free[:count:count]
	slices.Sort(at)
	for _, n := range at {
		g.taken[n] = id
	}
	return at, nil
}

// visible is a list of GPUs in the form that the vendors' libraries read.
func visible(at []int) string {
	numbers := make([]string, len(at))
	for i, n := range at {
		numbers[i] = strconv.Itoa(n)
	}
	return strings.Join(numbers, ",")
}
