package region

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// F66: drift is counted by kind, also what there was none of, and passes are timed.
func TestSyncMetrics(t *testing.T) {
	t.Parallel()
	m := newSyncMetrics()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.drift, m.seconds)
	m.drifted(nil)
	m.drifted(fleet.Drift{fleet.DriftStray: 2})
	m.drifted(fleet.Drift{fleet.DriftStray: 1, fleet.DriftState: 1})
	m.compared(3 * time.Second)
	families, err := registry.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, x := range f.GetMetric() {
			if f.GetName() == "holdfast_sync_seconds" {
				got["seconds"] = x.GetHistogram().GetSampleSum()
				continue
			}
			got[x.GetLabel()[0].GetValue()] = x.GetCounter().GetValue()
		}
	}
	require.Equal(t, map[string]float64{"missing": 0, "stray": 3, "version": 0, "state": 1, "seconds": 3}, got)
}
