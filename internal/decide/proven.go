package decide

import (
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// reportsIn is how long a node that has just reconnected may take to report what its replicas did meanwhile.
const reportsIn = 5 * time.Second

// drainMargin is what a drain keeps of its time for a visit that ends what it moves.
const drainMargin = 5 * time.Second

// proven are the replicas for which one that works may end: on a connected node, and routable without a break for as long as the
// strategy says. Whatever ends a working replica for another asks this: a rollout, a restart, a move and old_before_new.
func (v deploymentView) proven(all []fleet.ReplicaSeen) []fleet.ReplicaSeen {
	return slices.DeleteFunc(routable(all), func(r fleet.ReplicaSeen) bool { return v.At.Before(v.provenAt(r)) })
}

// provenAt is from when on a routable replica is proven. A process that starts anew, or a check that fails, takes the proof back.
func (v deploymentView) provenAt(r fleet.ReplicaSeen) time.Time { return ProvenAt(r, v.proof) }

// ProvenAt is from when on a replica that is routable now is proven, for which that takes some time. What is known of one whose node
// has just reconnected is from before.
func ProvenAt(r fleet.ReplicaSeen, proof time.Duration) time.Time {
	at := later(r.Since, r.ReadySince).Add(proof)
	return later(at, r.HeardSince.Add(min(proof, reportsIn)))
}

// covers are the replicas for which one may end: proven, or routable if it leaves a node whose drain has no time left for a proof.
func (v deploymentView) covers(all []fleet.ReplicaSeen, of fleet.ReplicaSeen) []fleet.ReplicaSeen {
	if v.hurries(of) {
		return routable(all)
	}
	return v.proven(all)
}

// hurries reports whether a drain moves a replica, and has no time left for the proof of another.
func (v deploymentView) hurries(r fleet.ReplicaSeen) bool {
	by := movesBy(r)
	return !by.IsZero() && !v.At.Before(by)
}

// waiting are those that end only for what is proven.
func (v deploymentView) waiting(all []fleet.ReplicaSeen) []fleet.ReplicaSeen {
	return slices.DeleteFunc(slices.Clone(all), v.hurries)
}

// relies reports whether others may rely on a healthy replica that is to be replaced: it is of another version and has been so before,
// or it is proven.
func (v deploymentView) relies(r fleet.ReplicaSeen) bool {
	return r.ProcessVersion != v.ProcessVersion || !v.At.Before(v.provenAt(r))
}

func (v deploymentView) relied(all []fleet.ReplicaSeen) []fleet.ReplicaSeen {
	return slices.DeleteFunc(slices.Clone(all), func(r fleet.ReplicaSeen) bool { return !v.relies(r) })
}

// movesBy is until when a replica that a drain moves may wait for the proof of another: it is to have ended before the deadline. It
// is zero without a drain.
func movesBy(r fleet.ReplicaSeen) time.Time {
	if r.LeaveBy.IsZero() {
		return r.LeaveBy
	}
	return r.LeaveBy.Add(-r.Stop - drainMargin)
}

// unproven are the routable replicas for whose proof others wait, also those that have to leave their nodes.
func (v deploymentView) unproven() []fleet.ReplicaSeen {
	if len(v.stale)+len(v.away)+v.unsaidOf(v.useless)+v.unsaidOf(v.good) == 0 {
		return nil
	}
	return slices.DeleteFunc(routable(slices.Concat(v.good, v.stale)), v.relies)
}

// waitForProof schedules the next visit for when a replica is proven that others wait for, or a drain has no time left for that.
func (c *deploymentCase) waitForProof() {
	unproven := c.v.unproven()
	for _, r := range unproven {
		c.next(c.v.provenAt(r))
	}
	for _, r := range c.v.stale {
		if by := movesBy(r); len(unproven) > 0 && c.v.At.Before(by) {
			c.next(by)
		}
	}
}
