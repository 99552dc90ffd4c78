package decide_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// F53, F61, F62, F64, F71, S123, X4, X6: whatever people, nodes and programs do during a rollout, it ends: the new revision runs,
// or the stable one does again. Never fewer are routable than the target less what may be missing, never more run than the
// target and the surge, and what failed is not created again.
func TestRolloutAlwaysEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := newRegion(t)
		g.cores += 2
		g.seen.Target = rapid.IntRange(1, 8).Draw(t, "replicas")
		g.settle(t)
		g.release(t)
		for range rapid.IntRange(0, 30).Draw(t, "disturbances") {
			g.disturb(t)
			g.visit()
		}
		for _, n := range g.nodes {
			g.back(n)
		}
		g.sick = false
		g.verb(fleet.RolloutResume)
		g.settle(t)
		g.rests(t)
	})
}

// F71, S123: undisturbed, a good revision is deployed and a broken one is rolled back, whatever the strategy.
func TestRolloutEndsByItself(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := newRegion(t)
		g.ports, g.cores = nil, 12
		g.seen.Target = rapid.IntRange(1, 8).Draw(t, "replicas")
		g.settle(t)
		require.Equal(t, fleet.DeploymentRunning, g.seen.State)
		stable := g.seen.Revision
		g.release(t)
		if g.seen.Rollout == nil {
			return
		}
		ends, revision := fleet.RolloutDeployed, g.revision
		if g.broken[g.version] {
			ends, revision = fleet.RolloutFailed, stable
		}
		g.settle(t)
		require.Equal(t, map[fleet.RolloutState]int{ends: 1}, g.rollouts)
		require.Equal(t, revision, g.seen.Revision)
		g.rests(t)
	})
}
