package sqlite

import (
	"context"
	"sync"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite/db"
)

// recent is what was last read of many names and of many bodies: a batch looks three times,
// and hardly ever has anybody written in between. Nobody else has the file open for writing,
// so that it holds until this Store commits something.
type recent struct {
	mu     sync.Mutex
	writes int // commits so far
	held   holdings
	hashes map[fleet.Hash]bool // that were looked for
	bodies []db.ContentsOfRow
}

// forget is called before a commit, by who has the only connection: whoever reads after it
// waits for the commit.
func (r *recent) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes++
	r.held, r.hashes, r.bodies = holdings{}, nil, nil
}

// instances reads some names, in a transaction of q, or more. What it gives must not be changed.
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

// contents is instances for bodies, whose rows may be of more than was asked for.
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
