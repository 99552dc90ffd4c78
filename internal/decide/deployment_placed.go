package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// RoomAgain is how long a deployment without room waits before it tries again by itself. The sweep wakes it sooner
// when room appears.
const RoomAgain = 15 * time.Second

// ReasonOldFirst ends a replica before its replacement starts, because no other node has room for it.
const ReasonOldFirst = "old_before_new"

// Places is the result of placement for the replicas of one revision.
type Places struct {
	Placed
	// Next: for the revision that is rolled out, else for the deployment's own.
	Next bool
	// Later: there are more nodes, which are taken once the replicas on these are there.
	Later bool
}

// WithPlaces adds the result of placement to a plan that creates replicas of that revision: what room is missing and when to try again. If
// the only room is that of a replica to be replaced, that one ends first, unless another is ending or a new one is not proven yet. The
// caller then carries out the plan on got.Nodes. A visit makes replicas of one revision: those of the other see where these are.
func WithPlaces(p fleet.DeploymentPlan, seen fleet.DeploymentSeen, got Places) fleet.DeploymentPlan {
	switch {
	case p.Rollout == nil:
		p = withPlaces(p, seen, got.Placed)
	case got.Next:
		p = withNextPlaces(p, seen, got.Placed)
	default:
		p = withStablePlaces(p, seen, got.Placed)
		if rollout := *p.Rollout; len(got.Nodes) > 0 && rollout.Create > 0 {
			rollout.Create, p.Rollout = 0, &rollout
			got.Later = true
		}
	}
	if got.Later {
		p.More, p.Done = true, false
	}
	return p
}

// withStablePlaces is for the stable revision. On the way back, one replica of the revision that is left ends first if there is no room
// above the target.
func withStablePlaces(p fleet.DeploymentPlan, seen fleet.DeploymentSeen, got Placed) fleet.DeploymentPlan {
	if p.Create == 0 || got.Missing == 0 {
		return p
	}
	back, line := p.Rollout.Anew || seen.Rollout.State == fleet.RolloutCanceling, seen
	line.Rollout = nil
	if back { // it waits for no proof
		line.Strategy.MinHealthyTime = new(float64)
	}
	got.Yield = newRollout(seen).mayYield(got.Yield, viewDeployment(line), back)
	rollout := *p.Rollout
	p = withPlaces(p, line, got)
	rollout.Short = rollout.Short || p.Rule == ReasonOldFirst
	p.Rollout = &rollout
	return p
}

// withNextPlaces is for the revision that is rolled out. Without room above the target, one replica ends before its replacement starts.
func withNextPlaces(p fleet.DeploymentPlan, seen fleet.DeploymentSeen, got Placed) fleet.DeploymentPlan {
	if p.Rollout.Create == 0 || got.Missing == 0 {
		return p
	}
	rollout, create, line := *p.Rollout, p.Create, asNext(seen)
	got.Yield = newRollout(seen).mayYield(got.Yield, viewDeployment(line), create == 0)
	p.Create = rollout.Create
	p = withPlaces(p, line, got)
	rollout.Short = rollout.Short || p.Rule == ReasonOldFirst
	rollout.Create, rollout.Message = p.Create, p.Message
	p.Create, p.Rollout = create, &rollout
	return p
}

func withPlaces(p fleet.DeploymentPlan, seen fleet.DeploymentSeen, got Placed) fleet.DeploymentPlan {
	if p.Create == 0 || got.Missing == 0 {
		return p
	}
	v := viewDeployment(seen)
	p.Create = len(got.Nodes)
	p.More, p.Done = false, false
	if again := seen.At.Add(RoomAgain); p.Next.IsZero() || again.Before(p.Next) {
		p.Next = again
	}
	if old, found := v.yields(got.Yield); found && p.Create == 0 && len(p.Terminate)+len(v.ending) == 0 && v.makesRoom(old) {
		return oldFirst(p, old, seen.At)
	}
	for _, r := range routable(v.good) {
		if by := v.provenAt(r); seen.At.Before(by) && by.Before(p.Next) {
			p.Next = by
		}
	}
	if p.Create == 0 && len(v.good) == 0 {
		p.Events = slices.DeleteFunc(p.Events, func(e fleet.DeploymentEvent) bool { return e == fleet.DeploymentBegun })
	}
	p.Rule, p.Message, p.Awaited = got.Reason, got.Message, "room for "+fmt.Sprint(got.Missing)+" replicas: "+got.Message
	for i, c := range p.Conditions {
		switch c.Type {
		case ConditionProgressing:
			p.Conditions[i] = condition(c.Type, fleet.ConditionFalse, got.Reason, got.Message)
		case ConditionDegraded:
			p.Conditions[i] = condition(c.Type, fleet.ConditionTrue, got.Reason, got.Message)
		}
	}
	return p
}

// Spread counts, for each node, the deployment's replicas that stay. Dead replicas, those to be replaced and those
// on lost nodes take room but do not affect the spread.
func Spread(seen fleet.DeploymentSeen, rooms []fleet.NodeRoom) []fleet.NodeRoom {
	own := map[fleet.NodeName]int{}
	for _, r := range viewDeployment(seen).good {
		own[r.Node]++
	}
	rooms = slices.Clone(rooms)
	for i := range rooms {
		rooms[i].Own = own[rooms[i].Node]
	}
	return rooms
}

// misplaced explains why placement would no longer choose a live replica's node; "" if it would. Modules come and
// go with their providers, so they only matter for replicas older than this revision on connected nodes.
func (v deploymentView) misplaced(r fleet.ReplicaSeen) string {
	i, known := slices.BinarySearchFunc(v.Nodes, r.Node, func(n fleet.NodeRoom, name fleet.NodeName) int { return cmp.Compare(n.Node, name) })
	if !known {
		return ""
	}
	want := PlaceRequest{Project: v.Project, Spec: v.Placement}
	o := want.mismatch(&v.Nodes[i])
	if o == noModule && (!r.Unheard.IsZero() || r.Revision >= v.Revision) {
		return ""
	}
	return want.describe(o, v.Nodes[i])
}

// leaves reports whether a replica has to move elsewhere.
func (v deploymentView) leaves(r fleet.ReplicaSeen) bool { return r.Leave || v.misplaced(r) != "" }

// yields is the oldest replica to be replaced among those that free room: first one that is not healthy.
func (v deploymentView) yields(ids []fleet.ReplicaID) (fleet.ReplicaSeen, bool) {
	for _, r := range slices.Concat(v.useless, v.stale) {
		if slices.Contains(ids, r.ID) && !v.unsaid(r) {
			return r, true
		}
	}
	return fleet.ReplicaSeen{}, false
}

// makesRoom reports whether a replica may end before its replacement starts: all new ones are proven, and another has made up for
// the last that failed, or that was long ago.
func (v deploymentView) makesRoom(old fleet.ReplicaSeen) bool {
	cover := v.covers(v.good, old)
	madeUp := func(r fleet.ReplicaSeen) bool { return !r.CreatedAt.Before(v.NextAttempt) }
	failed := v.Crashes > 0 && v.At.Before(v.NextAttempt.Add(time.Duration(v.Terms.ResetSeconds)*time.Second))
	return len(cover) == len(v.good) && (!failed || len(cover)+len(routable(v.relied(v.stale))) >= v.Target || slices.ContainsFunc(cover, madeUp))
}

func oldFirst(p fleet.DeploymentPlan, old fleet.ReplicaSeen, now time.Time) fleet.DeploymentPlan {
	p.Rule = ReasonOldFirst
	p.Message = fmt.Sprintf("replica %s ends before its replacement starts: the replacement takes its place on node %s, because no other node has room", old.ID, old.Node)
	p.Terminate = []fleet.ReplicaStep{{ID: old.ID, Reason: ReasonOldFirst, Message: p.Message}}
	p.Awaited = "the end of replica " + string(old.ID)
	p.Next = now.Add(old.Stop + stopMargin)
	return p
}
