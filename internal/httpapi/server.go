package httpapi

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/declaration"
	"github.com/holdfast-io/holdfast/internal/definition"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/machines"
	"github.com/holdfast-io/holdfast/internal/httpapi/plans"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// Waker wakes an entity after a commit; it may be called often and for nothing.
type Waker interface {
	Wake(ctx context.Context, subject string) error
}

// Executor runs modules. Unavailable was not started, communication may have been.
type Executor interface {
	Execute(ctx context.Context, e fleet.Execution) (fleet.ExecutionAnswer, error)
	// Check rejects an input that no provider of the module accepts.
	Check(ctx context.Context, of fleet.ModuleRef, input []byte) error
}

// Deps is what the HTTP API works with.
type Deps struct {
	Store Store
	Waker Waker
	// NodeStarted is called when a node has said all that it holds since its start.
	NodeStarted func(ctx context.Context, node fleet.NodeName) error
	// Executor runs modules; nil runs none.
	Executor Executor
	// Regions joins this region with others; nil has no peers.
	Regions Regions
	// Definitions make what replicas run; nil is by the embedded settings.
	Definitions *definition.Registry
	// Flatten bounds the bytes of JSON that are worked on at once.
	Flatten *compose.Budget
	Limits  compose.Limits

	Region            string
	WebURL            string // of Temporal Web, "" when there is none to link to
	TemporalNamespace string

	PendingTTL     time.Duration
	OperationLimit time.Duration
	// FailoverLimit is how long a failover may take, the operation limit when it is zero.
	FailoverLimit time.Duration

	Now func() time.Time
	Log *slog.Logger
	// OperationEnds gives a channel that is closed when the operation may have ended. It is
	// optional: without it a wait looks once a second.
	OperationEnds func(ctx context.Context, id fleet.OperationID) <-chan struct{}
	// Refused gets denied requests, here or as reported by a node;
	// nil hears nothing.
	Refused func(audit.Refusal)
	// Ready says whether the server can serve; nil is always.
	Ready func(ctx context.Context) error
	// Stopping is closed when the server is to stop: streams end, and waits are answered, so
	// that they do not hold it up. Nil is never.
	Stopping <-chan struct{}
	// Metrics is where the API's metrics go and what /metrics shows; nil makes one.
	Metrics *prometheus.Registry

	// register adds kinds before the paths are mounted; only tests have kinds of their own.
	register func(*server)
}

const (
	// maxUploads are the uploads of artifacts at once, each with a chunk in memory, and uploadShare
	// those of one caller.
	maxUploads  = 128
	uploadShare = 32
	// envelopeRoom is what a request may have around its config.
	envelopeRoom = 1 << 20
)

// server is the API at work.
type server struct {
	*serve.Server
	store     Store
	waker     Waker
	executor  Executor
	region    fleet.RegionName
	network   Regions
	declared  []fleet.DeclaredKind // in the order of an apply
	kinds     map[fleet.ObjectKind]kindPart
	maker     *declaration.Maker
	turns     declaration.Turns
	links     links
	limit     time.Duration
	failover  time.Duration
	ends      func(ctx context.Context, id fleet.OperationID) <-chan struct{}
	ready     func(ctx context.Context) error
	streaming prometheus.Gauge
	streams   *vigil
	waits     *vigil
	uploading *serve.Memory
	watched   *watch.Reader
	snapshots chan struct{} // of watches, at a time
	idlePoll  time.Duration // of an event stream
	keepAlive time.Duration
	stopping  <-chan struct{}
	machines  *machines.Calls
	plans     *plans.Calls
}

// wake tells an entity that there is something to do. The outbox row is committed, so a
// failure costs time and nothing else.
func (s *server) wake(ctx context.Context, subject string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeLimit)
	defer cancel()
	if err := s.waker.Wake(ctx, subject); err != nil {
		s.Log.Warn("wake failed; the outbox repeats it", "subject", subject, "err", err)
	}
}

const wakeLimit = 2 * time.Second

// watchPoll is how often watches look for what other servers committed.
const watchPoll = 100 * time.Millisecond

// kindPart is what the API does for one kind of declared objects, beside its part of a plan (internal/httpapi/plans).
type kindPart struct {
	// mount mounts the paths of the kind, beside those that mountKind makes for each kind that is not of a site.
	mount func(s *server, k fleet.DeclaredKind)
	// status makes the statuses of a page of objects; nil shows none. detail is for one object, where that says more.
	status, detail func(s *server, ctx context.Context, of []fleet.Object) ([]any, error)
	// own: the kind mounts its reads and its deletion itself.
	own bool
}
