package decide

import (
	"slices"
	"time"
)

// Server is a server with a worker of a build. SeenAt is its last heartbeat: it only tells heartbeats apart, and is
// never compared with a clock.
type Server struct {
	ID, Build string
	SeenAt    time.Time
}

// Falling finds the builds whose servers crash again and again. Each start is a new server, and the next one starts
// before the last one has lapsed (X26).
type Falling struct {
	limit  time.Duration
	spoke  map[string]speech // by the id of the server
	fallen map[string]bool   // builds with a lapsed server, and none steady since
}

// speech is when a server was first seen, and when its heartbeat last changed.
type speech struct {
	first, last time.Duration
	word        time.Time
}

// NewFalling returns a Falling that counts a server as steady once its heartbeats span half the limit. A silent
// server lapses after the limit.
func NewFalling(limit time.Duration) *Falling {
	return &Falling{limit: limit, spoke: map[string]speech{}, fallen: map[string]bool{}}
}

// Look records all servers, and which of them have lapsed.
func (f *Falling) Look(all, lapsed []Server, now time.Duration) {
	spoke := make(map[string]speech, len(all))
	for _, s := range all {
		w, known := f.spoke[s.ID]
		if !known {
			w.first = now
		}
		if !known || !w.word.Equal(s.SeenAt) {
			w.last, w.word = now, s.SeenAt
		}
		spoke[s.ID] = w
		if slices.Contains(lapsed, s) {
			f.fallen[s.Build] = true
		}
	}
	f.spoke = spoke
	for _, s := range all {
		if w := spoke[s.ID]; w.last-w.first >= f.limit/2 && !slices.Contains(lapsed, s) {
			delete(f.fallen, s.Build)
		}
	}
}

// Falls reports whether the servers of a build crash and none is steady.
func (f *Falling) Falls(build string) bool { return f.fallen[build] }
