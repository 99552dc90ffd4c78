package httpapi

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics of the API; labels are bounded: routes are patterns, never paths.
type metrics struct {
	gatherer   prometheus.Gatherer
	requests   *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	fetchBytes *prometheus.CounterVec
	fetchNo    *prometheus.CounterVec
	logSkipped prometheus.Counter
	streams    prometheus.Gauge
}

func newMetrics(r *prometheus.Registry) (*metrics, error) {
	m := &metrics{
		gatherer: r,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_http_requests_total", Help: "Requests by route, method and status.",
		}, []string{"route", "method", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_http_request_seconds", Help: "Time to answer by route and method; streams count to their end.",
			Buckets: []float64{.002, .01, .05, .2, 1, 5, 30, 120},
		}, []string{"route", "method"}),
		fetchBytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_fetch_bytes_total", Help: "Config bytes sent to nodes, as they travel, by content coding.",
		}, []string{"coding"}),
		fetchNo: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_fetch_refusals_total", Help: "Fetches that were refused, by reason.",
		}, []string{"reason"}),
		logSkipped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_instance_log_skipped_bytes_total", Help: "Output of instances that nodes dropped before sending it.",
		}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_event_streams", Help: "Event streams that are open.",
		}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.fetchBytes, m.fetchNo, m.logSkipped, m.streams} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register the API's metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.gatherer, promhttp.HandlerOpts{})
}
