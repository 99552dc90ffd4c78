package api

import (
	"time"
)

// Reconcile is one comparison of a node with its site's expected set. Reason says what asked
// for it: start, peer, request or schedule. Counts is missing until the node has reported, and
// when Unchanged says that nothing changed since the node was last as expected.
type Reconcile struct {
	ID         string           `json:"id"`
	Node       string           `json:"node"`
	Reason     string           `json:"reason"`
	State      string           `json:"state" enum:"running,succeeded,failed"`
	Message    string           `json:"message,omitempty"`
	SetVersion string           `json:"setVersion,omitempty" doc:"ERA.NUMBER of the expected set"`
	Refused    string           `json:"refused,omitempty" doc:"why the node did not act upon the set"`
	Unchanged  bool             `json:"unchanged,omitempty"`
	Counts     *ReconcileCounts `json:"counts,omitempty"`
	Differs    []Differs        `json:"differs,omitempty" doc:"what did not become as expected, and files that were restored, at most 100"`
	CreatedAt  time.Time        `json:"createdAt"`
	EndedAt    *time.Time       `json:"endedAt,omitempty"`
}

// ReconcileCounts are instances of a node. Left are under way or not the node's to change,
// Ahead are held in a higher number than is deployed, Waiting need an operator's word.
type ReconcileCounts struct {
	Expected int `json:"expected"`
	Equal    int `json:"equal"`
	Fetched  int `json:"fetched"`
	Failed   int `json:"failed"`
	Left     int `json:"left"`
	Ahead    int `json:"ahead"`
	Dropped  int `json:"dropped"`
	Waiting  int `json:"waiting"`
	Restored int `json:"restored" doc:"delivered files that had been changed or removed, and were written again; checked on request"`
}

// Differs is one instance of a node that is not as its region expects, and why.
type Differs struct {
	Instance string `json:"instance"`
	Why      string `json:"why"`
}

// Orphan is what a node has without a declaration: an instance that its site does not expect, or a
// replica that its set does not list. An instance is dropped by the next comparison after it was
// approved, unless the node holds another revision by then; a replica is ended at once, or when its
// node is there. Of a replica deployment and revision are what its node knows.
type Orphan struct {
	Instance     string       `json:"instance,omitempty"`
	Replica      string       `json:"replica,omitempty" doc:"12 hex digits"`
	Deployment   string       `json:"deployment,omitempty"`
	Phase        ReplicaPhase `json:"phase,omitempty" doc:"of a replica, by its node's last word"`
	Revision     int64        `json:"revision"`
	Era          int64        `json:"era,omitempty"`
	RevisionHash Hash         `json:"revisionHash,omitempty"`
	Reason       string       `json:"reason" enum:"never_known,over_cap"`
	Since        time.Time    `json:"since"`
	ApprovedBy   string       `json:"approvedBy,omitempty"`
	ApprovedAt   *time.Time   `json:"approvedAt,omitempty"`
}

// OrphanApproval names the orphans that a node may drop, or all that are listed.
type OrphanApproval struct {
	Instances []string `json:"instances,omitempty"`
	Replicas  []string `json:"replicas,omitempty"`
	All       bool     `json:"all,omitempty"`
	Reason    string   `json:"reason,omitempty"`
}

// AcceptedAll answers a request that starts several operations.
type AcceptedAll struct {
	Operations []Operation `json:"operations"`
	DryRun     bool        `json:"dryRun,omitempty"`
}
