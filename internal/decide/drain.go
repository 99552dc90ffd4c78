package decide

import (
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// DrainDo is what the entity of a drain does next.
type DrainDo string

// The steps of a drain.
const (
	DrainWait   DrainDo = "wait"
	DrainMove   DrainDo = "move"   // have the site's lease go to the peer
	DrainStop   DrainDo = "stop"   // have the node stop what runs and give the lease back
	DrainEvict  DrainDo = "evict"  // end the replicas that did not move
	DrainAsk    DrainDo = "ask"    // ask connections to drain
	DrainCut    DrainDo = "cut"    // end connections whose deadline passed
	DrainFinish DrainDo = "finish" // end the operations
	DrainClose  DrainDo = "close"  // nobody waits any more
)

// DrainRun is what the entity remembers of its own tries.
type DrainRun struct {
	Moving   bool      `json:"moving,omitempty"`   // the lease was asked to move, no answer yet
	Refused  string    `json:"refused,omitempty"`  // what the last try answered
	Again    time.Time `json:"again"`              // not before then
	Stopping bool      `json:"stopping,omitempty"` // the node was asked to stop, no answer yet
	Stopped  bool      `json:"stopped,omitempty"`
	Failed   string    `json:"failed,omitempty"` // why it did not stop
	Evicted  bool      `json:"evicted,omitempty"`
	Asked    bool      `json:"asked,omitempty"` // the connection phase has begun
	Ran      bool      `json:"ran,omitempty"`   // something ran when the lease was asked to move
}

// DrainAction is one step, with the rule that chose it.
type DrainAction struct {
	Do      DrainDo              `json:"do"`
	Rule    string               `json:"rule"`
	Message string               `json:"message"`
	Phase   fleet.DrainPhase     `json:"phase"`
	Wait    time.Duration        `json:"wait,omitempty"`  // of DrainWait, at most
	Limit   time.Duration        `json:"limit,omitempty"` // of DrainMove and DrainStop
	State   fleet.OperationState `json:"state,omitempty"` // of DrainFinish
	// Connections are those to ask or to cut.
	Connections []fleet.ConnectionID `json:"connections,omitempty"`
}

const (
	drainPollLeast, drainPollMost = time.Second, 15 * time.Second
	// drainPolls is how often a drain looks until its deadline, between those bounds.
	drainPolls = 20
	// DrainMoveAgain is the rest between two tries to move the lease.
	DrainMoveAgain = 10 * time.Second
	// drainNames is how many names a message has.
	drainNames = 5
	// nodeBackIn is how long a node that lost the link may need to come back to it (docs/link.md).
	nodeBackIn = 30 * time.Second
	// drainStopLimit is what a node has to stop what runs when nobody else takes it.
	drainStopLimit = 30 * time.Second
)

// drainView is what the rules look at.
type drainView struct {
	fleet.DrainSeen
	run  DrainRun
	left time.Duration
	live []fleet.DrainConnection // that are to end
	lost bool                    // one ended without a word
	cut  bool                    // one was ended by its deadline
	told int                     // in flight when it was
}

// Drain says what is next for a node that is to be empty, by the first rule that matches.
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
			a.Message += fmt.Sprintf("; the failover that it asked for is cancelled (operation %s): "+
				"what a node was asked already it may still do, and votes decide", v.Failover)
		}
		return a
	}
	return DrainAction{}
}

// needsPlace says that something runs there that would stop, or stops for a move under way.
func (v drainView) needsPlace() bool {
	runs := v.Running > 0 || v.run.Ran && v.Failover != ""
	return v.Holds && runs && !v.run.Stopped && !v.run.Asked
}

// vacant says that the node gave its site's lease back to a peer that has not taken it. Force
// leaves it so at the deadline.
func (v drainView) vacant() bool {
	return v.Vacant && !v.run.Stopped && (v.left > 0 || !v.Force)
}

// peer names the other node of the pair; it may have left its site meanwhile.
func (v drainView) peer() string {
	if v.Peer == nil {
		return "of the pair that is gone"
	}
	return string(v.Peer.Node)
}

// pause never sleeps over the deadline.
func (v drainView) pause() time.Duration {
	wait := min(max(v.left/drainPolls, drainPollLeast), drainPollMost)
	if v.left > 0 {
		wait = min(wait, v.left)
	}
	return wait
}

// viewDrain folds the node's connections: each of its providers is done once one that was
// asked closed, was cut off or was taken back. One that is lost may come back with its work;
// one that registers after its provider was done is the agent's next life.
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

// backBy is when a node that was lost before its drain would be back: it may be at work all the while,
// and when the region was away itself nobody could hear of it.
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
				v.told += c.InFlight
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

// doneBy says that nothing of a connection is left on its node.
func doneBy(reason fleet.ConnectionEvent) bool {
	switch reason {
	case fleet.StreamClosed, fleet.Deregistered, fleet.DrainDeadline, fleet.Revoked:
		return true
	case fleet.StreamOpened, fleet.DrainAcked, fleet.StreamRequired, fleet.HeartbeatLapsed, fleet.StreamFailed, fleet.Replaced,
		fleet.ServerLapsed:
	}
	return false
}

// which gives the ids of the live ones that a condition holds for.
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

// because adds what the last try to move the lease answered.
func (v drainView) because(message string) string {
	if v.run.Refused == "" {
		return message
	}
	return message + "; the last try: " + v.run.Refused
}

// drainRules: nobody cuts what has work in flight before the deadline, nothing that runs is
// stopped without another place unless somebody forces it, and past the deadline nothing
// waits but for the node's own stop.
var drainRules = []struct {
	name string
	when func(drainView) bool
	then func(drainView) DrainAction
}{
	{"nobody_waits", func(v drainView) bool { return !v.Wanted }, func(drainView) DrainAction {
		return DrainAction{Do: DrainClose, Phase: fleet.DrainEnded, State: fleet.OperationCancelled, Message: "nobody waits for it any more; the node stays cordoned"}
	}},
	{"node_removed", func(v drainView) bool { return v.Removed }, func(drainView) DrainAction {
		return failedDrain("its site does not declare it any more")
	}},
	{"stopping", func(v drainView) bool { return v.run.Stopping }, func(drainView) DrainAction {
		return moving(DrainWait, "it waits for the node to stop what runs")
	}},
	{"not_stopped", func(v drainView) bool { return v.needsPlace() && v.run.Failed != "" }, func(v drainView) DrainAction {
		return failedDrain("the node did not stop what runs: " + v.run.Failed)
	}},
	{"no_other_place", func(v drainView) bool { return v.needsPlace() && v.Peer == nil && !v.Force }, func(v drainView) DrainAction {
		return failedDrain(fmt.Sprintf("%d instances run there and the site has no other node for them; --force stops them", v.Running))
	}},
	{"stop_forced", func(v drainView) bool { return v.needsPlace() && v.Force && (v.Peer == nil || v.left <= 0) }, func(v drainView) DrainAction {
		a := moving(DrainStop, v.because(fmt.Sprintf("%d instances are stopped: there is no other place for them, and it is forced", v.Running)))
		a.Limit = drainStopLimit
		return a
	}},
	{"lease_not_moved", func(v drainView) bool { return v.needsPlace() && v.left <= 0 }, func(v drainView) DrainAction {
		if v.Failover != "" {
			return failedDrain(v.because("its site's lease did not move in time"))
		}
		return failedDrain(v.because("its site's lease did not move in time; what runs was left running"))
	}},
	{"not_taken_over", func(v drainView) bool { return v.vacant() && v.left <= 0 }, func(v drainView) DrainAction {
		return failedDrain(v.because(fmt.Sprintf("the node stopped what ran and gave its site's lease back, and node %s did not take it: "+
			"nobody holds it; holdfast uncordon %s lets it run there again", v.peer(), v.Node)))
	}},
	{"lease_moving", func(v drainView) bool { return (v.Holds || v.vacant()) && v.run.Moving && v.left > 0 }, func(v drainView) DrainAction {
		return moving(DrainWait, "it waits for its site's lease to go to node "+v.peer())
	}},
	{"move_lease", func(v drainView) bool { return v.mayMove() && !v.At.Before(v.run.Again) }, func(v drainView) DrainAction {
		a := moving(DrainMove, "its site's lease is to go to node "+string(v.Peer.Node))
		a.Limit = v.left
		return a
	}},
	{"move_lease_again", func(v drainView) bool { return (v.needsPlace() || v.vacant()) && v.mayMove() }, func(v drainView) DrainAction {
		return moving(DrainWait, v.because("it waits to ask again that its site's lease goes to node "+string(v.Peer.Node)))
	}},
	{"peer_not_ready", func(v drainView) bool { return v.needsPlace() || v.vacant() }, func(v drainView) DrainAction {
		return moving(DrainWait, "it waits for node "+v.peer()+" to be able to take over: enrolled, started, on the link and not cordoned")
	}},
	{"replicas_given_up", func(v drainView) bool { return v.holdsReplicas() && v.Live > 0 && v.GivenUp >= v.Live && !v.Force }, func(v drainView) DrainAction {
		return failedDrain(v.withGivenUp(fmt.Sprintf("%d replicas run there and will not move", v.Live)) + "; --force ends them at the deadline")
	}},
	{"replicas_moving", func(v drainView) bool { return v.holdsReplicas() && v.left > 0 }, func(v drainView) DrainAction {
		return moving(DrainWait, v.withGivenUp(fmt.Sprintf("it waits for %d replicas to run elsewhere and to end here", v.Replicas)))
	}},
	{"replicas_not_moved", func(v drainView) bool { return v.holdsReplicas() && v.Live > 0 && !v.Force }, func(v drainView) DrainAction {
		return failedDrain(v.withGivenUp(fmt.Sprintf("%d replicas run there and had no other place in time; --force ends them", v.Live)))
	}},
	{"evict_forced", func(v drainView) bool { return v.holdsReplicas() && v.Live > 0 && !v.run.Evicted }, func(v drainView) DrainAction {
		return moving(DrainEvict, fmt.Sprintf("%d replicas had no other place in time and are ended: it is forced", v.Live))
	}},
	{"replicas_ending", func(v drainView) bool { return v.holdsReplicas() && v.left > -drainStopLimit }, func(v drainView) DrainAction {
		return moving(DrainWait, fmt.Sprintf("it waits for %d replicas to end", v.Replicas))
	}},
	{"orphans_run", func(v drainView) bool { return v.Orphans > 0 && len(v.unasked()) > 0 && !v.Force }, func(v drainView) DrainAction {
		return failedDrain(fmt.Sprintf("%d replicas that the region does not know run there: holdfast orphans list %s; --force leaves them", v.Orphans, v.Node))
	}},
	{"ask", func(v drainView) bool { return len(v.unasked()) > 0 }, func(v drainView) DrainAction {
		a := draining(DrainAsk, "its connection is asked to finish what it has")
		a.Connections = v.unasked()
		return a
	}},
	{"deadline", func(v drainView) bool { return v.left <= 0 && len(v.asked()) > 0 }, func(v drainView) DrainAction {
		a := draining(DrainCut, "its deadline passed: it is cut off")
		a.Connections = v.asked()
		return a
	}},
	{"ack", func(v drainView) bool {
		return v.any(func(c fleet.DrainConnection) bool { return c.Asked && !c.Acked })
	}, func(drainView) DrainAction {
		return draining(DrainWait, "it waits for the node to acknowledge the drain")
	}},
	{"in_flight", func(v drainView) bool {
		return v.any(func(c fleet.DrainConnection) bool { return c.Asked && c.InFlight > 0 })
	}, func(drainView) DrainAction { return draining(DrainWait, "it waits for the node to finish what it has") }},
	{"close", func(v drainView) bool { return len(v.asked()) > 0 }, func(drainView) DrainAction {
		return draining(DrainWait, "it waits for the node to close its connection")
	}},
	{"stream", func(v drainView) bool { return len(v.live) > 0 && v.left > 0 }, func(drainView) DrainAction {
		return draining(DrainWait, "it waits for the stream of a node that has just registered")
	}},
	{"lost", func(v drainView) bool { return v.lost && v.left > 0 }, func(drainView) DrainAction {
		return draining(DrainWait, "the node was lost with its work: it waits for it to come back")
	}},
	{"cut_off", func(v drainView) bool { return v.cut }, func(v drainView) DrainAction {
		return drained(fleet.OperationSucceeded, fmt.Sprintf("forced at its deadline, with %d in flight", v.told))
	}},
	{"not_heard_again", func(v drainView) bool { return v.lost }, func(drainView) DrainAction {
		return drained(fleet.OperationSucceeded, "the node was lost and not heard again; what it had in flight is unknown")
	}},
	{"not_connected", func(v drainView) bool { return len(v.Connections) == 0 || len(v.live) > 0 }, func(drainView) DrainAction {
		return drained(fleet.OperationSucceeded, "the node has no open stream: nothing is sent to it")
	}},
	{"drained", func(drainView) bool { return true }, func(drainView) DrainAction {
		return drained(fleet.OperationSucceeded, "the node finished what it had and closed")
	}},
}

// withGivenUp adds what only a person can move: nothing is made of what is given up.
func (v drainView) withGivenUp(message string) string {
	if v.GivenUp == 0 {
		return message
	}
	message += fmt.Sprintf("; %d of them of deployments that are given up", v.GivenUp)
	for i, name := range v.GivenUpOf {
		if i == drainNames {
			message += fmt.Sprintf(" and %d others", len(v.GivenUpOf)-i)
			break
		}
		message += []string{": ", ", "}[min(i, 1)] + string(name)
	}
	return message + "; restart or delete those"
}

// holdsReplicas says that replicas are to leave the node first, over its streams. Of a node whose
// streams drain nothing more is expected.
func (v drainView) holdsReplicas() bool { return v.Replicas > 0 && !v.run.Asked }

func (v drainView) mayMove() bool {
	return (v.Holds || v.vacant()) && !v.run.Stopped && !v.run.Asked && v.left > 0 && v.Peer != nil && v.Peer.Ready
}
