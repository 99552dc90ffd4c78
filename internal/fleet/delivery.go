package fleet

import "time"

// DeliveryState is the state of one attempt to bring a revision to its nodes.
type DeliveryState string

// A delivery ends in one of the states after open. One that is unknown or was cut short gains settledAs once a node
// has reported what it holds.
const (
	DeliveryOpen       DeliveryState = "open"
	DeliveryUnknown    DeliveryState = "unknown"
	DeliverySucceeded  DeliveryState = "succeeded"
	DeliveryFailed     DeliveryState = "failed"
	DeliverySuperseded DeliveryState = "superseded"
	DeliveryCancelled  DeliveryState = "cancelled"
	DeliveryStaged     DeliveryState = "staged" // fetched; another delivery switches to it when a window opens
)

// DeliveryStates lists all states; a test compares it with the SQL CHECK.
func DeliveryStates() []DeliveryState {
	return []DeliveryState{
		DeliveryOpen, DeliveryUnknown, DeliverySucceeded, DeliveryFailed, DeliverySuperseded, DeliveryCancelled,
		DeliveryStaged,
	}
}

// TargetState is the state of one node of a delivery.
type TargetState string

// A target waits, is notified, and then applied, failed, or unknown if its answer was lost. It is staged if it only
// had to fetch (N100).
const (
	TargetWaiting  TargetState = "waiting"
	TargetNotified TargetState = "notified"
	TargetApplied  TargetState = "applied"
	TargetFailed   TargetState = "failed"
	TargetUnknown  TargetState = "unknown"
	TargetStaged   TargetState = "staged"
)

// TargetStates lists all states; a test compares it with the SQL CHECK.
func TargetStates() []TargetState {
	return []TargetState{TargetWaiting, TargetNotified, TargetApplied, TargetFailed, TargetUnknown, TargetStaged}
}

// Settlement is the result, found later, of a delivery whose answer was lost.
type Settlement string

// The settlements.
const (
	SettledApplied    Settlement = "applied"
	SettledNotApplied Settlement = "not_applied"
)

// InstanceSeen is the whole input of the decision about one instance. Workflow history records it, so it stays
// small and holds no secret.
type InstanceSeen struct {
	// At is when the database was read; deadlines use its clock.
	At         time.Time  `json:"at"`
	Desired    Revision   `json:"desired"`
	Durability Durability `json:"durability"`
	Snapshot   Revision   `json:"snapshot"`
	// Holder may be active, by Epoch; "" if the site has no active node.
	Holder NodeName `json:"holder,omitempty"`
	Epoch  int64    `json:"epoch"`
	// Open is the delivery under way.
	Open *DeliverySeen `json:"open,omitempty"`
	// Unsettled are ended deliveries for which it is unknown whether the holder applied them.
	Unsettled []Version `json:"unsettled,omitempty"`
	// Owed lists nodes to serve now, not those whose reconnect is awaited.
	Owed []OwedSeen `json:"owed,omitempty"`
	// Asked counts open operations that still want the desired revision delivered.
	Asked int `json:"asked"`
	// Cancelled counts open operations with a requested cancellation.
	Cancelled int `json:"cancelled"`
	// Untold counts ended operations whose door has not been notified.
	Untold int `json:"untold,omitempty"`
}

// DeliverySeen is an open delivery as input of the decision.
type DeliverySeen struct {
	ID       DeliveryID `json:"id"`
	Revision Revision   `json:"revision"`
	Node     NodeName   `json:"node"`
	Epoch    int64      `json:"epoch"`
	Since    time.Time  `json:"since"`
	Deadline time.Time  `json:"deadline"`
	// Batch serves it; "" if it travels alone or its batch is lost.
	Batch   BatchID      `json:"batch,omitempty"`
	Targets []TargetSeen `json:"targets"` // the active first
}

// TargetSeen is one node of a delivery.
type TargetSeen struct {
	Node   NodeName    `json:"node"`
	Role   Role        `json:"role"`
	State  TargetState `json:"state"`
	Tries  int         `json:"tries"`
	Reason Kind        `json:"reason,omitempty"`
	// Ahead is set if the node refused the revision as stale because it had taken a higher one.
	Ahead bool `json:"ahead,omitempty"`
}

// EnrolHint is how a node enrols.
const EnrolHint = "make a join token and start the node with it"

// Unenrolled reports whether a node could not be notified because it has not enrolled yet.
func (t TargetSeen) Unenrolled() bool { return t.State == TargetWaiting && t.Reason == Unavailable }

// Active is the target that runs the instance; every delivery has one.
func (d *DeliverySeen) Active() TargetSeen {
	for _, t := range d.Targets {
		if t.Role == RoleActive {
			return t
		}
	}
	return TargetSeen{}
}

// OwedSeen is a node that should hold a version, has not confirmed it, and can be tried now.
type OwedSeen struct {
	Node     NodeName `json:"node"`
	Role     Role     `json:"role"`
	Revision Version  `json:"revision"`
}
