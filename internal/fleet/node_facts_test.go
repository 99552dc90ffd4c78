package fleet_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

func TestNodeFactsAreRefused(t *testing.T) {
	t.Parallel()
	facts := func(change func(*fleet.NodeFacts)) fleet.NodeFacts {
		f := fleet.NodeFacts{
			Address: "10.0.0.1", Labels: map[string]string{"zone": "a"}, Drivers: []fleet.Driver{"process", "microvm"},
			Resources: fleet.Resources{CPU: 4, Memory: 8 << 30, GPUs: 1},
		}
		change(&f)
		return f
	}
	require.NoError(t, facts(func(*fleet.NodeFacts) {}).Validate())
	require.NoError(t, fleet.NodeFacts{}.Validate())
	for name, change := range map[string]func(*fleet.NodeFacts){
		"an address with a path":  func(f *fleet.NodeFacts) { f.Address = "10.0.0.1/x" },
		"a label without a name":  func(f *fleet.NodeFacts) { f.Labels = map[string]string{"": "a"} },
		"a label with no letters": func(f *fleet.NodeFacts) { f.Labels = map[string]string{"a": "\x00"} },
		"a driver in capitals":    func(f *fleet.NodeFacts) { f.Drivers = []fleet.Driver{"Docker"} },
		"too many drivers":        func(f *fleet.NodeFacts) { f.Drivers = make([]fleet.Driver, 9) },
		"cores that are none":     func(f *fleet.NodeFacts) { f.Resources.CPU = math.NaN() },
		"less than no memory":     func(f *fleet.NodeFacts) { f.Resources.Memory = -1 },
		"GPUs without end":        func(f *fleet.NodeFacts) { f.Resources.GPUs = 1 << 20 },
	} {
		require.Equal(t, fleet.Invalid, fleet.KindOf(facts(change).Validate()), name)
	}
}
