package fleet

import "time"

// DrainPhase is the phase of a node's drain.
type DrainPhase string

// A drain first moves instances and replicas elsewhere, then drains the node's connections.
const (
	DrainMoving   DrainPhase = "moving"   // its site's lease moves to another node
	DrainDraining DrainPhase = "draining" // its connections finish their work
	DrainEnded    DrainPhase = "ended"
)

// DrainPhases lists all phases; a test compares it with the SQL CHECK.
func DrainPhases() []DrainPhase { return []DrainPhase{DrainMoving, DrainDraining, DrainEnded} }

// The default and the longest deadline of a drain.
const (
	DefaultDrain = 30 * time.Second
	MaxDrain     = 24 * time.Hour
	// MaxDrainReason limits the reason that the provider is sent.
	MaxDrainReason = 1024
)

// DrainOrder is a request to drain a node.
type DrainOrder struct {
	Reason          string `json:"reason,omitempty"`
	DeadlineSeconds int64  `json:"deadlineSeconds,omitempty"`
	// Force stops what runs there if there is no other place for it.
	Force bool `json:"force,omitempty"`
}

// Checked fills in omitted values and rejects invalid ones.
func (o DrainOrder) Checked(by string) (DrainOrder, error) {
	if o.Reason == "" {
		o.Reason = "requested by " + by
	}
	if o.DeadlineSeconds == 0 {
		o.DeadlineSeconds = int64(DefaultDrain / time.Second)
	}
	most := int64(MaxDrain / time.Second)
	switch {
	case o.DeadlineSeconds < 0 || o.DeadlineSeconds > most:
		return o, Errorf(Invalid, "invalid deadline: want 1 to %d seconds", most).At("/deadlineSeconds")
	case len(o.Reason) > MaxDrainReason:
		return o, Errorf(Invalid, "the reason has %d bytes; the limit is %d", len(o.Reason), MaxDrainReason).At("/reason")
	}
	return o, nil
}

// DrainSeen is the drain of a node as its entity sees it.
type DrainSeen struct {
	Node NodeName `json:"node"`
	Site SiteName `json:"site"`
	// Operation is the newest that requested the drain; Wanted is set while any operation waits for it.
	Operation OperationID `json:"operation,omitempty"`
	Wanted    bool        `json:"wanted"`
	Reason    string      `json:"reason,omitempty"`
	Force     bool        `json:"force,omitempty"`
	Began     time.Time   `json:"began"`
	Deadline  time.Time   `json:"deadline"`
	At        time.Time   `json:"at"`
	Removed   bool        `json:"removed,omitempty"` // from its site
	Holds     bool        `json:"holds,omitempty"`   // its site's lease
	// Vacant is set if it released the lease for this drain, and no node has taken it.
	Vacant bool `json:"vacant,omitempty"`
	// Failover is the failover under way that this drain requested, "" for none.
	Failover OperationID `json:"failover,omitempty"`
	Running  int         `json:"running"` // instances there
	// Replicas counts its replicas that have not ended, Live those of them that should keep running.
	Replicas int `json:"replicas,omitempty"`
	Live     int `json:"live,omitempty"`
	// GivenUp counts those of Live that will not be replaced, because their deployments are in ERROR. GivenUpOf
	// lists these deployments, as far as they belong to the project of the node's site.
	GivenUp   int              `json:"givenUp,omitempty"`
	GivenUpOf []DeploymentName `json:"givenUpOf,omitempty"`
	// Orphans counts orphan replicas running there that no operator has approved for removal.
	Orphans int        `json:"orphans,omitempty"`
	Peer    *DrainPeer `json:"peer,omitempty"` // the other of its pair, nil without one
	// Connections are the node's connections during this drain, including ended ones, oldest first.
	Connections []DrainConnection `json:"connections,omitempty"`
	// Before are the node's last connections if they ended before this drain. There is when running nodes have had
	// time to reconnect.
	Before []DrainConnection `json:"before,omitempty"`
	There  time.Time         `json:"there,omitzero"`
	// Signed is the signature for stopping what runs there, if the drain is forced.
	Signed Signature `json:"signed,omitzero"`
}

// Left is the time until the deadline.
func (s DrainSeen) Left() time.Duration { return s.Deadline.Sub(s.At) }

// DrainPeer is the node that could take over.
type DrainPeer struct {
	Node NodeName `json:"node"`
	// Ready is set if it may hold the lease: enrolled, started, connected and not cordoned.
	Ready bool `json:"ready"`
}

// DrainConnection is one registration of the node.
type DrainConnection struct {
	ID       ConnectionID    `json:"id"`
	Provider ProviderName    `json:"provider"`
	State    ConnectionState `json:"state"`
	Reason   ConnectionEvent `json:"reason,omitempty"` // that ended it
	InFlight int             `json:"inFlight"`
	Asked    bool            `json:"asked,omitempty"`
	Acked    bool            `json:"acked,omitempty"`
	EndedAt  time.Time       `json:"endedAt,omitzero"` // of one before the drain
}

// DrainEnd closes the drain of a node and its operations, up to the newest one seen. Later ones are handled in
// another drain.
type DrainEnd struct {
	Node      NodeName       `json:"node"`
	Operation OperationID    `json:"operation,omitempty"`
	State     OperationState `json:"state"`
	Reason    string         `json:"reason"`
	Message   string         `json:"message"`
}
