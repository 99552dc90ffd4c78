package decide

import (
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

func newRollout(seen fleet.DeploymentSeen) *rollout {
	r := &rollout{RolloutSeen: *seen.Rollout, seen: seen, state: seen.Rollout.State, back: seen.Rollout.State == fleet.RolloutCanceling}
	r.plan = fleet.RolloutPlan{
		Reason: r.Reason, Step: r.Step, StepAt: r.StepAt, Want: r.Want, Most: r.Most, ProgressAt: r.ProgressAt, Clock: r.Clock, Short: r.Short,
		Failure: r.Failure, Failures: r.Failures, FailedAt: r.FailedAt,
		Crashes: r.To.Crashes, Owed: r.To.Owed, NextAttempt: r.To.NextAttempt,
	}
	r.stable, r.next = viewDeployment(StableLine(seen)), viewDeployment(NextLine(seen))
	r.stable.rolling = true
	r.stable.State, r.next.State = fleet.DeploymentRunning, fleet.DeploymentRunning // failures count as those of what runs
	if r.next.failed() != nil {
		r.plan.Failure = r.next.failure()
	}
	return r
}

// StableLine is what is seen of the stable revision, and NextLine of the one that is rolled out. What is of neither is with the one that
// is left: it ends as that does.
func StableLine(seen fleet.DeploymentSeen) fleet.DeploymentSeen {
	if seen.Rollout == nil {
		return seen
	}
	line := seen
	line.Rollout, line.Operations = nil, nil
	line.Replicas = slices.DeleteFunc(slices.Clone(seen.Replicas), ofNext(seen))
	return line
}

// NextLine is what is seen of the revision that is rolled out: see StableLine.
func NextLine(seen fleet.DeploymentSeen) fleet.DeploymentSeen {
	of, line := ofNext(seen), asNext(seen)
	line.Operations = nil
	line.Replicas = slices.DeleteFunc(slices.Clone(seen.Replicas), func(r fleet.ReplicaSeen) bool { return !of(r) })
	return line
}

// ofNext reports whether a replica is in the line of the revision that is rolled out.
func ofNext(seen fleet.DeploymentSeen) func(fleet.ReplicaSeen) bool {
	stable, next, back := seen.ProcessVersion, seen.Rollout.To.ProcessVersion, seen.Rollout.State == fleet.RolloutCanceling
	return func(r fleet.ReplicaSeen) bool {
		return r.ProcessVersion == next || back && r.ProcessVersion != stable
	}
}

// asNext is the deployment as though the revision that is rolled out were its own: all others are to be replaced.
func asNext(seen fleet.DeploymentSeen) fleet.DeploymentSeen {
	to, strategy := seen.Rollout.To, seen.Rollout.Strategy
	seen.Rollout = nil
	seen.Revision, seen.ProcessVersion, seen.Began, seen.BeganVersion = to.Revision, to.ProcessVersion, to.Revision, to.ProcessVersion
	seen.Terms, seen.Startup, seen.Settle, seen.Stop, seen.Placement, seen.Nodes = to.Terms, to.Startup, to.Settle, to.Stop, to.Placement, to.Nodes
	seen.Strategy, seen.Shows = strategy, to.Shows
	seen.Attempts, seen.Crashes, seen.Owed, seen.NextAttempt = 0, to.Crashes, to.Owed, to.NextAttempt
	return seen
}

// lineRules are those of deploymentRules that bring one of several revisions to its count: a rollout leads to no ERROR.
func lineRules(c *deploymentCase) {
	if c.v.crashed() {
		countCrash(c)
		return
	}
	converge(c)
}

// carry brings both revisions to their counts, and puts the plans together.
func (r *rollout) carry(rule string) fleet.DeploymentPlan {
	stable, next := r.stable, r.next
	if r.back {
		stable = r.returning()
	}
	stable.Target, next.Target = r.counts()
	stable.short = !r.recreates() && len(routable(stable.good))+len(routable(stable.stale))+len(next.proven(next.good))+len(next.proven(next.stale)) < r.least()
	next.short = stable.short
	stable.leaving, next.leaving = r.starts() && !r.back, r.back
	r.plan.Want = next.Target
	s := newDeploymentCase(stable)
	lineRules(s)
	n := newDeploymentCase(next)
	n.left = s.left
	lineRules(n)
	if !r.recreates() {
		s.plan.Create = min(s.plan.Create, r.free(s, n))
		n.plan.Create = min(n.plan.Create, r.free(s, n)-s.plan.Create)
	}
	if next.settled() {
		r.plan.Failures, r.plan.FailedAt = 0, time.Time{}
	}

	whole := newDeploymentCase(viewDeployment(asNext(r.seen)))
	whole.rollout = r
	p := s.plan
	r.plan.Create, r.plan.Crashes, r.plan.Owed, r.plan.NextAttempt = n.plan.Create, n.plan.Crashes, n.plan.Owed, n.plan.NextAttempt
	r.plan.Message = r.tellHow()
	p.Rule, p.Message, p.Rollout = rule, r.plan.Message, &r.plan
	p.Terminate, p.End, p.Fail = slices.Concat(p.Terminate, n.plan.Terminate), slices.Concat(p.End, n.plan.End), slices.Concat(p.Fail, n.plan.Fail)
	p.More = p.More || n.plan.More || r.again || len(r.plan.Events)+len(p.End) > 0 // what ended may be all that it waited for
	p.Scarce = p.Scarce || n.plan.Scarce
	whole.plan, whole.made = p, s.made || n.made
	r.begin(whole)
	for _, c := range []*deploymentCase{s, n} {
		c.waitForReplicas()
		if !c.plan.Next.IsZero() {
			whole.next(c.plan.Next)
		}
	}
	for _, x := range routable(r.to().good) {
		r.look(r.to().provenAt(x))
	}
	if !r.until.IsZero() {
		whole.next(r.until)
	}
	return whole.finished()
}

// free is how many replicas may be created beside those of both revisions: up to the target and the surge, and one for each that has to
// leave its node. There can be more already, as a placement that changed again lets some of these stay.
func (r *rollout) free(lines ...*deploymentCase) int {
	most := r.seen.Target + max(1, r.Strategy.Surge(r.seen.Target))
	for _, c := range lines {
		for _, x := range slices.Concat(c.v.good, c.v.stale, c.v.useless) {
			if !x.Unheard.IsZero() {
				continue
			}
			if c.v.leaves(x) {
				most++
			}
			if !c.terminates(x) {
				most--
			}
		}
	}
	return max(0, most)
}

// least is how many are to be routable: the target less what may be missing, or as many as when it began.
func (r *rollout) least() int {
	return min(r.seen.Target-r.Strategy.Unavailable(r.seen.Target), r.AtStart)
}

// mayYield are the replicas of which one may end before its replacement starts: none if the strategy says to wait, and only
// unhealthy ones while fewer are proven or still to be replaced than are to be, or were routable when it began.
func (r *rollout) mayYield(ids []fleet.ReplicaID, v deploymentView, turn bool) []fleet.ReplicaID {
	least := r.least()
	switch {
	case !turn || r.Strategy.WhenFull == fleet.FullWait:
		return nil
	case len(v.proven(v.good))+len(routable(v.relied(v.stale))) >= least:
		return ids
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id fleet.ReplicaID) bool {
		return !slices.ContainsFunc(v.useless, func(r fleet.ReplicaSeen) bool { return r.ID == id })
	})
}

// finishRolled decides how an operation ends that waits for the rollout, or that it is in the way of.
func (r *rollout) finishRolled(c *deploymentCase, op fleet.DeploymentOperation) (f fleet.OperationFinish, over, mine bool) {
	f = fleet.OperationFinish{ID: op.ID, Message: r.plan.Message}
	switch {
	case op.Stale:
		return f, false, false
	case op.Kind == fleet.OperationScale:
		if op.Target == r.seen.Target && len(routable(c.v.good))+len(routable(c.v.stale)) >= r.seen.Target && !op.Cancelled {
			f.State, f.Reason, f.Message = fleet.OperationSucceeded, "scaled", c.v.tally()
			return f, true, true
		}
		return f, false, false
	case op.Kind == fleet.OperationRestart && op.ProcessVersion == 0: // it begins when this ends
		return f, false, !op.Cancelled
	case !r.waits(op):
		return f, false, false
	}
	if op.Kind == fleet.OperationReturn {
		f.State, f.Reason = fleet.OperationSucceeded, "returned"
		if r.plan.Reason == ReasonReturnIncomplete {
			f.State, f.Reason = fleet.OperationFailed, ReasonReturnIncomplete
		}
		return f, !r.state.Active(), true
	}
	switch r.state {
	case fleet.RolloutDeployed:
		f.State, f.Reason = fleet.OperationSucceeded, "converged"
	case fleet.RolloutCanceled:
		f.State, f.Reason = fleet.OperationCancelled, ReasonCancelled
	case fleet.RolloutFailed:
		f.State, f.Reason = fleet.OperationFailed, r.plan.Reason
	case fleet.RolloutSuperseded, fleet.RolloutDeploying, fleet.RolloutPrepaused, fleet.RolloutPaused, fleet.RolloutCanceling:
		return f, false, true
	}
	return f, true, true
}
