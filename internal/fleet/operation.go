package fleet

import "time"

// OperationState is the state of a requested operation.
type OperationState string

// An operation ends in exactly one of the states after running.
const (
	OperationRunning    OperationState = "running"
	OperationSucceeded  OperationState = "succeeded"
	OperationFailed     OperationState = "failed"
	OperationUnknown    OperationState = "unknown" // the delivery later gains settledAs
	OperationCancelled  OperationState = "cancelled"
	OperationSuperseded OperationState = "superseded"
)

// OperationStates lists all states; a test compares it with the SQL CHECK.
func OperationStates() []OperationState {
	return []OperationState{
		OperationRunning, OperationSucceeded, OperationFailed, OperationUnknown,
		OperationCancelled, OperationSuperseded,
	}
}

// Ended reports whether the state is final.
func (s OperationState) Ended() bool { return s != OperationRunning }

// OperationKind is what was requested.
type OperationKind string

// The kinds of operations: on instances, on a node, and on a site's lease.
const (
	OperationDeploy    OperationKind = "deploy"
	OperationEnable    OperationKind = "enable"
	OperationDisable   OperationKind = "disable"
	OperationDelete    OperationKind = "delete"
	OperationRollback  OperationKind = "rollback"
	OperationReconcile OperationKind = "reconcile"
	OperationDrain     OperationKind = "drain"
	OperationFailover  OperationKind = "failover"
)

// Durability is when an operation on an instance succeeds.
type Durability string

// Sync: both nodes have stored it. Async: the active has, and the standby follows.
const (
	DurabilitySync  Durability = "sync"
	DurabilityAsync Durability = "async"
)

// OperationEnd notifies a door how its operation ended.
type OperationEnd struct {
	Operation OperationID    `json:"operation"`
	State     OperationState `json:"state"`
	Reason    string         `json:"reason,omitempty"`
	Message   string         `json:"message,omitempty"`
	Revision  Version        `json:"revision"`
	Hash      Hash           `json:"revisionHash,omitempty"`
	EndedAt   time.Time      `json:"endedAt"`
}
