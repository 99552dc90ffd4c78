package region

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/testkit/sized"
)

// healRuns is small enough for every change; thousands are for the night: -heal.runs=5000.
var healRuns = flag.Int("heal.runs", 30, "random histories of TestHeals; -rapid.checks goes before it")

// N54 to N57, N59, N63, N84 to N86, N98, N99, N101, X3, X28: whatever happens, both nodes end equal to the
// region. Real stores, the real API, the real workflows; the network is simulated and time
// is virtual. One logical thread: a run of an entity is executed to its end, and what happens
// meanwhile happens inside its activities and requests, drawn from the step's seed.
func TestHeals(t *testing.T) {
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue { // nobody else here draws
		require.NoError(t, checks.Value.Set(strconv.Itoa(sized.Many(*healRuns))))
	}
	t.Parallel()
	region, ctx := openHealRegion(t), t.Context()
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.SliceOfN(healSteps, 25, 60).Draw(t, "steps")
		dir, err := os.MkdirTemp("", "heal-")
		require.NoError(t, err)
		defer os.RemoveAll(dir) //nolint:errcheck // the test's own
		w, err := newHealWorld(ctx, region, dir)
		require.NoError(t, err)
		defer w.close()
		for _, s := range steps {
			w.step(s)
			w.always()
			if len(w.wrong) > 0 {
				break
			}
		}
		if len(w.wrong) == 0 {
			w.heal()
		}
		if len(w.wrong) > 0 {
			t.Fatal(w.dump())
		}
	})
}
