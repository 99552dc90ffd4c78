package httpapi

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// core is what all handlers stand on: who calls and what they may, how a body is read and an answer
// written, and how each request is counted and logged.
type core struct {
	now     func() time.Time
	log     *slog.Logger
	refused func(audit.Refusal)
	// stall is how long one read or write of a body may take before the peer is cut.
	stall time.Duration
	// memory is what bodies take while they are read.
	memory *reading

	tokens   *tokenCache
	registry *prometheus.Registry
	metrics  *metrics
	router   chi.Router
	api      huma.API
}

// coreDeps is what core works with.
type coreDeps struct {
	Now     func() time.Time
	Log     *slog.Logger
	Refused func(audit.Refusal)
	Tokens  tokenReader
	Metrics *prometheus.Registry
	// Largest is the largest body that a request may have.
	Largest int64
}

const (
	// StallLimit is how long one read or write of a body may take before the peer is cut.
	stallLimit = 30 * time.Second
	// readingTotal is how many largest bodies there is memory for at once, and readingShare how many
	// of one caller.
	readingTotal = 4
	readingShare = 2
	// seeDocument is the hint for an unknown path.
	seeDocument = "GET /openapi.json lists what there is"
)

func newCore(d coreDeps) (*core, error) {
	s := &core{
		now: d.Now, log: d.Log, refused: d.Refused, stall: stallLimit, tokens: newTokenCache(d.Tokens, d.Now), registry: d.Metrics,
		memory: newReading(readingTotal*d.Largest, readingShare*d.Largest, stallLimit), metrics: newMetrics(),
	}
	return s, s.measure(s.metrics.requests, s.metrics.duration)
}

// mount has every request of root observed, and mounts what every API has: the answers to unknown paths, and
// /metrics. Operations come after it, by register and stream.
func (s *core) mount(root chi.Router, document huma.Config) {
	root.Use(s.observe)
	root.NotFound(open(func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, problemFor(fleet.Errorf(fleet.NotFound, "unknown path").WithHint(seeDocument)))
	}))
	root.MethodNotAllowed(open(func(w http.ResponseWriter, _ *http.Request) {
		p := newProblem(fleet.Invalid, "this path has no such method")
		p.Hint = seeDocument
		p.Status = http.StatusMethodNotAllowed
		writeProblem(w, p)
	}))
	s.router = root.With(s.authenticate)
	s.router.Method(http.MethodGet, "/metrics", s.only(forRegionViewers, s.metricsHandler()))
	s.api = humachi.New(s.router, document)
}

// document describes the operations that are mounted.
func (s *core) document() *huma.OpenAPI { return s.api.OpenAPI() }
