package decide

import (
	"fmt"
	"slices"

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
	{"destroyed", destroyed, fleet.OperationSucceeded, sayNothing},
	{"superseded", func(o operationCase) bool { return o.op.Stale }, fleet.OperationSuperseded, say("something else was asked for since")},
	{"deleted", overtaken, fleet.OperationSuperseded, say("the deployment is being deleted")},
	{"redeclared", revived, fleet.OperationSuperseded, say("it was declared again")},
	{"stopped", hasStopped, fleet.OperationSucceeded, say("it is stopped, and nothing of it runs")},
	{"given_up", givenUp, fleet.OperationFailed, func(o operationCase) string { return o.c.plan.Message }},
	{"converged", hasConverged, fleet.OperationSucceeded, func(o operationCase) string { return o.c.v.tally() }},
	{"scaled", hasScaled, fleet.OperationSucceeded, func(o operationCase) string { return o.c.v.tally() }},
	{"deadline", pastOperation, fleet.OperationFailed, sayLate},
}

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

func (c *deploymentCase) finish(op fleet.DeploymentOperation) (OperationFinish, bool) {
	o := operationCase{c, op}
	for _, r := range operationRules {
		if r.when(o) {
			return OperationFinish{ID: op.ID, State: r.state, Reason: r.reason, Message: r.say(o)}, true
		}
	}
	return OperationFinish{}, false
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

func hasStopped(o operationCase) bool {
	return !o.ends() && o.c.v.Stopped && o.c.state == fleet.DeploymentPending &&
		o.c.v.live() == 0 && len(o.c.v.ending) == len(o.c.plan.End)
}

func givenUp(o operationCase) bool { return !o.ends() && o.c.state == fleet.DeploymentError }

// hasConverged: as many as there are to be are healthy, and nothing runs of an earlier process version,
// or where placement does not allow it.
func hasConverged(o operationCase) bool {
	if o.op.Kind != fleet.OperationConverge && o.op.Kind != fleet.OperationRestart {
		return false
	}
	v := o.c.v
	return o.c.state == fleet.DeploymentRunning && v.ProcessVersion >= o.op.ProcessVersion && v.working() >= v.Target && !v.olderRuns(o.op.ProcessVersion) && !v.misplacedRuns()
}

func (v deploymentView) olderRuns(version int64) bool {
	for _, all := range [][]fleet.ReplicaSeen{v.good, v.stale, v.useless, v.dead} {
		for _, r := range all {
			if r.ProcessVersion < version {
				return true
			}
		}
	}
	return false
}

func (v deploymentView) misplacedRuns() bool {
	return slices.ContainsFunc(slices.Concat(v.stale, v.useless), func(r fleet.ReplicaSeen) bool { return v.misplaced(r) != "" })
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
