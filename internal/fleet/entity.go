package fleet

import "time"

// The steps of an instance's entity. Each names the run that takes it. A run that resumes late gets the earlier
// answer or is refused (X13, X23).

// Subject is an instance together with its entity's run.
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

// Claim requests the next attempt for a subject. Step names it within the run: repeating the same claim returns the
// same delivery.
type Claim struct {
	Subject
	Step     string        `json:"step"`
	Workflow string        `json:"workflow"`
	Deadline time.Duration `json:"deadline"` // of the whole delivery
	TTL      time.Duration `json:"ttl"`      // of the pending row (N20)
}

// Prepare requests a notify of one node: for the open delivery, or with Ticket for what the node is owed, by a
// snapshot ticket of that id.
type Prepare struct {
	Subject
	Delivery DeliveryID    `json:"delivery,omitempty"`
	Ticket   DeliveryID    `json:"ticket,omitempty"`
	Node     NodeName      `json:"node"`
	TTL      time.Duration `json:"ttl"`
	// TokenHash is what the region stores of the token.
	TokenHash []byte `json:"-"`
}

// Prepared is a notify without its token, and the X25519 key to seal the token to.
type Prepared struct {
	Node       NodeName
	Command    RefreshDeploymentCommand
	SealingKey []byte
	Deadline   time.Time
}

// Record is a node's success: for the open delivery, or for what it was owed (Delivery "").
type Record struct {
	Subject
	Delivery DeliveryID               `json:"delivery,omitempty"`
	Node     NodeName                 `json:"node"`
	Response DeploymentStatusResponse `json:"response"`
}

// Miss is a notify without success: State is failed or unknown.
type Miss struct {
	Subject
	Delivery DeliveryID  `json:"delivery,omitempty"`
	Node     NodeName    `json:"node"`
	State    TargetState `json:"state"`
	Reason   Kind        `json:"reason"`
	Message  string      `json:"message,omitempty"`
}

// Settle is what a node holds, reported when asked without a delivery.
type Settle struct {
	Subject
	Node NodeName `json:"node"`
	Held Held     `json:"held"`
}

// End closes the open delivery and its operations. With Delivery "" it ends only operations. Owe keeps the revision
// owed to the active (X4).
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
	// OnlyCancelled ends only the operations with a requested cancellation.
	OnlyCancelled bool `json:"onlyCancelled,omitempty"`
}

// Step is one step of an entity at the store: the field that is set. With none it only reads.
type Step struct {
	Claim   *Claim   `json:"claim,omitempty"`
	Prepare *Prepare `json:"prepare,omitempty"`
	Record  *Record  `json:"record,omitempty"`
	Miss    *Miss    `json:"miss,omitempty"`
	Settle  *Settle  `json:"settle,omitempty"`
	End     *End     `json:"end,omitempty"`
}

// Name is the step's name in logs and failpoints.
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

// Walked is the result of a walk from step to step: what was seen after the last step, and the notify if that
// prepared one.
type Walked struct {
	Seen     InstanceSeen
	Steps    []Step
	Prepared *Prepared
}

// Comparison compares what a node reports of one instance with what is deployed and what was last released.
// Expected is set while something under way or owed could explain a difference, Active on the node with the lease.
type Comparison struct {
	Instance InstanceName
	Snapshot Revision
	Desired  Revision
	Held     Held
	Expected bool
	Active   bool
}
