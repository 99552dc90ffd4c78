package region

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X22
func TestReconcileMetrics(t *testing.T) {
	t.Parallel()
	c, began := newComparisons(), time.Unix(1000, 0)
	registry := prometheus.NewRegistry()
	registry.MustRegister(c.seconds, c.instances)
	for _, e := range []fleet.ReconcileEnd{
		{By: began, State: fleet.OperationSucceeded, Reason: "orphans_wait", Fetched: 3, Dropped: 2, Waiting: 1},
		{By: began, State: fleet.OperationSucceeded, Reason: "orphans_wait", Fetched: 1, Restored: 5},
		{By: began, State: fleet.OperationFailed, Reason: decide.SetEmpty},
		{By: began, State: fleet.OperationFailed, Reason: string(fleet.Communication)},
		{By: began, State: fleet.OperationFailed, Reason: "whatever a node says"},
		{By: began.Add(time.Hour), State: fleet.OperationFailed, Reason: "and another", Waiting: -5},
	} {
		c.ended(e, began.Add(2*time.Second))
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetName() + "=" + l.GetValue()
			}
			if h := m.GetHistogram(); h != nil {
				got[key], got[key+" sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
			} else {
				got[key] = m.GetCounter().GetValue()
			}
		}
	}
	require.Equal(t, map[string]float64{
		"holdfast_reconcile_seconds reason=orphans_wait state=succeeded":     2,
		"holdfast_reconcile_seconds reason=orphans_wait state=succeeded sum": 4,
		"holdfast_reconcile_seconds reason=set_empty state=failed":           1,
		"holdfast_reconcile_seconds reason=set_empty state=failed sum":       2,
		"holdfast_reconcile_seconds reason=communication state=failed":       1,
		"holdfast_reconcile_seconds reason=communication state=failed sum":   2,
		"holdfast_reconcile_seconds reason=other state=failed":               2,
		"holdfast_reconcile_seconds reason=other state=failed sum":           2,
		"holdfast_reconcile_instances_total became=fetched":                  4,
		"holdfast_reconcile_instances_total became=dropped":                  2,
		"holdfast_reconcile_instances_total became=waiting":                  1,
		"holdfast_reconcile_instances_total became=restored":                 5,
	}, got)
}
