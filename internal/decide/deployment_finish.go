package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// finished completes the plan: which operations end, the conditions, what the deployment waits for and until when.
func (c *deploymentCase) finished() fleet.DeploymentPlan {
	c.finishOperations()
	c.plan.Proven = c.rollout == nil && c.state == fleet.DeploymentRunning && c.v.Target > 0 && c.v.reached()
	c.plan.Conditions = []fleet.Condition{c.available(), c.progressing(), c.degraded()}
	c.waitForReplicas()
	if !c.v.At.Before(c.plan.NextAttempt) {
		c.plan.Owed = 0
	}
	c.plan.Awaited = c.awaited()
	changes := c.made || len(c.plan.Fail) > 0
	if changes && c.plan.Next.IsZero() {
		c.plan.More = true // check the changes in another visit
	}
	c.plan.Done = !changes && !c.plan.More && c.plan.Next.IsZero()
	if c.plan.Done && c.plan.Crashes > 0 && c.state == fleet.DeploymentRunning && len(c.v.good) > 0 {
		c.next(c.v.settlesAt()) // in ERROR they count until a new release
	}
	return c.plan
}

// waitForReplicas schedules the next visit for when a replica misses a deadline without a report from its node.
func (c *deploymentCase) waitForReplicas() {
	for _, r := range slices.Concat(c.v.good, c.v.useless) {
		if c.v.unsaid(r) {
			c.next(saidBy(r))
		}
	}
	c.waitForProof()
	if c.waitsForReady() > 0 {
		c.next(c.v.At.Add(stuckLimit))
	}
	for _, all := range [][]fleet.ReplicaSeen{c.v.good, c.v.stale} {
		for _, r := range all {
			if !r.Unheard.IsZero() {
				c.next(c.v.lostAt(r))
			} else if by := c.v.backstop(r); !by.IsZero() {
				c.next(by)
			}
		}
	}
}

// awaited describes what the deployment waits for (X8), including what this visit asked of the nodes.
func (c *deploymentCase) awaited() string {
	var words []string
	count := func(n int, format string) {
		if n > 0 {
			words = append(words, fmt.Sprintf(format, n))
		}
	}
	if c.rollout != nil && c.rollout.state == fleet.RolloutPaused {
		words = append(words, "the rollout to be resumed")
	}
	if c.v.At.Before(c.plan.NextAttempt) {
		words = append(words, "the next attempt at "+c.plan.NextAttempt.UTC().Format(time.RFC3339))
	}
	create := c.plan.Create
	if c.plan.Rollout != nil {
		create += c.plan.Rollout.Create
	}
	count(len(c.v.starting())+create, "%d starting replicas")
	count(len(c.v.good)-len(c.v.starting())-c.v.healthy()-c.v.unsaidOf(c.v.good), "%d unhealthy replicas")
	count(c.v.unsaidOf(c.v.good)+c.v.unsaidOf(c.v.useless), "reconnected nodes to report %d replicas")
	count(len(c.v.ending)-len(c.plan.End)+len(c.plan.Terminate), "the end of %d replicas")
	count(c.waitsForReady(), "%d replicas to be ready")
	count(len(c.v.unproven()), "%d replicas to be proven")
	count(c.unheard(), "the nodes of %d replicas to reconnect")
	return strings.Join(words, ", ")
}

// waitsForReady counts the replicas for whose readiness others wait: those end then. Without others, a replica that is not
// ready changes nothing.
func (c *deploymentCase) waitsForReady() int {
	switch {
	case c.rollout != nil:
		return c.v.unready()
	case len(c.v.stale)+len(c.v.away) > 0:
		return len(heard(c.v.good)) - len(routable(c.v.good))
	}
	return 0
}

// unheard counts replicas on disconnected nodes.
func (c *deploymentCase) unheard() int {
	n := len(c.v.away)
	for _, all := range [][]fleet.ReplicaSeen{c.v.good, c.v.stale} {
		for _, r := range all {
			if !r.Unheard.IsZero() {
				n++
			}
		}
	}
	return n
}
