package fleet

import "time"

// DrainPhase is how far the drain of a node is.
type DrainPhase string

// A drain first looks for another place for what runs, then drains the node's connections.
const (
	DrainMoving   DrainPhase = "moving"   // its site's lease goes to another node
	DrainDraining DrainPhase = "draining" // its connections finish what they have
	DrainEnded    DrainPhase = "ended"
)

// DrainPhases lists them; the SQL CHECK is compared with it.
func DrainPhases() []DrainPhase { return []DrainPhase{DrainMoving, DrainDraining, DrainEnded} }

// The terms of a drain that names none, and the longest.
const (
	DefaultDrain = 30 * time.Second
	MaxDrain     = 24 * time.Hour
	// MaxDrainReason bounds the word that the provider is told.
	MaxDrainReason = 1024
)

// DrainOrder is what somebody asks of a node.
type DrainOrder struct {
	Reason          string `json:"reason,omitempty"`
	DeadlineSeconds int64  `json:"deadlineSeconds,omitempty"`
	// Force stops what runs there when there is no other place for it.
	Force bool `json:"force,omitempty"`
}

// Checked fills in what was left out, and refuses what is not allowed.
func (o DrainOrder) Checked(by string) (DrainOrder, error) {
	if o.Reason == "" {
		o.Reason = "asked by " + by
	}
	if o.DeadlineSeconds == 0 {
		o.DeadlineSeconds = int64(DefaultDrain / time.Second)
	}
	most := int64(MaxDrain / time.Second)
	switch {
	case o.DeadlineSeconds < 0 || o.DeadlineSeconds > most:
		return o, Errorf(Invalid, "allowed are 1 to %d seconds", most).At("/deadlineSeconds")
	case len(o.Reason) > MaxDrainReason:
		return o, Errorf(Invalid, "a reason of %d bytes, allowed are %d", len(o.Reason), MaxDrainReason).At("/reason")
	}
	return o, nil
}

// DrainSeen is the drain of a node as its entity sees it.
type DrainSeen struct {
	Node NodeName `json:"node"`
	Site SiteName `json:"site"`
	// Operation is the newest that asked; Wanted says whether anybody still waits.
	Operation OperationID `json:"operation,omitempty"`
	Wanted    bool        `json:"wanted"`
	Reason    string      `json:"reason,omitempty"`
	Force     bool        `json:"force,omitempty"`
	Began     time.Time   `json:"began"`
	Deadline  time.Time   `json:"deadline"`
	At        time.Time   `json:"at"`
	Removed   bool        `json:"removed,omitempty"` // from its site
	Holds     bool        `json:"holds,omitempty"`   // its site's lease
	// Vacant says that it gave the lease back when this drain asked, and that nobody holds it.
	Vacant bool `json:"vacant,omitempty"`
	// Failover is what this drain asked of the lease and is under way, "" for nothing.
	Failover OperationID `json:"failover,omitempty"`
	Running  int         `json:"running"` // instances there
	// Replicas counts those there that have not ended, Live those of them that are to run on.
	Replicas int `json:"replicas,omitempty"`
	Live     int `json:"live,omitempty"`
	// GivenUp counts those of Live that nothing will take the place of: their deployments are in ERROR.
	// GivenUpOf are those deployments, as far as they are of the project of the node's site.
	GivenUp   int              `json:"givenUp,omitempty"`
	GivenUpOf []DeploymentName `json:"givenUpOf,omitempty"`
	// Orphans counts replicas that run there and that an operator has not let go.
	Orphans int        `json:"orphans,omitempty"`
	Peer    *DrainPeer `json:"peer,omitempty"` // the other of its pair, nil without one
	// Connections are the node's of this drain, ended ones too, oldest first.
	Connections []DrainConnection `json:"connections,omitempty"`
	// Before are the node's last ones where they ended before this drain. There is when nodes that are
	// there have come back to the link.
	Before []DrainConnection `json:"before,omitempty"`
	There  time.Time         `json:"there,omitzero"`
	// Signed is the word for stopping what runs there, where the drain is forced to.
	Signed Signature `json:"signed,omitzero"`
}

// Left is the time until the deadline.
func (s DrainSeen) Left() time.Duration { return s.Deadline.Sub(s.At) }

// DrainPeer is where what runs could go.
type DrainPeer struct {
	Node NodeName `json:"node"`
	// Ready says that it may hold the lease: enrolled, started, on the link and not cordoned.
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

// DrainEnd closes the drain of a node, and what asked for it. It is for the operations up to
// the newest that was seen: one that came since is looked at anew.
type DrainEnd struct {
	Node      NodeName       `json:"node"`
	Operation OperationID    `json:"operation,omitempty"`
	State     OperationState `json:"state"`
	Reason    string         `json:"reason"`
	Message   string         `json:"message"`
}
