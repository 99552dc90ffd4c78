package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// The reasons of a replica's end that the region gives.
const (
	ReasonDeleted      = "deleted"
	ReasonStopped      = "stopped"
	ReasonScaledDown   = "scaled_down"
	ReasonReplaced     = "replaced"
	ReasonNodeLeaves   = "node_leaves"
	ReasonMisplaced    = "misplaced" // placement does not allow its node any more
	ReasonNodeLost     = "node_lost"
	ReasonLost         = "lost"          // its node has it no more
	ReasonNotTakenUp   = "not_taken_up"  // its node is there and said nothing of it
	ReasonStuck        = "stuck"         // its node let its deadlines pass
	ReasonStopDeadline = "stop_deadline" // its node did not say in time that it ended
)

// stopMargin is what a node gets beyond the stop time of a replica to end it and to say so.
const stopMargin = 30 * time.Second

// deploymentCase makes the plan of one visit. What is to end is bounded by MaxPerVisit.
type deploymentCase struct {
	v     deploymentView
	plan  fleet.DeploymentPlan
	state fleet.DeploymentState
	// left is how many steps more this visit may take.
	left int
	// made says that what becomes of it is to be seen in the next visit.
	made bool
}

func newDeploymentCase(v deploymentView) *deploymentCase {
	return &deploymentCase{v: v, state: v.State, left: MaxPerVisit, plan: fleet.DeploymentPlan{
		Attempts: v.Attempts, Crashes: v.Crashes, NextAttempt: v.NextAttempt, Owed: v.Owed, Began: v.Began, BeganVersion: v.BeganVersion,
	}}
}

// on applies an event; one that the machine does not have is not applied.
func (c *deploymentCase) on(e fleet.DeploymentEvent) {
	to, err := c.state.Next(e)
	if err != nil {
		return
	}
	c.state = to
	c.plan.Events = append(c.plan.Events, e)
}

func (c *deploymentCase) next(at time.Time) {
	if c.plan.Next.IsZero() || at.Before(c.plan.Next) {
		c.plan.Next = at
	}
}

// step takes one of the steps of this visit, or leaves it for the next.
func (c *deploymentCase) step(to *[]fleet.ReplicaStep, s fleet.ReplicaStep) bool {
	if c.left == 0 {
		c.plan.More = true
		return false
	}
	c.left--
	*to = append(*to, s)
	return true
}

func (c *deploymentCase) terminate(r fleet.ReplicaSeen, reason, message string) {
	if c.step(&c.plan.Terminate, fleet.ReplicaStep{ID: r.ID, Reason: reason, Message: message}) {
		c.made = true
		c.next(c.v.At.Add(r.Stop + stopMargin))
		// Nobody will say once more that it ended.
		c.plan.More = c.plan.More || r.Gone || r.Lost || r.Phase.Over()
	}
}

// endLive ends all that runs.
func (c *deploymentCase) endLive(reason, message string) {
	for _, all := range [][]fleet.ReplicaSeen{c.v.dead, c.v.away, c.v.useless, c.v.stale, c.v.good} {
		for _, r := range all {
			c.terminate(r, reason, message)
		}
	}
}

// endEnding takes those for gone whose node says that they are, will not say it any more, or did not
// say it in time (S53). It answers how many are left.
func (c *deploymentCase) endEnding() int {
	left := 0
	for _, r := range c.v.ending {
		by := goneBy(r)
		reason, message := goneFor(r, c.v.At, by)
		if reason == "" || !c.step(&c.plan.End, fleet.ReplicaStep{ID: r.ID, Reason: reason, Message: message}) {
			left++
			c.next(by)
		}
	}
	return left
}

// goneBy is when one that ends is taken for gone although its node has not said so. A node that had no server
// to speak to has until it is missed, and one that has just come back, the time to end it.
func goneBy(r fleet.ReplicaSeen) time.Time {
	by := r.StopBy
	if heard := r.HeardSince.Add(r.Stop + stopMargin); !r.HeardSince.IsZero() && heard.After(by) {
		by = heard
	}
	if r.Unheard.After(by) {
		by = r.Unheard
	}
	return by
}

func goneFor(r fleet.ReplicaSeen, now, by time.Time) (reason, message string) {
	switch {
	case r.Gone:
		return ReasonNodeLost, fmt.Sprintf("node %s is no part of the region any more", r.Node)
	case r.Phase.Over():
		return cmp.Or(r.Reason, ReasonStopped), fmt.Sprintf("node %s said that it ended", r.Node)
	case r.Lost:
		return ReasonLost, fmt.Sprintf("node %s has it no more", r.Node)
	case now.Before(by):
		return "", ""
	case !r.Unheard.IsZero():
		return ReasonNodeLost, fmt.Sprintf("node %s is not connected; it ends it when it comes back", r.Node)
	}
	return ReasonStopDeadline, fmt.Sprintf("node %s did not say in time that it ended; it is not to run it", r.Node)
}

// endDead ends what runs no more, and those to be replaced that do no work, as far as it is known.
func (c *deploymentCase) endDead() {
	for _, r := range c.v.dead {
		reason, message := diedOf(r)
		c.terminate(r, reason, message)
	}
	for _, r := range c.v.useless {
		if !c.v.unsaid(r) {
			c.replaced(r)
		}
	}
}

func diedOf(r fleet.ReplicaSeen) (reason, message string) {
	switch {
	case r.Phase.Over():
		return cmp.Or(r.Reason, fleet.ReasonExited), r.Message
	case r.Lost:
		return ReasonLost, fmt.Sprintf("node %s listed what it has, and this was not in it", r.Node)
	case r.Gone:
		return ReasonNodeLost, fmt.Sprintf("node %s is no part of the region any more", r.Node)
	case r.Phase == "":
		return ReasonNotTakenUp, fmt.Sprintf("node %s is connected and said nothing of it for %s", r.Node, takeUpLimit)
	case r.State == fleet.ReplicaStarting && r.Phase == fleet.PhaseRunning:
		return fleet.ReasonStartupDeadline, fmt.Sprintf("it runs on node %s since %s and was not healthy within its start-up deadline",
			r.Node, r.Since.UTC().Format(time.RFC3339))
	}
	return ReasonStuck, fmt.Sprintf("node %s is connected and let its deadlines pass", r.Node)
}

func (v deploymentView) replacedFor(r fleet.ReplicaSeen) (reason, message string) {
	if r.Leave {
		return ReasonNodeLeaves, fmt.Sprintf("node %s is to be left", r.Node)
	}
	if why := v.misplaced(r); why != "" && r.ProcessVersion == v.ProcessVersion {
		return ReasonMisplaced, fmt.Sprintf("it is not to run on node %s any more: %s", r.Node, why)
	}
	return ReasonReplaced, fmt.Sprintf("process version %d took the place of %d", v.ProcessVersion, r.ProcessVersion)
}

// endSurplus ends what is too much: of the released revision in the order of victims, then of what
// it replaces, and what is or was on lost nodes, as long as enough work without them.
func (c *deploymentCase) endSurplus() {
	good := c.v.victims()
	for _, r := range good[:c.v.surplus()] {
		c.terminate(r, ReasonScaledDown, fmt.Sprintf("%d are to run", c.v.Target))
	}
	kept, stale := heard(good[c.v.surplus():]), heard(c.v.stale)
	spare := max(0, len(kept)+len(stale)-c.v.Target)
	for _, r := range stale[:min(len(stale), spare)] {
		c.replaced(r)
	}
	if len(kept)+len(stale) < c.v.Target {
		c.failAway()
		return
	}
	for _, r := range c.v.stale {
		if !r.Unheard.IsZero() {
			c.replaced(r)
		}
	}
	for _, r := range c.v.useless {
		if c.v.unsaid(r) { // the others have ended
			c.replaced(r)
		}
	}
	for _, r := range c.v.away {
		c.terminate(r, ReasonNodeLost, fmt.Sprintf("node %s is not heard, and it is replaced", r.Node))
	}
}

func (c *deploymentCase) replaced(r fleet.ReplicaSeen) {
	reason, message := c.v.replacedFor(r)
	c.terminate(r, reason, message)
}

// failAway says of what is on lost nodes that nobody counts on it; it counts again when its node is
// back before it is replaced.
func (c *deploymentCase) failAway() {
	for _, r := range c.v.away {
		if r.State != fleet.ReplicaUnhealthy {
			c.step(&c.plan.Fail, fleet.ReplicaStep{ID: r.ID, Reason: ReasonNodeLost, Message: fmt.Sprintf("node %s is not heard", r.Node)})
		}
	}
}

// victims are the good ones, those to end first before others: unhealthy, starting, those on nodes that
// are not heard, then the oldest (S16, S105). Those of which their nodes have still to speak are no victims
// before enough are healthy.
func (v deploymentView) victims() []fleet.ReplicaSeen {
	enough := len(heard(v.good)) >= v.Target
	rank := func(r fleet.ReplicaSeen) int {
		if v.unsaid(r) && !enough {
			return 4
		}
		switch r.State {
		case fleet.ReplicaUnhealthy:
			return 0
		case fleet.ReplicaStarting:
			return 1
		case fleet.ReplicaHealthy, fleet.ReplicaTerminating, fleet.ReplicaTerminated:
		}
		if !r.Unheard.IsZero() {
			return 2
		}
		return 3
	}
	all := slices.Clone(v.good)
	slices.SortStableFunc(all, func(a, b fleet.ReplicaSeen) int { return cmp.Compare(rank(a), rank(b)) })
	return all
}

// create fills up to the target, or makes one more where one is to be replaced and nothing else is
// on its way: new before old, one by one. So many are held back by a pause.
func (c *deploymentCase) create(held int) {
	if n := c.v.missing() - held; n > 0 {
		c.plan.Create = min(n, MaxPerVisit)
		c.plan.More = c.plan.More || n > MaxPerVisit
	} else if c.surges(held) {
		c.plan.Create = 1
	}
	if c.plan.Create > 0 {
		c.made = true
		c.plan.Scarce = slices.Contains(noRoomReasons, c.v.Reason)
		c.next(c.v.At.Add(takeUpLimit))
	}
}

// surges looks at what is left once the steps of this visit are taken.
func (c *deploymentCase) surges(held int) bool {
	stale := len(c.v.stale)
	for _, s := range c.plan.Terminate {
		if slices.ContainsFunc(c.v.stale, func(r fleet.ReplicaSeen) bool { return r.ID == s.ID }) {
			stale--
		}
	}
	return c.v.replaces(stale, held)
}
