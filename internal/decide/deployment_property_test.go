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

var (
	wordRunning = fleet.ReplicaStatus{Phase: fleet.PhaseRunning, Health: fleet.HealthNotChecked}
	wordHealthy = fleet.ReplicaStatus{Phase: fleet.PhaseRunning, Health: fleet.HealthHealthy}
	wordUnready = fleet.ReplicaStatus{Phase: fleet.PhaseRunning, Health: fleet.HealthHealthy, Unready: true}
	wordUnwell  = fleet.ReplicaStatus{Phase: fleet.PhaseRunning, Health: fleet.HealthUnhealthy}
	wordExited  = fleet.ReplicaStatus{Phase: fleet.PhaseExited, Health: fleet.HealthUnhealthy, Reason: fleet.ReasonExited}
	wordFailed  = fleet.ReplicaStatus{Phase: fleet.PhaseFailed, Health: fleet.HealthUnhealthy, Reason: fleet.ReasonRestartsUsedUp}
	wordStopped = fleet.ReplicaStatus{Phase: fleet.PhaseStopped, Health: fleet.HealthUnhealthy, Reason: "stopped"}
)

// work has the nodes do what they can: what is to end ends, what is to run gets on.
func (g *region) work() {
	for _, r := range g.all {
		n := g.node(r.Node)
		switch {
		case n.gone || !n.unheard.IsZero():
		case r.State == fleet.ReplicaTerminated:
			delete(g.unsaids, r.ID)
		case r.State == fleet.ReplicaTerminating:
			g.say(r, wordStopped)
		case r.Phase.Over():
		case g.broken[r.ProcessVersion] && r.Phase == "":
			g.say(r, fleet.ReplicaStatus{Phase: fleet.PhasePreparing, Health: fleet.HealthNotChecked})
		case g.fails, g.broken[r.ProcessVersion], g.sick && r.State == fleet.ReplicaStarting:
			g.say(r, wordExited)
		case g.dies(r):
		case g.late[r.ProcessVersion], g.readies && r.State != fleet.ReplicaHealthy: // it gets ready later
			g.say(r, wordUnready)
		default:
			g.say(r, wordHealthy)
		}
	}
}

// dies has a program fail whose time has come, and its node start it anew, three times at most.
func (g *region) dies(r *fleet.ReplicaSeen) bool {
	l := g.lives[r.ProcessVersion]
	switch {
	case l.long == 0:
		return false
	case r.State == fleet.ReplicaUnhealthy && r.Restarts == 3:
		g.say(r, wordFailed)
	case r.State == fleet.ReplicaUnhealthy:
		g.say(r, fleet.ReplicaStatus{Phase: fleet.PhaseRunning, Health: fleet.HealthNotChecked, Restarts: r.Restarts + 1})
	case r.State != fleet.ReplicaHealthy || g.now.Sub(r.Since) < l.long:
		return false
	case l.exits:
		g.say(r, wordExited)
	default:
		g.say(r, wordUnwell)
	}
	return true
}

// chance has one replica do something of its own accord.
func (g *region) chance(t *rapid.T) {
	if len(g.all) == 0 {
		return
	}
	r := rapid.SampledFrom(g.all).Draw(t, "replica")
	if n := g.node(r.Node); n.gone || !n.unheard.IsZero() || r.State == fleet.ReplicaTerminated || r.Phase.Over() {
		return
	}
	words := []fleet.ReplicaStatus{wordRunning, wordHealthy, wordUnwell, wordExited, wordFailed, wordStopped}
	if g.readies {
		words = append(words, wordUnready, wordUnready)
	}
	s := rapid.SampledFrom(words).Draw(t, "word")
	s.Restarts = r.Restarts + rapid.IntRange(0, 1).Draw(t, "restarted")
	s.Unready = s.Unready || g.late[r.ProcessVersion] // it never is
	g.say(r, s)
}

// person asks for something, as the API would let them.
func (g *region) person(t *rapid.T) {
	if g.seen.Deleting {
		if rapid.Bool().Draw(t, "again") {
			g.seen.Redeclared, g.removed = true, false
		}
		return
	}
	switch rapid.SampledFrom([]string{"release", "release", "same", "move", "pool", "pause", "resume", "promote", "restart", "stop first", "scale", "stop", "start", "delete", "remove", "cancel"}).Draw(t, "asked") {
	case "release":
		g.release(t)
	case "same":
		g.edit()
	case "move":
		g.moves(t)
		g.edit()
	case "pool": // what a pool is changes without a word to its deployments
		g.moves(t)
	case "restart":
		if g.seen.Rollout != nil { // it begins when that ends
			g.ask(fleet.OperationRestart)
			g.ops[len(g.ops)-1].ProcessVersion = 0
			return
		}
		g.version++
		g.same(g.version, g.seen.ProcessVersion)
		g.seen.ProcessVersion, g.from = g.version, g.version
		g.ask(fleet.OperationRestart)
	case "stop first":
		if g.seen.Rollout == nil && g.seen.State == fleet.DeploymentRunning && g.seen.Target > 0 && !g.seen.Stopped {
			g.version++
			g.same(g.version, g.seen.ProcessVersion)
			g.rollOut(g.seen.Revision, fleet.Strategy{Type: fleet.StrategyRecreate})
			g.ask(fleet.OperationRestart)
		}
	case "pause":
		g.verb(fleet.RolloutPause)
	case "resume":
		g.verb(fleet.RolloutResume)
	case "promote":
		g.verb(fleet.RolloutPromote)
	case "scale":
		before := g.seen.Target
		g.seen.Target = rapid.IntRange(g.seen.Min, 5).Draw(t, "to")
		if before == 0 && !g.seen.Stopped {
			g.startUnproven(t, false, before)
		}
		g.ask(fleet.OperationScale)
	case "stop":
		g.seen.Stopped, g.seen.Rollout = true, nil
		g.ask(fleet.OperationConverge)
	case "start":
		stopped := g.seen.Stopped
		if g.seen.Stopped = false; stopped {
			g.startUnproven(t, true, g.seen.Target)
		}
		g.ask(fleet.OperationConverge)
	case "delete":
		g.seen.Deleting = true
		g.ask(fleet.OperationDestroy)
	case "remove":
		for _, r := range g.all {
			if r.State.Live() {
				g.move(r.ID, fleet.ReplicaTerminate)
				return
			}
		}
	case "cancel":
		for i := range g.ops {
			g.ops[i].Cancelled = true
		}
	}
}

// edit is a write that no running replica has to be replaced for.
func (g *region) edit() {
	g.revision++
	if r := g.seen.Rollout; r != nil && r.State != fleet.RolloutCanceling {
		r.To.Revision = g.revision
	} else {
		g.seen.Rollout, g.seen.Revision = nil, g.revision
	}
	g.ask(fleet.OperationConverge)
}

func (g *region) moves(t *rapid.T) {
	g.seen.Placement.Sites = []fleet.SiteName{rapid.SampledFrom([]fleet.SiteName{"site-0", "site-1"}).Draw(t, "site")}
	if g.seen.Rollout != nil {
		g.seen.Rollout.To.Placement = g.seen.Placement
	}
}

// machine has one node go away, come back, drain or leave for good.
func (g *region) machine(t *rapid.T) {
	n := rapid.SampledFrom(g.nodes).Draw(t, "node")
	switch rapid.SampledFrom([]string{"away", "back", "wiped", "drain", "undrain", "gone"}).Draw(t, "machine") {
	case "away":
		if n.unheard.IsZero() {
			n.unheard = g.now
		}
	case "back":
		g.back(n)
	case "wiped":
		g.back(n)
		for _, r := range g.all {
			if r.Node == n.name && r.State.Live() {
				r.Lost = true
			}
		}
	case "drain":
		n.leave = true
		n.leaveBy = g.now.Add(rapid.SampledFrom([]time.Duration{5, 30, 300}).Draw(t, "drain deadline") * time.Second)
	case "undrain":
		n.leave, n.leaveBy = false, time.Time{}
	case "gone":
		n.gone = true
	}
}

func (g *region) disturb(t *rapid.T) {
	switch rapid.SampledFrom([]string{"time", "hours", "chance", "chance", "person", "machine", "work", "rounds", "sick"}).Draw(t, "disturbance") {
	case "time":
		g.now = g.now.Add(time.Duration(rapid.IntRange(1, 120).Draw(t, "seconds")) * time.Second)
	case "hours":
		g.now = g.now.Add(time.Duration(rapid.IntRange(1, 12).Draw(t, "hours")) * time.Hour)
	case "chance":
		g.chance(t)
	case "person":
		g.person(t)
	case "machine":
		g.machine(t)
	case "work":
		g.work()
	case "rounds":
		g.rounds(t)
	case "sick":
		g.sick = !g.sick
	}
}

// rounds are visits and work in turns.
func (g *region) rounds(t *rapid.T) {
	for range rapid.IntRange(1, 20).Draw(t, "rounds") {
		g.work()
		g.visit()
	}
}

// noPlace says that the deployment waits for a node, which nobody here will bring.
func noPlace(p fleet.DeploymentPlan) bool {
	switch p.Rule {
	case decide.NoRoom, decide.NoNode, decide.PortsTaken:
		return true
	}
	return false
}

// settle lets time pass and nodes work until nothing is left to do, or there is no place.
func (g *region) settle(t *rapid.T) {
	waits := 0
	for range 3000 {
		p := g.visit()
		if p.Done && (p.Next.IsZero() || g.seen.Crashes == 0) {
			return
		}
		if !p.More {
			g.work()
			g.now = g.now.Add(time.Second)
			if !p.Next.IsZero() && p.Next.After(g.now) {
				g.now = p.Next
			}
		}
		if noPlace(p) && g.seen.Rollout == nil {
			if waits++; waits > 200 {
				return
			}
		}
	}
	require.Fail(t, "it does not end", "%s in %s: %s; %s, %+v", g.last.Rule, g.seen.State, g.last.Message, g.now, g.seen.Rollout)
}

// F72, S17, S31 to S56, S105 to S107, S112, S114, S115, X6, X7: whatever replicas, people and nodes do,
// every plan keeps what is promised, every operation ends, and the deployment comes to rest as it was
// declared: also when nodes are lost at any step, and when it is deleted in any state.
func TestDeploymentAlwaysEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := newRegion(t)
		g.fails = rapid.IntRange(0, 4).Draw(t, "fails") == 0
		for range rapid.IntRange(0, 40).Draw(t, "disturbances") {
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

// rests checks what is left once nothing happens any more.
func (g *region) rests(t *rapid.T) {
	require.Empty(t, g.ops, "every operation ends")
	require.Nil(t, g.seen.Rollout, "every rollout ends")
	n := bounds.Of(g.look())
	switch {
	case g.seen.Deleting:
		require.Equal(t, fleet.DeploymentTerminated, g.seen.State)
		require.Empty(t, g.look().Replicas)
	case g.seen.Stopped:
		require.Equal(t, fleet.DeploymentPending, g.seen.State)
		require.Empty(t, g.look().Replicas)
	case g.seen.State == fleet.DeploymentError:
		require.Equal(t, "given_up", g.seen.Reason)
		require.NotEmpty(t, g.seen.Message, "ERROR says why")
	case noPlace(g.last):
		require.NotEmpty(t, g.seen.Message, "what is missing")
		require.NotEmpty(t, g.last.Awaited)
		for _, r := range g.look().Replicas {
			may := len(g.seen.Placement.Sites) == 0 || g.seen.Placement.Sites[0] == g.node(r.Node).site
			require.False(t, may && !r.Leave && r.ProcessVersion < g.seen.ProcessVersion, "it could be replaced where it is")
		}
	default:
		require.Equal(t, fleet.DeploymentRunning, g.seen.State)
		require.Equal(t, []int{g.seen.Target, g.seen.Target}, []int{n.Healthy, n.Live})
		for _, r := range g.look().Replicas {
			require.False(t, g.toReplace(r), "%s of version %d on %s", r.ID, r.ProcessVersion, r.Node)
		}
	}
}

// X6, S107: a replacement that crashes hold up makes no more than those that are for free, and goes on by
// itself once what is started is healthy again.
func TestDeploymentReplacementGoesOn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := newRegion(t)
		g.settle(t)
		before, running := g.made, g.seen.State == fleet.DeploymentRunning
		g.moves(t)
		g.sick = true
		g.rounds(t)
		if running {
			surge := max(1, g.seen.Strategy.Surge(g.seen.Target))
			require.LessOrEqual(t, g.made-before, 4*surge, "the first, and three at once")
		}
		g.sick = false
		g.settle(t)
		g.rests(t)
	})
}

// S37, S45, S107: a program that never gets healthy ends in ERROR, without a node's or a person's help.
func TestDeploymentGivesUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := newRegion(t)
		if g.seen.Target == 0 {
			g.seen.Target = 1
		}
		if rapid.Bool().Draw(t, "ran before") {
			g.settle(t)
			g.seen.Crashes, g.seen.NextAttempt = 0, time.Time{}
		}
		g.fails = true
		g.work()
		for _, r := range g.all {
			if r.State.Live() {
				g.say(r, wordExited)
			}
		}
		g.settle(t)
		require.True(t, g.seen.State == fleet.DeploymentError || noPlace(g.last), "%s", g.last.Rule)
		require.LessOrEqual(t, g.made, 200)
		require.Empty(t, g.ops)
		again := g.visit()
		require.True(t, again.Done || noPlace(again))
		require.NotEmpty(t, g.seen.Message)
	})
}
