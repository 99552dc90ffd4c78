package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit/bounds"
)

// dying draws after how long a program fails that had been healthy, and how.
func dying(t *rapid.T) life {
	return life{time.Duration(rapid.IntRange(1, 90).Draw(t, "lives for")) * time.Second, rapid.Bool().Draw(t, "exits")}
}

// steps lets seconds pass in which nodes work, and visits follow as the plans ask for them.
func (g *region) steps(n int) {
	for range n {
		g.work()
		for g.visit().More {
			g.work()
		}
		g.now = g.now.Add(time.Second)
	}
}

// S105, F71, F72, X6: programs of a release exit or answer 500 after a random time, beside whatever else happens. No decision ends a
// replica that works unless the others that are stable or proven are as many as are to be (keepsWorking), and it all ends.
func TestNothingThatWorksEndsForTheUnproven(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := newRegion(t)
		g.cores += 2
		g.seen.Target = rapid.IntRange(1, 6).Draw(t, "replicas")
		g.settle(t)
		g.release(t)
		g.lives[g.version] = dying(t)
		for range rapid.IntRange(0, 12).Draw(t, "disturbances") {
			g.disturb(t)
			g.steps(rapid.IntRange(1, 15).Draw(t, "seconds"))
			if rapid.IntRange(0, 5).Draw(t, "dies too") == 0 {
				g.lives[g.version] = dying(t)
			}
		}
		clear(g.lives)
		for _, n := range g.nodes {
			g.back(n)
		}
		g.sick = false
		g.verb(fleet.RolloutPromote)
		g.settle(t)
		g.rests(t)
	})
}

// F61, F71, F72, S123: a release that fails before it is proven never lowers the number of those that work, less max_unavailable and the
// one that old_first allows. It returns, and says why (nomad 6864).
func TestWhatFailsBeforeItsProofEndsNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := newRegion(t)
		g.cores += 2
		g.seen.Target = rapid.IntRange(1, 6).Draw(t, "replicas")
		g.settle(t)
		if g.seen.State != fleet.DeploymentRunning || bounds.Of(g.look()).Routable < g.seen.Target {
			return
		}
		stable, target := g.seen.Revision, g.seen.Target
		g.release(t)
		if g.seen.Rollout == nil || g.broken[g.version] || g.late[g.version] {
			return
		}
		s := bounds.Strategy(t)
		s.MinHealthyTime = new(30.0)
		if s.Type == fleet.StrategyRecreate {
			s.Type = fleet.StrategyRolling
		}
		g.seen.Rollout.Strategy = s
		g.seen.Rollout.Progress = decide.ProgressDeadline(s, g.seen.Startup, 30*time.Second, 0)
		g.lives[g.version] = life{time.Duration(rapid.IntRange(1, 29).Draw(t, "lives for")) * time.Second, rapid.Bool().Draw(t, "exits")}
		for g.seen.Rollout != nil {
			g.steps(1)
			least := target - s.Unavailable(target)
			if s.WhenFull != fleet.FullWait {
				least--
			}
			require.GreaterOrEqual(t, g.works(stable), least, "%s: %s", g.last.Rule, g.last.Message)
		}
		require.Equal(t, map[fleet.RolloutState]int{fleet.RolloutFailed: 1}, g.rollouts)
		require.Equal(t, stable, g.seen.Revision)
		g.settle(t)
		g.rests(t)
	})
}

// works counts what works of a revision.
func (g *region) works(revision int64) (n int) {
	for _, r := range g.look().Replicas {
		if r.Revision == revision && bounds.Routable(r) {
			n++
		}
	}
	return n
}
