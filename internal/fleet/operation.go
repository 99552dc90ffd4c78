package fleet

import "time"

// OperationState is where one thing asked for stands.
type OperationState string

// An operation ends in exactly one of the five after running.
const (
	OperationRunning    OperationState = "running"
	OperationSucceeded  OperationState = "succeeded"
	OperationFailed     OperationState = "failed"
	OperationUnknown    OperationState = "unknown" // the delivery later gains settledAs
	OperationCancelled  OperationState = "cancelled"
	OperationSuperseded OperationState = "superseded"
)

// OperationStates lists them; the SQL CHECK is compared with it.
func OperationStates() []OperationState {
	return []OperationState{
		OperationRunning, OperationSucceeded, OperationFailed, OperationUnknown,
		OperationCancelled, OperationSuperseded,
	}
}

// Ended says that nothing will change any more.
func (s OperationState) Ended() bool { return s != OperationRunning }

// OperationKind is what was asked for.
type OperationKind string

// The kinds of this region's operations: on instances, on a node, and on a site's lease.
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

// Durability says when an operation on an instance succeeds.
type Durability string

// Sync: both nodes are durable. Async: the active is, the standby follows.
const (
	DurabilitySync  Durability = "sync"
	DurabilityAsync Durability = "async"
)

// OperationEnd tells a door how its operation ended.
type OperationEnd struct {
	Operation OperationID    `json:"operation"`
	State     OperationState `json:"state"`
	Reason    string         `json:"reason,omitempty"`
	Message   string         `json:"message,omitempty"`
	Revision  Version        `json:"revision"`
	Hash      Hash           `json:"revisionHash,omitempty"`
	EndedAt   time.Time      `json:"endedAt"`
}
