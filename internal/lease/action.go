package lease

import "github.com/holdfast-io/holdfast/internal/fleet"

// Do is what the node has to do now. Actions are carried out in their order.
type Do string

// The actions.
const (
	// DoPersist makes the claim durable (Candidate.Claim) before what follows.
	DoPersist Do = "persist"
	// DoSend sends Send, and brings its answer to Candidate.Answered.
	DoSend Do = "send"
	// DoStart says that the node is active, with Epoch, until Until; Unbounded says the same
	// without an end, which only isolated nodes of sites that say run are told.
	DoStart     Do = "start"
	DoUnbounded Do = "unbounded"
	// DoExtend moves the deadline of what runs to Until. Epoch may have risen.
	DoExtend Do = "extend"
	// DoStop asks for a stop by Until at the latest, and then for Candidate.Stopped.
	DoStop Do = "stop"
	// DoLost says that the lease has ended: what still runs is killed now.
	DoLost Do = "lost"
)

// Action is one thing to do.
type Action struct {
	Do    Do
	Epoch int64
	Until Instant
	Send  Send
}

// Send is one request to one voter, which may be the node's own. At is when the candidate
// decided to send; the transport keeps it and puts nothing but Request on the wire.
type Send struct {
	To      fleet.NodeName
	Call    Call
	Request Request
	At      Instant
}

// Role is what a node is doing about the lease.
type Role string

// The roles.
const (
	Idle      Role = "idle"
	Asking    Role = "asking"
	Promising Role = "promising" // collects promises, and then grants
	Holding   Role = "holding"   // also while it asks for a higher epoch
	Releasing Role = "releasing" // holds, and stops what runs
)
