package api

import (
	"time"
)

// Cordon keeps new work away from a node: it takes over no lease and no execution, and keeps
// what it holds.
type Cordon struct {
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`
}

// CordonRequest says why a node is cordoned.
type CordonRequest struct {
	Reason string `json:"reason,omitempty"`
}

// NodeDrainRequest asks that a node becomes empty.
type NodeDrainRequest struct {
	DrainRequest
	Force bool `json:"force,omitempty" doc:"stop what runs there when there is no other place for it"`
}

// NodeDrain is the drain of a node, under way or ended.
type NodeDrain struct {
	Operation string     `json:"operation" doc:"that asked last"`
	Reason    string     `json:"reason"`
	Force     bool       `json:"force,omitempty"`
	Phase     DrainPhase `json:"phase" enum:"moving,draining,ended"`
	// Waits says for what, in a stable word; of one that ended, how.
	Waits    string     `json:"waits,omitempty"`
	Message  string     `json:"message,omitempty"`
	InFlight int64      `json:"inFlight" doc:"at work there now"`
	AskedAt  time.Time  `json:"askedAt"`
	Deadline time.Time  `json:"deadline"`
	EndedAt  *time.Time `json:"endedAt,omitempty"`
}
