package decide

import "time"

// Watch times others on the clock of who looks: their word in a database is a counter to it,
// never a time. When who looks was away itself, all are timed anew, so that a database that
// was away, or a pause, makes nobody lapse. K is who, with the counter.
type Watch[K comparable] struct {
	limit  time.Duration
	since  map[K]time.Duration
	looked time.Duration
}

// NewWatch gives a watch by which others lapse that said nothing for longer than the limit. Look
// more often than every half of it.
func NewWatch[K comparable](limit time.Duration) *Watch[K] {
	return &Watch[K]{limit: limit, since: map[K]time.Duration{}}
}

// Lapsed gives those that have said nothing for longer than the limit. Now is read after all
// were.
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
