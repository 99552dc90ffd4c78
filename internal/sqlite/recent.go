package sqlite

import (
	"context"
	"sync"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite/db"
)

// recent caches the last read of many names and of many bodies: a batch reads three times, and there is rarely
// a write in between. No other process writes the file, so the cache is valid until this Store commits
// something.
type recent struct {
	mu     sync.Mutex
	writes int // commits so far
	held   holdings
	hashes map[fleet.Hash]bool // that were read
	bodies []db.ContentsOfRow
}

// forget must be called before a commit, by the holder of the only connection: later readers wait for the
// commit.
func (r *recent) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes++
	r.held, r.hashes, r.bodies = holdings{}, nil, nil
}

// instances reads some names, or more, in a transaction of q. The result must not be changed.
func (r *recent) instances(ctx context.Context, q *db.Queries, names []fleet.InstanceName) (holdings, error) {
	if held := r.instancesKnown(names); held.of != nil {
		return held, nil
	}
	before := r.now()
	held, err := instancesOf(ctx, q, names)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && before == r.writes && len(names) <= fleet.MaxBatchItems {
		r.held = held
	}
	return held, err
}

func (r *recent) instancesKnown(names []fleet.InstanceName) holdings {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		if _, known := r.held.of[name]; !known {
			return holdings{}
		}
	}
	return r.held
}

// contents is instances for bodies; it may return more rows than requested.
func (r *recent) contents(ctx context.Context, q *db.Queries, hashes []fleet.Hash) ([]db.ContentsOfRow, error) {
	if rows, known := r.contentsKnown(hashes); known {
		return rows, nil
	}
	before := r.now()
	rows, err := contentsOf(ctx, q, hashes)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && before == r.writes && len(hashes) <= fleet.MaxBatchItems {
		r.hashes, r.bodies = make(map[fleet.Hash]bool, len(hashes)), rows
		for _, hash := range hashes {
			r.hashes[hash] = true
		}
	}
	return rows, err
}

func (r *recent) contentsKnown(hashes []fleet.Hash) ([]db.ContentsOfRow, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, hash := range hashes {
		if !r.hashes[hash] {
			return nil, false
		}
	}
	return r.bodies, true
}

func (r *recent) now() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writes
}
