package fleet

import "time"

// Why a node is compared with its site's expected set.
const (
	ReconcileOnStart  = "start"    // it has started
	ReconcilePeer     = "peer"     // the other node of its pair has
	ReconcileRequest  = "request"  // it was requested
	ReconcileSchedule = "schedule" // the region's records of it drifted, or the last one is too old
)

// ReconcileStart begins one comparison of a node. Repeating an ID continues the same comparison with another token.
type ReconcileStart struct {
	ID        string
	Node      NodeName
	Reason    string
	Files     bool   // the node also hashes the files that it delivered
	Run       string // of the workflow that speaks for the node
	Build     string
	TokenHash []byte
	TokenLife time.Duration
}

// ReconcileBegun is the start of a comparison. Command is nil if the node cannot be asked, and Why is the reason.
// By is the database's time of the start: the comparison serves all requests up to then.
type ReconcileBegun struct {
	Command    *ReconcileCommand
	SealingKey []byte
	Why        string
	By         time.Time
}

// ReconcileEnd closes a comparison, and the operations that requested one before it began.
type ReconcileEnd struct {
	ID      string         `json:"id,omitempty"` // "" when none was begun
	Node    NodeName       `json:"node"`
	By      time.Time      `json:"by"`
	State   OperationState `json:"state"`
	Reason  string         `json:"reason,omitempty"`
	Message string         `json:"message,omitempty"`
	// The node's result, for the metrics.
	Fetched int `json:"fetched,omitempty"`
	Dropped int `json:"dropped,omitempty"`
	Waiting int `json:"waiting,omitempty"`
	// Restored are delivered files that the node wrote again.
	Restored int `json:"restored,omitempty"`
}
