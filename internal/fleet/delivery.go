package fleet

import "time"

// DeliveryState is where one attempt to bring a revision to its nodes stands.
type DeliveryState string

// A delivery ends in one of the six after open; unknown and the ones cut short gain
// settledAs when a node has said what it holds.
const (
	DeliveryOpen       DeliveryState = "open"
	DeliveryUnknown    DeliveryState = "unknown"
	DeliverySucceeded  DeliveryState = "succeeded"
	DeliveryFailed     DeliveryState = "failed"
	DeliverySuperseded DeliveryState = "superseded"
	DeliveryCancelled  DeliveryState = "cancelled"
	DeliveryStaged     DeliveryState = "staged" // fetched; another delivery switches to it when a window opens
)

// DeliveryStates lists them; the SQL CHECK is compared with it.
func DeliveryStates() []DeliveryState {
	return []DeliveryState{
		DeliveryOpen, DeliveryUnknown, DeliverySucceeded, DeliveryFailed, DeliverySuperseded, DeliveryCancelled,
		DeliveryStaged,
	}
}

// TargetState is where one node of a delivery stands.
type TargetState string

// A target waits, is notified, and then applied, failed, or its answer was lost; staged, when
// it was told to fetch and no more (N100).
const (
	TargetWaiting  TargetState = "waiting"
	TargetNotified TargetState = "notified"
	TargetApplied  TargetState = "applied"
	TargetFailed   TargetState = "failed"
	TargetUnknown  TargetState = "unknown"
	TargetStaged   TargetState = "staged"
)

// TargetStates lists them; the SQL CHECK is compared with it.
func TargetStates() []TargetState {
	return []TargetState{TargetWaiting, TargetNotified, TargetApplied, TargetFailed, TargetUnknown, TargetStaged}
}

// Settlement is what became of a delivery whose answer was lost.
type Settlement string

// The two settlements.
const (
	SettledApplied    Settlement = "applied"
	SettledNotApplied Settlement = "not_applied"
)

// InstanceSeen is all that the decision about one instance looks at. It is recorded in
// workflow history, so it stays small and holds no secret.
type InstanceSeen struct {
	// At is when the database looked; deadlines are by its clock.
	At         time.Time  `json:"at"`
	Desired    Revision   `json:"desired"`
	Durability Durability `json:"durability"`
	Snapshot   Revision   `json:"snapshot"`
	// Holder may be active, by Epoch; "" when the site has no active node.
	Holder NodeName `json:"holder,omitempty"`
	Epoch  int64    `json:"epoch"`
	// Open is the delivery under way.
	Open *DeliverySeen `json:"open,omitempty"`
	// Unsettled are ended deliveries of which nobody knows whether the holder applied them.
	Unsettled []Version `json:"unsettled,omitempty"`
	// Owed lists nodes to serve now; what waits for a node's return is not in it.
	Owed []OwedSeen `json:"owed,omitempty"`
	// Asked counts open operations that still want the desired revision delivered.
	Asked int `json:"asked"`
	// Cancelled counts open operations whose cancellation was asked for.
	Cancelled int `json:"cancelled"`
	// Untold counts ended operations whose door has not heard of it.
	Untold int `json:"untold,omitempty"`
}

// DeliverySeen is an open delivery as the decision sees it.
type DeliverySeen struct {
	ID       DeliveryID `json:"id"`
	Revision Revision   `json:"revision"`
	Node     NodeName   `json:"node"`
	Epoch    int64      `json:"epoch"`
	Since    time.Time  `json:"since"`
	Deadline time.Time  `json:"deadline"`
	// Batch serves it, "" when it travels alone or its batch is lost.
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
	// Ahead is set on one that refused the revision as stale because it took a higher one.
	Ahead bool `json:"ahead,omitempty"`
}

// Active is the target that applies; a delivery always has one.
func (d *DeliverySeen) Active() TargetSeen {
	for _, t := range d.Targets {
		if t.Role == RoleActive {
			return t
		}
	}
	return TargetSeen{}
}

// OwedSeen is a node that should hold a version, has not confirmed it, and can be tried.
type OwedSeen struct {
	Node     NodeName `json:"node"`
	Role     Role     `json:"role"`
	Revision Version  `json:"revision"`
}
