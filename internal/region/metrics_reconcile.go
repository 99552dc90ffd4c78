package region

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// comparisons are the metrics of ReconcileNode (X22). Waiting orphans and their age are a backlog.
type comparisons struct {
	seconds   *prometheus.HistogramVec
	instances *prometheus.CounterVec
}

func newComparisons() comparisons {
	return comparisons{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_reconcile_seconds", Help: "Time from the begin of a node's comparison to its end, by how it ended.",
			Buckets: prometheus.ExponentialBuckets(0.025, 2, 16),
		}, []string{"state", "reason"}),
		instances: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_reconcile_instances_total", Help: "Instances that comparisons fetched, dropped, left waiting for an operator, or whose file they restored.",
		}, []string{"became"}),
	}
}

func (c comparisons) ended(e fleet.ReconcileEnd, now time.Time) {
	c.seconds.WithLabelValues(string(e.State), knownReason(e.Reason)).Observe(max(0, now.Sub(e.By).Seconds()))
	for became, n := range map[string]int{"fetched": e.Fetched, "dropped": e.Dropped, "waiting": e.Waiting, "restored": e.Restored} {
		c.instances.WithLabelValues(became).Add(float64(max(0, n)))
	}
}

// knownReason limits the label to known words, because a node may send anything.
func knownReason(reason string) string {
	words := []string{
		"reconciled", "unchanged", "orphans_wait", "files_restored", "not_all_fetched", decide.SetTruncated, decide.SetOlder, decide.SetEmpty,
		"node_removed", "node_not_enrolled", "worker_holds_no_instances",
	}
	if slices.Contains(words, reason) || slices.Contains(fleet.Kinds(), fleet.Kind(reason)) {
		return reason
	}
	return "other"
}
