package decide

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// How long the region waits for a node that is connected, before it takes the word of nobody: nodes
// keep the terms of a replica themselves, on their own clocks.
const (
	takeUpLimit  = 2 * time.Minute // a node says something of a new replica
	prepareLimit = PrepareLimit    // an image is pulled
	stuckLimit   = 5 * time.Minute // beyond a deadline that the node keeps
)

// deploymentView sorts the replicas that are not TERMINATED. Good ones run the released process
// version where they may stay; stale ones are HEALTHY and are to be replaced; useless ones are to be
// replaced and are not HEALTHY; dead ones run no more; away ones are on nodes that are lost; the
// rest, ending, is TERMINATING. All are in the order in which they were created.
type deploymentView struct {
	fleet.DeploymentSeen
	good, stale, useless, dead, away, ending []fleet.ReplicaSeen
}

func viewDeployment(seen fleet.DeploymentSeen) deploymentView {
	seen.Terms, seen.Nodes = seen.Terms.WithDefaults(), byName(seen.Nodes)
	v := deploymentView{DeploymentSeen: seen}
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
	return v
}

func oldestFirst(all []fleet.ReplicaSeen) []fleet.ReplicaSeen {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b fleet.ReplicaSeen) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// isDead: nothing of it runs, by the word of its node; or nobody will say so any more; or its node,
// though it is there, has let every deadline pass.
func (v deploymentView) isDead(r fleet.ReplicaSeen) bool {
	return r.Lost || r.Gone || r.Phase.Over() || v.overdue(r)
}

func (v deploymentView) overdue(r fleet.ReplicaSeen) bool {
	by := v.backstop(r)
	return !by.IsZero() && !v.At.Before(by)
}

// backstop is when a replica is taken for dead although its connected node does not say so; zero for
// one that has no deadline. What its node was not there for does not count: it may have ended or healed
// it meanwhile, and says so first.
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
	// Since is renewed by each start: it is prepared before the first, stopped before each other.
	return since.Add(prepareLimit + v.Startup + v.Settle + r.Stop + stuckLimit)
}

// unsaid: it was given up with its node, which is back and has not said yet how it is: it may well be
// healthy. It is so for as long as a node may take to say something of a new one.
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

// isAway: what it was is the last that was heard, too long ago.
func (v deploymentView) isAway(r fleet.ReplicaSeen) bool {
	return !r.Unheard.IsZero() && !v.At.Before(v.lostAt(r))
}

func (v deploymentView) lostAt(r fleet.ReplicaSeen) time.Time {
	return r.Unheard.Add(time.Duration(v.Terms.LostSeconds) * time.Second)
}

// updated says that something else was released, or the same is to run anew, since it was last begun
// with.
func (v deploymentView) updated() bool {
	return v.Revision > v.Began || v.ProcessVersion > v.BeganVersion
}

// need is how many healthy ones make it available.
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

// healthy counts those of the released revision; working those of an earlier one, too.
func (v deploymentView) healthy() int  { return healthyOf(v.good) }
func (v deploymentView) working() int  { return v.healthy() + len(v.stale) }
func (v deploymentView) reached() bool { return v.healthy() >= v.need() }

// heard are healthy ones whose nodes are connected: only they are counted on when something ends.
func heard(all []fleet.ReplicaSeen) []fleet.ReplicaSeen {
	var out []fleet.ReplicaSeen
	for _, r := range all {
		if r.State == fleet.ReplicaHealthy && r.Unheard.IsZero() {
			out = append(out, r)
		}
	}
	return out
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

// missing is how many there are too few. Those to be replaced of which their nodes have still to speak are
// none of them yet.
func (v deploymentView) missing() int {
	return max(0, v.Target-len(v.good)-len(v.stale)-v.unsaidOf(v.useless))
}

// surplus is how many there are too many of the released revision. Until as many as are to run are
// healthy, those of which their nodes have still to speak are not weighed against others.
func (v deploymentView) surplus() int {
	n := len(v.good) - v.Target
	if len(heard(v.good)) < v.Target {
		n -= v.unsaidOf(v.good)
	}
	return max(0, n)
}

// wants says that replicas are to be made: what is missing, or what takes the place of another.
func (v deploymentView) wants() bool { return v.missing() > 0 || len(v.stale) > 0 }

// blameless says that the end of a dead one says nothing of what it ran: its node is to be left, or was
// stopped.
func (v deploymentView) blameless(r fleet.ReplicaSeen) bool {
	return v.leaves(r) || r.Reason == fleet.ReasonNodeStopped
}

// blames says that a dead one tells of what is released.
func (v deploymentView) blames(r fleet.ReplicaSeen) bool {
	return r.ProcessVersion == v.ProcessVersion && !v.blameless(r)
}

// failed is the newest of the released revision that is dead.
func (v deploymentView) failed() *fleet.ReplicaSeen {
	for i := len(v.dead) - 1; i >= 0; i-- {
		if v.blames(v.dead[i]) {
			return &v.dead[i]
		}
	}
	return nil
}

// failing counts, of some that are dead, those that tell of what is released.
func (v deploymentView) failing(dead []fleet.ReplicaSeen) int {
	n := 0
	for _, r := range dead {
		if v.blames(r) {
			n++
		}
	}
	return n
}

// held is how many are not made anew while a pause lasts: those that failed in it, or before it.
func (v deploymentView) held() int { return v.Owed + v.failing(v.dead) }

// replaces says that one more may be made, new before old: all others are healthy, and none is on its
// way beyond the target. What failed counts: one that did as a replacement has no place that it
// leaves, and stops further ones; and what is to take the place of an earlier version waits for the
// pause.
func (v deploymentView) replaces(stale, held int) bool {
	older := func(r fleet.ReplicaSeen) bool { return r.ProcessVersion != v.ProcessVersion }
	return stale > 0 && len(heard(v.good)) == len(v.good) && len(v.good)+stale+held == v.Target &&
		(held == 0 || !slices.ContainsFunc(v.stale, older))
}

// failsAnew says that one failed that was made since the last of so many failures was counted: its
// predecessor failed too. A wave of failures is one.
func (v deploymentView) failsAnew(counted int) bool {
	r := v.failed()
	return r != nil && (counted == 0 || !r.CreatedAt.Before(v.NextAttempt))
}

// crashed says that a further failure in RUNNING is to be counted.
func (v deploymentView) crashed() bool {
	return v.State == fleet.DeploymentRunning && v.failsAnew(v.Crashes)
}

// settled says that as many as there are to be have been healthy for so long that earlier crashes
// count no more.
func (v deploymentView) settled() bool {
	return v.healthy() == len(v.good) && len(v.good) >= v.Target && !v.At.Before(v.settlesAt())
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
