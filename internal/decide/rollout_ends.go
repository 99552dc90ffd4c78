package decide

import (
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
func (r *rollout) pausedTooLong() bool { return r.state == fleet.RolloutPaused && r.over.whole }

// tooLong: the whole has taken longer than its operation may, pauses apart.
func (r *rollout) tooLong() bool { return r.state.Going() && r.over.whole }

// stuck: for too long no further replica was proven.
func (r *rollout) stuck() bool { return r.state.Going() && r.over.progress }

// mostFailures is how often new replicas may fail that had been healthy.
const mostFailures = 3

// keepsFailing: new replicas that had been healthy failed too often, also in a pause.
func (r *rollout) keepsFailing() bool {
	return (r.state.Going() || r.state == fleet.RolloutPaused) && r.plan.Failures >= mostFailures
}

// returnsTooLong: it makes no progress, or has taken as long as a whole rollout may.
func (r *rollout) returnsTooLong() bool {
	return r.state == fleet.RolloutCanceling && (r.over.progress || r.over.whole)
}

// ProgressDeadline is how long a rollout may take without progress where none is declared: the times that one replica
// may take, and five minutes, as long as an upgrade of a node may keep it away.
func ProgressDeadline(s fleet.Strategy, startup, check, shows time.Duration) time.Duration {
	if s.ProgressDeadline > 0 {
		return time.Duration(s.ProgressDeadline * float64(time.Second))
	}
	return startup + check + s.MinHealthy(shows) + 5*time.Minute
}
