package audit

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Store is where refusals are kept.
type Store interface {
	AddRefusals(ctx context.Context, all []Refusal, now time.Time) error
}

const flushEvery = time.Second

// Log writes down what was refused, counts it, and logs what gets a row.
type Log struct {
	store  Store
	log    *slog.Logger
	now    func() time.Time
	count  *prometheus.CounterVec
	window *Window
}

// NewLog makes a log; Run writes.
func NewLog(store Store, log *slog.Logger, now func() time.Time, metrics prometheus.Registerer) (*Log, error) {
	l := &Log{store: store, log: log, now: now, window: NewWindow(now), count: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_refusals_total", Help: "Refusals of what an identity may not do, by door and reason.",
	}, []string{"door", "reason"})}
	return l, metrics.Register(l.count)
}

// Refuse takes note of a refusal; it does not wait for the database.
func (l *Log) Refuse(r Refusal) {
	r = r.clean()
	l.count.WithLabelValues(r.Door, r.Reason).Add(float64(r.Times))
	if l.window.Add(r) {
		l.log.Warn("refused", "door", r.Door, "identity", r.Identity, "reason", r.Reason, "what", r.What, "by", cmp.Or(r.By, FromRegion))
	}
}

// Run writes until the context ends, and what is left then.
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			l.last(context.WithoutCancel(ctx))
			return ctx.Err()
		case <-tick.C:
			l.flush(ctx, l.window.Take())
		}
	}
}

func (l *Log) last(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushEvery)
	defer cancel()
	l.flush(ctx, l.window.Rest())
}

func (l *Log) flush(ctx context.Context, rows []Refusal) {
	if len(rows) == 0 {
		return
	}
	if err := l.store.AddRefusals(ctx, rows, l.now()); err != nil {
		l.log.Warn("refusals are written later", "count", len(rows), "error", err)
		l.window.Back(rows)
	}
}
