package httpapi

import (
	"io"
	"net/http"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

// healthz says that the process serves requests, and nothing about what it depends on.
func (s *server) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n") // the client is gone when this fails
}

// readyz says whether a load balancer should send requests here.
func (s *server) readyz(w http.ResponseWriter, r *http.Request) {
	if err := s.ready(r.Context()); err != nil {
		s.Log.Warn("not ready", "err", err)
		serve.WriteProblem(w, serve.NewProblem(fleet.Unavailable, "this server is not ready"))
		return
	}
	s.healthz(w, r)
}
