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

// operationRules say how an operation ends, first match wins; one that none matches runs on.
var operationRules = []struct {
	reason string
	when   func(o operationCase) bool
	state  fleet.OperationState
	say    func(o operationCase) string
}{
	{"cancelled", func(o operationCase) bool { return o.op.Cancelled }, fleet.OperationCancelled, sayCancelled},
	{reasonNotConfirmed, unlessConfirmed(destroyed), fleet.OperationUnknown, sayUnconfirmed},
	{"destroyed", destroyed, fleet.OperationSucceeded, sayNothing},
	{"superseded", func(o operationCase) bool { return o.op.Stale }, fleet.OperationSuperseded, say("something else was asked for since")},
	{"deleted", overtaken, fleet.OperationSuperseded, say("the deployment is being deleted")},
	{"redeclared", revived, fleet.OperationSuperseded, say("it was declared again")},
	{"stopped", scalesStopped, fleet.OperationSuperseded, say("it was declared stopped since")},
	{reasonNotConfirmed, unlessConfirmed(hasStopped), fleet.OperationUnknown, sayUnconfirmed},
	{"stopped", hasStopped, fleet.OperationSucceeded, say("it is stopped, and nothing of it runs")},
	{"given_up", givenUp, fleet.OperationFailed, func(o operationCase) string { return o.c.plan.Message }},
	{reasonNotConfirmed, unlessConfirmed(hasRestarted), fleet.OperationUnknown, sayUnconfirmed},
	{"converged", hasConverged, fleet.OperationSucceeded, func(o operationCase) string { return o.c.v.tally() }},
	{"scaled", hasScaled, fleet.OperationSucceeded, func(o operationCase) string { return o.c.v.tally() }},
	{"deadline", pastOperation, fleet.OperationFailed, sayLate},
}

// reasonNotConfirmed: all that is to end has, but some of it without the word of its node (X4).
const reasonNotConfirmed = "not_confirmed"

// finishOperations ends what is over, and looks again at the deadlines of the rest (X6).
func (c *deploymentCase) finishOperations() {
	for _, op := range c.v.Operations {
		if f, over := c.finish(op); over {
			c.plan.Finish = append(c.plan.Finish, f)
		} else if !op.Deadline.IsZero() {
			c.next(op.Deadline)
		}
	}
}

func (c *deploymentCase) finish(op fleet.DeploymentOperation) (fleet.OperationFinish, bool) {
	o := operationCase{c, op}
	for _, r := range operationRules {
		if r.when(o) {
			return fleet.OperationFinish{ID: op.ID, State: r.state, Reason: r.reason, Message: r.say(o)}, true
		}
	}
	return fleet.OperationFinish{}, false
}

func say(s string) func(operationCase) string { return func(operationCase) string { return s } }

func sayNothing(operationCase) string { return "" }

func sayCancelled(o operationCase) string {
	return fmt.Sprintf("nobody waits for the %s any more; what was declared stays so", o.op.Kind)
}

func sayLate(o operationCase) string {
	return fleet.LateDeployment(o.c.plan.Message, o.c.awaited())
}

func (o operationCase) ends() bool { return o.op.Kind == fleet.OperationDestroy }

func destroyed(o operationCase) bool {
	return o.ends() && o.c.state == fleet.DeploymentTerminated
}

// overtaken: what waits for a redeclared one waits on, until its predecessor is gone.
func overtaken(o operationCase) bool {
	over := o.c.state == fleet.DeploymentDestroying || o.c.state == fleet.DeploymentTerminated
	return !o.ends() && over && !o.c.v.Redeclared
}

func revived(o operationCase) bool {
	over := o.c.state == fleet.DeploymentDestroying || o.c.state == fleet.DeploymentTerminated
	return o.ends() && !over && !o.c.v.Deleting
}

// scalesStopped: as many were to run, and nothing is (S42).
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

// hasConverged: as many as there are to be are healthy, and nothing runs of an earlier process version,
// or where placement does not allow it.
func hasConverged(o operationCase) bool {
	if o.op.Kind != fleet.OperationConverge && !o.restarts() {
		return false
	}
	v := o.c.v
	return o.c.state == fleet.DeploymentRunning && v.ProcessVersion >= o.op.ProcessVersion && v.working() >= v.Target && !o.olderRuns() && !v.misplacedRuns()
}

// olderRuns: a restart waits also for what is on nodes that are not heard, as long as that has time to
// end; what they run of an earlier release is repaired when they are back (X4).
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

// endsNow says that this visit takes a replica for gone.
func (c *deploymentCase) endsNow(r fleet.ReplicaSeen) bool {
	return slices.ContainsFunc(c.plan.End, func(s fleet.ReplicaStep) bool { return s.ID == r.ID })
}

func (v deploymentView) misplacedRuns() bool {
	return slices.ContainsFunc(slices.Concat(v.stale, v.useless), func(r fleet.ReplicaSeen) bool { return v.misplaced(r) != "" })
}

// unlessConfirmed: it is as the operation is to see it, but for what nodes have not said.
func unlessConfirmed(ended func(operationCase) bool) func(operationCase) bool {
	return func(o operationCase) bool { return ended(o) && len(o.unconfirmed()) > 0 }
}

// unconfirmed are the nodes that may run on what the operation takes for ended. A restart is about what is
// older.
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

// writtenOff: who asked knew by an operator's word that the node is gone for good.
func (o operationCase) writtenOff(n fleet.UnconfirmedNode) bool {
	return !n.Gone.IsZero() && n.Gone.Before(o.op.Opened)
}

// unconfirmedTold bounds the names in one message.
const unconfirmedTold = 10

func sayUnconfirmed(o operationCase) string {
	nodes := o.unconfirmed()
	var names []string
	for _, n := range nodes[:min(len(nodes), unconfirmedTold)] {
		names = append(names, string(n))
	}
	told := strings.Join(names, ", ")
	if more := len(nodes) - unconfirmedTold; more > 0 {
		told += fmt.Sprintf(" and %d more", more)
	}
	return "what ended without the word of its node may run on there, until that is back and ends it: " + told
}

// hasScaled: exactly as many run, all healthy, and what was too much has ended.
func hasScaled(o operationCase) bool {
	v := o.c.v
	return o.op.Kind == fleet.OperationScale && o.c.state == fleet.DeploymentRunning && v.Target == o.op.Target &&
		v.working() == v.Target && v.live() == v.Target && len(v.ending) == len(o.c.plan.End) && !o.c.made
}

func pastOperation(o operationCase) bool {
	return !o.op.Deadline.IsZero() && !o.c.v.At.Before(o.op.Deadline)
}
