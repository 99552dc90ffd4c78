package decide

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// How long the region waits for a connected node before it decides without a report. Nodes enforce a replica's time
// limits themselves, on their own clocks.
const (
	takeUpLimit  = 2 * time.Minute // for a node to report a new replica
	prepareLimit = PrepareLimit    // to pull an image
	stuckLimit   = 5 * time.Minute // beyond a deadline that the node enforces
)

// deploymentView sorts the replicas that are not TERMINATED, each list oldest first:
//   - good run the released process version on a node where they may stay
//   - stale are HEALTHY and must be replaced; those that are not ready come first
//   - useless must be replaced and are not HEALTHY
//   - dead no longer run
//   - away are on lost nodes
//   - ending are TERMINATING
type deploymentView struct {
	fleet.DeploymentSeen
	good, stale, useless, dead, away, ending []fleet.ReplicaSeen
	// rolling is set beside another revision that is rolled out: earlier ones end and are not replaced by this one.
	rolling bool
	// leaving is set if a rollout leaves it: nothing of it is created any more.
	leaving bool
	// proof is how long a replica must be routable until it is proven: nothing in a return.
	proof time.Duration
	// short is set while fewer replicas of all revisions are routable than are to be: none ends that its node has yet to report.
	short bool
}

func viewDeployment(seen fleet.DeploymentSeen) deploymentView {
	seen.Terms, seen.Nodes = seen.Terms.WithDefaults(), byName(seen.Nodes)
	v := deploymentView{DeploymentSeen: seen, proof: seen.Strategy.MinHealthy(seen.Shows)}
	if !seen.At.Before(seen.NextAttempt) {
		v.Owed = 0
	}
	if seen.Stopped || seen.Deleting {
		v.Target = 0
	}
	for _, r := range oldestFirst(seen.Replicas) {
		switch {
		case r.State == fleet.ReplicaTerminated:
		case r.State == fleet.ReplicaTerminating:
			v.ending = append(v.ending, r)
		case v.isDead(r):
			v.dead = append(v.dead, r)
		case v.isAway(r):
			v.away = append(v.away, r)
		case r.ProcessVersion == seen.ProcessVersion && !v.leaves(r):
			v.good = append(v.good, r)
		case r.State == fleet.ReplicaHealthy:
			v.stale = append(v.stale, r)
		default:
			v.useless = append(v.useless, r)
		}
	}
	slices.SortStableFunc(v.stale, func(a, b fleet.ReplicaSeen) int { return cmp.Compare(readiness(a), readiness(b)) })
	return v
}

// readiness orders replicas that are not ready before those that are.
func readiness(r fleet.ReplicaSeen) int {
	if r.Unready {
		return 0
	}
	return 1
}

func oldestFirst(all []fleet.ReplicaSeen) []fleet.ReplicaSeen {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b fleet.ReplicaSeen) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// isDead: its node reported that it ended, the node can never report again, or the node is connected and missed
// every deadline.
func (v deploymentView) isDead(r fleet.ReplicaSeen) bool {
	return r.Lost || r.Gone || r.Phase.Over() || v.overdue(r)
}

func (v deploymentView) overdue(r fleet.ReplicaSeen) bool {
	by := v.backstop(r)
	return !by.IsZero() && !v.At.Before(by)
}

// backstop is when a replica counts as dead although its connected node has not reported it; zero if it has no
// deadline. Time without a connection does not count: the node may have ended or healed it and reports that first.
func (v deploymentView) backstop(r fleet.ReplicaSeen) time.Time {
	since := r.Since
	if r.HeardSince.After(since) {
		since = r.HeardSince
	}
	switch {
	case !r.Unheard.IsZero() || r.State == fleet.ReplicaHealthy:
		return time.Time{}
	case r.State == fleet.ReplicaUnhealthy:
		return since.Add(r.Stop + stuckLimit)
	case r.Phase == "":
		return since.Add(takeUpLimit)
	}
	// Each start renews Since: it is preceded by preparing for the first, and by a stop for the others.
	return since.Add(prepareLimit + v.Startup + v.Settle + r.Stop + stuckLimit)
}

// unsaid: the replica failed with its node, which is back but has not reported it yet; it may well be healthy. It
// lasts for as long as a node may take to report a new replica.
func (v deploymentView) unsaid(r fleet.ReplicaSeen) bool {
	return r.State == fleet.ReplicaUnhealthy && r.Reason == ReasonNodeLost && r.Unheard.IsZero() && v.At.Before(saidBy(r))
}

func saidBy(r fleet.ReplicaSeen) time.Time { return r.HeardSince.Add(takeUpLimit) }

func (v deploymentView) unsaidOf(all []fleet.ReplicaSeen) int {
	n := 0
	for _, r := range all {
		if v.unsaid(r) {
			n++
		}
	}
	return n
}

// isAway: its node has been disconnected for too long, so its state is only the last known one.
func (v deploymentView) isAway(r fleet.ReplicaSeen) bool {
	return !r.Unheard.IsZero() && !v.At.Before(v.lostAt(r))
}

func (v deploymentView) lostAt(r fleet.ReplicaSeen) time.Time {
	return r.Unheard.Add(time.Duration(v.Terms.LostSeconds) * time.Second)
}

// updated reports a newer release, or a request to restart the same one, since the last beginning.
func (v deploymentView) updated() bool {
	return v.Revision > v.Began || v.ProcessVersion > v.BeganVersion
}

// need is how many healthy replicas make it available.
func (v deploymentView) need() int { return Needed(v.Target, v.Min) }

func healthyOf(all []fleet.ReplicaSeen) int {
	n := 0
	for _, r := range all {
		if r.State == fleet.ReplicaHealthy {
			n++
		}
	}
	return n
}

// healthy counts healthy replicas of the released revision; working also those of earlier ones.
func (v deploymentView) healthy() int  { return healthyOf(v.good) }
func (v deploymentView) working() int  { return v.healthy() + len(v.stale) }
func (v deploymentView) reached() bool { return v.healthy() >= v.need() }

// heard are healthy replicas on connected nodes. Of those, only routable ones that are proven take the place of another that ends.
func heard(all []fleet.ReplicaSeen) []fleet.ReplicaSeen {
	var out []fleet.ReplicaSeen
	for _, r := range all {
		if r.State == fleet.ReplicaHealthy && r.Unheard.IsZero() {
			out = append(out, r)
		}
	}
	return out
}

func routable(all []fleet.ReplicaSeen) []fleet.ReplicaSeen {
	return slices.DeleteFunc(heard(all), func(r fleet.ReplicaSeen) bool { return r.Unready })
}

// unready counts healthy replicas on connected nodes that are not ready.
func (v deploymentView) unready() int {
	return len(heard(v.good)) + len(heard(v.stale)) - len(routable(v.good)) - len(routable(v.stale))
}

func (v deploymentView) starting() []fleet.ReplicaSeen {
	var out []fleet.ReplicaSeen
	for _, r := range v.good {
		if r.State == fleet.ReplicaStarting {
			out = append(out, r)
		}
	}
	return out
}

// missing is how many replicas to create. It does not count replicas to be replaced that their nodes have yet to
// report.
func (v deploymentView) missing() int {
	return max(0, v.Target-len(v.good)-len(v.stale)-v.unsaidOf(v.useless))
}

// surplus is how many replicas of the released revision are too many. Until enough are proven, those that their nodes have yet
// to report do not count.
func (v deploymentView) surplus() int {
	n := len(v.good) - v.Target
	if v.short || len(v.proven(v.good)) < v.Target {
		n -= v.unsaidOf(v.good)
	}
	return max(0, n)
}

// wants reports whether replicas have to be created: missing ones or replacements.
func (v deploymentView) wants() bool { return v.missing() > 0 || len(v.stale) > 0 }

// blameless reports whether the end of a dead replica has nothing to do with what it ran: it had to leave its node,
// or the node was stopped.
func (v deploymentView) blameless(r fleet.ReplicaSeen) bool {
	return v.leaves(r) || r.Reason == fleet.ReasonNodeStopped
}

// blames reports whether a dead replica counts as a failure of the release.
func (v deploymentView) blames(r fleet.ReplicaSeen) bool {
	return r.ProcessVersion == v.ProcessVersion && !v.blameless(r)
}

// failed is the newest dead replica of the released revision.
func (v deploymentView) failed() *fleet.ReplicaSeen {
	for i := len(v.dead) - 1; i >= 0; i-- {
		if v.blames(v.dead[i]) {
			return &v.dead[i]
		}
	}
	return nil
}

// failing counts the dead replicas that are failures of the release.
func (v deploymentView) failing(dead []fleet.ReplicaSeen) int {
	n := 0
	for _, r := range dead {
		if v.blames(r) {
			n++
		}
	}
	return n
}

// held is how many replicas a pause holds back: those that failed during it or before it.
func (v deploymentView) held() int { return v.Owed + v.failing(v.dead) }

// replacements is how many more replicas may be created, new before old: up to max_surge beside the others, none while one is
// not healthy. Failures count: a failed replacement blocks further ones, and replacing an earlier version waits for the pause.
func (v deploymentView) replacements(stale []fleet.ReplicaSeen, held int) int {
	older := func(r fleet.ReplicaSeen) bool { return r.ProcessVersion != v.ProcessVersion }
	kept := func(r fleet.ReplicaSeen) bool { return v.rolling && older(r) }
	beside := len(v.good) + len(stale) + held - v.Target
	if beside < 0 || v.falters() || held > 0 && slices.ContainsFunc(v.stale, older) {
		return 0
	}
	replaced, surge := slices.DeleteFunc(slices.Clone(stale), kept), max(1, v.Strategy.Surge(v.Target))
	if held > 0 {
		surge = 1
	}
	moved := v.moved(replaced, len(stale))
	return max(0, min(surge, len(replaced)-moved)-(beside-moved))
}

// moved counts the replicas that a drain moves and that wait only for the proof of a replacement: the next one starts meanwhile, so
// that a drain takes no longer for it.
func (v deploymentView) moved(replaced []fleet.ReplicaSeen, stale int) int {
	drained := slices.DeleteFunc(slices.Clone(replaced), func(r fleet.ReplicaSeen) bool { return r.LeaveBy.IsZero() })
	return min(len(drained), max(0, len(routable(v.good))+stale-v.Target))
}

// falters reports whether a replica that is to stay is unhealthy, or on a node that is not connected.
func (v deploymentView) falters() bool {
	return slices.ContainsFunc(v.good, func(r fleet.ReplicaSeen) bool { return r.State == fleet.ReplicaUnhealthy || !r.Unheard.IsZero() })
}

// failsAnew reports a failure of a replica that was created after the last counted failure. Failures of one wave
// count once.
func (v deploymentView) failsAnew(counted int) bool {
	r := v.failed()
	return r != nil && (counted == 0 || !r.CreatedAt.Before(v.NextAttempt))
}

// crashed reports whether another failure in RUNNING has to be counted.
func (v deploymentView) crashed() bool {
	return v.State == fleet.DeploymentRunning && v.failsAnew(v.Crashes)
}

// settled reports whether the target number has been healthy for so long that earlier crashes no longer count.
func (v deploymentView) settled() bool {
	return len(v.good) > 0 && v.healthy() == len(v.good) && len(v.good) >= v.Target && !v.At.Before(v.settlesAt())
}

func (v deploymentView) settlesAt() time.Time {
	var last time.Time
	for _, r := range v.good {
		if r.Since.After(last) {
			last = r.Since
		}
	}
	return last.Add(time.Duration(v.Terms.ResetSeconds) * time.Second)
}
