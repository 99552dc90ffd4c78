package audit

import (
	"slices"
	"sync"
	"time"
	"unicode/utf8"
)

// Refusal is something that somebody asked for and was refused, in stable words. No secret is in it.
type Refusal struct {
	Door string `json:"door"` // where it was asked for
	// Identity is who asked: as proven, or as claimed with a "?" before it; "?" claimed nothing.
	Identity string `json:"identity"`
	Reason   string `json:"reason"`
	What     string `json:"what"` // the method, queue, object or action
	// By is the node that refused; "" is the region.
	By    string    `json:"-"`
	At    time.Time `json:"-"` // of the last of them
	Times int64     `json:"times"`
}

// The doors of nodes; services of the region have their own words.
const (
	DoorNode = "node" // deliveries
	DoorPeer = "peer" // votes
)

// The reasons of nodes: a stale action, by the rule that refused it, and a vote's caller.
const (
	StaleEpoch      = "stale_epoch"
	WrongRole       = "wrong_role"
	OlderRevision   = "older_revision"
	NoLease         = "no_lease"
	NotTheCandidate = "not_the_candidate"
	Unauthenticated = "unauthenticated"
	TLS             = "tls"
)

// reasons are those that a region knows of nodes; others are of a newer one.
var reasons = []string{StaleEpoch, WrongRole, OlderRevision, NoLease, NotTheCandidate, Unauthenticated, TLS}

// KnownReason gives a node's reason, or "other" for one that this version does not know: what
// is counted by reason must not grow with what nodes say.
func KnownReason(reason string) string {
	if slices.Contains(reasons, reason) {
		return reason
	}
	return "other"
}

const (
	// Length is the time in which an identity gets Rows refusals of one reason; what more there
	// is, is counted in one at its end.
	Length = time.Minute
	Rows   = 5
	// Kinds bounds what strangers can make a window remember, by claiming names.
	Kinds = 200
	// MaxWhat is the length of What in bytes; what is longer is cut.
	MaxWhat = 200
	// MaxWaiting bounds what waits until it can be written.
	MaxWaiting = 2 * Kinds * Rows
	// many stands for all identities above Kinds.
	many = "?many"
)

// Window gathers refusals until somebody takes them. Its methods may be called at once.
type Window struct {
	now func() time.Time

	mu     sync.Mutex
	opened time.Time
	seen   map[kind]*seen
	ready  []Refusal
}

// kind is what is bounded.
type kind struct{ by, door, identity, reason string }

type seen struct {
	rows int
	rest Refusal // Times is 0 when there is none
}

// NewWindow makes an empty window on a clock.
func NewWindow(now func() time.Time) *Window {
	return &Window{now: now, opened: now(), seen: map[kind]*seen{}}
}

// Add takes note of a refusal, once when it has no Times, and at this moment when it has no At.
func (w *Window) Add(r Refusal) {
	if r.Identity == "" {
		r.Identity = "?"
	}
	r.What = cut(r.What)
	r.Times = max(r.Times, 1)
	if r.At.IsZero() {
		r.At = w.now()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := kind{r.By, r.Door, r.Identity, r.Reason}
	if w.seen[k] == nil && len(w.seen) >= Kinds {
		r.Identity, r.What = many, ""
		k.identity = many
	}
	n := w.seen[k]
	if n == nil {
		n = &seen{}
		w.seen[k] = n
	}
	if n.rows < Rows {
		n.rows++
		w.ready = append(w.ready, r)
		return
	}
	r.Times += n.rest.Times
	n.rest = r
}

// cut keeps what was asked for within MaxWhat, as whole characters.
func cut(what string) string {
	if len(what) <= MaxWhat {
		return what
	}
	end := MaxWhat
	for end > 0 && !utf8.RuneStart(what[end]) {
		end--
	}
	return what[:end]
}

// Take gives what is ready. What was only counted is ready when the window ends, or at once
// with all set.
func (w *Window) Take(all bool) []Refusal { //nolint:revive // the last one takes all
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := w.now(); all || at.Sub(w.opened) >= Length {
		w.opened = at
		w.turn()
	}
	rows := w.ready
	w.ready = nil
	return rows
}

// turn ends the window; mu is held.
func (w *Window) turn() {
	for _, n := range w.seen {
		if n.rest.Times > 0 {
			w.ready = append(w.ready, n.rest)
		}
	}
	clear(w.seen)
}

// Back gives back what could not be written. Above MaxWaiting the latest are forgotten.
func (w *Window) Back(rows []Refusal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready = slices.Concat(rows, w.ready)
	w.ready = w.ready[:min(len(w.ready), MaxWaiting)]
}
