package decide

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// FailoverDo is what a site's entity does next.
type FailoverDo string

// The steps of a failover.
const (
	FailoverHandOver FailoverDo = "hand_over" // ask the holder to stop and release
	FailoverAim      FailoverDo = "aim"       // restrict the region's vote to the target
	FailoverWithdraw FailoverDo = "withdraw"  // lift that restriction
	FailoverTakeOver FailoverDo = "take_over" // ask the target to claim the lease
	FailoverWait     FailoverDo = "wait"
	FailoverFinish   FailoverDo = "finish"
	FailoverNothing  FailoverDo = "nothing" // the entity ends
)

// FailoverAction is a step, and the rule that chose it.
type FailoverAction struct {
	Rule    string               `json:"rule"`
	Do      FailoverDo           `json:"do"`
	Node    fleet.NodeName       `json:"node,omitempty"`
	Forced  bool                 `json:"forced,omitempty"`
	Limit   time.Duration        `json:"limit,omitempty"` // how long a node has for its part
	Wait    time.Duration        `json:"wait,omitempty"`
	State   fleet.OperationState `json:"state,omitempty"`
	Reason  string               `json:"reason,omitempty"`
	Message string               `json:"message,omitempty"`
}

// FailoverRun is what the entity's run remembers of its operation.
type FailoverRun struct {
	Operation fleet.OperationID `json:"operation"`
	InFlight  bool              `json:"inFlight,omitempty"` // a request to a node has no answer yet
	HandOver  *NodeAnswer       `json:"handOver,omitempty"`
	TakeOver  *NodeAnswer       `json:"takeOver,omitempty"`
	Waits     int               `json:"waits,omitempty"` // since the target answered
	Aimed     bool              `json:"aimed,omitempty"` // at most once: an aim expires by itself
	// Epoch and Counter are the lease's at the last look; Moved is when they last changed.
	Epoch   int64     `json:"epoch,omitempty"`
	Counter int64     `json:"counter,omitempty"`
	Moved   time.Time `json:"moved,omitzero"`
	Looks   int       `json:"looks,omitempty"`   // since a node answered
	Renewed bool      `json:"renewed,omitempty"` // a renewal was seen since then
}

// Watched notes whether the lease was renewed since the last look.
func (r FailoverRun) Watched(seen fleet.FailoverSeen) FailoverRun {
	if r.Moved.IsZero() || r.Epoch != seen.Epoch || r.Counter != seen.Counter {
		r.Epoch, r.Counter, r.Moved = seen.Epoch, seen.Counter, seen.At
		r.Renewed = r.Renewed || r.Looks > 0
	}
	r.Looks++
	return r
}

// Answered resets the counts after a node answered.
func (r FailoverRun) Answered() FailoverRun {
	r.InFlight, r.Waits, r.Looks, r.Renewed = false, 0, 0, false
	return r
}

// NodeAnswer is a node's answer, or why it gave none.
type NodeAnswer struct {
	Node     fleet.NodeName `json:"node"`
	Done     bool           `json:"done,omitempty"` // it released or took the lease
	Epoch    int64          `json:"epoch,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	NotThere bool           `json:"notThere,omitempty"`
}

func (a *NodeAnswer) text() string {
	switch {
	case a == nil:
		return "was not asked"
	case a.NotThere:
		return "was not reached: " + a.Reason
	case a.Done:
		return fmt.Sprintf("did, at epoch %d", a.Epoch)
	}
	return "did not: " + a.Reason
}

type failoverCase struct {
	seen fleet.FailoverSeen
	run  FailoverRun
}

var failoverRules = []struct {
	name string
	when func(c failoverCase) bool
	then func(c failoverCase) FailoverAction
}{
	{"nothing_asked", nothingAsked, failoverEnds},
	{aimWithdrawn, aimedElsewhere, withdrawAim},
	{"cancelled", failoverCancelled, cancelFailover},
	{"moved", targetHolds, failoverSucceeds},
	{"moved_unseen", movedUnseen, failoverSucceeds},
	{"not_a_voter", targetGone, failoverNoVoter},
	{"target_not_there", targetAway, awaitTarget},
	{"deadline", failoverOverdue, failoverFails},
	{"node_asked", nodeAsked, waitForNode},
	{"holder_not_there", holderAway, awaitHolder},
	{"hand_over", shouldHandOver, askToHandOver},
	{"take_over_unseen", mayHoldUnseen, askTargetOnce},
	{"holder_not_reached", holderLives, awaitRenewal},
	{"not_released", holderRefused, failoverRefused},
	{"aim", shouldAim, aimVote},
	{"take_over", shouldTakeOver, askTarget},
	{"votes_decide", failoverAlways, waitForVotes},
}

// aimWithdrawn is also the rule for any failed ending that would leave an aim behind.
const aimWithdrawn = "aim_withdrawn"

// Failover decides the next step of moving a site's lease (N60, X21). The votes decide who holds it: this only
// asks, records and follows up.
func Failover(seen fleet.FailoverSeen, run FailoverRun) FailoverAction {
	c := failoverCase{seen, run}
	for _, r := range failoverRules {
		if !r.when(c) {
			continue
		}
		a := r.then(c)
		a.Rule = r.name
		if a.Do == FailoverFinish && a.State != fleet.OperationSucceeded && c.aims() {
			a = withdrawAim(c)
			a.Rule = aimWithdrawn
		}
		return a
	}
	return FailoverAction{Rule: "votes_decide", Do: FailoverWait, Wait: failoverPoll}
}

func failoverAlways(failoverCase) bool      { return true }
func nothingAsked(c failoverCase) bool      { return c.seen.Operation == "" }
func failoverCancelled(c failoverCase) bool { return c.seen.Cancelled }

// aimedElsewhere: an earlier operation left its aim, so the region withholds its vote from this operation's target.
func aimedElsewhere(c failoverCase) bool { return c.aims() && c.seen.Target != c.seen.To }

// aims reports whether the region's vote is restricted to one node.
func (c failoverCase) aims() bool { return c.seen.Target != "" && len(c.seen.Voters) > 1 }

func targetHolds(c failoverCase) bool     { return c.seen.Holder == c.seen.To && !c.seen.Released }
func failoverOverdue(c failoverCase) bool { return !c.seen.At.Before(c.seen.Deadline) }
func nodeAsked(c failoverCase) bool       { return c.run.InFlight }

// movedUnseen: the target got the lease from the other votes; the region's vote is lost and shows nothing.
func movedUnseen(c failoverCase) bool {
	return c.seen.Lost && c.run.TakeOver != nil && c.run.TakeOver.Done
}

// mayHoldUnseen: the recorded holder does not answer, and the region's lost vote cannot show whether another node
// holds the lease by now. Asking the target once forces nothing.
func mayHoldUnseen(c failoverCase) bool {
	return c.seen.Lost && holderLives(c) && c.run.TakeOver == nil
}

func targetGone(c failoverCase) bool {
	for _, n := range c.seen.Voters {
		if n == c.seen.To {
			return false
		}
	}
	return true
}

// targetAway: instances are not stopped for a node that could not take over.
func targetAway(c failoverCase) bool { return c.seen.Away && !c.run.InFlight && shouldHandOver(c) }

// holderAway: the region was down, and the holder has not had time to reconnect.
func holderAway(c failoverCase) bool {
	return c.seen.HolderAway && c.seen.At.Before(c.seen.There) && shouldHandOver(c)
}

func shouldHandOver(c failoverCase) bool {
	return !c.seen.Force && !c.seen.Released && (c.run.HandOver == nil || askHolderAgain(c))
}

// askHolderAgain: the holder renews its lease, so it can be reached by now. A lost vote sees no renewals.
func askHolderAgain(c failoverCase) bool {
	return holderLives(c) && (c.run.Renewed || c.seen.Lost && c.run.Waits >= askAgain)
}

// holderLives reports whether the holder, which did not answer, may still run: requests and answers go through the
// region, which may have been down. It counts as gone once nodes had time to reconnect and the lease has not been
// renewed for a TTL.
func holderLives(c failoverCase) bool {
	h := c.run.HandOver
	if h == nil || !h.NotThere || c.seen.Force || c.seen.Released || c.seen.TTL <= 0 {
		return false
	}
	since := c.run.Moved
	if c.seen.There.After(since) {
		since = c.seen.There
	}
	return c.seen.Lost || c.seen.At.Before(since.Add(c.seen.TTL))
}

func holderRefused(c failoverCase) bool {
	h := c.run.HandOver
	return !c.seen.Force && !c.seen.Released && h != nil && !h.Done && !h.NotThere
}

// forced: the holder is not asked, or it is gone.
func (c failoverCase) forced() bool {
	return c.seen.Force || c.run.HandOver != nil && c.run.HandOver.NotThere && !holderLives(c)
}

func shouldAim(c failoverCase) bool {
	return c.forced() && !c.run.Aimed && !c.seen.Released && c.seen.Target != c.seen.To && !c.seen.Lost && askNow(c)
}

// askNow reports whether to ask the target: it was not asked yet, or it refused a while ago.
func askNow(c failoverCase) bool {
	t := c.run.TakeOver
	return t == nil || !t.Done && c.run.Waits >= askAgain
}

func shouldTakeOver(c failoverCase) bool { return askNow(c) }

const (
	failoverPoll = 250 * time.Millisecond
	failoverSlow = 2 * time.Second
	// askAgain is how many waits pass before a target that refused is asked again.
	askAgain = 4
	// renewalLooks is how often per TTL to check whether a lease is renewed.
	renewalLooks = 8
)

func failoverEnds(failoverCase) FailoverAction { return FailoverAction{Do: FailoverNothing} }

func withdrawAim(c failoverCase) FailoverAction {
	return FailoverAction{
		Do:      FailoverWithdraw,
		Message: fmt.Sprintf("the region's vote is no longer restricted to node %s", c.seen.Target),
	}
}

func cancelFailover(c failoverCase) FailoverAction {
	return FailoverAction{
		Do: FailoverFinish, State: fleet.OperationCancelled, Reason: "cancelled",
		Message: fmt.Sprintf("it was cancelled; %s holds the lease at epoch %d, and votes decide", c.holder(), c.seen.Epoch),
	}
}

func (c failoverCase) holder() string {
	if c.seen.Released || c.seen.Holder == "" {
		return "no node"
	}
	return string(c.seen.Holder)
}

func failoverSucceeds(c failoverCase) FailoverAction {
	epoch := c.seen.Epoch
	if c.run.TakeOver != nil {
		epoch = max(epoch, c.run.TakeOver.Epoch)
	}
	return FailoverAction{
		Do: FailoverFinish, State: fleet.OperationSucceeded,
		Message: fmt.Sprintf("node %s holds the lease at epoch %d", c.seen.To, epoch),
	}
}

func failoverNoVoter(c failoverCase) FailoverAction {
	return FailoverAction{
		Do: FailoverFinish, State: fleet.OperationFailed, Reason: "not_a_voter",
		Message: fmt.Sprintf("node %s no longer belongs to the site's pair", c.seen.To),
	}
}

func awaitTarget(c failoverCase) FailoverAction {
	a := FailoverAction{
		Do: FailoverWait, Wait: min(failoverSlow, c.left()), Reason: "target_not_there",
		Message: fmt.Sprintf("waiting for node %s to connect; until then nothing is stopped", c.seen.To),
	}
	if failoverOverdue(c) {
		a.Do, a.Wait, a.State = FailoverFinish, 0, fleet.OperationFailed
		effect := "nothing was stopped"
		if c.run.HandOver != nil {
			effect = "the holder, which " + c.run.HandOver.text() + ", was not asked again"
		}
		a.Message = fmt.Sprintf("node %s was not connected, so %s: %s holds the lease at epoch %d; "+
			"start it (see holdfast describe node %s), and retry", c.seen.To, effect, c.holder(), c.seen.Epoch, c.seen.To)
	}
	return a
}

func failoverFails(c failoverCase) FailoverAction {
	said := []string{fmt.Sprintf("node %s %s", c.seen.To, c.run.TakeOver.text())}
	if !c.seen.Force {
		holder := "the holder " + c.run.HandOver.text()
		if holderLives(c) {
			holder += ", and may be running: --force does not ask it"
		}
		said = append(said, holder)
	}
	region := fmt.Sprintf("the region has %s on record at epoch %d", c.holder(), c.seen.Epoch)
	if c.seen.Lost {
		region += ", and its vote is lost until it has heard from both nodes"
	}
	return FailoverAction{
		Do: FailoverFinish, State: fleet.OperationFailed, Reason: "deadline",
		Message: strings.Join(append(said, region), "; "),
	}
}

func failoverRefused(c failoverCase) FailoverAction {
	return FailoverAction{
		Do: FailoverFinish, State: fleet.OperationFailed, Reason: "not_released",
		Message: fmt.Sprintf("node %s did not release the lease: %s", c.run.HandOver.Node, c.run.HandOver.Reason),
	}
}

func waitForNode(c failoverCase) FailoverAction {
	return FailoverAction{
		Do: FailoverWait, Wait: c.left(), Message: "waiting for a node's answer",
	}
}

// askToHandOver leaves the other half of the time for the target.
func askToHandOver(c failoverCase) FailoverAction {
	return FailoverAction{
		Do: FailoverHandOver, Node: c.seen.Holder, Limit: c.left() / 2, Reason: "hand_over",
		Message: fmt.Sprintf("waiting for node %s to stop its instances and release the lease", c.seen.Holder),
	}
}

func awaitHolder(c failoverCase) FailoverAction {
	return FailoverAction{
		Do: FailoverWait, Wait: min(failoverSlow, c.left()), Reason: "holder_not_there",
		Message: fmt.Sprintf("the region was down: waiting for node %s to reconnect before asking it to hand over", c.seen.Holder),
	}
}

// awaitRenewal checks often enough to see a renewal of a short lease.
func awaitRenewal(c failoverCase) FailoverAction {
	wait := min(max(c.seen.TTL/renewalLooks, failoverPoll), failoverSlow)
	return FailoverAction{
		Do: FailoverWait, Wait: min(wait, c.left()), Reason: "holder_not_reached",
		Message: fmt.Sprintf("node %s %s; it is asked again once it renews its lease, and counts as lost if it does not",
			c.seen.Holder, c.run.HandOver.text()),
	}
}

func aimVote(c failoverCase) FailoverAction {
	return FailoverAction{
		Do: FailoverAim, Node: c.seen.To, Reason: "forced",
		Message: fmt.Sprintf("the region's vote is restricted to node %s", c.seen.To),
	}
}

func askTarget(c failoverCase) FailoverAction {
	return FailoverAction{
		Do: FailoverTakeOver, Node: c.seen.To, Forced: c.forced() && !c.seen.Released, Limit: c.left(), Reason: "take_over",
		Message: fmt.Sprintf("waiting for node %s to be granted the lease", c.seen.To),
	}
}

// askTargetOnce leaves time to ask the holder again.
func askTargetOnce(c failoverCase) FailoverAction {
	a := askTarget(c)
	a.Limit = min(a.Limit, c.seen.TTL)
	return a
}

func waitForVotes(c failoverCase) FailoverAction {
	wait := failoverPoll
	if c.run.Waits > askAgain {
		wait = failoverSlow
	}
	return FailoverAction{
		Do: FailoverWait, Wait: min(wait, c.left()), Reason: "votes_decide",
		Message: fmt.Sprintf("node %s %s; waiting for the votes", c.seen.To, c.run.TakeOver.text()),
	}
}

// left is the time until the deadline; never zero, which would mean no limit.
func (c failoverCase) left() time.Duration {
	return max(failoverPoll, c.seen.Deadline.Sub(c.seen.At))
}
