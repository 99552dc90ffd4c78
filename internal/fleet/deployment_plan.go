package fleet

import "time"

// DeploymentPlan is what is to be done about a deployment now. Rule is the stable reason.
type DeploymentPlan struct {
	Rule    string `json:"rule"`
	Message string `json:"message,omitempty"`
	// Events are applied to the state in this order (none to two).
	Events []DeploymentEvent `json:"events,omitempty"`
	// Create is how many replicas to make, on the nodes that Place says. What it says goes through
	// Placed before the plan is carried out.
	Create int `json:"create,omitempty"`
	// Scarce says that there was no room at the last visit.
	Scarce bool `json:"scarce,omitempty"`
	// Terminate are those that become TERMINATING; End those that become TERMINATED without a word
	// of their nodes; Fail live ones that become UNHEALTHY.
	Terminate []ReplicaStep `json:"terminate,omitempty"`
	End       []ReplicaStep `json:"end,omitempty"`
	Fail      []ReplicaStep `json:"fail,omitempty"`
	// The counters and marks as they are to be from now on.
	Attempts     int       `json:"attempts,omitempty"`
	Crashes      int       `json:"crashes,omitempty"`
	NextAttempt  time.Time `json:"nextAttempt,omitzero"`
	Owed         int       `json:"owed,omitempty"`
	Began        int64     `json:"began,omitempty"`
	BeganVersion int64     `json:"beganVersion,omitempty"`
	// Finish are operations that end.
	Finish     []OperationFinish     `json:"finish,omitempty"`
	Conditions []DeploymentCondition `json:"conditions,omitempty"` // always the three
	// Awaited says what is waited for, "" when nothing is.
	Awaited string `json:"awaited,omitempty"`
	// Next is when to look again although nobody woke; zero: only when woken. With Done it is for the
	// sweep, and the entity ends.
	Next time.Time `json:"next,omitzero"`
	// More says to look again at once: this was a page, or a step of two.
	More bool `json:"more,omitempty"`
	// Done says that the entity ends.
	Done bool `json:"done,omitempty"`
}

// ReplicaStep is what becomes of a replica, and why.
type ReplicaStep struct {
	ID      ReplicaID `json:"id"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
}

// OperationFinish is how an operation ends.
type OperationFinish struct {
	ID      OperationID    `json:"id"`
	State   OperationState `json:"state"`
	Reason  string         `json:"reason,omitempty"`
	Message string         `json:"message,omitempty"`
}
