package link

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// metrics are those of this server's side of the link (X22).
type metrics struct {
	heartbeats, stuck, swept, wakes, sets prometheus.Counter
	registered, ended, drains, reports    *prometheus.CounterVec
	drainTime, batches                    *prometheus.HistogramVec
	lag                                   prometheus.Gauge
}

func newMetrics(r *prometheus.Registry, s *Server) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		heartbeats: counter("holdfast_link_heartbeats_total", "Heartbeats that came."),
		stuck:      counter("holdfast_link_send_timeouts_total", "Streams that were cut because their client did not read."),
		swept:      counter("holdfast_link_swept_total", "Connections of lapsed servers that this one ended."),
		wakes:      counter("holdfast_link_wakes_total", "Wakes that idle nodes were sent."),
		sets:       counter("holdfast_link_sets_total", "Versions of replica sets that nodes were notified of."),
		reports:    vec("holdfast_link_reports_total", "Reports of replicas, taken or refused.", "outcome"),
		registered: vec("holdfast_link_registrations_total", "Registrations, accepted or by the kind of refusal.", "outcome"),
		ended:      vec("holdfast_link_ended_total", "Connections that ended at this server, by reason.", "reason"),
		drains:     vec("holdfast_link_drains_total", "Drains by step: asked (again), acked, and the event that ended the connection.", "step"),
		drainTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_link_drain_seconds", Help: "Time from the first request to drain until the connection ended, by what ended it.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 9),
		}, []string{"reason"}),
		batches: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_link_batch_size", Help: "Calls that were served by one transaction, by kind.", Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}, []string{"kind"}),
		lag: prometheus.NewGauge(prometheus.GaugeOpts{Name: "holdfast_link_monitor_lag_seconds", Help: "How late the monitor's last tick was."}),
	}
	all := []prometheus.Collector{m.heartbeats, m.stuck, m.swept, m.wakes, m.sets, m.reports, m.registered, m.ended, m.drains, m.drainTime, m.batches, m.lag}
	for _, state := range fleet.ConnectionStates() {
		if state.Live() {
			all = append(all, s.gauge(state))
		}
	}
	all = append(all, s.crowds.metrics(m.batches)...)
	all = append(all, s.strangers.Metrics(DoorLink)...)
	for _, c := range all {
		if err := r.Register(c); err != nil {
			return nil, fleet.Errorf(fleet.Internal, "register metrics: %w", err)
		}
	}
	return m, nil
}

// gauge counts the connections in a state when it is read.
func (s *Server) gauge(state fleet.ConnectionState) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "holdfast_link_connections", Help: "Connections that this server holds, by state.",
		ConstLabels: prometheus.Labels{"state": string(state)},
	}, func() float64 {
		n := 0.0
		s.mu.RLock()
		defer s.mu.RUnlock()
		for _, c := range s.held {
			if c.now() == state {
				n++
			}
		}
		return n
	})
}
