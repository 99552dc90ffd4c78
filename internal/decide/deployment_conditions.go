package decide

import (
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// The types of conditions of a deployment.
const (
	ConditionAvailable   = "available"
	ConditionProgressing = "progressing"
	ConditionDegraded    = "degraded"
)

// ReasonNotHeard means that a condition depends on nodes that are not connected.
const ReasonNotHeard = "nodes_not_heard"

// ReplicasNow counts live replicas: healthy ones on connected nodes, those on disconnected nodes, and how many the
// deployment needs.
type ReplicasNow struct{ Healthy, Unheard, Need int }

// Needed is how many healthy replicas make a deployment available.
func Needed(target, least int) int { return min(target, max(1, least)) }

// ConditionsNow are the conditions of the last visit, corrected for nodes that have since disconnected (S130).
func ConditionsNow(written []fleet.Condition, now ReplicasNow) []fleet.Condition {
	out := slices.Clone(written)
	if now.Unheard == 0 {
		return out
	}
	known := false
	for i, c := range out {
		switch {
		case c.Type == ConditionDegraded && c.Status != fleet.ConditionTrue:
			out[i] = notHeard(now.Unheard)
		case c.Type == ConditionAvailable && c.Status == fleet.ConditionTrue && now.Healthy < now.Need:
			out[i] = condition(c.Type, fleet.ConditionUnknown, ReasonNotHeard, fmt.Sprintf("%d are healthy on connected nodes, %d are needed", now.Healthy, now.Need))
		}
		known = known || c.Type == ConditionDegraded
	}
	if !known {
		out = append(out, notHeard(now.Unheard))
	}
	return out
}

// WhyNow is the reason of the last visit and its message, or ReasonNotHeard if all was well then and some nodes
// have since disconnected.
func WhyNow(reason, message string, now ReplicasNow) (string, string) {
	if (reason == ruleConverged || reason == ReasonNotHeard) && now.Unheard > 0 {
		return ReasonNotHeard, notHeard(now.Unheard).Message
	}
	return reason, message
}

func notHeard(n int) fleet.Condition {
	where := "on nodes that are not connected"
	if n == 1 {
		where = "on a node that is not connected"
	}
	return condition(ConditionDegraded, fleet.ConditionTrue, ReasonNotHeard, replicasAre(n, where))
}

// NotReleased are the conditions of a deployment that was written and never released.
func NotReleased() []fleet.Condition {
	return []fleet.Condition{
		condition(ConditionAvailable, fleet.ConditionFalse, "not_released", ""),
		condition(ConditionProgressing, fleet.ConditionFalse, "not_released", ""),
		condition(ConditionDegraded, fleet.ConditionFalse, "nothing_to_run", ""),
	}
}

// replicasAre describes n replicas.
func replicasAre(n int, how string) string {
	if n == 1 {
		return "1 replica is " + how
	}
	return fmt.Sprintf("%d replicas are %s", n, how)
}

// condition makes a condition; the reason is a stable word.
func condition(of string, status fleet.ConditionStatus, reason, message string) fleet.Condition {
	return fleet.Condition{Type: of, Status: status, Reason: reason, Message: message}
}

// available is the condition whether enough replicas are healthy (S112). It is unknown when that depends on
// disconnected nodes (S130).
func (c *deploymentCase) available() fleet.Condition {
	v, heard := c.v, 0
	for _, all := range [][]fleet.ReplicaSeen{v.good, v.stale} {
		for _, r := range all {
			if r.State == fleet.ReplicaHealthy && r.Unheard.IsZero() {
				heard++
			}
		}
	}
	message := fmt.Sprintf("%d are healthy, %d are needed", v.working(), v.need())
	switch {
	case c.ends():
		return condition(ConditionAvailable, fleet.ConditionFalse, "deleted", "")
	case v.Stopped:
		return condition(ConditionAvailable, fleet.ConditionFalse, "stopped", "")
	case v.Revision == 0:
		return condition(ConditionAvailable, fleet.ConditionFalse, "not_released", "")
	case v.Target == 0:
		return condition(ConditionAvailable, fleet.ConditionTrue, "scaled_to_zero", "")
	case heard >= v.need():
		return condition(ConditionAvailable, fleet.ConditionTrue, "enough_healthy", message)
	case v.working()+len(v.away) >= v.need():
		return condition(ConditionAvailable, fleet.ConditionUnknown, ReasonNotHeard, message+", some on nodes that are not connected")
	}
	return condition(ConditionAvailable, fleet.ConditionFalse, "too_few_healthy", message)
}

func (c *deploymentCase) ends() bool {
	return c.state == fleet.DeploymentDestroying || c.state == fleet.DeploymentTerminated
}

// progressing is the condition whether something is under way.
func (c *deploymentCase) progressing() fleet.Condition {
	v := c.v
	moving := c.made || len(c.plan.Events) > 0 || len(v.ending) > len(c.plan.End) || len(v.stale) > 0 || len(v.starting()) > 0
	switch {
	case c.state == fleet.DeploymentError:
		return condition(ConditionProgressing, fleet.ConditionFalse, "given_up", c.plan.Message)
	case c.state == fleet.DeploymentTerminated:
		return condition(ConditionProgressing, fleet.ConditionFalse, "deleted", "")
	case moving || v.At.Before(c.plan.NextAttempt):
		return condition(ConditionProgressing, fleet.ConditionTrue, c.plan.Rule, c.plan.Message)
	}
	return condition(ConditionProgressing, fleet.ConditionFalse, c.plan.Rule, "")
}

// degraded is the condition whether something differs from the declaration.
func (c *deploymentCase) degraded() fleet.Condition {
	v := c.v
	unwell := len(v.good) - v.healthy() - len(v.starting())
	switch {
	case c.state == fleet.DeploymentError:
		return condition(ConditionDegraded, fleet.ConditionTrue, "given_up", c.plan.Message)
	case c.ends() || v.Target == 0 || v.Revision == 0:
		return condition(ConditionDegraded, fleet.ConditionFalse, "nothing_to_run", "")
	case c.unheard() > 0:
		return notHeard(c.unheard())
	case unwell > 0:
		return condition(ConditionDegraded, fleet.ConditionTrue, "unhealthy", replicasAre(unwell, "unhealthy"))
	case v.working() < v.Target:
		return condition(ConditionDegraded, fleet.ConditionTrue, "too_few", v.tally())
	}
	return condition(ConditionDegraded, fleet.ConditionFalse, "all_healthy", "")
}
