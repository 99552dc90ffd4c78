package fleet

import "time"

// DeploymentPlan is what to do about a deployment now. Rule is the stable reason.
type DeploymentPlan struct {
	Rule    string `json:"rule"`
	Message string `json:"message,omitempty"`
	// Events are applied to the state in this order (at most three).
	Events []DeploymentEvent `json:"events,omitempty"`
	// Create is how many replicas to create, on the nodes that Place chooses. The plan goes through
	// decide.WithPlaces before it is carried out.
	Create int `json:"create,omitempty"`
	// Scarce is set if there was no room at the last visit.
	Scarce bool `json:"scarce,omitempty"`
	// Rollout is what becomes of the rollout under way, nil without one.
	Rollout *RolloutPlan `json:"rollout,omitempty"`
	// Terminate are replicas that become TERMINATING; End those that become TERMINATED without a report of their
	// nodes; Fail live ones that become UNHEALTHY.
	Terminate []ReplicaStep `json:"terminate,omitempty"`
	End       []ReplicaStep `json:"end,omitempty"`
	Fail      []ReplicaStep `json:"fail,omitempty"`
	// The counters and marks from now on.
	Attempts     int       `json:"attempts,omitempty"`
	Crashes      int       `json:"crashes,omitempty"`
	NextAttempt  time.Time `json:"nextAttempt,omitzero"`
	Owed         int       `json:"owed,omitempty"`
	Began        int64     `json:"began,omitempty"`
	BeganVersion int64     `json:"beganVersion,omitempty"`
	// Proven is set if the deployment's own revision runs as it is to: rollouts return to it.
	Proven bool `json:"proven,omitempty"`
	// Finish are operations that end.
	Finish     []OperationFinish `json:"finish,omitempty"`
	Conditions []Condition       `json:"conditions,omitempty"` // always the three
	// Awaited describes what the deployment waits for, "" for nothing.
	Awaited string `json:"awaited,omitempty"`
	// Next is when to visit again without a wake; zero: only after a wake. With Done it is for the sweep, and the
	// entity ends.
	Next time.Time `json:"next,omitzero"`
	// More asks for another visit at once: this one was one page, or one step of two.
	More bool `json:"more,omitempty"`
	// Done is set if the entity ends.
	Done bool `json:"done,omitempty"`
}

// ReplicaStep is a step for a replica, and why.
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
