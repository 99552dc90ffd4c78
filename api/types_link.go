package api

import (
	"time"
)

// Provider is a live connection of the link.
type Provider struct {
	ID              ConnectionID    `json:"id"`
	Provider        string          `json:"provider"`
	Identity        string          `json:"identity" doc:"who has proven to be it: node:NAME or token:ID"`
	Node            string          `json:"node,omitempty"`
	ModuleNamespace string          `json:"moduleNamespace,omitempty"`
	Group           string          `json:"group,omitempty"`
	Executor        string          `json:"executor,omitempty"`
	Modules         []string        `json:"modules,omitempty"`
	State           ConnectionState `json:"state"`
	// TakesWork is false from the moment on that a drain was asked for.
	TakesWork    bool           `json:"takesWork"`
	Since        time.Time      `json:"since" doc:"of its state's stream; before that, of its registration"`
	RegisteredAt time.Time      `json:"registeredAt"`
	HeartbeatAt  *time.Time     `json:"heartbeatAt,omitempty" doc:"as of some seconds ago"`
	InFlight     int            `json:"inFlight"`
	Server       string         `json:"server"`
	Drain        *ProviderDrain `json:"drain,omitempty"`
}

// ProviderDrain is a drain under way: it ends when the provider closes its stream, at the
// latest at the deadline.
type ProviderDrain struct {
	Reason   string     `json:"reason"`
	AskedAt  time.Time  `json:"askedAt"`
	AckedAt  *time.Time `json:"ackedAt,omitempty"`
	Deadline time.Time  `json:"deadline"`
	// Waits says for what, in a stable word.
	Waits string `json:"waits" enum:"ack,in_flight,close"`
}

// DrainRequest asks a provider to finish what it has and to close.
type DrainRequest struct {
	Reason          string `json:"reason,omitempty"`
	DeadlineSeconds int64  `json:"deadlineSeconds,omitempty" doc:"30 by default"`
}

// Refusal is something that an identity asked for and was refused.
type Refusal struct {
	At       time.Time `json:"at" doc:"of the last of them"`
	Door     string    `json:"door"`
	Identity string    `json:"identity" doc:"as proven, or as claimed with a ? before it"`
	Reason   string    `json:"reason"`
	What     string    `json:"what,omitempty"`
	By       string    `json:"by,omitempty" doc:"the node that refused; the region where there is none"`
	Times    int64     `json:"times"`
}
