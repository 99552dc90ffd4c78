package decide

import (
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// overtaken: the deployment ends, or has nothing to run any more.
func (r *rollout) overtaken() bool {
	return r.seen.Deleting || r.seen.Stopped || r.seen.State != fleet.DeploymentRunning
}

// cancelled: that was asked for, or the operation that waits for it was cancelled.
func (r *rollout) cancelled() bool {
	return r.state != fleet.RolloutCanceling && slices.ContainsFunc(r.seen.Operations, func(o fleet.DeploymentOperation) bool {
		return r.waits(o) && (o.Cancelled || o.Kind == fleet.OperationReturn)
	})
}

// waits reports whether an operation waits for the end of this rollout.
func (r *rollout) waits(o fleet.DeploymentOperation) bool {
	return (o.Kind == fleet.OperationConverge || o.Kind == fleet.OperationReturn) && o.ProcessVersion == r.To.ProcessVersion
}

// finished: the new revision is proven as often as wanted, and nothing else runs on connected nodes.
func (r *rollout) finished() bool {
	return r.state == fleet.RolloutDeploying && r.settled()
}

// returned: the stable revision is routable as often as wanted, and nothing of the new one runs.
func (r *rollout) returned() bool {
	return r.state == fleet.RolloutCanceling && r.settled()
}

func (r *rollout) returnedAsAsked() bool { return r.returned() && r.Reason == ReasonCancelled }

func (r *rollout) settled() bool {
	to := r.to()
	return len(r.proven()) >= r.seen.Target && len(to.good) == r.seen.Target && len(to.stale)+len(to.useless) == 0 && !runs(r.from()) && !between(r.stable)
}

// runs reports whether anything of a revision runs, or ends, on a connected node.
func runs(v deploymentView) bool {
	on := func(r fleet.ReplicaSeen) bool { return r.Unheard.IsZero() && !r.Gone }
	return slices.ContainsFunc(slices.Concat(v.good, v.stale, v.useless, v.dead), on) ||
		slices.ContainsFunc(v.ending, func(r fleet.ReplicaSeen) bool { return on(r) && !r.Phase.Over() && !r.Lost })
}

// between reports whether anything runs that is of neither revision.
func between(v deploymentView) bool {
	v.good = nil
	v.stale = slices.DeleteFunc(slices.Clone(v.stale), func(r fleet.ReplicaSeen) bool { return r.ProcessVersion == v.ProcessVersion })
	v.ending = slices.DeleteFunc(slices.Clone(v.ending), func(r fleet.ReplicaSeen) bool { return r.ProcessVersion == v.ProcessVersion })
	v.useless, v.dead = nil, nil // they end at once
	return runs(v)
}

// tooLong: the whole has taken longer than its operation may, or a pause has.
func (r *rollout) tooLong() bool {
	if r.state == fleet.RolloutCanceling || r.Deadline.IsZero() {
		return false
	}
	r.look(r.Deadline)
	return !r.seen.At.Before(r.Deadline)
}

// stuck: for too long no further replica was proven.
func (r *rollout) stuck() bool { return r.state == fleet.RolloutDeploying && r.late() }

func (r *rollout) returnsTooLong() bool { return r.state == fleet.RolloutCanceling && r.late() }

// late reports whether the time without progress is over. It counts from the last progress, and from when the nodes of
// new replicas reconnected: the time without a region does not count, nor does the time while images are
// prepared, or when only what is left has to end.
func (r *rollout) late() bool {
	to := r.to()
	if len(r.proven()) >= r.seen.Target {
		return false
	}
	since := r.plan.ProgressAt
	for _, x := range to.good {
		if x.HeardSince.After(since) {
			since = x.HeardSince
		}
		if r.prepares(x) {
			r.plan.ProgressAt = r.seen.At
			r.look(r.seen.At.Add(r.Progress / 2))
			return false
		}
	}
	r.plan.Until = since.Add(r.Progress)
	r.look(r.plan.Until)
	return !r.seen.At.Before(r.plan.Until)
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
func ProgressDeadline(s fleet.Strategy, startup, check time.Duration) time.Duration {
	if s.ProgressDeadline > 0 {
		return time.Duration(s.ProgressDeadline * float64(time.Second))
	}
	return startup + check + s.MinHealthy() + 5*time.Minute
}
