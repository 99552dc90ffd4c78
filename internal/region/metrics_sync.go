package region

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// syncMetrics are the metrics of the comparison of nodes with their rows (F66).
type syncMetrics struct {
	drift   *prometheus.CounterVec
	seconds prometheus.Histogram
}

var digestAge = prometheus.NewDesc("holdfast_sync_digest_age_seconds",
	"Age of the newest complete digest of a connected node, of the node where that is oldest; 0 without digests.", nil, nil)

func newSyncMetrics() *syncMetrics {
	m := &syncMetrics{drift: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_sync_drift_total", Help: "Replicas about which a node and the region, or a node and its drivers, differed: missing, stray, version, state.",
	}, []string{"kind"}), seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "holdfast_sync_seconds", Help: "Time to compare the digests of the nodes of one shard with their rows.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
	})}
	for _, kind := range fleet.DriftKinds() {
		m.drift.WithLabelValues(string(kind)).Add(0)
	}
	return m
}

func (m *syncMetrics) drifted(d fleet.Drift) {
	for kind, n := range d {
		m.drift.WithLabelValues(string(kind)).Add(float64(n))
	}
}

func (m *syncMetrics) compared(took time.Duration) { m.seconds.Observe(took.Seconds()) }
