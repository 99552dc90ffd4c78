package serve

import (
	"context"
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

// Server is what all handlers stand on: who calls and what they may, how a body is read and an answer
// written, and how each request is counted and logged.
type Server struct {
	Now     func() time.Time
	Log     *slog.Logger
	Refused func(audit.Refusal)
	// Stall is how long one read or write of a body may take before the peer is cut.
	Stall time.Duration
	// Memory is what bodies take while they are read.
	Memory *Memory
	// Largest is the largest body that a request may have.
	Largest int64

	addressOf func(context.Context, fleet.RegionName) (string, error)

	tokens   *tokenCache
	registry *prometheus.Registry
	metrics  *metrics
	router   chi.Router
	api      huma.API
}

// Deps is what a Server works with.
type Deps struct {
	Now     func() time.Time
	Log     *slog.Logger
	Refused func(audit.Refusal)
	Tokens  tokenReader
	Metrics *prometheus.Registry
	// Largest is the largest body that a request may have.
	Largest int64
	// AddressOf gives the URL of another region's API, "" if that is not known; nil for no other regions.
	AddressOf func(context.Context, fleet.RegionName) (string, error)
}

const (
	// stallLimit is how long one read or write of a body may take before the peer is cut.
	stallLimit = 30 * time.Second
	// readingTotal is how many largest bodies there is memory for at once, and readingShare how many
	// of one caller.
	readingTotal = 4
	readingShare = 2
	// seeDocument is the hint for an unknown path.
	seeDocument = "GET /openapi.json lists what there is"
)

// New makes a server that has no operations yet.
func New(d Deps) (*Server, error) {
	s := &Server{
		Now: d.Now, Log: d.Log, Refused: d.Refused, Stall: stallLimit, Largest: d.Largest, addressOf: d.AddressOf, tokens: newTokenCache(d.Tokens, d.Now), registry: d.Metrics,
		Memory: NewMemory(readingTotal*d.Largest, readingShare*d.Largest, stallLimit), metrics: newMetrics(),
	}
	return s, s.Measure(s.metrics.requests, s.metrics.duration)
}

// Mount has every request of root observed, and mounts what every API has: the answers to unknown paths, and
// /metrics. Operations come after it, by Register and Stream.
func (s *Server) Mount(root chi.Router, document huma.Config) {
	root.Use(s.observe)
	root.NotFound(Open(func(w http.ResponseWriter, _ *http.Request) {
		WriteProblem(w, ProblemFor(fleet.Errorf(fleet.NotFound, "unknown path").WithHint(seeDocument)))
	}))
	root.MethodNotAllowed(Open(func(w http.ResponseWriter, _ *http.Request) {
		p := NewProblem(fleet.Invalid, "this path has no such method")
		p.Hint = seeDocument
		p.Status = http.StatusMethodNotAllowed
		WriteProblem(w, p)
	}))
	s.router = root.With(s.authenticate)
	s.router.Method(http.MethodGet, "/metrics", s.only(ForRegionViewers, s.MetricsHandler()))
	s.api = humachi.New(s.router, document)
}

// Document describes the operations that are mounted.
func (s *Server) Document() *huma.OpenAPI { return s.api.OpenAPI() }
