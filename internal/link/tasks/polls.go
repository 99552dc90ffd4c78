package tasks

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	// pollLimit ends a poll without a deadline, or with a later one: Temporal answers an empty poll after a minute.
	pollLimit = 90 * time.Second
	// pollRoom is how long before the node's deadline a poll ends, so that a task that arrives at the last moment
	// still reaches the node.
	pollRoom = 5 * time.Second
	// pollsPerNode is more than a node's worker keeps open, including those of its previous process.
	pollsPerNode = 8
)

// polls are the long polls that wait at Temporal, by node.
type polls struct {
	mu   sync.Mutex
	open map[fleet.NodeName]map[*poll]struct{}
}

type poll struct {
	cancel context.CancelFunc
	key    string // that opened it
}

// begin opens a poll that ends with the node's call, at its limit or when its key is void. It returns false if the
// node has too many.
func (p *polls) begin(ctx context.Context, node fleet.NodeName, key string) (context.Context, func(), bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open[node]) >= pollsPerNode {
		return nil, nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, limitOf(ctx))
	mine := &poll{cancel, key}
	if p.open == nil {
		p.open = map[fleet.NodeName]map[*poll]struct{}{}
	}
	if p.open[node] == nil {
		p.open[node] = map[*poll]struct{}{}
	}
	p.open[node][mine] = struct{}{}
	return ctx, func() { p.end(node, mine) }, true
}

// limitOf is how long a poll may wait: less than the node's deadline.
func limitOf(ctx context.Context) time.Duration {
	end, has := ctx.Deadline()
	if !has {
		return pollLimit
	}
	left := time.Until(end) //nolint:forbidigo // deadlines are of the real clock
	return min(pollLimit, left-min(pollRoom, left/2))
}

func (p *polls) end(node fleet.NodeName, done *poll) {
	done.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open[node], done)
	if len(p.open[node]) == 0 {
		delete(p.open, node)
	}
}

// cut ends the polls of a node that were opened by other keys than these.
func (p *polls) cut(node fleet.NodeName, valid []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for open := range p.open[node] {
		if !slices.Contains(valid, open.key) {
			open.cancel()
		}
	}
}

// count returns the number of waiting polls, and of their nodes.
func (p *polls) count() (polls, nodes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, open := range p.open {
		polls += len(open)
	}
	return polls, len(p.open)
}

// nodes are the nodes with waiting polls.
func (p *polls) nodes() []fleet.NodeName {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.open))
}
