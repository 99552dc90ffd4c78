package decide

import (
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// The reasons for which a rollout returns to the stable revision.
const (
	ReasonCancelled        = "cancelled"
	ReasonKeepsFailing     = "keeps_failing" // new replicas that had been healthy fail again and again
	ReasonProgressDeadline = "progress_deadline"
	ReasonRolloutDeadline  = "deadline"
	ReasonPauseDeadline    = "pause_deadline"
	ReasonReturnIncomplete = "return_incomplete" // its return missed its deadline as well
	ReasonNotConnected     = "not_connected"     // a recreation found a node on which replicas may run
	ReasonNotConfirmed     = "not_confirmed"     // that its node confirms the end of a replica
	ReasonUnproven         = "unproven"          // it is DEPLOYED with a target of 0; the next start is a rollout
)

// rollout is a visit to a deployment of which two revisions run: the stable one, and the one that is rolled out. Each is
// brought to its own count by the same rules as a deployment with one; this decides the counts.
type rollout struct {
	fleet.RolloutSeen
	seen         fleet.DeploymentSeen
	stable, next deploymentView // in stable are also those of revisions in between
	state        fleet.RolloutState
	back         bool // to the stable revision
	plan         fleet.RolloutPlan
	over         rolloutOver
	until        time.Time // when to look again
	again        bool      // at once, as it is at another step
}

// rolloutRules apply in order; the first that matches says what the rollout does: an event of its state, or a step. A when changes
// nothing: clocks and counts are there before the first (observe).
var rolloutRules = []struct {
	name string
	when func(r *rollout) bool
	on   fleet.RolloutEvent
	then func(r *rollout)
}{
	{"superseded", (*rollout).overtaken, fleet.RolloutSupersede, nil},
	{ReasonCancelled, (*rollout).cancelled, fleet.RolloutCancel, nil},
	{"deployed", (*rollout).finished, fleet.RolloutFinish, nil},
	{"returned", (*rollout).returnedAsAsked, fleet.RolloutReturn, nil},
	{"returned", (*rollout).returned, fleet.RolloutFail, nil},
	{ReasonReturnIncomplete, (*rollout).returnsTooLong, fleet.RolloutFail, nil},
	{ReasonPauseDeadline, (*rollout).pausedTooLong, fleet.RolloutExpire, nil},
	{ReasonRolloutDeadline, (*rollout).tooLong, fleet.RolloutExpire, nil},
	{ReasonNotConnected, (*rollout).cannotStop, fleet.RolloutExpire, nil},
	{ReasonNotConfirmed, (*rollout).neverStopped, fleet.RolloutExpire, nil},
	{ReasonKeepsFailing, (*rollout).keepsFailing, fleet.RolloutExpire, nil},
	{ReasonProgressDeadline, (*rollout).stuck, fleet.RolloutExpire, nil},
	{"step_paused", (*rollout).reachesPause, fleet.RolloutPause, (*rollout).reach},
	{"step_reached", (*rollout).reaches, "", (*rollout).reach},
	{"next_step", (*rollout).waited, "", (*rollout).advance},
	{"stopping", (*rollout).mayStop, "", (*rollout).advance},
	{"stopped", (*rollout).hasStopped, "", (*rollout).advance},
	{"prepaused", (*rollout).approaches, fleet.RolloutApproach, nil},
	{"rolling_out", (*rollout).approachesNone, fleet.RolloutResume, nil},
	{"paused", func(r *rollout) bool { return r.state == fleet.RolloutPaused }, "", nil},
	{"returning", func(r *rollout) bool { return r.state == fleet.RolloutCanceling }, "", nil},
	{"rolling_out", func(*rollout) bool { return true }, "", nil},
}

// rollOut decides about a deployment and its rollout.
func rollOut(seen fleet.DeploymentSeen) fleet.DeploymentPlan {
	r := newRollout(seen)
	r.observe()
	rule := ""
	for _, x := range rolloutRules {
		if x.when(r) {
			rule = x.name
			if x.then != nil {
				x.then(r)
			}
			if x.on != "" {
				r.on(x.name, x.on)
			}
			break
		}
	}
	if r.state == fleet.RolloutSuperseded {
		seen.Rollout = nil
		plan := Deployment(seen)
		plan.Rollout, plan.More, plan.Done = &r.plan, true, false
		return plan
	}
	return r.carry(rule)
}

func (r *rollout) on(rule string, e fleet.RolloutEvent) {
	to, err := r.state.Next(e)
	if err != nil {
		return
	}
	r.state = to
	r.plan.Events = append(r.plan.Events, e)
	switch e { //nolint:exhaustive // the others change the state alone
	case fleet.RolloutCancel, fleet.RolloutExpire:
		r.back, r.plan.StepAt, r.plan.Until = true, time.Time{}, time.Time{}
		if r.recreates() {
			r.step(recreateStop)
		}
		r.plan.Reason, r.plan.Anew = rule, true
		r.plan.Most = len(r.proven())
		r.progress(fleet.ClockReturns)
		if rule == ReasonNotConnected || rule == ReasonNotConfirmed {
			r.plan.Failure = "replicas may run on these nodes: " + listNodes(r.silent())
		}
		if n := r.next.unready(); n > 0 && r.plan.Failure == "" {
			r.plan.Failure = replicasAre(n, "healthy and not ready: the readiness check does not pass")
		}
		if why := whyNone(r.next.good); why != "" && e == fleet.RolloutExpire {
			r.plan.Failure = strings.TrimPrefix(r.plan.Failure+"; "+why, "; ")
		}
	case fleet.RolloutFail:
		if rule == ReasonReturnIncomplete {
			r.plan.Reason = rule
		}
	case fleet.RolloutFinish:
		if r.seen.Target == 0 {
			r.plan.Reason = ReasonUnproven
		}
	}
}

// from and to are where replicas leave, and where they are to run.
func (r *rollout) from() deploymentView {
	if r.back {
		return r.next
	}
	return r.stable
}

func (r *rollout) to() deploymentView {
	if r.back {
		return r.returning()
	}
	return r.next
}

// returning is the stable revision in a return, which waits for no proof.
func (r *rollout) returning() deploymentView {
	v := r.stable
	v.proof = 0
	return v
}

// proven are the replicas of the revision that is to run that count (F72).
func (r *rollout) proven() []fleet.ReplicaSeen { return r.to().proven(r.to().good) }

// counts are how many replicas of the stable and of the new revision there are to be.
//
// What is left keeps the target less what is proven, also what leaves its node once it is replaced, so that never fewer are routable
// than the target less max_unavailable. One that leaves and has no time left for that is not relied on, but nothing is created for it.
// What comes takes what is free below the target and the surge.
func (r *rollout) counts() (stable, next int) {
	target, limit := r.seen.Target, r.limit()
	from, to := r.from(), r.to()
	if r.recreates() {
		return r.oneAfterTheOther()
	}
	works := func(leaving []fleet.ReplicaSeen) int {
		return max(0, target-r.Strategy.Unavailable(target)-min(len(r.proven())+len(leaving), limit))
	}
	leaving := to.proven(to.stale)
	keep := max(works(leaving), min(works(to.waiting(leaving)), from.kept()))
	if r.stepping() { // one stays until the last step
		keep = max(keep, min(1, target))
	}
	if r.starts() || r.back { // what is left is not created again
		keep = min(keep, from.kept())
	}
	room := target + r.Strategy.Surge(target)
	come := min(limit, room-max(keep, from.present()))
	if r.state == fleet.RolloutPaused && r.StepAt.IsZero() {
		come = min(come, r.Want)
	}
	come = max(r.paced(come), min(r.held(), limit))
	if keep > from.kept() { // what crashed comes back within the surge
		keep = min(keep, max(from.kept(), room-to.present()))
		if r.plan.Short { // nor does what ended to make room
			keep = max(from.kept(), keep-1)
		}
	}
	relied := len(r.proven()) + len(leaving) // what leaves its node stays until it is replaced
	come = max(come, min(relied, limit, target-r.Strategy.Unavailable(target)-keep))
	return r.turned(keep, come)
}

// held counts the replicas of the revision that is to run. One that must leave its node does not count beside its replacement.
func (r *rollout) held() int {
	if to := r.to(); !r.back {
		return max(len(to.good), min(r.Want, to.kept()))
	}
	return r.stable.kept()
}

// turned are the counts of what is left and of what comes, as those of the stable and of the new revision. What a return leaves
// is not created again.
func (r *rollout) turned(keep, come int) (stable, next int) {
	if r.back {
		return come, min(keep, len(routable(r.next.good))+len(r.next.stale))
	}
	return keep, come
}

// paced bounds how many new replicas there may be: none is added beside an unhealthy one (F71), nor beyond
// max_in_flight.
func (r *rollout) paced(come int) int {
	if r.back {
		return come
	}
	to, proven := r.next, len(r.proven())
	if len(to.good)-to.healthy()-len(to.starting()) > 0 || len(to.dead) > 0 {
		come = min(come, to.kept())
	}
	if most := r.Strategy.MaxInFlight; most > 0 {
		come = min(come, proven+most)
	}
	return come
}

// kept are the live replicas that stay if nothing changes; present also those that are ending, on nodes that stay.
func (v deploymentView) kept() int { return len(v.good) + len(v.stale) }

func (v deploymentView) present() int {
	n := v.kept() + len(v.useless)
	for _, r := range v.ending {
		if !r.Gone && r.Unheard.IsZero() && !r.Phase.Over() {
			n++
		}
	}
	return n
}
