package decide

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// InstanceDo is what an instance's entity does next.
type InstanceDo string

// The steps of an entity. Notify, Ask and Serve speak to a node, the rest to the store.
const (
	DoClaim   InstanceDo = "claim"   // number the next attempt of the desired revision
	DoNotify  InstanceDo = "notify"  // tell a node of the open delivery, after Wait
	DoAsk     InstanceDo = "ask"     // ask a node what it holds
	DoServe   InstanceDo = "serve"   // bring a node what it is owed, by a snapshot ticket
	DoEnd     InstanceDo = "end"     // close the open delivery, or (without one) operations
	DoWait    InstanceDo = "wait"    // for the node that was spoken to
	DoNothing InstanceDo = "nothing" // the entity ends
)

// InstanceAction is one step, and the rule that chose it.
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

// InstanceRun is what the entity's run remembers: whom it spoke to and has no answer from,
// how often it asked in vain since the last claim, and for whose next try it has waited.
type InstanceRun struct {
	InFlight fleet.NodeName `json:"inFlight,omitempty"`
	Asks     int            `json:"asks,omitempty"`
	Waited   fleet.NodeName `json:"waited,omitempty"`
	// Tries is the option of how often one node is notified in one delivery (N48, N67).
	Tries int `json:"tries,omitempty"`
}

// DefaultTries is how often a node is notified in one delivery, each time with a token of
// its own, when nobody says otherwise.
const DefaultTries = 3

func (r InstanceRun) tries() int {
	if r.Tries <= 0 {
		return DefaultTries
	}
	return r.Tries
}

const (
	maxAsks  = 3
	retryGap = time.Second
	// staleGap gives the lease time to move, or the node time to renew it.
	staleGap = 2 * time.Second
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

// inBatch: whoever serves the batch ends it (N98).
func inBatch(c instanceCase) bool { return open(c) && c.seen.Open.Batch != "" }

// activeNext: never told, or what failed may be over in a moment.
func activeNext(c instanceCase) bool { return open(c) && again(c, c.seen.Open.Active()) }

// again: a node that has just given its lease back says so before the region's record does,
// and by the next try that one may name another.
func again(c instanceCase, t fleet.TargetSeen) bool {
	return t.State == fleet.TargetWaiting ||
		t.State == fleet.TargetFailed && brief(t) && t.Tries < c.run.tries()
}

// brief failures are those of communication, and what node and region see differently just now:
// the lease is about to be renewed or to move. Who is ahead stays so.
func brief(t fleet.TargetSeen) bool {
	return t.Reason == fleet.Communication || t.Reason == fleet.Stale && !t.Ahead
}

// activeLost: told, and nobody knows what it made of it.
func activeLost(c instanceCase) bool {
	return open(c) && lost(c.seen.Open.Active()) && c.run.Asks < maxAsks
}

func lost(t fleet.TargetSeen) bool {
	return t.State == fleet.TargetNotified || t.State == fleet.TargetUnknown
}

func standbyNext(c instanceCase) bool { return nextStandby(c).Node != "" }

// nextStandby is the first standby that is still to be told. One whose answer was lost is
// told again: it holds what it holds, and says so.
func nextStandby(c instanceCase) fleet.TargetSeen {
	if !open(c) || c.seen.Open.Active().State != fleet.TargetApplied {
		return fleet.TargetSeen{}
	}
	for _, t := range c.seen.Open.Targets {
		if t.Role != fleet.RoleActive && (again(c, t) || lost(t) && t.Tries < c.run.tries()) {
			return t
		}
	}
	return fleet.TargetSeen{}
}

// owedToActive: a node's role in the order of the debts is what was configured, not who holds
// the lease, so the holder's may stand anywhere.
func owedToActive(c instanceCase) bool {
	return !c.seen.Desired.IsZero() && slices.ContainsFunc(c.seen.Owed, func(o fleet.OwedSeen) bool {
		return o.Node == c.seen.Holder
	})
}

// nextOwed is the first node to serve by a ticket: the holder gets a delivery instead.
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

// notify again with a gap that doubles: 1 s, 2 s, or 2 s, 4 s.
func notify(c instanceCase, t fleet.TargetSeen) InstanceAction {
	a := InstanceAction{Do: DoNotify, Node: t.Node}
	if t.Tries == 0 || c.run.Waited == t.Node {
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

// EndOfDelivery says how a delivery of a batch ends, as that of one alone would.
func EndOfDelivery(open fleet.DeliverySeen, durability fleet.Durability) fleet.End {
	a := endByOutcome(instanceCase{seen: fleet.InstanceSeen{Open: &open, Durability: durability}})
	return fleet.End{State: a.State, Operation: a.Operation, Reason: a.Reason, Message: a.Message, Owe: a.Owe}
}

// endByOutcome says how a delivery ends, from what its nodes made of it and how durable
// it has to be (N102).
func endByOutcome(c instanceCase) InstanceAction {
	a := c.seen.Open.Active()
	end := InstanceAction{Do: DoEnd, State: fleet.DeliveryFailed, Operation: fleet.OperationFailed, Reason: string(a.Reason)}
	switch a.State {
	case fleet.TargetApplied:
		return endApplied(c)
	case fleet.TargetNotified, fleet.TargetUnknown:
		end.State, end.Operation, end.Reason, end.Owe = fleet.DeliveryUnknown, fleet.OperationUnknown, "no_answer", true
		end.Message = fmt.Sprintf("node %s did not say whether it applied it; it is asked again when it returns", a.Node)
	case fleet.TargetFailed:
		end.Owe = passes(a)
		end.Message = fmt.Sprintf("node %s: %s", a.Node, a.Reason)
		if a.Reason == fleet.Stale && !a.Ahead {
			end.Message = fmt.Sprintf("node %s did not hold the site's lease: it stays owed to the one that does", a.Node)
		}
	case fleet.TargetWaiting:
		end.Reason, end.Owe = "deadline", true
		end.Message = fmt.Sprintf("node %s was not reached before the deadline", a.Node)
	case fleet.TargetStaged: // it has done all that it was asked for, and switched to nothing
		end.Reason = "deadline"
		end.Message = fmt.Sprintf("node %s fetched it, and was not told to switch before the deadline", a.Node)
	}
	return end
}

// passes says whether a failure may be over by the node's return. A stale role or epoch is,
// once node and region agree; a node that is ahead refuses this number for ever, and a debt
// would keep the comparison (Reconcile) from releasing a higher one.
func passes(t fleet.TargetSeen) bool {
	switch t.Reason {
	case fleet.Communication, fleet.Unavailable:
		return true
	case fleet.Stale:
		return !t.Ahead
	case fleet.Invalid, fleet.Unauthenticated, fleet.Denied, fleet.NotFound, fleet.Conflict, fleet.IllegalState,
		fleet.Precondition, fleet.TooLarge, fleet.RateLimited, fleet.HashMismatch, fleet.ApplyFailed, fleet.Gone,
		fleet.IsolationMissing, fleet.Internal:
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
		end.Message = fmt.Sprintf("the active applied it, node %s has no copy yet and stays owed", t.Node)
		if c.seen.Durability == fleet.DurabilitySync {
			end.State, end.Operation = fleet.DeliveryFailed, fleet.OperationFailed
		}
	}
	return end
}

// Applied says whether what a node holds is the revision that was asked of it.
func Applied(held fleet.Held, want fleet.Revision) bool {
	return held.Known && held.Version == want.Version && held.Content.Hash == want.Content.Hash
}
