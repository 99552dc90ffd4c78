package decide

import (
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// MaxPerVisit limits how many replicas one visit to a deployment creates, and how many it ends.
const MaxPerVisit = 200

// Deployment decides what to do about a deployment, by the first rule that matches.
func Deployment(seen fleet.DeploymentSeen) fleet.DeploymentPlan {
	if seen.Rollout != nil {
		return rollOut(seen)
	}
	v := viewDeployment(seen)
	c := newDeploymentCase(v)
	for _, r := range deploymentRules {
		if r.when(v) {
			c.plan.Rule = r.name
			r.then(c)
			break
		}
	}
	return c.finished()
}

// deploymentRules apply in order: ending comes before starting, and failures come before missing replicas.
var deploymentRules = []struct {
	name string
	when func(v deploymentView) bool
	then func(c *deploymentCase)
}{
	{"deleted", deletedNow, deleteNow},
	{"deleting", in(fleet.DeploymentDestroying), destroy},
	{"redeclared", redeclared, declareAgain},
	{"terminated", in(fleet.DeploymentTerminated), endAll},
	{"not_released", notReleased, endAll},
	{"stopped", func(v deploymentView) bool { return v.Stopped }, stopNow},
	{"begin", begins, begin},
	{"given_up", in(fleet.DeploymentError), keepOn},
	{"attempt_waits", attemptWaits, waitForAttempt},
	{"begin", in(fleet.DeploymentPending), begin},
	{"given_up", attemptsUsedUp, giveUpAttempts},
	{"attempt_failed", attemptFailed, failAttempt},
	{"available", becomesAvailable, makeAvailable},
	{"provisioning", in(fleet.DeploymentProvisioning), converge},
	{"updated", updatedWhileRunning, update},
	{"given_up", crashesUsedUp, giveUpCrashes},
	{"replicas_failed", func(v deploymentView) bool { return v.crashed() }, countCrash},
	{"crash_backoff", backsOff, converge},
	{"too_many", func(v deploymentView) bool { return v.surplus() > 0 }, converge},
	{"too_few", func(v deploymentView) bool { return v.missing() > 0 }, converge},
	{"replacing", func(v deploymentView) bool { return len(v.stale)+len(v.away) > 0 }, converge},
	{"starting", func(v deploymentView) bool { return len(v.starting()) > 0 }, converge},
	{"unhealthy", func(v deploymentView) bool { return v.healthy() < len(v.good) || v.unsaidOf(v.useless) > 0 }, converge},
	{"ending", func(v deploymentView) bool { return len(v.ending) > 0 }, converge},
	{ReasonNotHeard, func(v deploymentView) bool { return len(heard(v.good)) < v.healthy() }, converge},
	{ruleConverged, func(deploymentView) bool { return true }, converge},
}

// ruleConverged is the rule of a deployment that needs nothing.
const ruleConverged = "converged"

func in(s fleet.DeploymentState) func(deploymentView) bool {
	return func(v deploymentView) bool { return v.State == s }
}

func deletedNow(v deploymentView) bool {
	return v.Deleting && v.State != fleet.DeploymentDestroying && v.State != fleet.DeploymentTerminated
}

func redeclared(v deploymentView) bool { return v.State == fleet.DeploymentTerminated && v.Redeclared }

func notReleased(v deploymentView) bool { return v.Revision == 0 }

// begins: a newer revision was released, so earlier failures no longer count.
func begins(v deploymentView) bool { return v.updated() && v.State != fleet.DeploymentRunning }

func updatedWhileRunning(v deploymentView) bool { return v.updated() }

func attemptWaits(v deploymentView) bool {
	return v.State == fleet.DeploymentPending && v.At.Before(v.NextAttempt)
}

// attemptFailed: a replica of the current attempt failed. A late failure of an earlier attempt's replica is not
// another failed attempt.
func attemptFailed(v deploymentView) bool {
	return v.State == fleet.DeploymentProvisioning && v.failsAnew(v.Attempts)
}

func attemptsUsedUp(v deploymentView) bool {
	return attemptFailed(v) && v.Attempts+1 >= v.Terms.Attempts
}

// becomesAvailable counts only replicas of the released revision (S36, S40).
func becomesAvailable(v deploymentView) bool {
	return v.State == fleet.DeploymentProvisioning && v.reached()
}

func crashesUsedUp(v deploymentView) bool { return v.crashed() && v.Crashes+1 >= v.Terms.GiveUp }

// backsOff: replicas are missing or must be replaced, and a pause holds all of them back.
func backsOff(v deploymentView) bool {
	held := v.held()
	return v.At.Before(v.NextAttempt) && v.wants() && v.missing() <= held && v.replacements(v.stale, held) == 0
}
