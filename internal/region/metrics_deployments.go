package region

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/store"
)

// The metrics of deployments (S93): their number, requested operations and results, and what nodes report about
// replicas.
var (
	deploymentCount = prometheus.NewDesc("holdfast_deployments", "Deployments by state.", []string{"state"}, nil)
	replicaCount    = prometheus.NewDesc("holdfast_replicas", "Replicas that have not ended, by state.", []string{"state"}, nil)
)

func newTurned() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_deployment_operations_total", Help: "Operations on deployments (converge, scale, restart, destroy), by how they ended.",
	}, []string{"kind", "state", "reason"})
}

func newSaid() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_replica_events_total", Help: "Events of replicas from reports of nodes: passed, failed, restarted, ended.",
	}, []string{"event"})
	for _, on := range fleet.ReplicaEvents() {
		c.WithLabelValues(string(on)).Add(0)
	}
	return c
}

// visited counts the operations that a visit ended.
func (m *metrics) visited(v fleet.DeploymentVisited) { m.closed(v.Ended) }

// closed counts operations on deployments that ended.
func (m *metrics) closed(all []fleet.OperationEnded) {
	for _, f := range all {
		m.turned.WithLabelValues(string(f.Kind), string(f.State), f.Reason).Inc()
	}
}

// countedReplicas is the store, with the events from reports counted.
type countedReplicas struct {
	*store.Store
	said *prometheus.CounterVec
	sync *syncMetrics
}

// ReplicasReported stores a report.
func (c countedReplicas) ReplicasReported(ctx context.Context, r fleet.ReplicasReport) (deployments.ReplicasHeard, error) {
	heard, err := c.Store.ReplicasReported(ctx, r)
	c.count(heard.Moved)
	c.sync.drifted(heard.Drift)
	return heard, err
}

// NodeStopped stores the last report of a node.
func (c countedReplicas) NodeStopped(ctx context.Context, id fleet.ConnectionID, identity string) (deployments.ReplicasHeard, error) {
	heard, err := c.Store.NodeStopped(ctx, id, identity)
	c.count(heard.Moved)
	return heard, err
}

func (c countedReplicas) count(events []fleet.ReplicaEvent) {
	for _, on := range events {
		c.said.WithLabelValues(string(on)).Inc()
	}
}

// collectDeployments reads the numbers; if the store does not answer, they are missing.
func (m *metrics) collectDeployments(ctx context.Context, to chan<- prometheus.Metric) {
	age, err := m.store.DigestAge(ctx)
	if err != nil {
		m.log.Warn("the age of digests is missing", "error", err)
	} else {
		to <- prometheus.MustNewConstMetric(digestAge, prometheus.GaugeValue, age.Seconds())
	}
	deployments, replicas, err := m.store.CountRuntime(ctx)
	if err != nil {
		m.log.Warn("deployment metrics are missing", "error", err)
		return
	}
	for _, state := range fleet.DeploymentStates() {
		to <- prometheus.MustNewConstMetric(deploymentCount, prometheus.GaugeValue, float64(deployments[state]), string(state))
	}
	for _, state := range fleet.ReplicaStates() {
		if state != fleet.ReplicaTerminated {
			to <- prometheus.MustNewConstMetric(replicaCount, prometheus.GaugeValue, float64(replicas[state]), string(state))
		}
	}
}
