package fleet

import "time"

// DeploymentName names a deployment: a DNS label, unique in a region.
type DeploymentName string

// PoolName names a pool: a DNS label, unique in a region.
type PoolName string

// The kinds of declared objects for deployments.
const (
	KindDeployment ObjectKind = "deployment"
	KindPool       ObjectKind = "pool"
)

// The operations on a deployment. They name the deployment and no site.
const (
	OperationConverge OperationKind = "converge" // run the released revision
	OperationScale    OperationKind = "scale"
	OperationRestart  OperationKind = "restart"
	OperationDestroy  OperationKind = "destroy"
	// OperationReturn cancels a rollout: it ends when the stable revision runs again.
	OperationReturn OperationKind = "return"
	// OperationTurn is what a door asked of a rollout; it ends at once.
	OperationTurn OperationKind = "turn"
)

// OfDeployment reports whether operations of the kind belong to a deployment.
func (k OperationKind) OfDeployment() bool {
	switch k { //nolint:exhaustive // all other kinds are of something else
	case OperationConverge, OperationScale, OperationRestart, OperationDestroy, OperationReturn, OperationTurn:
		return true
	}
	return false
}

// DeploymentKey names a deployment.
func DeploymentKey(name DeploymentName) ObjectKey {
	return ObjectKey{Kind: KindDeployment, Name: string(name)}
}

// PoolKey names a pool.
func PoolKey(name PoolName) ObjectKey { return ObjectKey{Kind: KindPool, Name: string(name)} }

// DeploymentState is the state of a deployment (S33).
type DeploymentState string

// A stopped deployment is PENDING; one scaled to zero is RUNNING.
const (
	DeploymentPending      DeploymentState = "PENDING"      // not begun
	DeploymentProvisioning DeploymentState = "PROVISIONING" // its first replicas start
	DeploymentRunning      DeploymentState = "RUNNING"      // it has reached its minimum of healthy replicas
	DeploymentDestroying   DeploymentState = "DESTROYING"   // its replicas end
	DeploymentTerminated   DeploymentState = "TERMINATED"   // only its record is left
	DeploymentError        DeploymentState = "ERROR"        // given up; an update or a delete still works
)

// DeploymentStates lists all states; a test compares it with the SQL CHECK.
func DeploymentStates() []DeploymentState {
	return []DeploymentState{
		DeploymentPending, DeploymentProvisioning, DeploymentRunning, DeploymentDestroying, DeploymentTerminated, DeploymentError,
	}
}

// DeploymentEvent moves a deployment.
type DeploymentEvent string

// Events from decisions and from requests.
const (
	DeploymentBegun         DeploymentEvent = "begun"          // its first replicas were created
	DeploymentAvailable     DeploymentEvent = "available"      // enough replicas are healthy
	DeploymentAttemptFailed DeploymentEvent = "attempt_failed" // it retries after a pause
	DeploymentGivenUp       DeploymentEvent = "given_up"       // no attempts are left
	DeploymentUpdated       DeploymentEvent = "updated"        // a new release or a restart
	DeploymentStopped       DeploymentEvent = "stopped"        // it was declared stopped
	DeploymentDeleted       DeploymentEvent = "deleted"
	DeploymentGone          DeploymentEvent = "gone"       // its last replica ended
	DeploymentRedeclared    DeploymentEvent = "redeclared" // declared again after its end
)

// DeploymentEvents lists all events.
func DeploymentEvents() []DeploymentEvent {
	return []DeploymentEvent{
		DeploymentBegun, DeploymentAvailable, DeploymentAttemptFailed, DeploymentGivenUp, DeploymentUpdated,
		DeploymentStopped, DeploymentDeleted, DeploymentGone, DeploymentRedeclared,
	}
}

// deploymentMachine has every transition of a deployment (S33 to S45).
var deploymentMachine = machine[DeploymentState, DeploymentEvent]{
	{DeploymentPending, DeploymentBegun, DeploymentProvisioning},
	{DeploymentPending, DeploymentGivenUp, DeploymentError},
	{DeploymentPending, DeploymentUpdated, DeploymentPending},
	{DeploymentPending, DeploymentDeleted, DeploymentDestroying},
	{DeploymentProvisioning, DeploymentAvailable, DeploymentRunning},
	{DeploymentProvisioning, DeploymentAttemptFailed, DeploymentPending},
	{DeploymentProvisioning, DeploymentGivenUp, DeploymentError},
	{DeploymentProvisioning, DeploymentUpdated, DeploymentPending},
	{DeploymentProvisioning, DeploymentStopped, DeploymentPending},
	{DeploymentProvisioning, DeploymentDeleted, DeploymentDestroying},
	{DeploymentRunning, DeploymentUpdated, DeploymentRunning},
	{DeploymentRunning, DeploymentGivenUp, DeploymentError},
	{DeploymentRunning, DeploymentStopped, DeploymentPending},
	{DeploymentRunning, DeploymentDeleted, DeploymentDestroying},
	{DeploymentError, DeploymentUpdated, DeploymentPending},
	{DeploymentError, DeploymentStopped, DeploymentPending},
	{DeploymentError, DeploymentDeleted, DeploymentDestroying},
	{DeploymentDestroying, DeploymentGone, DeploymentTerminated},
	{DeploymentTerminated, DeploymentRedeclared, DeploymentPending},
}

// Next is the only way to move a deployment; a missing transition is illegal_state (S42).
func (s DeploymentState) Next(on DeploymentEvent) (DeploymentState, error) {
	if to, ok := deploymentMachine.next(s, on); ok {
		return to, nil
	}
	return s, Errorf(IllegalState, "a deployment in state %s does not allow %s", s, on)
}

// DeploymentSeen is the whole input of the decision about a deployment.
type DeploymentSeen struct {
	// At is when the database was read; times use its clock.
	At      time.Time       `json:"at"`
	Name    DeploymentName  `json:"name"`
	State   DeploymentState `json:"state"`
	Reason  string          `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
	// Deleting is set when this declaration must end; Redeclared when another one of the same name waits for that.
	Deleting   bool `json:"deleting,omitempty"`
	Redeclared bool `json:"redeclared,omitempty"`
	// Stopped is set if it is declared stopped.
	Stopped bool `json:"stopped,omitempty"`
	// Target is the desired number of replicas, Min the number it needs at least.
	Target int `json:"target"`
	Min    int `json:"min"`
	// Revision is the last released one, 0 if there is none. Replicas of another ProcessVersion are replaced.
	Revision       int64 `json:"revision"`
	ProcessVersion int64 `json:"processVersion"`
	// Began is the revision of the last beginning: a higher Revision is an update.
	Began int64 `json:"began"`
	// BeganVersion is the process version of the last beginning.
	BeganVersion int64    `json:"beganVersion"`
	Terms        Recovery `json:"terms"`
	// Startup is how long a replica may take until its first success, Settle how long after that until it is
	// healthy or unhealthy, Stop how long it may take to end.
	Startup time.Duration `json:"startup"`
	Settle  time.Duration `json:"settle,omitempty"`
	Stop    time.Duration `json:"stop"`
	// Strategy is that of the revision; Shows is how long its checks need to show a failure.
	Strategy Strategy      `json:"strategy,omitzero"`
	Shows    time.Duration `json:"shows,omitempty"`
	// Attempts counts failed attempts of this process version; it is 0 once the deployment was available. The next
	// one does not start before NextAttempt, and only replicas created from then on can fail it.
	Attempts    int       `json:"attempts,omitempty"`
	NextAttempt time.Time `json:"nextAttempt,omitzero"`
	// Crashes counts consecutive replica failures in RUNNING. Owed is how many failed replicas are not replaced
	// before NextAttempt; other missing ones are.
	Crashes  int           `json:"crashes,omitempty"`
	Owed     int           `json:"owed,omitempty"`
	Replicas []ReplicaSeen `json:"replicas,omitempty"`
	// Project and Placement define where replicas may run. Nodes are the nodes of live replicas, with what
	// placement selects by, but without their free resources.
	Project   ProjectName   `json:"project,omitempty"`
	Placement PlacementSpec `json:"placement,omitzero"`
	Nodes     []NodeRoom    `json:"nodes,omitempty"`
	// Operations are the open operations.
	Operations []DeploymentOperation `json:"operations,omitempty"`
	// Unconfirmed are nodes that have yet to confirm that nothing runs of replicas that ended without their report.
	// Operations depend on them.
	Unconfirmed []UnconfirmedNode `json:"unconfirmed,omitempty"`
	// Rollout is the one under way, nil without one. Revision is then the stable one.
	Rollout *RolloutSeen `json:"rollout,omitempty"`
}

// UnconfirmedNode may still run ended replicas; ProcessVersion is the earliest of them.
type UnconfirmedNode struct {
	Node           NodeName `json:"node"`
	ProcessVersion int64    `json:"processVersion"`
	// Gone is since when the node is removed or revoked; zero if it is not.
	Gone time.Time `json:"gone,omitzero"`
}

// DeploymentOperation is an open operation of a deployment.
type DeploymentOperation struct {
	ID   OperationID   `json:"id"`
	Kind OperationKind `json:"kind"`
	// ProcessVersion is what a converge or restart waits for, Target what a scale does.
	ProcessVersion int64 `json:"processVersion,omitempty"`
	Target         int   `json:"target,omitempty"`
	Cancelled      bool  `json:"cancelled,omitempty"`
	// Opened is when it was requested.
	Opened time.Time `json:"opened,omitzero"`
	// Deadline is when it fails if it has not ended; zero means no limit.
	Deadline time.Time `json:"deadline,omitzero"`
	// Stale is set if a later request replaced it: another release or another target.
	Stale bool `json:"stale,omitempty"`
}

// LateDeployment explains why an operation on a deployment missed its deadline (X8).
func LateDeployment(message, awaited string) string {
	s := "it did not finish in time: " + message
	if awaited != "" {
		s += "; waiting for: " + awaited
	}
	return s
}

// OperationTerms is the input for the time limit of an operation on a deployment.
type OperationTerms struct {
	Kind OperationKind
	// Replace is how many replicas have to be replaced, one by one.
	Replace int
	// Startup is how long a replica may take until its first success, Check how long after that until it is
	// healthy, Stop how long to end; each is the longest of all running revisions.
	Startup, Check, Stop time.Duration
	// MinHealthy is how long a new replica must be routable until it is proven.
	MinHealthy time.Duration
	// Intervals are those of the steps of a canary.
	Intervals time.Duration
}
