package region

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/store"
)

// metrics are the metrics of the mechanisms (X22): the duration and result of deliveries and comparisons, and
// backlogs. The API adds its own.
type metrics struct {
	store     *store.Store
	log       *slog.Logger
	delivered *prometheus.HistogramVec
	collected *prometheus.CounterVec
	failovers *prometheus.CounterVec
	compared  comparisons
	turned    *prometheus.CounterVec
	said      *prometheus.CounterVec
	sync      *syncMetrics
	rivals    *prometheus.CounterVec
}

var (
	backlogCount = prometheus.NewDesc("holdfast_backlog", "What waits, by mechanism.", []string{"mechanism"}, nil)
	regionLag    = prometheus.NewDesc("holdfast_region_lag_seconds", "How far the copies of what a peer owns are behind, by peer.", []string{"peer"}, nil)
	backlogAge   = prometheus.NewDesc("holdfast_backlog_oldest_seconds", "Age of the oldest that waits, by mechanism.", []string{"mechanism"}, nil)
)

// newMetrics registers them.
func newMetrics(r *prometheus.Registry, s *store.Store, log *slog.Logger) (*metrics, error) {
	m := &metrics{store: s, log: log, compared: newComparisons(), delivered: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "holdfast_delivery_seconds", Help: "Time from the claim of a delivery to its end, by how it ended.",
		Buckets: prometheus.ExponentialBuckets(0.025, 2, 16),
	}, []string{"state", "reason"}), collected: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_collected_total", Help: "Rows that the collection removed, by kind.",
	}, []string{"kind"}), failovers: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_failovers_total", Help: "Requested failovers, by how they ended.",
	}, []string{"state", "reason"}), turned: newTurned(), said: newSaid(), sync: newSyncMetrics(), rivals: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_rival_claims_total", Help: "Claims of objects that two regions claimed in one epoch, by the peer that sent them.",
	}, []string{"peer"})}
	for _, kind := range fleet.CollectedKinds() {
		m.removed(kind, 0) // also show kinds without removals
	}
	for _, c := range []prometheus.Collector{m.delivered, m.collected, m.failovers, m.compared.seconds, m.compared.instances, m.turned, m.said, m.sync.drift, m.sync.seconds, m.rivals, m} {
		if err := r.Register(c); err != nil {
			return nil, fleet.Errorf(fleet.Internal, "register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) removed(kind fleet.CollectedKind, rows int64) {
	m.collected.WithLabelValues(string(kind)).Add(float64(rows))
}

func (m *metrics) ended(e fleet.End) {
	m.delivered.WithLabelValues(string(e.State), e.Reason).Observe(time.Since(e.Since).Seconds())
}

func (m *metrics) failedOver(e fleet.FailoverEnd) {
	m.failovers.WithLabelValues(string(e.State), e.Reason).Inc()
}

// rival counts claims that a stream or a comparison found.
func (m *metrics) rival(peer fleet.RegionName, objects int) {
	m.log.Error("alarm: two regions claimed the same objects in one epoch; the higher name owns them", "peer", peer, "objects", objects)
	m.rivals.WithLabelValues(string(peer)).Add(float64(objects))
}

func (m *metrics) reconciled(e fleet.ReconcileEnd) { m.compared.ended(e, time.Now()) }

// Describe lists the metrics that are read from the store.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	to <- backlogCount
	to <- backlogAge
	to <- regionLag
	to <- deploymentCount
	to <- replicaCount
	to <- digestAge
}

const backlogLimit = 5 * time.Second

// Collect reads the store; if it does not answer, these metrics are missing.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), backlogLimit)
	defer cancel()
	m.collectDeployments(ctx, to)
	lags, err := m.store.Lags(ctx)
	if err != nil {
		m.log.Warn("lag metrics are missing", "error", err)
	}
	for peer, lag := range lags {
		to <- prometheus.MustNewConstMetric(regionLag, prometheus.GaugeValue, lag.Seconds(), string(peer))
	}
	all, err := m.store.Backlogs(ctx)
	if err != nil {
		m.log.Warn("backlog metrics are missing", "error", err)
		return
	}
	for name, b := range all {
		to <- prometheus.MustNewConstMetric(backlogCount, prometheus.GaugeValue, float64(b.Count), name)
		to <- prometheus.MustNewConstMetric(backlogAge, prometheus.GaugeValue, b.Oldest.Seconds(), name)
	}
}
