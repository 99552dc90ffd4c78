package leases

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

type metrics struct {
	votes   *prometheus.CounterVec
	moves   prometheus.Counter
	batch   prometheus.Histogram
	batched prometheus.Histogram
	leases  *prometheus.GaugeVec
}

func newMetrics(r *prometheus.Registry) (*metrics, error) {
	m := &metrics{
		votes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_lease_votes_total", Help: "Calls of candidates to the region's vote, by call and the reason of the answer.",
		}, []string{"call", "reason"}),
		moves: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_lease_moves_total", Help: "Grants of this server by which a site's lease moved.",
		}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_lease_batch_seconds", Help: "Time to write a batch of renewals.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 12),
		}),
		batched: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_lease_batch_size", Help: "Renewals in a batch.", Buckets: prometheus.ExponentialBuckets(1, 4, 8),
		}),
		leases: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_leases", Help: "Sites with nodes, by how the region's vote stands.",
		}, []string{"state"}),
	}
	for _, c := range []prometheus.Collector{m.votes, m.moves, m.batch, m.batched, m.leases} {
		if err := r.Register(c); err != nil {
			return nil, fleet.Errorf(fleet.Internal, "register metrics: %w", err)
		}
	}
	return m, nil
}

// standings counts sites by how their vote stands.
type standings struct{ held, free, lost, aimed, unvoted, alone float64 }

func (c *standings) add(row nodes.SiteVote) {
	switch v := row.Vote; {
	case len(row.Pair) < 2:
		c.alone++
	case v.Lost:
		c.lost++
	case v.Target != "":
		c.aimed++
	case v.Unvoted():
		c.unvoted++
	case v.Holder == "":
		c.free++
	default:
		c.held++
	}
}

func (m *metrics) stands(c standings) {
	for state, n := range map[string]float64{
		"held": c.held, "free": c.free, "lost": c.lost, "aimed": c.aimed, "unvoted": c.unvoted, "alone": c.alone,
	} {
		m.leases.WithLabelValues(state).Set(n)
	}
}
