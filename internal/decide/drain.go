package decide

import (
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// DrainDo is what the entity that runs a drain does next.
type DrainDo string

// The steps of a drain.
const (
	DrainWait   DrainDo = "wait"
	DrainMove   DrainDo = "move"   // move the site's lease to the peer
	DrainStop   DrainDo = "stop"   // have the node stop its instances and release the lease
	DrainEvict  DrainDo = "evict"  // end the replicas that did not move
	DrainAsk    DrainDo = "ask"    // ask connections to drain
	DrainCut    DrainDo = "cut"    // end connections whose deadline passed
	DrainFinish DrainDo = "finish" // end the operations
	DrainClose  DrainDo = "close"  // all operations were cancelled
)

// DrainRun is what the entity remembers of its attempts.
type DrainRun struct {
	Moving   bool      `json:"moving,omitempty"`   // a move of the lease was requested, no answer yet
	Refused  string    `json:"refused,omitempty"`  // the answer to the last attempt
	Again    time.Time `json:"again"`              // not before then
	Stopping bool      `json:"stopping,omitempty"` // the node was asked to stop, no answer yet
	Stopped  bool      `json:"stopped,omitempty"`
	Failed   string    `json:"failed,omitempty"` // why it did not stop
	Evicted  bool      `json:"evicted,omitempty"`
	Asked    bool      `json:"asked,omitempty"` // the connection phase has begun
	Ran      bool      `json:"ran,omitempty"`   // something ran when the move was requested
}

// DrainAction is a step, with the rule that chose it.
type DrainAction struct {
	Do      DrainDo              `json:"do"`
	Rule    string               `json:"rule"`
	Message string               `json:"message"`
	Phase   fleet.DrainPhase     `json:"phase"`
	Wait    time.Duration        `json:"wait,omitempty"`  // of DrainWait, at most
	Limit   time.Duration        `json:"limit,omitempty"` // of DrainMove and DrainStop
	State   fleet.OperationState `json:"state,omitempty"` // of DrainFinish
	// Connections are the connections to ask or to cut.
	Connections []fleet.ConnectionID `json:"connections,omitempty"`
}

const (
	drainPollLeast, drainPollMost = time.Second, 15 * time.Second
	// drainPolls is how often a drain polls until its deadline, within those bounds.
	drainPolls = 20
	// DrainMoveAgain is the pause between two attempts to move the lease.
	DrainMoveAgain = 10 * time.Second
	// drainNames limits the names in a message.
	drainNames = 5
	// nodeBackIn is how long a node that lost the link may need to reconnect (docs/link.md).
	nodeBackIn = 30 * time.Second
	// drainStopLimit is what a node has to stop its instances when no other node takes them.
	drainStopLimit = 30 * time.Second
)

// drainView is the input of the rules.
type drainView struct {
	fleet.DrainSeen
	run  DrainRun
	left time.Duration
	live []fleet.DrainConnection // that have to end
	lost bool                    // one was lost before it had drained
	cut  bool                    // one was cut off at the deadline
	busy int                     // in flight when it was cut
}

// Drain decides the next step of emptying a node, by the first rule that matches.
func Drain(seen fleet.DrainSeen, run DrainRun) DrainAction {
	v := viewDrain(seen, run)
	for _, r := range drainRules {
		if !r.when(v) {
			continue
		}
		a := r.then(v)
		a.Rule = r.name
		if a.Do == DrainWait {
			a.Wait = v.pause()
		}
		if v.Failover != "" && (a.Do == DrainClose || a.Do == DrainFinish && a.State != fleet.OperationSucceeded) {
			a.Message += fmt.Sprintf("; the failover that it requested is cancelled (operation %s): "+
				"a node may still carry out a request it already has, and votes decide", v.Failover)
		}
		return a
	}
	return DrainAction{}
}

// needsPlace reports whether instances run there that would stop, or that stopped for a move under way.
func (v drainView) needsPlace() bool {
	runs := v.Running > 0 || v.run.Ran && v.Failover != ""
	return v.Holds && runs && !v.run.Stopped && !v.run.Asked
}

// vacant reports that the node released its site's lease and the peer has not taken it. Past the deadline, force
// accepts that.
func (v drainView) vacant() bool {
	return v.Vacant && !v.run.Stopped && (v.left > 0 || !v.Force)
}

// peer names the other node of the pair, which may have left its site.
func (v drainView) peer() string {
	if v.Peer == nil {
		return "(removed from the pair)"
	}
	return string(v.Peer.Node)
}

// pause never waits past the deadline.
func (v drainView) pause() time.Duration {
	wait := min(max(v.left/drainPolls, drainPollLeast), drainPollMost)
	if v.left > 0 {
		wait = min(wait, v.left)
	}
	return wait
}

// viewDrain groups the node's connections by provider. A provider is done once a connection that was asked to drain
// closed, was cut off or was replaced. A lost one may reconnect with its work; one that registers after its
// provider was done is a restarted agent.
func viewDrain(seen fleet.DrainSeen, run DrainRun) drainView {
	v := drainView{DrainSeen: seen, run: run, left: seen.Left()}
	var providers []fleet.ProviderName
	of := map[fleet.ProviderName][]fleet.DrainConnection{}
	for _, c := range seen.Connections {
		if _, known := of[c.Provider]; !known {
			providers = append(providers, c.Provider)
		}
		of[c.Provider] = append(of[c.Provider], c)
	}
	for _, p := range providers {
		v.fold(of[p])
	}
	for _, c := range seen.Before {
		v.lost = v.lost || !doneBy(c.Reason) && v.At.Before(backBy(seen, c))
	}
	return v
}

// backBy is when a node that was lost before its drain should have reconnected: it may be at work all the while.
// While the region was down, no node could reconnect.
func backBy(seen fleet.DrainSeen, c fleet.DrainConnection) time.Time {
	by := c.EndedAt.Add(nodeBackIn)
	if seen.There.After(by) {
		return seen.There
	}
	return by
}

func (v *drainView) fold(all []fleet.DrainConnection) {
	for _, c := range all {
		if c.Asked && doneBy(c.Reason) {
			if c.Reason == fleet.DrainDeadline {
				v.cut = true
				v.busy += c.InFlight
			}
			return
		}
	}
	last := all[len(all)-1]
	switch {
	case last.State.Live():
		v.live = append(v.live, last)
	case !doneBy(last.Reason):
		v.lost = true
	}
}

// doneBy reports whether the end of a connection leaves nothing running on its node.
func doneBy(reason fleet.ConnectionEvent) bool {
	switch reason {
	case fleet.StreamClosed, fleet.Deregistered, fleet.DrainDeadline, fleet.Revoked:
		return true
	case fleet.StreamOpened, fleet.DrainAcked, fleet.StreamRequired, fleet.HeartbeatLapsed, fleet.StreamFailed, fleet.Replaced,
		fleet.ServerLapsed:
	}
	return false
}

// which returns the ids of the live connections for which the condition holds.
func (v drainView) which(is func(fleet.DrainConnection) bool) []fleet.ConnectionID {
	var out []fleet.ConnectionID
	for _, c := range v.live {
		if is(c) {
			out = append(out, c.ID)
		}
	}
	return out
}

func (v drainView) unasked() []fleet.ConnectionID {
	return v.which(func(c fleet.DrainConnection) bool { return !c.Asked && c.State != fleet.ConnectionRegistered })
}

func (v drainView) asked() []fleet.ConnectionID {
	return v.which(func(c fleet.DrainConnection) bool { return c.Asked })
}

func (v drainView) any(is func(fleet.DrainConnection) bool) bool { return len(v.which(is)) > 0 }

func moving(do DrainDo, message string) DrainAction {
	return DrainAction{Do: do, Phase: fleet.DrainMoving, Message: message}
}

func draining(do DrainDo, message string) DrainAction {
	return DrainAction{Do: do, Phase: fleet.DrainDraining, Message: message}
}

func drained(state fleet.OperationState, message string) DrainAction {
	return DrainAction{Do: DrainFinish, Phase: fleet.DrainEnded, State: state, Message: message}
}

func failedDrain(message string) DrainAction { return drained(fleet.OperationFailed, message) }

// because adds the answer to the last attempt to move the lease.
func (v drainView) because(message string) string {
	if v.run.Refused == "" {
		return message
	}
	return message + "; the last attempt: " + v.run.Refused
}

// drainRules never cut off work in flight before the deadline. They never stop an instance without another place
// for it, except by force. Past the deadline they only wait for the node's own stop.
var drainRules = []struct {
	name string
	when func(drainView) bool
	then func(drainView) DrainAction
}{
	{"nobody_waits", func(v drainView) bool { return !v.Wanted }, func(drainView) DrainAction {
		return DrainAction{Do: DrainClose, Phase: fleet.DrainEnded, State: fleet.OperationCancelled, Message: "the drain was cancelled; the node stays cordoned"}
	}},
	{"node_removed", func(v drainView) bool { return v.Removed }, func(drainView) DrainAction {
		return failedDrain("its site no longer declares it")
	}},
	{"stopping", func(v drainView) bool { return v.run.Stopping }, func(drainView) DrainAction {
		return moving(DrainWait, "waiting for the node to stop its instances")
	}},
	{"not_stopped", func(v drainView) bool { return v.needsPlace() && v.run.Failed != "" }, func(v drainView) DrainAction {
		return failedDrain("the node did not stop its instances: " + v.run.Failed)
	}},
	{"no_other_place", func(v drainView) bool { return v.needsPlace() && v.Peer == nil && !v.Force }, func(v drainView) DrainAction {
		return failedDrain(fmt.Sprintf("%d instances run on the node and the site has no other node for them; use --force to stop them", v.Running))
	}},
	{"stop_forced", func(v drainView) bool { return v.needsPlace() && v.Force && (v.Peer == nil || v.left <= 0) }, func(v drainView) DrainAction {
		a := moving(DrainStop, v.because(fmt.Sprintf("%d instances are being stopped: no other node can take them, and the drain is forced", v.Running)))
		a.Limit = drainStopLimit
		return a
	}},
	{"lease_not_moved", func(v drainView) bool { return v.needsPlace() && v.left <= 0 }, func(v drainView) DrainAction {
		if v.Failover != "" {
			return failedDrain(v.because("its site's lease did not move in time"))
		}
		return failedDrain(v.because("its site's lease did not move in time; the instances keep running"))
	}},
	{"not_taken_over", func(v drainView) bool { return v.vacant() && v.left <= 0 }, func(v drainView) DrainAction {
		return failedDrain(v.because(fmt.Sprintf("the node stopped its instances and released its site's lease, and node %s did not take it: "+
			"no node holds it; run holdfast uncordon %s to let the instances run there again", v.peer(), v.Node)))
	}},
	{"lease_moving", func(v drainView) bool { return (v.Holds || v.vacant()) && v.run.Moving && v.left > 0 }, func(v drainView) DrainAction {
		return moving(DrainWait, "waiting for its site's lease to move to node "+v.peer())
	}},
	{"move_lease", func(v drainView) bool { return v.mayMove() && !v.At.Before(v.run.Again) }, func(v drainView) DrainAction {
		a := moving(DrainMove, "moving its site's lease to node "+string(v.Peer.Node))
		a.Limit = v.left
		return a
	}},
	{"move_lease_again", func(v drainView) bool { return (v.needsPlace() || v.vacant()) && v.mayMove() }, func(v drainView) DrainAction {
		return moving(DrainWait, v.because("waiting to retry moving its site's lease to node "+string(v.Peer.Node)))
	}},
	{"peer_not_ready", func(v drainView) bool { return v.needsPlace() || v.vacant() }, func(v drainView) DrainAction {
		return moving(DrainWait, "waiting for node "+v.peer()+" to be able to take over: enrolled, started, connected and not cordoned")
	}},
	{"replicas_given_up", func(v drainView) bool { return v.holdsReplicas() && v.Live > 0 && v.GivenUp >= v.Live && !v.Force }, func(v drainView) DrainAction {
		return failedDrain(v.withGivenUp(fmt.Sprintf("%d replicas run on the node and will not move", v.Live)) + "; use --force to end them at the deadline")
	}},
	{"replicas_moving", func(v drainView) bool { return v.holdsReplicas() && v.left > 0 }, func(v drainView) DrainAction {
		return moving(DrainWait, v.withGivenUp(fmt.Sprintf("waiting for %d replicas to start elsewhere and to end here", v.Replicas)))
	}},
	{"replicas_not_moved", func(v drainView) bool { return v.holdsReplicas() && v.Live > 0 && !v.Force }, func(v drainView) DrainAction {
		return failedDrain(v.withGivenUp(fmt.Sprintf("%d replicas run on the node and found no other place in time; use --force to end them", v.Live)))
	}},
	{"evict_forced", func(v drainView) bool { return v.holdsReplicas() && v.Live > 0 && !v.run.Evicted }, func(v drainView) DrainAction {
		return moving(DrainEvict, fmt.Sprintf("%d replicas found no other place in time and are being ended: the drain is forced", v.Live))
	}},
	{"replicas_ending", func(v drainView) bool { return v.holdsReplicas() && v.left > -drainStopLimit }, func(v drainView) DrainAction {
		return moving(DrainWait, fmt.Sprintf("waiting for %d replicas to end", v.Replicas))
	}},
	{"orphans_run", func(v drainView) bool { return v.Orphans > 0 && len(v.unasked()) > 0 && !v.Force }, func(v drainView) DrainAction {
		return failedDrain(fmt.Sprintf("%d replicas unknown to the region run on the node: see holdfast orphans list %s, or use --force to leave them running", v.Orphans, v.Node))
	}},
	{"ask", func(v drainView) bool { return len(v.unasked()) > 0 }, func(v drainView) DrainAction {
		a := draining(DrainAsk, "asking its connection to finish its work")
		a.Connections = v.unasked()
		return a
	}},
	{"deadline", func(v drainView) bool { return v.left <= 0 && len(v.asked()) > 0 }, func(v drainView) DrainAction {
		a := draining(DrainCut, "the deadline passed: cutting off its connection")
		a.Connections = v.asked()
		return a
	}},
	{"ack", func(v drainView) bool {
		return v.any(func(c fleet.DrainConnection) bool { return c.Asked && !c.Acked })
	}, func(drainView) DrainAction {
		return draining(DrainWait, "waiting for the node to acknowledge the drain")
	}},
	{"in_flight", func(v drainView) bool {
		return v.any(func(c fleet.DrainConnection) bool { return c.Asked && c.InFlight > 0 })
	}, func(drainView) DrainAction { return draining(DrainWait, "waiting for the node to finish its work") }},
	{"close", func(v drainView) bool { return len(v.asked()) > 0 }, func(drainView) DrainAction {
		return draining(DrainWait, "waiting for the node to close its connection")
	}},
	{"stream", func(v drainView) bool { return len(v.live) > 0 && v.left > 0 }, func(drainView) DrainAction {
		return draining(DrainWait, "waiting for the stream of a node that has just registered")
	}},
	{"lost", func(v drainView) bool { return v.lost && v.left > 0 }, func(drainView) DrainAction {
		return draining(DrainWait, "the node was lost with work in flight: waiting for it to reconnect")
	}},
	{"cut_off", func(v drainView) bool { return v.cut }, func(v drainView) DrainAction {
		return drained(fleet.OperationSucceeded, fmt.Sprintf("forced at its deadline, with %d in flight", v.busy))
	}},
	{"not_heard_again", func(v drainView) bool { return v.lost }, func(drainView) DrainAction {
		return drained(fleet.OperationSucceeded, "the node was lost and did not reconnect; the result of its work in flight is unknown")
	}},
	{"not_connected", func(v drainView) bool { return len(v.Connections) == 0 || len(v.live) > 0 }, func(drainView) DrainAction {
		return drained(fleet.OperationSucceeded, "the node has no open stream and gets no work")
	}},
	{"drained", func(drainView) bool { return true }, func(drainView) DrainAction {
		return drained(fleet.OperationSucceeded, "the node finished its work and closed its connection")
	}},
}

// withGivenUp adds what needs a person: nothing moves replicas of deployments that are given up.
func (v drainView) withGivenUp(message string) string {
	if v.GivenUp == 0 {
		return message
	}
	message += fmt.Sprintf("; %d of them belong to deployments that were given up", v.GivenUp)
	for i, name := range v.GivenUpOf {
		if i == drainNames {
			message += fmt.Sprintf(" and %d others", len(v.GivenUpOf)-i)
			break
		}
		message += []string{": ", ", "}[min(i, 1)] + string(name)
	}
	return message + "; restart or delete these deployments"
}

// holdsReplicas reports whether replicas have to leave the node first, over its streams. Once its streams drain,
// nothing more is expected of the node.
func (v drainView) holdsReplicas() bool { return v.Replicas > 0 && !v.run.Asked }

func (v drainView) mayMove() bool {
	return (v.Holds || v.vacant()) && !v.run.Stopped && !v.run.Asked && v.left > 0 && v.Peer != nil && v.Peer.Ready
}
