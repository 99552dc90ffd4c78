package region

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/certs/hint"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/link/executors"
	"github.com/holdfast-io/holdfast/internal/store"
)

// inputChecker rejects an input that no provider of a module accepts.
type inputChecker interface {
	Check(ctx context.Context, of fleet.ModuleRef, input []byte) error
}

// executionSteps are the steps of an execution at the store.
type executionSteps struct{ *store.Store }

// ServeExecution takes over an execution, and returns the time it has left.
func (e executionSteps) ServeExecution(ctx context.Context, in activities.BeginExecution, build string) (time.Duration, error) {
	op, err := e.Store.ServeExecution(ctx, in.Operation, in.Run, build)
	if err != nil {
		return 0, err
	}
	now, err := e.Now(ctx)
	return op.Deadline.Sub(now), err
}

// newExecutors makes the pool of this server, with its metric.
func newExecutors(store *store.Store, r *prometheus.Registry, cfg ServerConfig) (*executors.Pool, error) {
	security, err := certs.Client(cfg.Executors)
	if err != nil {
		return nil, err
	}
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "holdfast_execution_seconds", Help: "Time of executions of modules, by how they ended; ok is success.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
	}, []string{"outcome"})
	if err := r.Register(took); err != nil {
		return nil, fleet.Errorf(fleet.Internal, "register metrics: %w", err)
	}
	return executors.New(executors.Options{Directory: store, Now: time.Now, Networks: cfg.ExecutorNetworks, TLS: certs.Named(security), Hint: hint.Executor, Done: func(kind fleet.Kind, d time.Duration) {
		outcome := string(kind)
		if kind == "" {
			outcome = "ok"
		}
		took.WithLabelValues(outcome).Observe(d.Seconds())
	}}), nil
}

const pruneEvery = 10 * time.Second

// hearModules keeps the pool of executors up to date: notifications of connections take effect at once, missed ones
// expire by themselves.
func (s *server) hearModules(ctx context.Context) error {
	prune := time.NewTicker(pruneEvery)
	defer prune.Stop()
	pruned := make(chan struct{})
	defer func() { <-pruned }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(pruned)
		for {
			select {
			case <-prune.C:
				s.modules.Prune()
			case <-ctx.Done():
				return
			}
		}
	}()
	return s.every(ctx, time.Second, "listen for providers", func(ctx context.Context) error {
		defer s.modules.Listening(false)
		return s.store.ListenConnections(ctx, func() { s.modules.Listening(true) }, s.modules.Changed)
	})
}
