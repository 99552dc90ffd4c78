package decide

import "time"

// Watch times peers on the observer's clock: their heartbeat in a database is a counter, never a time. If the
// observer itself was paused, it times all of them anew, so that an unreachable database or a pause makes none
// lapse. K identifies a peer, including its counter.
type Watch[K comparable] struct {
	limit  time.Duration
	since  map[K]time.Duration
	looked time.Duration
}

// NewWatch returns a watch by which a peer lapses after being silent for longer than the limit. Call Lapsed at
// least every half limit.
func NewWatch[K comparable](limit time.Duration) *Watch[K] {
	return &Watch[K]{limit: limit, since: map[K]time.Duration{}}
}

// Lapsed returns the peers that were silent for longer than the limit. Read now after reading all.
func (w *Watch[K]) Lapsed(all []K, now time.Duration) []K {
	if now-w.looked > w.limit/2 {
		clear(w.since)
	}
	w.looked = now
	var out []K
	next := make(map[K]time.Duration, len(all))
	for _, one := range all {
		since, known := w.since[one]
		if !known {
			since = now
		}
		next[one] = since
		if now-since > w.limit {
			out = append(out, one)
		}
	}
	w.since = next
	return out
}
