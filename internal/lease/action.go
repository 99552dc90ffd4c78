package lease

import "github.com/holdfast-io/holdfast/internal/fleet"

// Do is one action of the node. The node carries actions out in their order.
type Do string

// The actions.
const (
	// DoPersist makes the claim (Candidate.Claim) durable before the next actions.
	DoPersist Do = "persist"
	// DoSend sends Send, and passes its answer to Candidate.Answered.
	DoSend Do = "send"
	// DoStart: the node is active, with Epoch, until Until. DoUnbounded: it is active without a deadline; only
	// isolated nodes of sites with onIsolation run get it.
	DoStart     Do = "start"
	DoUnbounded Do = "unbounded"
	// DoExtend moves the deadline of what runs to Until. Epoch may have risen.
	DoExtend Do = "extend"
	// DoStop requests a stop by Until at the latest, and then a call of Candidate.Stopped.
	DoStop Do = "stop"
	// DoLost: the lease has ended, and what still runs is killed now.
	DoLost Do = "lost"
)

// Action is one action with its values.
type Action struct {
	Do    Do
	Epoch int64
	Until Instant
	Send  Send
}

// Send is one request to one voter, which may be the node's own. At is when the candidate decided to send it;
// the transport keeps At and sends only Request.
type Send struct {
	To      fleet.NodeName
	Call    Call
	Request Request
	At      Instant
}

// Role is a node's state in the lease protocol.
type Role string

// The roles.
const (
	Idle      Role = "idle"
	Asking    Role = "asking"
	Promising Role = "promising" // collects promises, and then grants
	Holding   Role = "holding"   // also while it bids for a higher epoch
	Releasing Role = "releasing" // holds, and stops what runs
)
