package decide_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// S123: what a rollout takes at most, before it begins.
func TestSizeOf(t *testing.T) {
	t.Parallel()
	small, large := fleet.Resources{CPU: 1, Memory: 100}, fleet.Resources{CPU: 2, Memory: 10, GPUs: 1}
	for name, c := range map[string]struct {
		strategy fleet.Strategy
		from, to fleet.Resources
		want     decide.RolloutSize
	}{
		"rolling, larger ones":  {fleet.Strategy{}, small, large, decide.RolloutSize{Replicas: 6, Surge: 2, Peak: fleet.Resources{CPU: 10, Memory: 420, GPUs: 4}}},
		"rolling, smaller ones": {fleet.Strategy{}, large, small, decide.RolloutSize{Replicas: 6, Surge: 2, Peak: fleet.Resources{CPU: 10, Memory: 420, GPUs: 4}}},
		"no surge": {
			fleet.Strategy{MaxSurge: &fleet.Share{}, MaxUnavailable: &fleet.Share{Count: 1}},
			small, large,
			decide.RolloutSize{Replicas: 4, Peak: fleet.Resources{CPU: 8, Memory: 400, GPUs: 4}},
		},
		"a surge above the target": {fleet.Strategy{MaxSurge: &fleet.Share{Count: 9}}, small, small, decide.RolloutSize{Replicas: 8, Surge: 4, Peak: fleet.Resources{CPU: 8, Memory: 800}}},
		"recreated":                {fleet.Strategy{Type: fleet.StrategyRecreate}, small, large, decide.RolloutSize{Replicas: 4, Peak: fleet.Resources{CPU: 8, Memory: 400, GPUs: 4}}},
	} {
		require.Equal(t, c.want, decide.SizeOf(c.strategy, 4, c.from, c.to), name)
	}
}
