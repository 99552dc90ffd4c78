package decide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

type operationCase struct {
	c  *deploymentCase
	op fleet.DeploymentOperation
}

// operationRules decide how an operation ends; the first match wins, and without a match it continues.
var operationRules = []struct {
	reason  string
	when    func(o operationCase) bool
	state   fleet.OperationState
	message func(o operationCase) string
}{
	{"cancelled", func(o operationCase) bool { return o.op.Cancelled }, fleet.OperationCancelled, cancelledMessage},
	{reasonNotConfirmed, unlessConfirmed(destroyed), fleet.OperationUnknown, unconfirmedMessage},
	{"destroyed", destroyed, fleet.OperationSucceeded, noMessage},
	{"superseded", func(o operationCase) bool { return o.op.Stale }, fleet.OperationSuperseded, message("a newer request replaced it")},
	{"deleted", overtaken, fleet.OperationSuperseded, message("the deployment is being deleted")},
	{"redeclared", revived, fleet.OperationSuperseded, message("it was declared again")},
	{"stopped", scalesStopped, fleet.OperationSuperseded, message("it has since been declared stopped")},
	{reasonNotConfirmed, unlessConfirmed(hasStopped), fleet.OperationUnknown, unconfirmedMessage},
	{"stopped", hasStopped, fleet.OperationSucceeded, message("it is stopped, and no replica runs")},
	{"given_up", givenUp, fleet.OperationFailed, func(o operationCase) string { return o.c.plan.Message }},
	{reasonNotConfirmed, unlessConfirmed(hasRestarted), fleet.OperationUnknown, unconfirmedMessage},
	{"converged", hasConverged, fleet.OperationSucceeded, func(o operationCase) string { return o.c.v.tally() }},
	{"scaled", hasScaled, fleet.OperationSucceeded, func(o operationCase) string { return o.c.v.tally() }},
	{"deadline", pastOperation, fleet.OperationFailed, lateMessage},
}

// reasonNotConfirmed: all replicas that had to end have ended, but some nodes did not confirm it (X4).
const reasonNotConfirmed = "not_confirmed"

// finishOperations ends operations that are over, and schedules a visit for the deadlines of the rest (X6).
func (c *deploymentCase) finishOperations() {
	for _, op := range c.v.Operations {
		if f, over := c.finish(op); over {
			c.plan.Finish = append(c.plan.Finish, f)
		} else if !op.Deadline.IsZero() && (c.rollout == nil || !c.rollout.waits(op)) {
			c.next(op.Deadline)
		}
	}
}

func (c *deploymentCase) finish(op fleet.DeploymentOperation) (fleet.OperationFinish, bool) {
	o := operationCase{c, op}
	if c.rollout != nil {
		if f, over, mine := c.rollout.finishRolled(c, op); mine {
			return f, over
		}
	}
	for _, r := range operationRules {
		if r.when(o) {
			return fleet.OperationFinish{ID: op.ID, State: r.state, Reason: r.reason, Message: r.message(o)}, true
		}
	}
	return fleet.OperationFinish{}, false
}

func message(s string) func(operationCase) string { return func(operationCase) string { return s } }

func noMessage(operationCase) string { return "" }

func cancelledMessage(o operationCase) string {
	return fmt.Sprintf("the %s was cancelled; the declaration stays in force", o.op.Kind)
}

func lateMessage(o operationCase) string {
	return fleet.LateDeployment(o.c.plan.Message, o.c.awaited())
}

func (o operationCase) ends() bool { return o.op.Kind == fleet.OperationDestroy }

func destroyed(o operationCase) bool {
	return o.ends() && o.c.state == fleet.DeploymentTerminated
}

// overtaken: operations on a redeclared deployment wait until its predecessor has ended.
func overtaken(o operationCase) bool {
	over := o.c.state == fleet.DeploymentDestroying || o.c.state == fleet.DeploymentTerminated
	return !o.ends() && over && !o.c.v.Redeclared
}

func revived(o operationCase) bool {
	over := o.c.state == fleet.DeploymentDestroying || o.c.state == fleet.DeploymentTerminated
	return o.ends() && !over && !o.c.v.Deleting
}

// scalesStopped: the deployment was stopped, so it cannot be scaled (S42).
func scalesStopped(o operationCase) bool {
	return o.op.Kind == fleet.OperationScale && o.c.v.Stopped
}

func hasStopped(o operationCase) bool {
	return !o.ends() && o.c.v.Stopped && o.c.state == fleet.DeploymentPending &&
		o.c.v.live() == 0 && len(o.c.v.ending) == len(o.c.plan.End)
}

func givenUp(o operationCase) bool { return !o.ends() && o.c.state == fleet.DeploymentError }

func hasRestarted(o operationCase) bool { return o.restarts() && hasConverged(o) }

func (o operationCase) restarts() bool { return o.op.Kind == fleet.OperationRestart }

// hasConverged: enough replicas are healthy, and none runs an earlier process version or where placement does not
// allow it.
func hasConverged(o operationCase) bool {
	if o.op.Kind != fleet.OperationConverge && !o.restarts() {
		return false
	}
	v := o.c.v
	return o.c.state == fleet.DeploymentRunning && v.ProcessVersion >= o.op.ProcessVersion && v.working() >= v.Target && !o.olderRuns() && !v.misplacedRuns()
}

// olderRuns: a restart also waits for replicas on disconnected nodes while they have time to end. For other
// operations the node repairs these when it reconnects (X4).
func (o operationCase) olderRuns() bool {
	v := o.c.v
	all := slices.Concat(v.good, v.stale, v.useless, v.dead)
	if o.restarts() {
		all = append(all, v.away...)
	}
	for _, r := range v.ending {
		if !o.c.endsNow(r) && (o.restarts() || r.Unheard.IsZero()) {
			all = append(all, r)
		}
	}
	return slices.ContainsFunc(all, func(r fleet.ReplicaSeen) bool { return r.ProcessVersion < o.op.ProcessVersion })
}

// endsNow reports whether this visit records a replica as ended.
func (c *deploymentCase) endsNow(r fleet.ReplicaSeen) bool {
	return slices.ContainsFunc(c.plan.End, func(s fleet.ReplicaStep) bool { return s.ID == r.ID })
}

func (v deploymentView) misplacedRuns() bool {
	return slices.ContainsFunc(slices.Concat(v.stale, v.useless), func(r fleet.ReplicaSeen) bool { return v.misplaced(r) != "" })
}

// unlessConfirmed: the operation has reached its end, except that some nodes have not confirmed it.
func unlessConfirmed(ended func(operationCase) bool) func(operationCase) bool {
	return func(o operationCase) bool { return ended(o) && len(o.unconfirmed()) > 0 }
}

// unconfirmed are the nodes that may still run what the operation counts as ended. For a restart only older
// versions matter.
func (o operationCase) unconfirmed() []fleet.NodeName {
	may := func(version int64) bool {
		return !o.restarts() || o.c.v.Stopped || version < o.op.ProcessVersion
	}
	var nodes []fleet.NodeName
	for _, n := range o.c.v.Unconfirmed {
		if may(n.ProcessVersion) && !o.writtenOff(n) {
			nodes = append(nodes, n.Node)
		}
	}
	for _, r := range o.c.v.ending {
		if said := r.Phase.Over() || r.Lost; !said && o.c.endsNow(r) && may(r.ProcessVersion) {
			nodes = append(nodes, r.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// writtenOff: an operator had declared the node gone before the operation was requested.
func (o operationCase) writtenOff(n fleet.UnconfirmedNode) bool {
	return !n.Gone.IsZero() && n.Gone.Before(o.op.Opened)
}

// unconfirmedListed limits the node names in one message.
const unconfirmedListed = 10

func unconfirmedMessage(o operationCase) string {
	return "these nodes did not confirm the end and may keep running replicas until they reconnect: " + listNodes(o.unconfirmed())
}

// listNodes names the first of some nodes, and counts the rest.
func listNodes(nodes []fleet.NodeName) string {
	var names []string
	for _, n := range nodes[:min(len(nodes), unconfirmedListed)] {
		names = append(names, string(n))
	}
	listed := strings.Join(names, ", ")
	if more := len(nodes) - unconfirmedListed; more > 0 {
		listed += fmt.Sprintf(" and %d more", more)
	}
	return listed
}

// hasScaled: exactly the target number runs, all are healthy, and the surplus has ended.
func hasScaled(o operationCase) bool {
	v := o.c.v
	return o.op.Kind == fleet.OperationScale && o.c.state == fleet.DeploymentRunning && v.Target == o.op.Target &&
		v.working() == v.Target && v.live() == v.Target && len(v.ending) == len(o.c.plan.End) && !o.c.made
}

func pastOperation(o operationCase) bool {
	return !o.op.Deadline.IsZero() && !o.c.v.At.Before(o.op.Deadline)
}
