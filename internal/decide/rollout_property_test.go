package decide_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// F53, F61, F62, F64, F71, F72, S123, X4, X6: whatever people, nodes and programs do during a rollout, it ends: the new revision runs,
// or the stable one does again. Never fewer are routable than the target less what may be missing, never more run than the
// target and the surge, and what failed is not created again (nomad 10465).
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
		g.verb(fleet.RolloutPromote)
		g.settle(t)
		g.rests(t)
	})
}

// starting are replicas that get on with the next work of their nodes.
func (g *region) starting() (all []*fleet.ReplicaSeen) {
	for _, r := range g.all {
		if r.State == fleet.ReplicaStarting && !r.Phase.Over() || r.State == fleet.ReplicaHealthy && r.Unready && !g.late[r.ProcessVersion] {
			all = append(all, r)
		}
	}
	return all
}

// releaseAs releases while the deployment runs, or while nothing is to run of it and then starts it, or after it was given up.
func (g *region) releaseAs(t *rapid.T) {
	target := g.seen.Target
	switch rapid.SampledFrom([]string{"runs", "stopped", "zero", "given up"}).Draw(t, "the deployment") {
	case "stopped":
		g.seen.Stopped = true
		g.ask(fleet.OperationConverge)
		g.settle(t)
		g.release(t)
		g.seen.Stopped = false
		g.startUnproven(t, true, target)
	case "zero":
		g.seen.Min, g.seen.Target = 0, 0
		g.ask(fleet.OperationScale)
		g.settle(t)
		g.release(t)
		g.seen.Target = target
		g.startUnproven(t, false, 0)
	case "given up":
		g.seen.State = fleet.DeploymentError
		g.release(t)
	default:
		g.release(t)
	}
}

// F71, F72, S123: undisturbed, a good revision is deployed, and one that is broken or never ready is rolled back, whatever the strategy
// and whether the deployment ran before.
func TestRolloutEndsByItself(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := newRegion(t)
		g.ports, g.cores = nil, 12
		g.seen.Target = rapid.IntRange(1, 8).Draw(t, "replicas")
		g.settle(t)
		require.Equal(t, fleet.DeploymentRunning, g.seen.State)
		another := rapid.Bool().Draw(t, "another release was on its way")
		if another {
			g.release(t)
			for range rapid.IntRange(1, 4).Draw(t, "rounds") {
				g.visit()
				g.work()
			}
			if g.seen.Rollout == nil { // it was over, or none
				g.settle(t)
			}
			clear(g.rollouts)
		}
		stable := g.seen.Revision
		if g.seen.Rollout != nil {
			g.release(t)
		} else {
			g.releaseAs(t)
		}
		if g.seen.Rollout == nil {
			return
		}
		if s := g.seen.Rollout.Strategy; len(s.Steps) > 0 {
			s.Steps = slices.Clone(s.Steps)
			s.Steps[len(s.Steps)-1].Pause = false
			g.seen.Rollout.Strategy = s
		}
		ends, revision := fleet.RolloutDeployed, g.revision
		if g.broken[g.version] || g.late[g.version] {
			ends, revision = fleet.RolloutFailed, stable
		}
		began, most := g.now, 2*g.seen.Rollout.Progress+time.Minute                                        // there and back
		if ends == fleet.RolloutDeployed || g.seen.Rollout.BeganIn != fleet.DeploymentRunning || another { // each replica may take as long
			most *= time.Duration(g.seen.Target)
		}
		most += g.seen.Rollout.Strategy.Intervals()
		for g.seen.Rollout != nil {
			p := g.visit()
			require.False(t, p.Rollout != nil && p.Rollout.Reason == decide.ReasonReturnIncomplete, "nothing is in the way of its return: %s", p.Message)
			g.work()
			g.now = g.now.Add(time.Second)
			if !p.More && p.Next.After(g.now) && len(g.starting()) == 0 {
				g.now = p.Next
			}
			require.LessOrEqual(t, g.now.Sub(began), most, "%s: %s", p.Rule, p.Message)
		}
		g.settle(t)
		delete(g.rollouts, fleet.RolloutSuperseded)
		require.Equal(t, map[fleet.RolloutState]int{ends: 1}, g.rollouts)
		require.Equal(t, revision, g.seen.Revision)
		g.rests(t)
	})
}
