package copies

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// reports times the reports of the runs that follow peers on this process's monotonic clock: to all others, how often a
// run reported is a counter, and never a time.
type reports struct {
	mu   sync.Mutex
	last map[string]report
}

type report struct {
	number int64
	at     time.Time
}

// age is how long ago this process first saw the newest report of a peer's run. stored is its age by the database's clock: it
// counts until this process has seen two reports.
func (r *reports) age(peer string, number int64, stored time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, known := r.last[peer]
	switch {
	case !known:
		one = report{number, time.Now().Add(-max(0, stored))}
	case one.number != number:
		one = report{number, time.Now()}
	}
	r.last[peer] = one
	return time.Since(one.at)
}

// Lags gives, of each peer that this region was ever up to date with, how far behind its copies are: the time since the peer
// said that it had nothing more, and all before was applied, and how long a transaction had held back the peer's feed by then.
func (s *Store) Lags(ctx context.Context) (map[fleet.RegionName]time.Duration, error) {
	rows, err := s.Q.StreamLags(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[fleet.RegionName]time.Duration, len(rows))
	for _, r := range rows {
		out[fleet.RegionName(r.Peer)] = time.Duration(r.LagMs)*time.Millisecond + s.reports.age(r.Peer, r.Reports, seconds(r.SeenSeconds))
	}
	return out, nil
}
