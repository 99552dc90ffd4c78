package fleet

import "time"

// The steps of an instance's entity. Each names the run that takes it, so that one which
// wakes late is answered as before or refused (X13, X23).

// Subject is an instance together with the entity run that speaks for it.
type Subject struct {
	Site     SiteName     `json:"site"`
	Instance InstanceName `json:"instance"`
	Run      string       `json:"run"`
	Build    string       `json:"build,omitempty"`
}

// Key names the instance.
func (s Subject) Key() ObjectKey { return InstanceKey(s.Site, s.Instance) }

// Name is the id of the instance's entity.
func (s Subject) Name() string { return InstanceSubject(s.Site, s.Instance) }

// Claim asks for the next attempt of a subject. Step names it within the run: the same
// claim again is answered with the same delivery.
type Claim struct {
	Subject
	Step     string        `json:"step"`
	Workflow string        `json:"workflow"`
	Deadline time.Duration `json:"deadline"` // of the whole delivery
	TTL      time.Duration `json:"ttl"`      // of the pending row (N20)
}

// Prepare asks for a notify of one node. Delivery is the open one; with Ticket set it is
// what the node is owed instead, by a snapshot ticket of that id.
type Prepare struct {
	Subject
	Delivery DeliveryID    `json:"delivery,omitempty"`
	Ticket   DeliveryID    `json:"ticket,omitempty"`
	Node     NodeName      `json:"node"`
	TTL      time.Duration `json:"ttl"`
	// TokenHash is what the region keeps of the token.
	TokenHash []byte `json:"-"`
}

// Prepared is a notify without its token, and the X25519 key to seal the token to.
type Prepared struct {
	Node       NodeName
	Command    RefreshDeploymentCommand
	SealingKey []byte
	Deadline   time.Time
}

// Record is a node's success: of the open delivery, or of what it was owed (Delivery "").
type Record struct {
	Subject
	Delivery DeliveryID               `json:"delivery,omitempty"`
	Node     NodeName                 `json:"node"`
	Response DeploymentStatusResponse `json:"response"`
}

// Miss is a notify that did not end in success: State is failed or unknown.
type Miss struct {
	Subject
	Delivery DeliveryID  `json:"delivery,omitempty"`
	Node     NodeName    `json:"node"`
	State    TargetState `json:"state"`
	Reason   Kind        `json:"reason"`
	Message  string      `json:"message,omitempty"`
}

// Settle is what a node says it holds when it was only asked.
type Settle struct {
	Subject
	Node NodeName `json:"node"`
	Held Held     `json:"held"`
}

// End closes the open delivery and the operations that it served. Delivery "" ends only
// operations. Owe keeps the revision owed to the active (X4).
type End struct {
	Subject
	Delivery  DeliveryID     `json:"delivery,omitempty"`
	State     DeliveryState  `json:"state,omitempty"`
	Operation OperationState `json:"operation"`
	Reason    string         `json:"reason,omitempty"`
	Message   string         `json:"message,omitempty"`
	Owe       bool           `json:"owe,omitempty"`
	// Since is when the delivery was claimed.
	Since time.Time `json:"since,omitzero"`
	// OnlyCancelled ends just the operations whose cancellation was asked for.
	OnlyCancelled bool `json:"onlyCancelled,omitempty"`
}

// Step is one step of an entity at the store: the member that is set, none only looks.
type Step struct {
	Claim   *Claim   `json:"claim,omitempty"`
	Prepare *Prepare `json:"prepare,omitempty"`
	Record  *Record  `json:"record,omitempty"`
	Miss    *Miss    `json:"miss,omitempty"`
	Settle  *Settle  `json:"settle,omitempty"`
	End     *End     `json:"end,omitempty"`
}

// Name is what logs and failpoints call the step.
func (s Step) Name() string {
	switch {
	case s.Claim != nil:
		return "claim"
	case s.Prepare != nil:
		return "prepare"
	case s.Record != nil:
		return "record"
	case s.Miss != nil:
		return "miss"
	case s.Settle != nil:
		return "settle"
	case s.End != nil:
		return "end"
	}
	return "observe"
}

// Walked is where a walk from step to step came to: what was seen after the last, and the
// notify when that was to prepare one.
type Walked struct {
	Seen     InstanceSeen
	Steps    []Step
	Prepared *Prepared
}

// Comparison sets what a node says it holds of one instance against what is deployed and
// what was released last. Expected is set while something that could explain a difference
// is under way or owed, Active on the node that has the lease.
type Comparison struct {
	Instance InstanceName
	Snapshot Revision
	Desired  Revision
	Held     Held
	Expected bool
	Active   bool
}
