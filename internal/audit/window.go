package audit

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
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

// FromRegion is who tells a node to deliver, and who refuses where no node does.
const FromRegion = "region"

// FromNobody is who tells a node what the region has not signed.
const FromNobody = "?"

// The reasons of nodes: a stale action, by the rule that refused it, and a vote's caller.
const (
	StaleEpoch      = "stale_epoch"
	WrongRole       = "wrong_role"
	OlderRevision   = "older_revision"
	NoLease         = "no_lease"
	NotTheCandidate = "not_the_candidate"
	Unauthenticated = "unauthenticated"
	TLS             = "tls"
	// Of commands that came by Temporal without the region's word for them.
	Unsigned     = "unsigned"
	BadSignature = "bad_signature" // altered, or signed by another
	OtherNode    = "other_node"    // signed for another node
	Expired      = "expired"
	Replayed     = "replayed"
)

// reasons are those that a region knows of nodes; others are of a newer one.
var reasons = []string{StaleEpoch, WrongRole, OlderRevision, NoLease, NotTheCandidate, Unauthenticated, TLS, Unsigned, BadSignature, OtherNode, Expired, Replayed}

// NodeSays tells whether a node may say this of itself: of deliveries that its region, or somebody
// in its place, asked for, and of who called at its peer's door, as far as that is an identity of a node.
func NodeSays(r Refusal) bool {
	switch r.Door {
	case DoorNode:
		return r.Identity == FromRegion || r.Identity == FromNobody
	case DoorPeer:
		who := strings.TrimPrefix(r.Identity, "?")
		node, named := strings.CutPrefix(who, "node:")
		return who == "" || r.Identity == many || named && fleet.ValidateName("/identity", node) == nil
	}
	return false
}

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
	// Rows are those that an identity gets in a window.
	Rows = 5
	// Kinds bounds what strangers can make a window remember, by claiming names at one place.
	Kinds = 200
	// MaxText is the length of Identity and What in bytes; what is longer is cut.
	MaxText = 200
	maxWord = 64
	// maxTimes bounds what one refusal may count for.
	maxTimes = 1_000_000
	// MaxWaiting bounds what waits until it can be written.
	MaxWaiting = 2 * Kinds * Rows
	// many stands for all unproven identities above Kinds.
	many = "?many"
)

// Window gathers refusals until somebody takes them. Its methods may be called at once.
type Window struct {
	now func() time.Time

	mu     sync.Mutex
	opened time.Time
	seen   map[kind]*seen
	kinds  map[budget]int
	ready  []Refusal
}

// kind is what is bounded.
type kind struct{ by, door, identity, reason string }

// budget bounds the kinds that somebody can make up: strangers of their names, and a node of
// what it says that it proved.
type budget struct {
	by      string
	claimed bool
}

type seen struct {
	rows int
	rest Refusal // Times is 0 when there is none
}

// NewWindow makes an empty window on a clock.
func NewWindow(now func() time.Time) *Window {
	return &Window{now: now, opened: now(), seen: map[kind]*seen{}, kinds: map[budget]int{}}
}

// clean makes a refusal one that can be written: text that a database takes, of bounded
// length, that happened at least once.
func (r Refusal) clean() Refusal {
	if r.Identity == "" {
		r.Identity = "?"
	}
	r.Door, r.Reason, r.By = text(r.Door, maxWord), text(r.Reason, maxWord), text(r.By, maxWord)
	r.Identity, r.What = text(r.Identity, MaxText), text(r.What, MaxText)
	r.Times = min(max(r.Times, 1), maxTimes)
	return r
}

func text(s string, most int) string {
	s = strings.ReplaceAll(s[:min(len(s), most)], "\x00", "?")
	return strings.ToValidUTF8(s, "")
}

func (r Refusal) budget() budget { return budget{r.By, strings.HasPrefix(r.Identity, "?")} }

// bounded is all but what the region itself has proven, and what it asked of a node.
func (r Refusal) bounded() bool {
	b := r.budget()
	return b.claimed || b.by != "" && r.Door != DoorNode
}

// Add takes note of a refusal, once when it has no Times, and at this moment when it has no At.
// It says whether that gets a row of its own; else it is only counted.
func (w *Window) Add(r Refusal) (row bool) {
	r = r.clean()
	if r.At.IsZero() {
		r.At = w.now()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := kind{r.By, r.Door, r.Identity, r.Reason}
	if w.seen[k] == nil && r.bounded() {
		if w.kinds[r.budget()] >= Kinds {
			r.Identity, r.What = many, ""
			k.identity = many
		}
		w.kinds[r.budget()]++
	}
	n := w.seen[k]
	if n == nil {
		n = &seen{}
		w.seen[k] = n
	}
	if n.rows < Rows && len(w.ready) < MaxWaiting {
		n.rows++
		w.ready = append(w.ready, r)
		return true
	}
	r.Times = min(r.Times+n.rest.Times, maxTimes)
	n.rest = r
	return false
}

// Take gives what is ready. What was only counted is ready when the window ends.
func (w *Window) Take() []Refusal {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := w.now(); at.Sub(w.opened) >= Length {
		w.opened = at
		w.turn()
	}
	rows := w.ready
	w.ready = nil
	return rows
}

// Rest gives all that there is.
func (w *Window) Rest() []Refusal {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn()
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
	clear(w.kinds)
}

// Back gives back what could not be written. Above MaxWaiting the latest are forgotten.
func (w *Window) Back(rows []Refusal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready = slices.Concat(rows, w.ready)
	w.ready = w.ready[:min(len(w.ready), MaxWaiting)]
}
