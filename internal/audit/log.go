package link

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/internal/audit"
)

// DoorLink is the link's own door; other services have their own word.
const DoorLink = "link"

const refusalFlush = time.Second

// Refusals writes down what was refused.
type Refusals struct {
	store  identityStore
	log    *slog.Logger
	now    func() time.Time
	count  *prometheus.CounterVec
	window *audit.Window
}

func newRefusals(store identityStore, log *slog.Logger, now func() time.Time, count *prometheus.CounterVec) *Refusals {
	return &Refusals{store: store, log: log, now: now, count: count, window: audit.NewWindow(now)}
}

// Refuse takes note of a refusal; it does not wait for the database.
func (r *Refusals) Refuse(f audit.Refusal) {
	r.count.WithLabelValues(f.Door, f.Reason).Add(float64(max(f.Times, 1)))
	r.window.Add(f)
}

// run writes until the context ends, and what is left then.
func (r *Refusals) run(ctx context.Context) error {
	tick := time.NewTicker(refusalFlush)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), refusalFlush)
			defer cancel()
			r.flush(last, true)
			return ctx.Err()
		case <-tick.C:
			r.flush(ctx, false)
		}
	}
}

func (r *Refusals) flush(ctx context.Context, all bool) { //nolint:revive // the last one takes all
	rows := r.window.Take(all)
	if len(rows) == 0 {
		return
	}
	if err := r.store.AddRefusals(ctx, rows, r.now()); err != nil {
		r.log.Warn("refusals are written later", "count", len(rows), "error", err)
		r.window.Back(rows)
	}
}
