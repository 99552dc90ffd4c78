package httpapi

import (
	"net/http"

	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

// DoorHTTP is what refusals of the API are written down under.
const DoorHTTP = serve.Door

// Handler is the API.
type Handler struct {
	http.Handler
	s *server
}

// Probes is what watches a process: /healthz, /readyz and /metrics, for one that does not serve
// the API.
func (h *Handler) Probes() http.Handler {
	probes := http.NewServeMux()
	probes.HandleFunc("GET /healthz", h.s.healthz)
	probes.HandleFunc("GET /readyz", h.s.readyz)
	probes.Handle("GET /metrics", h.s.MetricsHandler())
	return probes
}
