package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Reasons that the region gives for ending a replica.
const (
	ReasonDeleted      = "deleted"
	ReasonStopped      = "stopped"
	ReasonScaledDown   = "scaled_down"
	ReasonReplaced     = "replaced"
	ReasonNodeLeaves   = "node_leaves"
	ReasonMisplaced    = "misplaced" // placement no longer allows its node
	ReasonNodeLost     = "node_lost"
	ReasonLost         = "lost"          // its node no longer has it
	ReasonNotTakenUp   = "not_taken_up"  // its node is connected and never reported it
	ReasonStuck        = "stuck"         // its node missed the deadlines
	ReasonStopDeadline = "stop_deadline" // its node did not report its end in time
)

// stopMargin is what a node gets, beyond a replica's stop time, to end it and report that.
const stopMargin = 30 * time.Second

// deploymentCase builds the plan of one visit. MaxPerVisit limits how many replicas it ends.
type deploymentCase struct {
	v     deploymentView
	plan  fleet.DeploymentPlan
	state fleet.DeploymentState
	// left is how many more steps this visit may add.
	left int
	// made is set when the next visit must check the effect of this one.
	made bool
	// rollout is the one under way, nil without one.
	rollout *rollout
}

func newDeploymentCase(v deploymentView) *deploymentCase {
	return &deploymentCase{v: v, state: v.State, left: MaxPerVisit, plan: fleet.DeploymentPlan{
		Attempts: v.Attempts, Crashes: v.Crashes, NextAttempt: v.NextAttempt, Owed: v.Owed, Began: v.Began, BeganVersion: v.BeganVersion,
	}}
}

// on applies an event; it ignores an event that the machine does not allow in this state.
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

// step adds a step to this visit, or leaves it to the next when the limit is reached.
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
		// Its node will not report the end again.
		c.plan.More = c.plan.More || r.Gone || r.Lost || r.Phase.Over()
	}
}

// endLive ends all live replicas.
func (c *deploymentCase) endLive(reason, message string) {
	for _, all := range [][]fleet.ReplicaSeen{c.v.dead, c.v.away, c.v.useless, c.v.stale, c.v.good} {
		for _, r := range all {
			c.terminate(r, reason, message)
		}
	}
}

// endEnding records replicas as ended if their node reported it, can no longer report it, or did not report it in
// time (S53). It returns how many are still ending.
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

// goneBy is when an ending replica counts as ended although its node has not reported it. A disconnected node has
// until it counts as lost; one that has just reconnected gets the time to end the replica.
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
		return ReasonNodeLost, fmt.Sprintf("node %s no longer belongs to the region", r.Node)
	case r.Phase.Over():
		return cmp.Or(r.Reason, ReasonStopped), cmp.Or(r.Message, fmt.Sprintf("node %s reported that it ended", r.Node))
	case r.Lost:
		return ReasonLost, fmt.Sprintf("node %s no longer has it", r.Node)
	case now.Before(by):
		return "", ""
	case !r.Unheard.IsZero():
		return ReasonNodeLost, fmt.Sprintf("node %s is not connected; it will end the replica when it reconnects", r.Node)
	}
	return ReasonStopDeadline, fmt.Sprintf("node %s did not report in time that it ended; it must not run there", r.Node)
}

// endDead ends dead replicas, and non-working ones that must be replaced, unless their node has yet to report.
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
		reason = cmp.Or(r.Reason, fleet.ReasonExited)
		return reason, fleet.Explained(reason, r.Message, r.Failing)
	case r.Lost:
		return ReasonLost, fmt.Sprintf("node %s reported its replicas, and this one was not among them", r.Node)
	case r.Gone:
		return ReasonNodeLost, fmt.Sprintf("node %s no longer belongs to the region", r.Node)
	case r.Phase == "":
		return ReasonNotTakenUp, fmt.Sprintf("node %s is connected and did not report it within %s", r.Node, takeUpLimit)
	case r.State == fleet.ReplicaStarting && (r.Phase == fleet.PhaseRunning || r.Phase == fleet.PhasePreStart):
		return fleet.ReasonStartupDeadline, fleet.Explained(fleet.ReasonStartupDeadline, fmt.Sprintf(
			"it has been running on node %s since %s and was not healthy within its start-up deadline", r.Node, r.Since.UTC().Format(time.RFC3339)), r.Failing)
	}
	return ReasonStuck, fmt.Sprintf("node %s is connected and missed its deadlines", r.Node)
}

func (v deploymentView) replacedFor(r fleet.ReplicaSeen) (reason, message string) {
	if r.Leave {
		return ReasonNodeLeaves, fmt.Sprintf("replicas must leave node %s", r.Node)
	}
	if why := v.misplaced(r); why != "" && r.ProcessVersion == v.ProcessVersion {
		return ReasonMisplaced, fmt.Sprintf("it may no longer run on node %s: %s", r.Node, why)
	}
	return ReasonReplaced, fmt.Sprintf("process version %d replaced %d", v.ProcessVersion, r.ProcessVersion)
}

// endSurplus ends surplus replicas: first those of the released revision, in the order of victims, then those that
// proven ones replace (F53), then those on lost nodes. It keeps enough that are proven or to be replaced.
func (c *deploymentCase) endSurplus() {
	good := c.v.victims()
	surplus, kept, stale := good[:c.v.surplus()], good[c.v.surplus():], heard(c.v.stale)
	relied := c.v.relied(stale)
	short := c.v.short || len(c.v.proven(kept))+len(routable(relied)) < c.v.Target
	left, hurried := relied, false
	for _, r := range stale {
		others := slices.DeleteFunc(slices.Clone(left), func(x fleet.ReplicaSeen) bool { return x.ID == r.ID })
		count := len(others)
		if !r.Unready { // it relies on what is ready too
			count = len(routable(others))
		}
		if len(c.v.covers(kept, r))+count >= c.v.Target {
			c.replaced(r)
			left, hurried = others, hurried || c.v.hurries(r)
		}
	}
	if hurried { // what ended for replicas that are not proven has these beside them until the next visit
		c.plan.More = c.plan.More || len(surplus) > 0
		surplus = nil
	}
	for _, r := range surplus {
		c.terminate(r, ReasonScaledDown, fmt.Sprintf("the target is %d", c.v.Target))
	}
	if len(c.v.proven(kept))+len(relied) < c.v.Target {
		c.failAway()
		return
	}
	for _, r := range c.v.stale {
		if !r.Unheard.IsZero() {
			c.replaced(r)
		}
	}
	for _, r := range c.v.useless {
		if c.v.unsaid(r) && !short { // the others have ended
			c.replaced(r)
		}
	}
	for _, r := range c.v.away {
		c.terminate(r, ReasonNodeLost, fmt.Sprintf("node %s is not connected; the replica is replaced", r.Node))
	}
}

func (c *deploymentCase) replaced(r fleet.ReplicaSeen) {
	reason, message := c.v.replacedFor(r)
	c.terminate(r, reason, message)
}

// failAway marks replicas on lost nodes as unhealthy. One counts again if its node reconnects before it is
// replaced.
func (c *deploymentCase) failAway() {
	for _, r := range c.v.away {
		if r.State != fleet.ReplicaUnhealthy {
			c.step(&c.plan.Fail, fleet.ReplicaStep{ID: r.ID, Reason: ReasonNodeLost, Message: fmt.Sprintf("node %s is not connected", r.Node)})
		}
	}
}

// victims orders the good replicas by which to end first: unhealthy, starting, not ready, on disconnected nodes, not proven
// (the newest first), then the oldest (S16, S105). Replicas that their nodes have yet to report come last until enough others
// are proven.
func (v deploymentView) victims() []fleet.ReplicaSeen {
	enough := len(v.proven(v.good)) >= v.Target && !v.short
	const unproven = 4
	rank := func(r fleet.ReplicaSeen) int {
		if v.unsaid(r) && !enough {
			return 6
		}
		switch r.State {
		case fleet.ReplicaUnhealthy:
			return 0
		case fleet.ReplicaStarting:
			return 1
		case fleet.ReplicaHealthy, fleet.ReplicaTerminating, fleet.ReplicaTerminated:
		}
		switch {
		case r.Unready:
			return 2
		case !r.Unheard.IsZero():
			return 3
		case v.At.Before(v.provenAt(r)):
			return unproven
		}
		return 5
	}
	all := slices.Clone(v.good)
	slices.SortStableFunc(all, func(a, b fleet.ReplicaSeen) int {
		if rank(a) == unproven && rank(b) == unproven {
			return b.CreatedAt.Compare(a.CreatedAt)
		}
		return cmp.Compare(rank(a), rank(b))
	})
	return all
}

// create fills up to the target. If nothing is missing, it creates replacements: new before old, max_surge at a time. A pause
// holds back as many as held.
func (c *deploymentCase) create(held int) {
	if c.v.leaving {
		return
	}
	if n := c.v.missing() - held; n > 0 {
		c.plan.Create = min(n, MaxPerVisit)
		c.plan.More = c.plan.More || n > MaxPerVisit
	} else {
		n := c.surges(held)
		c.plan.Create = min(n, MaxPerVisit)
		c.plan.More = c.plan.More || n > MaxPerVisit
	}
	if c.plan.Create > 0 {
		c.made = true
		c.plan.Scarce = slices.Contains(noRoomReasons, c.v.Reason)
		c.next(c.v.At.Add(takeUpLimit))
	}
}

// surges counts what remains once the steps of this visit are done. It waits for what a node has yet to report.
func (c *deploymentCase) surges(held int) int {
	if slices.ContainsFunc(c.v.useless, func(r fleet.ReplicaSeen) bool { return c.v.unsaid(r) && !c.terminates(r) }) {
		return 0
	}
	return c.v.replacements(slices.DeleteFunc(slices.Clone(c.v.stale), c.terminates), held)
}

// terminates reports whether this visit ends a replica.
func (c *deploymentCase) terminates(r fleet.ReplicaSeen) bool {
	return slices.ContainsFunc(c.plan.Terminate, func(s fleet.ReplicaStep) bool { return s.ID == r.ID })
}
