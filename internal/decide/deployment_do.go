package decide

import (
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// deleteNow starts the deletion; a deployment that never ran is gone at once (S31, S43, S56).
func deleteNow(c *deploymentCase) {
	c.on(fleet.DeploymentDeleted)
	destroy(c)
}

func destroy(c *deploymentCase) {
	c.endLive(ReasonDeleted, "the deployment was deleted")
	c.plan.Attempts, c.plan.Crashes, c.plan.NextAttempt = 0, 0, time.Time{}
	left := c.endEnding()
	if left > 0 || len(c.plan.Terminate) > 0 || c.plan.More {
		c.plan.Message = replicasAre(left+c.v.live(), "still to end")
		return
	}
	c.on(fleet.DeploymentGone)
	c.plan.Message = "no replica runs"
	c.plan.More = c.v.Redeclared
}

func declareAgain(c *deploymentCase) {
	c.on(fleet.DeploymentRedeclared)
	c.plan.Attempts, c.plan.Crashes, c.plan.NextAttempt = 0, 0, time.Time{}
	c.plan.Message = "it was declared again, and its predecessor has ended"
	c.plan.More = true
}

func endAll(c *deploymentCase) {
	c.endLive(ReasonDeleted, "the deployment has nothing to run")
	c.endEnding()
	if c.state == fleet.DeploymentPending {
		c.plan.Message = "no revision was released"
	}
}

func stopNow(c *deploymentCase) {
	c.on(fleet.DeploymentStopped)
	c.endLive(ReasonStopped, "the deployment is stopped")
	c.endEnding()
	c.plan.Attempts, c.plan.Crashes, c.plan.NextAttempt = 0, 0, time.Time{}
	c.plan.Message = "it is declared stopped"
}

// begin creates the first replicas (S13). After an update, earlier failures no longer count. Otherwise the time of
// this attempt stays: only replicas created from then on can fail it.
func begin(c *deploymentCase) {
	if c.v.updated() {
		if c.state != fleet.DeploymentPending {
			c.on(fleet.DeploymentUpdated)
		}
		c.plan.Attempts, c.plan.Crashes, c.plan.NextAttempt = 0, 0, time.Time{}
	}
	c.on(fleet.DeploymentBegun)
	c.mark()
	converge(c)
	c.plan.More = c.plan.More || c.v.reached()
}

// mark remembers the revision and process version of this beginning.
func (c *deploymentCase) mark() {
	c.plan.Began, c.plan.BeganVersion = c.v.Revision, c.v.ProcessVersion
}

// converge brings actual replicas to the desired ones; every rule of a live deployment ends here.
func converge(c *deploymentCase) {
	c.keepRunning()
	c.create(c.pause())
	c.plan.Message = c.v.tally()
	if c.plan.Crashes > 0 && c.v.settled() && c.plan.Create == 0 {
		c.plan.Crashes, c.plan.NextAttempt = 0, time.Time{}
	}
}

// pause is how many replicas a pause holds back: as many as failed. Those that this visit ends are owed from now
// on; the next visit still sees the others.
func (c *deploymentCase) pause() int {
	if !c.v.At.Before(c.plan.NextAttempt) {
		return 0
	}
	if c.v.wants() {
		c.next(c.plan.NextAttempt)
	}
	c.plan.Owed = c.v.Owed + c.v.failing(c.v.dead[:min(len(c.v.dead), MaxPerVisit)])
	return c.v.held()
}

// keepRunning ends what must not run, and creates nothing.
func (c *deploymentCase) keepRunning() {
	c.endDead()
	c.endSurplus()
	c.endEnding()
}

func (v deploymentView) live() int {
	return len(v.good) + len(v.stale) + len(v.useless) + len(v.dead) + len(v.away)
}

// tally describes the state in a sentence.
func (v deploymentView) tally() string {
	s := fmt.Sprintf("%d of %d replicas are healthy", v.working(), v.Target)
	if n := len(v.stale); n > 0 {
		s += fmt.Sprintf(", %d of them to be replaced", n)
	}
	if n := v.unready(); n > 0 {
		s += fmt.Sprintf(", %d not ready", n)
	}
	if n := len(v.away); n > 0 {
		s += fmt.Sprintf(", %d on nodes that are not connected", n)
	}
	return s
}

func waitForAttempt(c *deploymentCase) {
	c.keepRunning()
	c.plan.Message = c.v.Message
	c.next(c.v.NextAttempt)
}

// failAttempt returns to PENDING; each pause is twice the one before (S37, S45).
func failAttempt(c *deploymentCase) {
	c.on(fleet.DeploymentAttemptFailed)
	c.plan.Attempts++
	pause := doubled(c.v.Terms.AttemptSeconds, c.plan.Attempts-1, c.v.Terms.CrashMaxSeconds)
	c.plan.NextAttempt = c.v.At.Add(pause)
	c.keepRunning()
	c.next(c.plan.NextAttempt)
	c.plan.Message = fmt.Sprintf("attempt %d of %d failed: %s; the next is in %s",
		c.plan.Attempts, c.v.Terms.Attempts, c.v.failure(), pause)
}

// failure describes the newest failure.
func (v deploymentView) failure() string {
	r := v.failed()
	if r == nil {
		return "a replica failed"
	}
	reason, message := diedOf(*r)
	s := fmt.Sprintf("replica %s on node %s: %s", r.ID, r.Node, reason)
	if message != "" {
		s += ", " + message
	}
	return s
}

// AdviceGivenUp ends what is said of a deployment that was given up.
const AdviceGivenUp = "; release another revision, or restart the deployment"

func giveUpAttempts(c *deploymentCase) {
	c.on(fleet.DeploymentGivenUp)
	c.plan.Attempts++
	c.plan.NextAttempt = time.Time{}
	c.keepRunning()
	c.plan.Message = fmt.Sprintf("attempt %d of %d failed: %s%s", c.plan.Attempts, c.v.Terms.Attempts, c.v.failure(), AdviceGivenUp)
}

func giveUpCrashes(c *deploymentCase) {
	c.on(fleet.DeploymentGivenUp)
	c.plan.Crashes++
	c.plan.NextAttempt = time.Time{}
	c.keepRunning()
	c.plan.Message = fmt.Sprintf("%d failures in a row: %s; healthy replicas keep running%s", c.plan.Crashes, c.v.failure(), AdviceGivenUp)
}

// keepOn is the state ERROR: healthy replicas keep running, and none is created.
func keepOn(c *deploymentCase) {
	c.keepRunning()
	c.plan.Message = c.v.Message
}

// countCrash replaces the first failures at once, and later ones after a pause that doubles (S107).
func countCrash(c *deploymentCase) {
	c.plan.Crashes++
	c.plan.NextAttempt = c.v.At
	if over := c.plan.Crashes - c.v.Terms.Crashes; over > 0 {
		c.plan.NextAttempt = c.v.At.Add(doubled(c.v.Terms.CrashSeconds, over-1, c.v.Terms.CrashMaxSeconds))
	}
	converge(c)
	c.plan.Message = fmt.Sprintf("%s; %s", c.v.failure(), c.plan.Message)
}

// doubled doubles seconds the given number of times, up to most.
func doubled(seconds, times, most int) time.Duration {
	for range times {
		if seconds >= most {
			break
		}
		seconds *= 2
	}
	return time.Duration(min(seconds, most)) * time.Second
}

func makeAvailable(c *deploymentCase) {
	c.on(fleet.DeploymentAvailable)
	c.plan.Attempts, c.plan.NextAttempt = 0, time.Time{}
	converge(c)
}

// update begins with the new release; working replicas are replaced one by one.
func update(c *deploymentCase) {
	c.on(fleet.DeploymentUpdated)
	c.plan.Crashes, c.plan.NextAttempt = 0, time.Time{}
	c.mark()
	converge(c)
}
