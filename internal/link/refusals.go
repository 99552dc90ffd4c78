package link

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/internal/postgres"
)

// DoorLink is the link's own door; other services have their own word.
const DoorLink = "link"

// Refused is one refusal, by stable words; no secret may be in it.
type Refused struct {
	Door string
	// Identity is as proven, or as claimed with a "?" before it; "" when nothing was claimed.
	Identity string
	Reason   string
	What     string // the method, queue or object that was asked for
}

const (
	// refusalWindow is the time in which an identity gets refusalRows rows of one reason; what
	// more there is, is counted in one row at its end.
	refusalWindow = time.Minute
	refusalRows   = 5
	// refusalKinds bounds what strangers can make the window remember, by claiming names.
	refusalKinds = 200
	refusalFlush = time.Second
	maxWhat      = 200
)

// Refusals writes down what was refused, so that a flood fills neither table nor memory.
type Refusals struct {
	store  identityStore
	log    *slog.Logger
	count  *prometheus.CounterVec
	mu     sync.Mutex
	opened time.Time
	seen   map[refusalKey]*refusalCount
	write  []postgres.Refusal
}

// refusalKey is what is bounded.
type refusalKey struct{ door, identity, reason string }

type refusalCount struct {
	rows int
	rest postgres.Refusal // Times is 0 when there is none
}

func newRefusals(store identityStore, log *slog.Logger, count *prometheus.CounterVec) *Refusals {
	return &Refusals{store: store, log: log, count: count, seen: map[refusalKey]*refusalCount{}}
}

// Refuse takes note of a refusal; it does not wait for the database.
func (r *Refusals) Refuse(f Refused) {
	if f.Identity == "" {
		f.Identity = "?"
	}
	r.count.WithLabelValues(f.Door, f.Reason).Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	key := refusalKey{f.Door, f.Identity, f.Reason}
	if r.seen[key] == nil && len(r.seen) >= refusalKinds {
		f.Identity, f.What = "?many", ""
		key = refusalKey{f.Door, f.Identity, f.Reason}
	}
	n := r.seen[key]
	if n == nil {
		n = &refusalCount{}
		r.seen[key] = n
	}
	row := postgres.Refusal{Door: f.Door, Identity: f.Identity, Reason: f.Reason, What: f.What[:min(len(f.What), maxWhat)], Times: 1}
	if n.rows < refusalRows {
		n.rows++
		r.write = append(r.write, row)
		return
	}
	row.Times += n.rest.Times
	n.rest = row
}

// run writes until the context ends, and what is left then.
func (r *Refusals) run(ctx context.Context, now func() time.Time) error {
	tick := time.NewTicker(refusalFlush)
	defer tick.Stop()
	r.opened = now()
	for {
		select {
		case <-ctx.Done():
			r.last(context.WithoutCancel(ctx))
			return ctx.Err()
		case <-tick.C:
		}
		if at := now(); at.Sub(r.opened) >= refusalWindow {
			r.opened = at
			r.turn()
		}
		r.flush(ctx)
	}
}

func (r *Refusals) last(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refusalFlush)
	defer cancel()
	r.turn()
	r.flush(ctx)
}

// turn ends a window: what was only counted is written.
func (r *Refusals) turn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.seen {
		if n.rest.Times > 0 {
			r.write = append(r.write, n.rest)
		}
	}
	clear(r.seen)
}

// maxRefusals bounds what waits for a database that is away.
const maxRefusals = 2 * refusalKinds * refusalRows

func (r *Refusals) flush(ctx context.Context) {
	r.mu.Lock()
	rows := r.write
	r.write = nil
	r.mu.Unlock()
	if len(rows) == 0 {
		return
	}
	err := r.store.AddRefusals(ctx, rows)
	if err == nil {
		return
	}
	r.log.Warn("refusals are written later", "count", len(rows), "error", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.write = slices.Concat(rows, r.write)
	r.write = r.write[:min(len(r.write), maxRefusals)]
}
