package decide

import (
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// The steps of a recreation: nothing is ended while a node is not connected; then all replicas end, and then the new ones start.
const (
	recreateCheck = iota
	recreateStop
	recreateStart
)

func (r *rollout) recreates() bool { return r.Strategy.Type == fleet.StrategyRecreate }

// steps are those of a canary before the last.
func (r *rollout) steps() []fleet.CanaryStep { return r.Strategy.Plan() }

// stepping reports whether a canary has steps left before the last.
func (r *rollout) stepping() bool { return !r.back && r.Step < len(r.steps()) }

// limit is how many replicas of the revision that is to run there may be: in a step of a canary its share of the target, rounded
// up, and less than all.
func (r *rollout) limit() int {
	target := r.seen.Target
	if !r.stepping() || target == 0 {
		return target
	}
	most := target - 1
	if most == 0 {
		most = r.Strategy.Surge(target)
	}
	return min((target*r.steps()[r.Step].Weight+99)/100, most)
}

// FirstStep is the step at which a rollout begins. A canary of a deployment of which none is routable, or fewer than min, has none but
// the last.
func FirstStep(s fleet.Strategy, routable, least int) int {
	if s.Type == fleet.StrategyCanary && routable < max(1, least) {
		return len(s.Plan())
	}
	return 0
}

// step goes to a step; the time without progress starts again.
func (r *rollout) step(n int) {
	r.Step, r.plan.Step, r.StepAt, r.plan.StepAt = n, n, time.Time{}, time.Time{}
	r.again = true
	r.progress(fleet.ClockStep)
}

func (r *rollout) advance() { r.step(r.Step + 1) }

// reaches: what the step of a canary wants is proven.
func (r *rollout) reaches() bool {
	return r.state.Going() && r.stepping() && r.StepAt.IsZero() && len(r.proven()) >= r.limit()
}

func (r *rollout) reachesPause() bool { return r.reaches() && r.steps()[r.Step].Pause }

func (r *rollout) reach() {
	r.StepAt, r.plan.StepAt, r.again = r.seen.At, r.seen.At, true
	r.progress(fleet.ClockStep)
}

// waited: the interval of a step that was reached is over, and it still is.
func (r *rollout) waited() bool { return r.state.Going() && r.over.interval }

// approaches: the step that is under way ends with a pause.
func (r *rollout) approaches() bool {
	return r.state == fleet.RolloutDeploying && r.stepping() && r.StepAt.IsZero() && r.steps()[r.Step].Pause
}

// approachesNone: the strategy has been changed.
func (r *rollout) approachesNone() bool {
	return r.state == fleet.RolloutPrepaused && (!r.stepping() || !r.steps()[r.Step].Pause)
}

// cannotStop: a recreation would end replicas, and may not know that they have ended (F33).
func (r *rollout) cannotStop() bool {
	return r.recreation(recreateCheck) && len(r.silent()) > 0
}

// silent are the nodes of which it is not known whether they run anything: they are not connected, or have not confirmed an end.
func (r *rollout) silent() []fleet.NodeName {
	nodes := r.elsewhere()
	for _, x := range r.all(r.stable) {
		if !x.Unheard.IsZero() {
			nodes = append(nodes, x.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

func (r *rollout) mayStop() bool { return r.recreation(recreateCheck) }

// neverStopped: all replicas have ended, and a node has not confirmed it.
func (r *rollout) neverStopped() bool {
	return r.recreation(recreateStop) && len(r.all(r.from())) == 0 && len(r.elsewhere()) > 0
}

// hasStopped: nothing runs of what is left, neither on the way nor on the way back.
func (r *rollout) hasStopped() bool {
	return r.recreates() && r.Step == recreateStop && len(r.all(r.from())) == 0 && (r.back || r.state.Going())
}

// oneAfterTheOther are the counts of a recreation: what comes begins once nothing is left.
func (r *rollout) oneAfterTheOther() (stable, next int) {
	target, to := r.seen.Target, r.to()
	keep, come := 0, min(to.kept(), target)
	switch {
	case r.Step == recreateCheck:
		keep = target
	case r.state == fleet.RolloutPaused:
		come = min(r.Want, target)
	case r.Step == recreateStart:
		come = max(r.paced(target), come)
	}
	return r.turned(keep, come)
}

func (r *rollout) recreation(step int) bool {
	return r.recreates() && r.state.Going() && r.Step == step
}

// stops: replicas end before others start.
func (r *rollout) stops() bool { return r.recreates() && r.Step < recreateStart }

// all are replicas that have not ended.
func (r *rollout) all(v deploymentView) []fleet.ReplicaSeen {
	return slices.Concat(v.good, v.stale, v.useless, v.dead, v.away, v.ending)
}

// elsewhere are nodes that may still run something of an earlier process version that has ended.
func (r *rollout) elsewhere() (nodes []fleet.NodeName) {
	for _, n := range r.seen.Unconfirmed {
		if n.ProcessVersion < r.To.ProcessVersion && n.Gone.IsZero() {
			nodes = append(nodes, n.Node)
		}
	}
	return nodes
}
