package decide

import (
	"slices"
	"time"
)

// Server is one that has a worker of a build, by what it said last. SeenAt tells one word from
// the next, and is no time to reckon with.
type Server struct {
	ID, Build string
	SeenAt    time.Time
}

// Falling finds the builds whose servers fall over and over: each start of one is a new server,
// and while the last has not lapsed the next is there (X26).
type Falling struct {
	limit  time.Duration
	spoke  map[string]speech // by the id of the server
	fallen map[string]bool   // builds of which one lapsed, and none has proved steady since
}

// speech is when a server was first heard, and when it said something new last.
type speech struct {
	first, last time.Duration
	word        time.Time
}

// NewFalling takes a server for steady that has said that it lives for half the limit, after
// which a silent one lapses.
func NewFalling(limit time.Duration) *Falling {
	return &Falling{limit: limit, spoke: map[string]speech{}, fallen: map[string]bool{}}
}

// Look takes in all servers, and those of them that have lapsed.
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

// Falls says that a build has servers which fall without a word, and none that stays.
func (f *Falling) Falls(build string) bool { return f.fallen[build] }
