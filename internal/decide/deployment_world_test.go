package decide_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit/bounds"
)

// life is how a version's program fails once it has been healthy for so long: it exits, or answers 500 until its node starts it
// anew. Zero is a program that does not fail.
type life struct {
	long  time.Duration
	exits bool
}

// worldNode is a machine of the toy region.
type worldNode struct {
	name    fleet.NodeName
	site    fleet.SiteName
	unheard time.Time
	since   time.Time // when it came back last
	leave   bool
	leaveBy time.Time // the deadline of its drain
	gone    bool
}

// region is a toy: it keeps one deployment and its replicas as the store would, carries plans out,
// and has nodes that run what they are told, as well as the program lets them.
type region struct {
	t       *rapid.T
	now     time.Time
	nodes   []*worldNode
	seen    fleet.DeploymentSeen // without replicas and operations
	all     []*fleet.ReplicaSeen
	ops     []fleet.DeploymentOperation
	ended   map[fleet.OperationID]fleet.OperationState
	unsaids map[fleet.ReplicaID]fleet.UnconfirmedNode // that ended without their nodes' word
	ports   []int
	cores   float64 // of each node; each replica takes one
	fails   bool    // the program never gets healthy, and exits
	sick    bool    // what is started now exits, what ran before runs on
	made    int
	removed bool // the declaration is gone
	last    fleet.DeploymentPlan
	began   time.Time // of the last transaction: rows that moved bear it
	// The newest revision and process version, and the versions whose program never gets healthy.
	revision, version int64
	broken            map[int64]bool
	// Readies is set if replicas have a readiness check, which the versions in late never pass.
	readies  bool
	late     map[int64]bool
	lives    map[int64]life
	rollouts map[fleet.RolloutState]int // that ended
	atStart  int                        // routable ones when the rollout began
	// Stable is the revision that ran last as it was to, stableVersion the newest process version of it; contents are what the
	// versions run, and from is the lowest that no restart has replaced.
	stable, stableVersion, from int64
	contents                    map[int64]int64
}

func newRegion(t *rapid.T) *region {
	g := &region{t: t, now: noon, began: noon, ended: map[fleet.OperationID]fleet.OperationState{}, unsaids: map[fleet.ReplicaID]fleet.UnconfirmedNode{}}
	g.revision, g.version, g.broken, g.late, g.rollouts = 1, 1, map[int64]bool{}, map[int64]bool{}, map[fleet.RolloutState]int{}
	g.contents, g.lives = map[int64]int64{1: 1}, map[int64]life{}
	g.readies = rapid.IntRange(0, 2).Draw(t, "readiness check") == 0
	for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
		g.nodes = append(g.nodes, &worldNode{name: fleet.NodeName(fmt.Sprint("node-", i)), site: fleet.SiteName(fmt.Sprint("site-", i%2))})
	}
	if rapid.IntRange(0, 3).Draw(t, "fixed port") == 0 {
		g.ports = []int{8080}
	}
	g.cores = float64(rapid.IntRange(1, 6).Draw(t, "cores"))
	n := rapid.IntRange(0, 4).Draw(t, "target")
	g.seen = fleet.DeploymentSeen{
		Name: "web", Placement: fleet.PlacementSpec{Spread: fleet.SpreadSites}, State: fleet.DeploymentPending, Target: n, Min: rapid.IntRange(0, n).Draw(t, "min"), Revision: 1, ProcessVersion: 1,
		Startup: time.Minute, Settle: rapid.SampledFrom([]time.Duration{100 * time.Second, 10 * time.Hour}).Draw(t, "settle time"), Stop: 10 * time.Second,
		Strategy: fleet.Strategy{MaxSurge: rapid.SampledFrom([]*fleet.Share{nil, {Count: 1}, {Percent: 100}}).Draw(t, "own surge")},
		Terms:    fleet.Recovery{GiveUp: 6, CrashMaxSeconds: rapid.SampledFrom([]int{120, 960}).Draw(t, "longest pause")},
	}
	g.ask(fleet.OperationConverge)
	return g
}

// wanted is the process version that is on its way, or there.
func (g *region) wanted() int64 {
	if g.seen.Rollout != nil {
		return g.seen.Rollout.To.ProcessVersion
	}
	return g.seen.ProcessVersion
}

func (g *region) ask(kind fleet.OperationKind) {
	for i := range g.ops {
		g.ops[i].Stale = true
	}
	g.ops = append(g.ops, fleet.DeploymentOperation{
		ID: fleet.OperationID(fmt.Sprint("op-", len(g.ended)+len(g.ops))), Kind: kind,
		ProcessVersion: g.wanted(), Target: g.seen.Target,
		Deadline: g.now.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 20 * time.Minute}).Draw(g.t, "deadline")),
	})
}

func (g *region) node(name fleet.NodeName) *worldNode {
	i := slices.IndexFunc(g.nodes, func(n *worldNode) bool { return n.name == name })
	return g.nodes[i]
}

// look is what the store would see.
func (g *region) look() fleet.DeploymentSeen {
	s := g.seen
	s.At, s.Operations = g.now, slices.Clone(g.ops)
	for _, r := range g.all {
		if n, is := g.unsaids[r.ID]; is {
			s.Unconfirmed = append(s.Unconfirmed, n)
		}
	}
	for _, n := range g.nodes {
		s.Nodes = append(s.Nodes, fleet.NodeRoom{Node: n.name, Site: n.site})
	}
	if g.seen.Rollout != nil {
		r := *g.seen.Rollout
		r.To.Nodes, s.Rollout = s.Nodes, &r
	}
	for _, r := range g.all {
		if r.State == fleet.ReplicaTerminated {
			continue
		}
		n := g.node(r.Node)
		c := *r
		c.Unheard, c.HeardSince, c.Leave, c.Gone = n.unheard, n.since, n.leave || n.gone, n.gone
		c.LeaveBy = n.leaveBy
		s.Replicas = append(s.Replicas, c)
	}
	return s
}

func (g *region) rooms(version int64) []fleet.NodeRoom {
	var out []fleet.NodeRoom
	for _, n := range g.nodes {
		if n.gone {
			continue
		}
		room := fleet.NodeRoom{Node: n.name, Site: n.site, Drivers: []fleet.Driver{fleet.DriverProcess}, Total: fleet.Resources{CPU: g.cores}, Unheard: n.unheard}
		if n.leave {
			room.Away = "draining"
		} else if !n.unheard.IsZero() {
			room.Away = "not_connected"
		}
		for _, r := range g.all {
			if r.Node != n.name || r.State == fleet.ReplicaTerminated {
				continue
			}
			room.Replicas, room.Taken.CPU, room.Ports = room.Replicas+1, room.Taken.CPU+1, append(room.Ports, g.ports...)
			if r.State.Live() {
				room.Own++
			}
			if r.State.Live() && r.ProcessVersion != version {
				room.Old = append(room.Old, fleet.OldReplica{ID: r.ID, Resources: fleet.Resources{CPU: 1}, Ports: g.ports})
			}
		}
		out = append(out, room)
	}
	return out
}

// waited is how long a visit waits for its locks: what it moves bears the time at which its
// transaction began, which is before the time at which it looks.
const waited = 50 * time.Millisecond

// visit looks, decides and acts once.
func (g *region) visit() fleet.DeploymentPlan {
	g.began, g.now = g.now, g.now.Add(waited)
	g.beginWaiting()
	seen := g.look()
	plan := decide.Deployment(seen)
	require.Equal(g.t, plan, decide.Deployment(seen), "the same is decided of the same")
	var placed, next decide.Placed
	if plan.Create > 0 {
		placed = g.place(plan.Create, g.seen.Placement, g.rooms(g.seen.ProcessVersion))
		plan = decide.WithPlaces(plan, seen, decide.Places{Placed: placed})
	}
	if plan.Rollout != nil && plan.Rollout.Create > 0 {
		next = g.place(plan.Rollout.Create, seen.Rollout.To.Placement, g.rooms(g.wanted()))
		plan = decide.WithPlaces(plan, seen, decide.Places{Placed: next, Next: true})
	}
	g.promises(seen, plan)
	g.carryOut(plan, placed.Nodes, next.Nodes)
	g.last = plan
	return plan
}

// beginWaiting begins the restarts that waited for the end of a rollout.
func (g *region) beginWaiting() {
	for i, o := range g.ops {
		if o.Kind == fleet.OperationRestart && o.ProcessVersion == 0 && g.seen.Rollout == nil && !g.seen.Deleting && !o.Cancelled {
			g.version++
			g.same(g.version, g.seen.ProcessVersion)
			g.seen.ProcessVersion, g.ops[i].ProcessVersion, g.from = g.version, g.version, g.version
		}
	}
}

func (g *region) place(n int, spec fleet.PlacementSpec, rooms []fleet.NodeRoom) decide.Placed {
	return decide.Place(decide.PlaceRequest{
		Count: n, Driver: fleet.DriverProcess, Resources: fleet.Resources{CPU: 1}, Ports: g.ports,
		LostBefore: g.now.Add(-30 * time.Second), Spec: spec,
	}, rooms)
}

// promises are what holds of every plan.
func (g *region) promises(seen fleet.DeploymentSeen, p fleet.DeploymentPlan) {
	t := g.t
	require.NotEmpty(t, p.Rule)
	require.Len(t, p.Conditions, 3)
	require.True(t, p.Done || p.More || !p.Next.IsZero(), "%s: nothing would wake it", p.Rule)
	require.LessOrEqual(t, len(p.Terminate)+len(p.End)+len(p.Fail), decide.MaxPerVisit)
	state := seen.State
	for _, e := range p.Events {
		to, err := state.Next(e)
		require.NoError(t, err)
		state = to
	}
	over := seen.Deleting || seen.Stopped || state == fleet.DeploymentDestroying || state == fleet.DeploymentTerminated
	if over || state == fleet.DeploymentError {
		require.Zero(t, p.Create, "S32: %s creates in %s", p.Rule, state)
	}
	g.keepsRoutable(seen, p, over)
	g.keepsWorking(seen, p, over)
	g.inTime(seen, p)
	g.knows(seen, p)
	if !over {
		g.bounded(seen, p, bounds.Of(seen).Live)
	}
	if p.Done {
		open := len(seen.Operations) - len(p.Finish)
		require.Zero(t, open, "%s: an operation is left to nobody: %+v %+v", p.Rule, seen.Operations, p.Rollout)
	}
	if p.Done && p.Next.IsZero() && state == fleet.DeploymentRunning && !over {
		g.leavesNothing(seen)
	}
}

// bounded: what is created keeps within the target and the surge; a replica on a node that it has to leave is replaced beside.
func (g *region) bounded(seen fleet.DeploymentSeen, p fleet.DeploymentPlan, live int) {
	if seen.Rollout == nil || p.Rollout == nil {
		require.LessOrEqual(g.t, p.Create, max(0, bounds.Most(seen)-live+len(p.Terminate)), "more than the target and the surge")
		return
	}
	if seen.Rollout.Strategy.Type == fleet.StrategyRecreate {
		g.recreates(seen, p)
		return
	}
	require.LessOrEqual(g.t, p.Create+p.Rollout.Create, max(0, bounds.Most(seen)-live+len(p.Terminate)), "%s: more than the target and the surge", p.Rule)
	if to, _ := seen.Rollout.State, 0; to == fleet.RolloutCanceling || slices.Contains(p.Rollout.Events, fleet.RolloutExpire) {
		require.Zero(g.t, p.Rollout.Create, "what failed is created again")
	}
}

// recreates: in a recreation nothing is created while something of the other revision may run (F31).
func (g *region) recreates(seen fleet.DeploymentSeen, p fleet.DeploymentPlan) {
	others := 0
	for _, r := range seen.Replicas {
		if r.ProcessVersion != seen.Rollout.To.ProcessVersion {
			others++
		}
	}
	if seen.Rollout.State != fleet.RolloutCanceling {
		require.False(g.t, p.Rollout.Create > 0 && others > 0, "%s: the others have not ended", p.Rule)
	}
	require.LessOrEqual(g.t, p.Rollout.Create, seen.Target)
}

// leavesNothing: a deployment that runs, and that nobody would wake, is as it is to be.
func (g *region) leavesNothing(seen fleet.DeploymentSeen) {
	n := bounds.Of(seen)
	require.Equal(g.t, []int{seen.Target, seen.Target}, []int{n.Healthy, n.Live}, "healthy and live, and nothing would wake it")
	for _, r := range seen.Replicas {
		require.False(g.t, r.State.Live() && g.toReplace(r), "%s is to be replaced, and nothing would wake it", r.ID)
	}
}

// toReplace says that a replica is not of the version, or not where it is to be.
func (g *region) toReplace(r fleet.ReplicaSeen) bool {
	return bounds.Misplaced(g.seen, r) || r.ProcessVersion != g.seen.ProcessVersion
}

// keepsRoutable: what is ended leaves as many routable as are to run, or as there were.
func (g *region) keepsRoutable(seen fleet.DeploymentSeen, p fleet.DeploymentPlan, over bool) {
	if over || p.Rule == decide.ReasonOldFirst && p.Rollout == nil {
		require.True(g.t, over || len(p.Terminate) == 1 && p.Create == 0, "one at a time ends before its replacement")
		return
	}
	if p.Rollout != nil && seen.Rollout.Strategy.Type == fleet.StrategyRecreate {
		return
	}
	before := bounds.Of(seen).Routable
	after := seen
	after.Replicas = slices.DeleteFunc(slices.Clone(seen.Replicas), func(r fleet.ReplicaSeen) bool {
		return slices.ContainsFunc(p.Terminate, func(s fleet.ReplicaStep) bool { return s.ID == r.ID })
	})
	left, least := bounds.Of(after).Routable, bounds.Least(seen)
	if p.Rollout == nil {
		least = seen.Target
	} else if p.Rollout.Short {
		least--
	}
	require.GreaterOrEqual(g.t, left, min(least, before), "%s ends too many: %s: %+v", p.Rule, ids(p.Terminate), p.Rollout)
	for _, r := range seen.Replicas {
		ends := slices.ContainsFunc(p.Terminate, func(s fleet.ReplicaStep) bool { return s.ID == r.ID })
		require.False(g.t, ends && left < least && g.unsaid(r), "%s ends %s, of which its node has still to speak", p.Rule, r.ID)
	}
}

// keepsWorking: a replica that works ends only while the others that are stable or proven are as many as are to be, or were.
func (g *region) keepsWorking(seen fleet.DeploymentSeen, p fleet.DeploymentPlan, over bool) {
	if over || seen.Rollout != nil && p.Rollout != nil && seen.Rollout.Strategy.Type == fleet.StrategyRecreate {
		return
	}
	least, first, after := bounds.Least(seen), 0, seen
	if p.Rollout != nil && p.Rollout.Short {
		least--
	} else if p.Rollout == nil && p.Rule == decide.ReasonOldFirst {
		first = 1
	}
	after.Replicas = slices.DeleteFunc(slices.Clone(seen.Replicas), func(r fleet.ReplicaSeen) bool {
		return slices.ContainsFunc(p.Terminate, func(s fleet.ReplicaStep) bool { return s.ID == r.ID })
	})
	for _, r := range seen.Replicas {
		if slices.ContainsFunc(after.Replicas, func(x fleet.ReplicaSeen) bool { return x.ID == r.ID }) || !bounds.Routable(r) {
			continue
		}
		before := bounds.Covers(seen, fleet.ReplicaSeen{LeaveBy: r.LeaveBy, Stop: r.Stop})
		require.GreaterOrEqual(g.t, bounds.Covers(after, r), min(least, before)-first, "%s ends %s for what is not proven: %+v", p.Rule, r.ID, p.Rollout)
	}
}

// inTime: what its node looks at, and may make healthy yet, is not taken for one that starts too slowly.
func (g *region) inTime(seen fleet.DeploymentSeen, p fleet.DeploymentPlan) {
	for _, r := range seen.Replicas {
		late := slices.ContainsFunc(p.Terminate, func(s fleet.ReplicaStep) bool {
			return s.ID == r.ID && s.Reason == fleet.ReasonStartupDeadline
		})
		require.False(g.t, late && seen.At.Before(r.Since.Add(seen.Startup+seen.Settle)), "%s had time until it is healthy", r.ID)
	}
}

// knows: a stop, a restart or a destroy succeeds when nothing older may run, for all that nodes said, and is
// unknown only when something may.
func (g *region) knows(seen fleet.DeploymentSeen, p fleet.DeploymentPlan) {
	for _, f := range p.Finish {
		op := seen.Operations[slices.IndexFunc(seen.Operations, func(o fleet.DeploymentOperation) bool { return o.ID == f.ID })]
		require.True(g.t, f.State.Ended(), "%s ends as %q", op.Kind, f.State)
		stops := f.Reason == "stopped" || f.Reason == "destroyed"
		if f.State == fleet.OperationSuperseded { // a scale, by a stop: it says nothing of what runs
			continue
		}
		if f.State != fleet.OperationUnknown && !stops && (f.Reason != "converged" || op.Kind != fleet.OperationRestart) {
			continue
		}
		all := seen.Stopped || op.Kind == fleet.OperationDestroy
		may := slices.ContainsFunc(seen.Unconfirmed, func(n fleet.UnconfirmedNode) bool { return all || n.ProcessVersion < op.ProcessVersion })
		for _, r := range seen.Replicas {
			may = may || (all || r.ProcessVersion < op.ProcessVersion) && !r.Phase.Over() && !r.Lost
		}
		require.Equal(g.t, f.State == fleet.OperationUnknown, may, "%s ends as %s", op.Kind, f.Reason)
	}
}

// unsaid: it may be healthy for all that anybody knows, for its node came back a moment ago.
func (g *region) unsaid(r fleet.ReplicaSeen) bool {
	dead := r.Lost || r.Gone || r.Phase.Over()
	return !dead && r.Unheard.IsZero() && r.Reason == decide.ReasonNodeLost && g.now.Before(r.HeardSince.Add(2*time.Minute))
}

// back has a node connect again; its report comes later.
func (g *region) back(n *worldNode) {
	if !n.unheard.IsZero() {
		n.unheard, n.since = time.Time{}, g.now
	}
}

func (g *region) carryOut(p fleet.DeploymentPlan, nodes, next []fleet.NodeName) {
	for _, e := range p.Events {
		g.seen.State, _ = g.seen.State.Next(e)
		if e == fleet.DeploymentGone {
			g.removed = true
		}
		if e == fleet.DeploymentRedeclared {
			g.seen.Deleting, g.seen.Redeclared, g.seen.Stopped, g.removed = false, false, false, false
			clear(g.unsaids) // they are of the declaration before
			g.stable = 0
		}
	}
	g.seen.Reason, g.seen.Message, g.seen.Attempts, g.seen.Crashes = p.Rule, p.Message, p.Attempts, p.Crashes
	g.seen.NextAttempt, g.seen.Owed, g.seen.Began, g.seen.BeganVersion = p.NextAttempt, p.Owed, p.Began, p.BeganVersion
	if p.Proven {
		g.stable, g.stableVersion = g.seen.Revision, g.seen.ProcessVersion
	}
	for _, s := range p.Terminate {
		g.move(s.ID, fleet.ReplicaTerminate)
	}
	for _, s := range p.End {
		g.move(s.ID, fleet.ReplicaEnded)
		for _, r := range g.all {
			if r.ID == s.ID && !r.Phase.Over() && !r.Lost {
				g.unsaids[r.ID] = fleet.UnconfirmedNode{Node: r.Node, ProcessVersion: r.ProcessVersion}
			}
		}
	}
	for _, s := range p.Fail {
		g.move(s.ID, fleet.ReplicaFailed)
		for _, r := range g.all {
			if r.ID == s.ID {
				r.Reason = s.Reason
			}
		}
	}
	for _, n := range nodes[:p.Create] {
		g.create(n, g.seen.Revision, g.seen.ProcessVersion)
	}
	if p.Rollout != nil {
		g.moveRollout(p.Rollout, next)
	}
	for _, f := range p.Finish {
		g.ended[f.ID] = f.State
		g.ops = slices.DeleteFunc(g.ops, func(o fleet.DeploymentOperation) bool { return o.ID == f.ID })
	}
}

func (g *region) create(n fleet.NodeName, revision, version int64) {
	g.made++
	g.all = append(g.all, &fleet.ReplicaSeen{
		ID: fleet.ReplicaID(fmt.Sprintf("%012x", g.made)), Node: n, Site: g.node(n).site, State: fleet.ReplicaStarting, Revision: revision,
		ProcessVersion: version, CreatedAt: g.now, Since: g.now, Stop: g.seen.Stop,
	})
}

// moveRollout carries out what becomes of a rollout.
func (g *region) moveRollout(p *fleet.RolloutPlan, nodes []fleet.NodeName) {
	r := g.seen.Rollout
	for _, n := range nodes[:p.Create] {
		g.create(n, r.To.Revision, r.To.ProcessVersion)
	}
	for _, e := range p.Events {
		to, err := r.State.Next(e)
		require.NoError(g.t, err)
		r.State, r.Since = to, g.now
	}
	r.Step, r.StepAt = p.Step, p.StepAt
	r.Reason, r.Want, r.Most, r.ProgressAt, r.Short = p.Reason, p.Want, p.Most, p.ProgressAt, p.Short
	r.Failures, r.FailedAt = p.Failures, p.FailedAt
	r.To.Crashes, r.To.Owed, r.To.NextAttempt = p.Crashes, p.Owed, p.NextAttempt
	if p.Anew {
		g.version++
		for _, x := range g.all {
			if x.ProcessVersion == g.seen.ProcessVersion { // they are as good
				x.ProcessVersion = g.version
			}
		}
		g.same(g.version, g.seen.ProcessVersion)
		g.seen.ProcessVersion, g.seen.BeganVersion = g.version, g.version
	}
	if r.State.Active() {
		return
	}
	g.rollouts[r.State]++
	if r.State == fleet.RolloutDeployed {
		g.seen.Revision, g.seen.ProcessVersion, g.seen.Began, g.seen.BeganVersion = r.To.Revision, r.To.ProcessVersion, r.To.Revision, r.To.ProcessVersion
		g.seen.Strategy = r.Strategy
		g.seen.Crashes, g.seen.Owed, g.seen.NextAttempt, g.seen.Placement = r.To.Crashes, r.To.Owed, r.To.NextAttempt, r.To.Placement
		if g.seen.Target > 0 {
			g.stable, g.stableVersion = g.seen.Revision, g.seen.ProcessVersion
		}
	}
	g.seen.Rollout = nil
}

// same has a process version run what another does.
func (g *region) same(version, as int64) {
	g.contents[version], g.broken[version], g.late[version] = g.contents[as], g.broken[as], g.late[as]
	g.lives[version] = g.lives[as]
}

// way is how a release reaches what runs.
func (g *region) way(change func(s *decide.ReleaseSeen)) decide.ReleaseSeen {
	s := decide.ReleaseSeen{
		State: g.seen.State, Target: g.seen.Target, NextTarget: g.seen.Target, Released: true, Rolling: g.seen.Rollout != nil,
		Returning: g.seen.Rollout != nil && g.seen.Rollout.State == fleet.RolloutCanceling, Stable: g.stable > 0,
	}
	change(&s)
	return s
}

// beginStart has the stable revision be the deployment's own before a rollout that starts another.
func (g *region) beginStart(seen decide.ReleaseSeen) fleet.DeploymentState {
	if g.seen.Rollout != nil {
		return g.seen.Rollout.BeganIn
	}
	if !seen.Idle() {
		return fleet.DeploymentRunning
	}
	g.version++
	g.same(g.version, g.stableVersion)
	for _, x := range g.all {
		if g.contents[x.ProcessVersion] == g.contents[g.stableVersion] && x.ProcessVersion >= g.from {
			x.ProcessVersion = g.version
		}
	}
	g.seen.Revision, g.seen.Began, g.seen.ProcessVersion, g.seen.BeganVersion = g.stable, g.stable, g.version, g.version
	g.seen.Attempts, g.seen.Crashes, g.seen.NextAttempt, g.seen.Owed = 0, 0, time.Time{}, 0
	return seen.BeganIn()
}

// startUnproven has what was released while nothing was to run roll out, if there is something to return to.
func (g *region) startUnproven(t *rapid.T, wasStopped bool, before int) {
	same := g.contents[g.seen.ProcessVersion] == g.contents[g.stableVersion]
	seen := g.way(func(s *decide.ReleaseSeen) {
		s.SameAsOwn, s.SameAsStable, s.WasStopped, s.Target = true, same, wasStopped, before
	})
	if g.seen.Rollout != nil || decide.Release(seen) != decide.ReleaseRollsOut {
		return
	}
	revision, version := g.seen.Revision, g.seen.ProcessVersion
	g.atStart = bounds.Of(g.look()).Routable
	began := g.beginStart(seen)
	g.version++
	g.same(g.version, version)
	g.rollOut(revision, bounds.Strategy(t))
	g.seen.Rollout.BeganIn = began
}

// release is a write of a new content.
func (g *region) release(t *rapid.T) {
	g.revision = g.revision + 1
	seen := g.way(func(s *decide.ReleaseSeen) { s.Stopped, s.WasStopped = g.seen.Stopped, g.seen.Stopped })
	rolls, began := decide.Release(seen) == decide.ReleaseRollsOut && rapid.IntRange(0, 3).Draw(t, "at once") > 0, fleet.DeploymentState("")
	if rolls {
		if g.seen.Rollout == nil {
			g.atStart = bounds.Of(g.look()).Routable
		}
		began = g.beginStart(seen)
	}
	g.version++
	g.contents[g.version] = g.version
	if rolls || g.stable > 0 && (seen.Stopped || seen.Target == 0) {
		g.broken[g.version] = rapid.IntRange(0, 3).Draw(t, "broken") == 0
		g.late[g.version] = g.readies && rapid.IntRange(0, 3).Draw(t, "never ready") == 0
	}
	if !rolls {
		g.seen.Rollout, g.seen.Revision, g.seen.ProcessVersion = nil, g.revision, g.version
		g.ask(fleet.OperationConverge)
		return
	}
	g.rollOut(g.revision, bounds.Strategy(t))
	g.seen.Rollout.BeganIn = began
	g.ask(fleet.OperationConverge)
}

// rollOut starts a rollout.
func (g *region) rollOut(revision int64, strategy fleet.Strategy) {
	g.seen.Rollout = &fleet.RolloutSeen{
		Step:   decide.FirstStep(strategy, g.atStart, g.seen.Min),
		Number: g.revision, State: fleet.RolloutDeploying, Strategy: strategy, ProgressAt: g.now, Since: g.now, AtStart: g.atStart,
		Progress: decide.ProgressDeadline(strategy, g.seen.Startup, 30*time.Second, g.seen.Shows), Deadline: g.now.Add(2 * time.Hour),
		To: fleet.RevisionLine{
			Revision: revision, ProcessVersion: g.version, Terms: g.seen.Terms, Startup: g.seen.Startup, Settle: g.seen.Settle, Stop: g.seen.Stop,
			Placement: g.seen.Placement,
		},
	}
}

// verb asks something of the rollout.
func (g *region) verb(on fleet.RolloutEvent) {
	if g.seen.Rollout == nil {
		return
	}
	was := g.seen.Rollout.State
	now, changed, err := decide.Turn(*g.seen.Rollout, on, 0)
	if err != nil || !changed {
		return
	}
	if was == fleet.RolloutPaused {
		now.Deadline = now.Deadline.Add(g.now.Sub(now.Since))
	}
	now.Since, now.ProgressAt = g.now, g.now
	g.seen.Rollout = &now
}

func (g *region) move(id fleet.ReplicaID, e fleet.ReplicaEvent) {
	for _, r := range g.all {
		if r.ID != id {
			continue
		}
		to, err := r.State.Next(e)
		require.NoError(g.t, err)
		r.State, r.Since = to, g.began
		if to == fleet.ReplicaTerminating {
			r.StopBy = g.began.Add(r.Stop + 30*time.Second)
		}
	}
}

// say is a node's word of one replica.
func (g *region) say(r *fleet.ReplicaSeen, s fleet.ReplicaStatus) {
	s.ID = r.ID
	g.began = g.now
	was := *r
	s.Restarts = max(s.Restarts, r.Restarts)
	for _, e := range decide.ReplicaReported(*r, s) {
		g.move(r.ID, e)
	}
	if r.State == fleet.ReplicaHealthy && (was.State != r.State || s.Restarts > was.Restarts) {
		r.Worked = was.Since
		if s.Restarts > was.Restarts {
			r.Worked = g.now
		}
	}
	if r.Unready && !s.Unready {
		r.ReadySince = g.now
	}
	r.Phase, r.Health, r.Unready, r.Restarts, r.Reason = s.Phase, s.Health, s.Unready, s.Restarts, s.Reason
}
