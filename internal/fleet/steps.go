package fleet

import "time"

// The steps that entities request of the store, and their results. Run and Build are the workflow run and the build
// that it runs on (also in FleetVisit and FleetMove).

// BatchPrepare requests the notify of one node. It covers the items that the node has not applied and was sent
// fewer than Tries times; for a standby, those that the active applied.
type BatchPrepare struct {
	ID    BatchID       `json:"id"`
	Node  NodeName      `json:"node"`
	Tries int           `json:"tries"`
	TTL   time.Duration `json:"ttl"`
	// Take is how long the batch waits for a node that has not enrolled.
	Take      time.Duration `json:"take,omitempty"`
	TokenHash []byte        `json:"-"`
}

// BatchNotify is the notify of a node without its token and address, and the key to seal the token to.
type BatchNotify struct {
	Command    BatchCommand
	SealingKey []byte
	// Wait is set alone if the node has not enrolled: prepare the notify again after that time.
	Wait time.Duration
}

// BatchMiss records that a node did not confirm some or all items of a batch.
type BatchMiss struct {
	ID      BatchID     `json:"id"`
	Node    NodeName    `json:"node"`
	State   TargetState `json:"state"`
	Reason  Kind        `json:"reason"`
	Message string      `json:"message,omitempty"`
}

// BatchEnded counts how the items of a batch ended.
type BatchEnded struct {
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Staged    int `json:"staged"`
}

// DrainLook is one look of a drain's entity. Phase, Rule and Message are the result of its last look, empty for the
// first.
type DrainLook struct {
	Node    NodeName   `json:"node"`
	Run     string     `json:"run"`
	Build   string     `json:"build,omitempty"`
	Phase   DrainPhase `json:"phase,omitempty"`
	Rule    string     `json:"rule,omitempty"`
	Message string     `json:"message,omitempty"`
}

// FailoverLook is one look of a site's entity. Reason and Message are why the operation of its last look, towards
// To, still waits.
type FailoverLook struct {
	Site    SiteName `json:"site"`
	Run     string   `json:"run"`
	Build   string   `json:"build,omitempty"`
	To      NodeName `json:"to,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	Message string   `json:"message,omitempty"`
}

// DeploymentVisit is one visit of a deployment's entity.
type DeploymentVisit struct {
	Deployment DeploymentName `json:"deployment"`
	Run        string         `json:"run"`
	Build      string         `json:"build,omitempty"`
}

// DeploymentVisited is the result of a visit.
type DeploymentVisited struct {
	State DeploymentState `json:"state,omitempty"`
	// Rule, Message and Awaited are why, and what the deployment waits for.
	Rule    string `json:"rule,omitempty"`
	Message string `json:"message,omitempty"`
	Awaited string `json:"awaited,omitempty"`
	// Replicas counts the live ones, Healthy the healthy ones.
	Replicas int `json:"replicas,omitempty"`
	Healthy  int `json:"healthy,omitempty"`
	// At is the database's time of the visit; Next is when to visit again, zero if only after a wake.
	At   time.Time `json:"at"`
	Next time.Time `json:"next,omitzero"`
	More bool      `json:"more,omitempty"` // look again at once
	Done bool      `json:"done,omitempty"` // nothing is left to do
	// Untold counts the ended operations whose doors were not notified yet, Ended those that this visit ended.
	Untold int              `json:"-"`
	Ended  []OperationEnded `json:"-"`
}

// OperationEnded is an operation that a visit ended.
type OperationEnded struct {
	Kind   OperationKind
	State  OperationState
	Reason string
}
