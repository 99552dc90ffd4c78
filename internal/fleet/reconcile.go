package fleet

import "time"

// Why a node is compared with its site's expected set.
const (
	ReconcileOnStart  = "start"    // it has started
	ReconcilePeer     = "peer"     // the other node of its pair has
	ReconcileRequest  = "request"  // somebody asked
	ReconcileSchedule = "schedule" // the region's records of it drifted, or it was long ago
)

// ReconcileStart begins one comparison of a node. The same ID again is the same one, with
// another token.
type ReconcileStart struct {
	ID        string
	Node      NodeName
	Reason    string
	Run       string // of the workflow that speaks for the node
	Build     string
	TokenHash []byte
	TokenLife time.Duration
}

// ReconcileBegun is what a comparison starts from; Command is nil when the node cannot be
// told, with the reason in Why. By is when the database saw it begin: what was asked for by
// then is served by it.
type ReconcileBegun struct {
	Command    *ReconcileCommand
	SealingKey []byte
	Why        string
	By         time.Time
}

// ReconcileEnd closes a comparison, and the operations that asked for one by the time that
// it began.
type ReconcileEnd struct {
	ID      string         `json:"id,omitempty"` // "" when none was begun
	Node    NodeName       `json:"node"`
	By      time.Time      `json:"by"`
	State   OperationState `json:"state"`
	Reason  string         `json:"reason,omitempty"`
	Message string         `json:"message,omitempty"`
	// What the node said came of it, for the metrics.
	Fetched int `json:"fetched,omitempty"`
	Dropped int `json:"dropped,omitempty"`
	Waiting int `json:"waiting,omitempty"`
}
