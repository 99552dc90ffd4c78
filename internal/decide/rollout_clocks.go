package decide

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// rolloutOver is which of a rollout's times are over.
type rolloutOver struct {
	progress bool // without a further proven replica
	whole    bool // of the rollout, of its pause or of its return
	interval bool // of a canary's step that was reached
}

// observe computes, once and before the rules, all that changes with time: the highest number of proven replicas, which is progress,
// failures, and which times are over. No clock runs in a pause.
func (r *rollout) observe() {
	r.plan.Proven = len(r.proven())
	if r.plan.Proven > r.Most {
		r.plan.Most = r.plan.Proven
		r.progress(fleet.ClockProven)
	}
	switch r.state { //nolint:exhaustive // of one that has ended no clock runs
	case fleet.RolloutPaused:
		r.progress(fleet.ClockPaused)
		r.plan.Until = r.resumedBy()
		r.over.whole = r.past(r.plan.Until)
	case fleet.RolloutCanceling:
		r.over.progress = r.late()
		r.over.whole = r.past(later(r.Since, r.There).Add(mostReturn))
	case fleet.RolloutDeploying, fleet.RolloutPrepaused:
		r.over.progress = r.late()
		r.over.whole = !r.Deadline.IsZero() && r.past(later(r.Deadline, r.There))
		if r.stepping() && !r.StepAt.IsZero() && r.plan.Proven >= r.limit() {
			r.over.interval = r.past(r.StepAt.Add(r.steps()[r.Step].Wait()))
		}
	}
	if !r.back {
		r.countFailures()
	}
}

// past reports whether a time is over; until then it is one at which to look again.
func (r *rollout) past(by time.Time) bool {
	r.look(by)
	return !r.seen.At.Before(by)
}

// look asks for a look at a time to come.
func (r *rollout) look(at time.Time) {
	if at.After(r.seen.At) && (r.until.IsZero() || at.Before(r.until)) {
		r.until = at
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// resumedBy is when a pause is given up.
func (r *rollout) resumedBy() time.Time { return r.Since.Add(r.Strategy.LongestPause()) }

// mostReturn bounds a return whose nodes come and go.
const mostReturn = 24 * time.Hour

// countFailures counts failures of new replicas that had been healthy as crashes are counted: those of one wave once, and none any
// more once all have been healthy for long enough. One that turned unhealthy has failed, as has one that ended.
func (r *rollout) countFailures() {
	anew := func(x fleet.ReplicaSeen) bool {
		return !x.Worked.IsZero() && (r.Failures == 0 || !x.Worked.Before(r.FailedAt))
	}
	ended := func(x fleet.ReplicaSeen) bool { return r.next.blames(x) && anew(x) }
	unwell := func(x fleet.ReplicaSeen) bool {
		return x.State == fleet.ReplicaUnhealthy && x.Reason != ReasonNodeLost && anew(x)
	}
	i := slices.IndexFunc(r.next.good, unwell)
	if i >= 0 {
		r.plan.Failure = fmt.Sprintf("replica %s on node %s turned unhealthy", r.next.good[i].ID, r.next.good[i].Node)
	}
	if i >= 0 || slices.ContainsFunc(r.next.dead, ended) {
		r.plan.Failures, r.plan.FailedAt = r.Failures+1, r.seen.At
	}
}

// late reports whether the time without progress is over. It counts from the last progress, from when the nodes of
// replicas that are not proven reconnected, and from when the region was back. It stops while such a node is not connected,
// while definitions are downloaded and images pulled, while only old replicas have to end, and in an interval.
func (r *rollout) late() bool {
	proven := r.proven()
	if len(proven) >= r.limit() || r.stops() {
		r.progress(fleet.ClockOldReplicas)
		return false
	}
	since := r.plan.ProgressAt
	r.countsFrom(&since, r.There, fleet.ClockRegionBack)
	for _, x := range r.to().good {
		if slices.Contains(proven, x) {
			continue
		}
		if stops := r.stopsClock(x); stops != "" {
			r.progress(stops)
			r.look(r.seen.At.Add(r.Progress / 2))
			return false
		}
		r.countsFrom(&since, x.HeardSince, fleet.ClockReconnected)
	}
	r.plan.Until = since.Add(r.Progress)
	return r.past(r.plan.Until)
}

// progress starts the time without progress again, or holds it.
func (r *rollout) progress(by fleet.RolloutClock) { r.plan.ProgressAt, r.plan.Clock = r.seen.At, by }

// countsFrom moves the start of the time without progress to a later event, which is its reason then.
func (r *rollout) countsFrom(since *time.Time, at time.Time, by fleet.RolloutClock) {
	if at.After(*since) {
		*since, r.plan.Clock = at, by
	}
}

// stopsClock is why a replica that is not proven stops the time without progress, "" if it does not.
func (r *rollout) stopsClock(x fleet.ReplicaSeen) fleet.RolloutClock {
	switch {
	case !x.Unheard.IsZero():
		return fleet.ClockNotConnected
	case r.prepares(x):
		return fleet.ClockPreparing
	}
	return ""
}

// preparesLong is how long a replica is prepared whose image has to be pulled; a process takes less.
const preparesLong = 10 * time.Second

// prepares: a revision that fails once its images are there has no more time for others.
func (r *rollout) prepares(x fleet.ReplicaSeen) bool {
	since := r.seen.At.Sub(x.Since)
	return !r.back && r.To.Crashes == 0 && x.Phase == fleet.PhasePreparing && x.Unheard.IsZero() && since >= preparesLong && since < prepareLimit
}
