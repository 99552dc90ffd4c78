package fleet

import (
	"slices"
	"time"
)

// DeploymentName names a deployment: a DNS label, unique in a region.
type DeploymentName string

// PoolName names a pool: a DNS label, unique in a region.
type PoolName string

// The kinds of declared objects that have to do with deployments.
const (
	KindDeployment ObjectKind = "deployment"
	KindPool       ObjectKind = "pool"
)

// What is asked of a deployment. Their operations name the deployment, and no site.
const (
	OperationConverge OperationKind = "converge" // run what was released
	OperationScale    OperationKind = "scale"
	OperationRestart  OperationKind = "restart"
	OperationDestroy  OperationKind = "destroy"
)

// OfDeployment says that an operation of the kind is of a deployment.
func (k OperationKind) OfDeployment() bool {
	switch k { //nolint:exhaustive // all other kinds are of something else
	case OperationConverge, OperationScale, OperationRestart, OperationDestroy:
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

// DeploymentState is where a deployment stands (S33).
type DeploymentState string

// A deployment that is to be stopped is PENDING; one that is to have no replica is RUNNING.
const (
	DeploymentPending      DeploymentState = "PENDING"      // nothing of it is begun
	DeploymentProvisioning DeploymentState = "PROVISIONING" // its first replicas start
	DeploymentRunning      DeploymentState = "RUNNING"      // it had as many healthy replicas as it needs at least
	DeploymentDestroying   DeploymentState = "DESTROYING"   // its replicas end
	DeploymentTerminated   DeploymentState = "TERMINATED"   // nothing of it is left but its record
	DeploymentError        DeploymentState = "ERROR"        // it was given up; an update or a delete goes on
)

// DeploymentStates lists them; the SQL CHECK is compared with it.
func DeploymentStates() []DeploymentState {
	return []DeploymentState{
		DeploymentPending, DeploymentProvisioning, DeploymentRunning, DeploymentDestroying, DeploymentTerminated, DeploymentError,
	}
}

// DeploymentEvent moves a deployment.
type DeploymentEvent string

// What the decision about a deployment comes to, and what people ask for.
const (
	DeploymentBegun         DeploymentEvent = "begun"          // its first replicas were created
	DeploymentAvailable     DeploymentEvent = "available"      // as many are healthy as it needs
	DeploymentAttemptFailed DeploymentEvent = "attempt_failed" // it tries again after a while
	DeploymentGivenUp       DeploymentEvent = "given_up"       // no attempt is left
	DeploymentUpdated       DeploymentEvent = "updated"        // something else is to run, or the same once more
	DeploymentStopped       DeploymentEvent = "stopped"        // nothing is to run
	DeploymentDeleted       DeploymentEvent = "deleted"
	DeploymentGone          DeploymentEvent = "gone"       // its last replica ended
	DeploymentRedeclared    DeploymentEvent = "redeclared" // declared again after its end
)

// DeploymentEvents lists them.
func DeploymentEvents() []DeploymentEvent {
	return []DeploymentEvent{
		DeploymentBegun, DeploymentAvailable, DeploymentAttemptFailed, DeploymentGivenUp, DeploymentUpdated,
		DeploymentStopped, DeploymentDeleted, DeploymentGone, DeploymentRedeclared,
	}
}

// deploymentMachine has every arrow of a deployment (S33 to S45).
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

// Next is the only way to move a deployment; an arrow that is not there is illegal_state (S42).
func (s DeploymentState) Next(on DeploymentEvent) (DeploymentState, error) {
	if to, ok := deploymentMachine.next(s, on); ok {
		return to, nil
	}
	return s, Errorf(IllegalState, "a deployment that is %s has no arrow for %s", s, on)
}

// DeploymentSeen is all that the decision about a deployment looks at.
type DeploymentSeen struct {
	// At is when the database looked; times are by its clock.
	At      time.Time       `json:"at"`
	Name    DeploymentName  `json:"name"`
	State   DeploymentState `json:"state"`
	Reason  string          `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
	// Deleting says that this declaration is to end; Redeclared that another of the same name waits
	// for that.
	Deleting   bool `json:"deleting,omitempty"`
	Redeclared bool `json:"redeclared,omitempty"`
	// Stopped is the declared state: nothing is to run.
	Stopped bool `json:"stopped,omitempty"`
	// Target is how many replicas there are to be, Min how many it needs at least.
	Target int `json:"target"`
	Min    int `json:"min"`
	// Revision is what was released last, 0 when nothing was. Replicas of another ProcessVersion
	// are replaced.
	Revision       int64 `json:"revision"`
	ProcessVersion int64 `json:"processVersion"`
	// Began is the revision that was last begun with: a higher Revision is an update.
	Began int64 `json:"began"`
	// BeganVersion is the process version that goes with it.
	BeganVersion int64    `json:"beganVersion"`
	Terms        Recovery `json:"terms"`
	// Startup is how long a replica may take until its first success, Settle until it is healthy or not after
	// that, Stop how long to end.
	Startup time.Duration `json:"startup"`
	Settle  time.Duration `json:"settle,omitempty"`
	Stop    time.Duration `json:"stop"`
	// Attempts counts the failed ones of this process version, and is 0 once it was available; no
	// further one begins before NextAttempt, and only what is made from then on can fail it.
	Attempts    int       `json:"attempts,omitempty"`
	NextAttempt time.Time `json:"nextAttempt,omitzero"`
	// Crashes counts replicas that failed in a row in RUNNING. Owed is how many of those that failed
	// are not made anew before NextAttempt; what is missing besides them is.
	Crashes  int           `json:"crashes,omitempty"`
	Owed     int           `json:"owed,omitempty"`
	Replicas []ReplicaSeen `json:"replicas,omitempty"`
	// Project and Placement say where replicas may run; Nodes are those of live ones, with what placement
	// chooses by, and nothing of what they have free.
	Project   ProjectName   `json:"project,omitempty"`
	Placement PlacementSpec `json:"placement,omitzero"`
	Nodes     []NodeRoom    `json:"nodes,omitempty"`
	// Operations are those that run.
	Operations []DeploymentOperation `json:"operations,omitempty"`
	// Unconfirmed are nodes that have not said yet that nothing runs of what has ended there without their
	// word. They are looked at for operations.
	Unconfirmed []UnconfirmedNode `json:"unconfirmed,omitempty"`
}

// UnconfirmedNode may run on what has ended; ProcessVersion is the earliest of it.
type UnconfirmedNode struct {
	Node           NodeName `json:"node"`
	ProcessVersion int64    `json:"processVersion"`
	// Gone is since when the node is removed or revoked; zero when it is not.
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
	// Opened is when it was asked for.
	Opened time.Time `json:"opened,omitzero"`
	// Deadline is when it fails if it has not ended; zero when it may take any time.
	Deadline time.Time `json:"deadline,omitzero"`
	// Stale says that a later request took its place: another release, another target.
	Stale bool `json:"stale,omitempty"`
}

// LateDeployment says why an operation on a deployment did not end in time (X8).
func LateDeployment(message, awaited string) string {
	s := "it did not come about in time: " + message
	if awaited != "" {
		s += "; awaited: " + awaited
	}
	return s
}

// OperationTerms is what the time is made of that an operation on a deployment may take.
type OperationTerms struct {
	Kind OperationKind
	// Replace is how many replicas there are to be replaced, one by one.
	Replace int
	// Startup is how long a replica may take until its first success, Check until it is healthy after
	// that, Stop to end, of any revision that runs.
	Startup, Check, Stop time.Duration
}

// ConditionStatus is whether something holds.
type ConditionStatus string

// The three answers.
const (
	ConditionTrue    ConditionStatus = "true"
	ConditionFalse   ConditionStatus = "false"
	ConditionUnknown ConditionStatus = "unknown"
)

// DeploymentCondition is one of available, progressing and degraded, with a stable reason (X18).
type DeploymentCondition struct {
	Type    string          `json:"type"`
	Status  ConditionStatus `json:"status"`
	Reason  string          `json:"reason"`
	Message string          `json:"message,omitempty"`
	// Since is when the status changed.
	Since time.Time `json:"since"`
}

// ConditionsSince dates conditions: one whose status stays keeps its time, the others are of now. It says
// whether anything but the time is another.
func ConditionsSince(was, conditions []DeploymentCondition, now time.Time) (dated []DeploymentCondition, changed bool) {
	dated = slices.Clone(conditions)
	changed = len(was) != len(conditions)
	for i := range dated {
		c := &dated[i]
		c.Since = now
		at := slices.IndexFunc(was, func(w DeploymentCondition) bool { return w.Type == c.Type && w.Status == c.Status })
		if at >= 0 {
			c.Since = was[at].Since
		}
		changed = changed || at < 0 || was[at].Reason != c.Reason || was[at].Message != c.Message
	}
	return dated, changed
}
