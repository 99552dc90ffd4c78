package decide

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// overtaken: the deployment ends, or has nothing to run any more.
func (r *rollout) overtaken() bool {
	return r.seen.Deleting || r.seen.Stopped || !r.starts() && r.seen.State != fleet.DeploymentRunning
}

// cancelled: that was asked for, or the operation that waits for it was cancelled.
func (r *rollout) cancelled() bool {
	return r.state != fleet.RolloutCanceling && slices.ContainsFunc(r.seen.Operations, func(o fleet.DeploymentOperation) bool {
		return r.waits(o) && (o.Cancelled || o.Kind == fleet.OperationReturn)
	})
}

// waits reports whether an operation waits for the end of this rollout.
func (r *rollout) waits(o fleet.DeploymentOperation) bool {
	return (o.Kind == fleet.OperationReturn || slices.Contains(RollingKinds(), o.Kind)) && o.ProcessVersion == r.To.ProcessVersion
}

// RollingKinds are the operations that may start a rollout, and end with it.
func RollingKinds() []fleet.OperationKind {
	return []fleet.OperationKind{fleet.OperationConverge, fleet.OperationRestart}
}

// finished: the new revision is proven as often as wanted, and nothing else runs on connected nodes.
func (r *rollout) finished() bool {
	return r.state.Going() && !r.stepping() && r.settled()
}

// returned: the stable revision is routable as often as wanted, and nothing of the new one runs.
func (r *rollout) returned() bool {
	return r.state == fleet.RolloutCanceling && r.settled()
}

func (r *rollout) returnedAsAsked() bool { return r.returned() && r.Reason == ReasonCancelled }

func (r *rollout) settled() bool {
	to := r.to()
	return len(r.proven()) >= r.seen.Target && len(to.good) == r.seen.Target && len(to.stale)+len(to.useless) == 0 && !runs(r.from())
}

// runs reports whether anything of a revision runs, or ends, on a connected node.
func runs(v deploymentView) bool {
	on := func(r fleet.ReplicaSeen) bool { return r.Unheard.IsZero() && !r.Gone }
	return slices.ContainsFunc(slices.Concat(v.good, v.stale, v.useless, v.dead), on) ||
		slices.ContainsFunc(v.ending, func(r fleet.ReplicaSeen) bool { return on(r) && !r.Phase.Over() && !r.Lost })
}

// pausedTooLong: it was not resumed within the deadline of a pause.
func (r *rollout) pausedTooLong() bool {
	if r.state != fleet.RolloutPaused {
		return false
	}
	r.plan.Until = r.resumedBy()
	return r.past(r.plan.Until)
}

// resumedBy is when a pause is given up.
func (r *rollout) resumedBy() time.Time { return r.Since.Add(r.Strategy.LongestPause()) }

// tooLong: the whole has taken longer than its operation may, pauses apart.
func (r *rollout) tooLong() bool {
	return r.state.Going() && !r.Deadline.IsZero() && r.past(later(r.Deadline, r.There))
}

func (r *rollout) past(by time.Time) bool {
	r.look(by)
	return !r.seen.At.Before(by)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// stuck: for too long no further replica was proven.
func (r *rollout) stuck() bool { return r.state.Going() && r.late() }

// mostFailures is how often new replicas may fail that had been healthy.
const mostFailures = 3

// keepsFailing: new replicas that had been healthy failed too often, also in a pause.
func (r *rollout) keepsFailing() bool {
	return (r.state.Going() || r.state == fleet.RolloutPaused) && r.plan.Failures >= mostFailures
}

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

// returnsTooLong: it makes no progress, or has taken as long as a whole rollout may.
func (r *rollout) returnsTooLong() bool {
	return r.state == fleet.RolloutCanceling && (r.late() || r.past(later(r.Since, r.There).Add(mostReturn)))
}

// mostReturn bounds a return whose nodes come and go.
const mostReturn = 24 * time.Hour

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

// ProgressDeadline is how long a rollout may take without progress where none is declared: the times that one replica
// may take, and five minutes, as long as an upgrade of a node may keep it away.
func ProgressDeadline(s fleet.Strategy, startup, check, shows time.Duration) time.Duration {
	if s.ProgressDeadline > 0 {
		return time.Duration(s.ProgressDeadline * float64(time.Second))
	}
	return startup + check + s.MinHealthy(shows) + 5*time.Minute
}
