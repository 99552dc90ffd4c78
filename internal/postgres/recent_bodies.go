package postgres

import (
	"bytes"
	"sync"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	// recentEach is the largest body that is kept, and recentAll what is kept in all.
	recentEach = 64 << 10
	recentAll  = 20 << 20
	// recentOver is about what a kept body takes besides its bytes.
	recentOver = 256
)

// recentBodies are small bodies that were written a moment ago: both nodes of a site ask for
// those of a batch at once. It says nothing about what the database has; who hands one out has
// looked there for who refers to it.
type recentBodies struct {
	mu    sync.Mutex
	size  int
	order []fleet.Hash // oldest first
	kept  map[fleet.Hash][]byte
}

// Put stores a body, which must not change any more.
func (r *recentBodies) Put(h fleet.Hash, body []byte) {
	if len(body) > recentEach {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, is := r.kept[h]; is {
		return
	}
	if cap(body) > len(body)+recentOver {
		body = bytes.Clone(body)
	}
	if r.kept == nil {
		r.kept = map[fleet.Hash][]byte{}
	}
	r.kept[h], r.order, r.size = body, append(r.order, h), r.size+len(body)+recentOver
	for r.size > recentAll {
		oldest := r.order[0]
		r.size -= len(r.kept[oldest]) + recentOver
		delete(r.kept, oldest)
		r.order = r.order[1:]
	}
}

// Of gives those of some bodies that are kept, and names the rest.
func (r *recentBodies) Of(hashes []fleet.Hash) (kept map[fleet.Hash][]byte, rest []fleet.Hash) {
	kept = make(map[fleet.Hash][]byte, len(hashes))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range hashes {
		if body, is := r.kept[h]; is {
			kept[h] = body
		} else {
			rest = append(rest, h)
		}
	}
	return kept, rest
}
