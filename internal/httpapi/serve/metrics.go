package serve

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics of all requests; labels are bounded: routes are patterns, never paths.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics() *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_http_requests_total", Help: "Requests by route, method and status.",
		}, []string{"route", "method", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_http_request_seconds", Help: "Time to answer by route and method; streams count to their end.",
			Buckets: []float64{.002, .01, .05, .2, 1, 5, 30, 120},
		}, []string{"route", "method"}),
	}
}

// Measure adds to what /metrics shows.
func (s *Server) Measure(all ...prometheus.Collector) error {
	for _, c := range all {
		if err := s.registry.Register(c); err != nil {
			return fmt.Errorf("register the API's metrics: %w", err)
		}
	}
	return nil
}

// MetricsHandler serves /metrics.
func (s *Server) MetricsHandler() http.Handler {
	return promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{})
}
