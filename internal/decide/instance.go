package decide

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// InstanceDo is what an instance's entity does next.
type InstanceDo string

// The steps of an entity. Notify, Ask and Serve call a node, the rest the store.
const (
	DoClaim   InstanceDo = "claim"   // number the next attempt of the desired revision
	DoNotify  InstanceDo = "notify"  // notify a node of the open delivery, after Wait
	DoAsk     InstanceDo = "ask"     // ask a node what it holds
	DoServe   InstanceDo = "serve"   // deliver what a node is owed, by a snapshot ticket
	DoEnd     InstanceDo = "end"     // close the open delivery, or (without one) operations
	DoWait    InstanceDo = "wait"    // for the node that was called
	DoNothing InstanceDo = "nothing" // the entity ends
)

// InstanceAction is a step, and the rule that chose it.
type InstanceAction struct {
	Rule          string               `json:"rule"`
	Do            InstanceDo           `json:"do"`
	Node          fleet.NodeName       `json:"node,omitempty"`
	Wait          time.Duration        `json:"wait,omitempty"`
	State         fleet.DeliveryState  `json:"state,omitempty"`
	Operation     fleet.OperationState `json:"operation,omitempty"`
	Reason        string               `json:"reason,omitempty"`
	Message       string               `json:"message,omitempty"`
	Owe           bool                 `json:"owe,omitempty"`
	OnlyCancelled bool                 `json:"onlyCancelled,omitempty"`
}

// InstanceRun is what the entity's run remembers: which node it called without an answer, how often it asked
// without success since the last claim, and which node's retry it has waited for.
type InstanceRun struct {
	InFlight fleet.NodeName `json:"inFlight,omitempty"`
	Asks     int            `json:"asks,omitempty"`
	Waited   fleet.NodeName `json:"waited,omitempty"`
	// Tries is how often one node is notified per delivery (N48, N67).
	Tries int `json:"tries,omitempty"`
	// Take is how long a node may take to take the task; so long a delivery waits for a node that has not enrolled.
	Take time.Duration `json:"take,omitempty"`
}

// DefaultTries is the default for how often a node is notified per delivery, each time with a new token.
const DefaultTries = 3

func (r InstanceRun) tries() int {
	if r.Tries <= 0 {
		return DefaultTries
	}
	return r.Tries
}

// DefaultTake is the default for how long a node may take to take the task (N37).
const DefaultTake = 120 * time.Second

// EnrolWait is how long a delivery waits before it looks again whether a node has enrolled: as long as it has waited already, 1 s at
// least. It is 0 once it has waited as long as a node may take to take the task, for which 0 is the default.
func EnrolWait(waited, take time.Duration) time.Duration {
	if take <= 0 {
		take = DefaultTake
	}
	if waited >= take {
		return 0
	}
	return min(max(waited, retryGap), enrolGap, max(take-waited, retryGap))
}

const (
	maxAsks  = 3
	retryGap = time.Second
	// staleGap gives the lease time to move, or the node time to renew it.
	staleGap = 2 * time.Second
	// enrolGap is the longest pause between two looks whether a node has enrolled.
	enrolGap = 5 * time.Second
)

type instanceCase struct {
	seen fleet.InstanceSeen
	run  InstanceRun
	now  time.Time
}

var instanceRules = []struct {
	name string
	when func(c instanceCase) bool
	then func(c instanceCase) InstanceAction
}{
	{"cancelled", allCancelled, endCancelled},
	{"cancelled_before_start", onlyCancelled, dropCancelled},
	{"no_active_node", noActive, endWithoutActive},
	{"newer_revision", newerReleased, claim},
	{"lease_moved", leaseMoved, claim},
	{"deadline", pastDeadline, endByOutcome},
	{"in_batch", inBatch, nothing},
	{"asked", askedFor, claim},
	{"under_way", underWay, wait},
	{"notify_active", activeNext, notifyActive},
	{"ask_active", activeLost, askActive},
	{"replicate", standbyNext, notifyStandby},
	{"settled", open, endByOutcome},
	{"owed_to_active", owedToActive, claim},
	{"ask_unsettled", unsettled, askHolder},
	{"owed_to_standby", owed, serve},
	{"nothing_to_do", always, nothing},
}

// Instance decides the next step of one instance's entity.
func Instance(seen fleet.InstanceSeen, run InstanceRun, now time.Time) InstanceAction {
	c := instanceCase{seen, run, now}
	for _, r := range instanceRules {
		if r.when(c) {
			a := r.then(c)
			a.Rule = r.name
			return a
		}
	}
	return InstanceAction{Rule: "nothing_to_do", Do: DoNothing}
}

func always(instanceCase) bool            { return true }
func open(c instanceCase) bool            { return c.seen.Open != nil }
func allCancelled(c instanceCase) bool    { return open(c) && c.seen.Cancelled > 0 && c.seen.Asked == 0 }
func onlyCancelled(c instanceCase) bool   { return !open(c) && c.seen.Cancelled > 0 }
func askedFor(c instanceCase) bool        { return !open(c) && c.seen.Asked > 0 && !c.seen.Desired.IsZero() }
func underWay(c instanceCase) bool        { return c.run.InFlight != "" }
func owed(c instanceCase) bool            { return nextOwed(c) != "" && !c.seen.Snapshot.IsZero() }
func claim(instanceCase) InstanceAction   { return InstanceAction{Do: DoClaim} }
func wait(c instanceCase) InstanceAction  { return InstanceAction{Do: DoWait, Node: c.run.InFlight} }
func nothing(instanceCase) InstanceAction { return InstanceAction{Do: DoNothing} }
func pastDeadline(c instanceCase) bool    { return open(c) && !c.now.Before(c.seen.Open.Deadline) }

func askHolder(c instanceCase) InstanceAction { return InstanceAction{Do: DoAsk, Node: c.seen.Holder} }

func noActive(c instanceCase) bool {
	return c.seen.Holder == "" && (open(c) || c.seen.Asked > 0)
}

func newerReleased(c instanceCase) bool {
	return open(c) && c.seen.Desired.Newer(c.seen.Open.Revision.Version)
}

func leaseMoved(c instanceCase) bool {
	return open(c) && (c.seen.Open.Node != c.seen.Holder || c.seen.Open.Epoch != c.seen.Epoch)
}

// inBatch: the run that serves the batch ends the delivery (N98).
func inBatch(c instanceCase) bool { return open(c) && c.seen.Open.Batch != "" }

// activeNext: the active has not been notified yet, or its failure may pass. If its answer was lost, it is asked first.
func activeNext(c instanceCase) bool {
	return open(c) && !lost(c.seen.Open.Active()) && c.mayNotify(c.seen.Open.Active())
}

// mayNotify is MayNotify, and ends the wait for a node that has not enrolled.
func (c instanceCase) mayNotify(t fleet.TargetSeen) bool {
	return MayNotify(t, c.run.tries()) && (!t.Unenrolled() || c.enrolWait() > 0)
}

func (c instanceCase) enrolWait() time.Duration {
	return EnrolWait(c.now.Sub(c.seen.Open.Since), c.run.Take)
}

// MayNotify reports whether a node may be notified of a delivery, for the first time or again: it has not answered,
// its answer was lost (then it reports what it holds), or its failure may pass. A node that has just released its lease
// reports so before the region's record shows it. By the next attempt the record may name another node.
func MayNotify(t fleet.TargetSeen, tries int) bool {
	return t.State == fleet.TargetWaiting || t.Tries < tries && (lost(t) || t.State == fleet.TargetFailed && brief(t))
}

// brief failures may pass by themselves: communication, or a lease that is about to be renewed or moved, so node
// and region still disagree. A node that is ahead stays ahead.
func brief(t fleet.TargetSeen) bool {
	return t.Reason == fleet.Communication || t.Reason == fleet.Stale && !t.Ahead
}

// activeLost: the active was notified, and its result is unknown.
func activeLost(c instanceCase) bool {
	return open(c) && lost(c.seen.Open.Active()) && c.run.Asks < maxAsks
}

func lost(t fleet.TargetSeen) bool {
	return t.State == fleet.TargetNotified || t.State == fleet.TargetUnknown
}

func standbyNext(c instanceCase) bool { return nextStandby(c).Node != "" }

// nextStandby is the first standby that must still be notified.
func nextStandby(c instanceCase) fleet.TargetSeen {
	if !open(c) || c.seen.Open.Active().State != fleet.TargetApplied {
		return fleet.TargetSeen{}
	}
	for _, t := range c.seen.Open.Targets {
		if t.Role != fleet.RoleActive && c.mayNotify(t) {
			return t
		}
	}
	return fleet.TargetSeen{}
}

// owedToActive: owed nodes are ordered by their configured role, not by who holds the lease, so the holder may be
// anywhere in the list.
func owedToActive(c instanceCase) bool {
	return !c.seen.Desired.IsZero() && slices.ContainsFunc(c.seen.Owed, func(o fleet.OwedSeen) bool {
		return o.Node == c.seen.Holder
	})
}

// nextOwed is the first node to serve by a ticket. The holder gets a delivery instead.
func nextOwed(c instanceCase) fleet.NodeName {
	for _, o := range c.seen.Owed {
		if o.Node != c.seen.Holder {
			return o.Node
		}
	}
	return ""
}

func unsettled(c instanceCase) bool {
	return len(c.seen.Unsettled) > 0 && c.seen.Holder != "" && c.run.Asks == 0
}

func notifyActive(c instanceCase) InstanceAction { return notify(c, c.seen.Open.Active()) }

func notifyStandby(c instanceCase) InstanceAction { return notify(c, nextStandby(c)) }

// notify waits twice as long before each retry: 1 s, 2 s, or 2 s, 4 s.
func notify(c instanceCase, t fleet.TargetSeen) InstanceAction {
	a := InstanceAction{Do: DoNotify, Node: t.Node}
	switch {
	case c.run.Waited == t.Node:
		return a
	case t.Unenrolled():
		a.Wait = c.enrolWait()
		return a
	case t.Tries == 0:
		return a
	}
	gap := retryGap
	if t.Reason == fleet.Stale {
		gap = staleGap
	}
	a.Wait = gap << (t.Tries - 1)
	return a
}

func askActive(c instanceCase) InstanceAction {
	return InstanceAction{Do: DoAsk, Node: c.seen.Open.Active().Node}
}

func serve(c instanceCase) InstanceAction {
	return InstanceAction{Do: DoServe, Node: nextOwed(c)}
}

func endCancelled(instanceCase) InstanceAction {
	return InstanceAction{
		Do: DoEnd, State: fleet.DeliveryCancelled, Operation: fleet.OperationCancelled, Reason: "cancelled",
		Message: "it was cancelled on request; what was deployed before stays", OnlyCancelled: true,
	}
}

func dropCancelled(instanceCase) InstanceAction {
	return InstanceAction{Do: DoEnd, Operation: fleet.OperationCancelled, Reason: "cancelled", OnlyCancelled: true}
}

func endWithoutActive(instanceCase) InstanceAction {
	return InstanceAction{
		Do: DoEnd, State: fleet.DeliveryFailed, Operation: fleet.OperationFailed, Reason: "no_active_node",
		Message: "the site has no active node", Owe: true,
	}
}

// EndOfDelivery decides how a delivery in a batch ends; the rules are those of a single delivery.
func EndOfDelivery(open fleet.DeliverySeen, durability fleet.Durability) fleet.End {
	a := endByOutcome(instanceCase{seen: fleet.InstanceSeen{Open: &open, Durability: durability}})
	return fleet.End{State: a.State, Operation: a.Operation, Reason: a.Reason, Message: a.Message, Owe: a.Owe}
}

// endByOutcome decides how a delivery ends, from the results of its nodes and the required durability (N102).
func endByOutcome(c instanceCase) InstanceAction {
	a := c.seen.Open.Active()
	end := InstanceAction{Do: DoEnd, State: fleet.DeliveryFailed, Operation: fleet.OperationFailed, Reason: string(a.Reason)}
	switch a.State {
	case fleet.TargetApplied:
		return endApplied(c)
	case fleet.TargetNotified, fleet.TargetUnknown:
		end.State, end.Operation, end.Reason, end.Owe = fleet.DeliveryUnknown, fleet.OperationUnknown, "no_answer", true
		end.Message = fmt.Sprintf("node %s did not report whether it applied the revision; it is asked again when it reconnects", a.Node)
	case fleet.TargetFailed:
		end.Owe = passes(a)
		end.Message = fmt.Sprintf("node %s: %s", a.Node, a.Reason)
		if a.Reason == fleet.Stale && !a.Ahead {
			end.Message = fmt.Sprintf("node %s did not hold the site's lease: the delivery stays owed to the holder", a.Node)
		}
	case fleet.TargetWaiting:
		end.Reason, end.Owe = "deadline", true
		end.Message = fmt.Sprintf("node %s was not reached before the deadline", a.Node)
		if a.Unenrolled() {
			end.Reason = string(a.Reason)
			end.Message = fmt.Sprintf("node %s has not enrolled: %s; then it is delivered", a.Node, fleet.EnrolHint)
		}
	case fleet.TargetStaged: // it fetched as asked, and switched nothing
		end.Reason = "deadline"
		end.Message = fmt.Sprintf("node %s fetched the revision, but the deadline passed before it was asked to switch", a.Node)
	}
	return end
}

// passes reports whether a failure may be over once the node reconnects. A stale role or epoch is, once node and
// region agree. A node that is ahead refuses this number for ever, and owing it would keep the comparison
// (Reconcile) from releasing a higher one.
func passes(t fleet.TargetSeen) bool {
	switch t.Reason {
	case fleet.Communication, fleet.Unavailable:
		return true
	case fleet.Stale:
		return !t.Ahead
	case fleet.Invalid, fleet.Unauthenticated, fleet.Denied, fleet.NotFound, fleet.Conflict, fleet.IllegalState,
		fleet.Precondition, fleet.TooLarge, fleet.RateLimited, fleet.HashMismatch, fleet.ApplyFailed, fleet.Gone,
		fleet.IsolationMissing, fleet.NotOwner, fleet.Internal:
	}
	return false
}

func endApplied(c instanceCase) InstanceAction {
	end := InstanceAction{Do: DoEnd, State: fleet.DeliverySucceeded, Operation: fleet.OperationSucceeded}
	for _, t := range c.seen.Open.Targets {
		if t.State == fleet.TargetApplied {
			continue
		}
		end.Reason = "not_replicated"
		end.Message = fmt.Sprintf("the active node applied it; node %s has no copy yet and is still owed one", t.Node)
		if c.seen.Durability == fleet.DurabilitySync {
			end.State, end.Operation = fleet.DeliveryFailed, fleet.OperationFailed
		}
	}
	return end
}

// Applied reports whether a node holds the wanted revision.
func Applied(held fleet.Held, want fleet.Revision) bool {
	return held.Known && held.Version == want.Version && held.Content.Hash == want.Content.Hash
}
