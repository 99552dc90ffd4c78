package fleet

import "time"

// ReplicaID names one replica for ever: 12 hex digits.
type ReplicaID string

// ValidReplicaID says whether s has the form of a replica's id.
func ValidReplicaID(s string) bool { return isHex(s, 12) }

// ReplicaState is where a replica stands (S46).
type ReplicaState string

// A replica ends TERMINATED; nothing revives it.
const (
	ReplicaStarting    ReplicaState = "STARTING"
	ReplicaHealthy     ReplicaState = "HEALTHY"
	ReplicaUnhealthy   ReplicaState = "UNHEALTHY"
	ReplicaTerminating ReplicaState = "TERMINATING" // its node is to end it
	ReplicaTerminated  ReplicaState = "TERMINATED"
)

// ReplicaStates lists them; the SQL CHECK is compared with it.
func ReplicaStates() []ReplicaState {
	return []ReplicaState{ReplicaStarting, ReplicaHealthy, ReplicaUnhealthy, ReplicaTerminating, ReplicaTerminated}
}

// ReplicaEvent moves a replica.
type ReplicaEvent string

// What nodes report, and what is decided.
const (
	ReplicaPassed    ReplicaEvent = "passed"    // enough probes in a row succeeded
	ReplicaFailed    ReplicaEvent = "failed"    // enough failed, it ended by itself, or it did not start in time
	ReplicaRestarted ReplicaEvent = "restarted" // its node started it again
	ReplicaTerminate ReplicaEvent = "terminate" // it is to end
	ReplicaEnded     ReplicaEvent = "ended"     // nothing of it runs any more, or its node will not run it any more
)

// ReplicaEvents lists them.
func ReplicaEvents() []ReplicaEvent {
	return []ReplicaEvent{ReplicaPassed, ReplicaFailed, ReplicaRestarted, ReplicaTerminate, ReplicaEnded}
}

// replicaMachine has every arrow of a replica (S46 to S56).
var replicaMachine = machine[ReplicaState, ReplicaEvent]{
	{ReplicaStarting, ReplicaPassed, ReplicaHealthy},
	{ReplicaStarting, ReplicaFailed, ReplicaUnhealthy},
	{ReplicaStarting, ReplicaRestarted, ReplicaStarting},
	{ReplicaStarting, ReplicaTerminate, ReplicaTerminating},
	{ReplicaHealthy, ReplicaFailed, ReplicaUnhealthy},
	{ReplicaHealthy, ReplicaRestarted, ReplicaStarting},
	{ReplicaHealthy, ReplicaTerminate, ReplicaTerminating},
	{ReplicaUnhealthy, ReplicaPassed, ReplicaHealthy},
	{ReplicaUnhealthy, ReplicaRestarted, ReplicaStarting},
	{ReplicaUnhealthy, ReplicaTerminate, ReplicaTerminating},
	{ReplicaTerminating, ReplicaEnded, ReplicaTerminated},
}

// Next is the only way to move a replica; an arrow that is not there is illegal_state.
func (s ReplicaState) Next(on ReplicaEvent) (ReplicaState, error) {
	if to, ok := replicaMachine.next(s, on); ok {
		return to, nil
	}
	return s, Errorf(IllegalState, "a replica that is %s has no arrow for %s", s, on)
}

// Live says that the replica counts towards its deployment.
func (s ReplicaState) Live() bool {
	return s == ReplicaStarting || s == ReplicaHealthy || s == ReplicaUnhealthy
}

// ReplicaPhase is what a node says of a replica's process.
type ReplicaPhase string

// A replica is prepared (its definition fetched, its image pulled), runs, and ends: by itself,
// as it was told, or because it could not be kept running.
const (
	PhasePreparing ReplicaPhase = "preparing"
	PhaseRunning   ReplicaPhase = "running"
	PhaseStopping  ReplicaPhase = "stopping"
	PhaseExited    ReplicaPhase = "exited"  // by itself; nothing of it runs
	PhaseFailed    ReplicaPhase = "failed"  // it was given up here: it did not start, or restarts did not help
	PhaseStopped   ReplicaPhase = "stopped" // as it was told; nothing of it runs
)

// ReplicaPhases lists them.
func ReplicaPhases() []ReplicaPhase {
	return []ReplicaPhase{PhasePreparing, PhaseRunning, PhaseStopping, PhaseExited, PhaseFailed, PhaseStopped}
}

// Over says that nothing of the replica runs, and that its node will not start it again by itself.
func (p ReplicaPhase) Over() bool {
	return p == PhaseExited || p == PhaseFailed || p == PhaseStopped
}

// ReplicaHealth is what probes say of a replica (S130).
type ReplicaHealth string

// Degraded is derived where it is read: the last word is old, because the replica's node is not
// heard. It says nothing of the replica itself.
const (
	HealthNotChecked ReplicaHealth = "NOT_CHECKED"
	HealthHealthy    ReplicaHealth = "HEALTHY"
	HealthUnhealthy  ReplicaHealth = "UNHEALTHY"
	HealthDegraded   ReplicaHealth = "DEGRADED"
)

// ReplicaHealths lists those that are stored; the SQL CHECK is compared with it.
func ReplicaHealths() []ReplicaHealth {
	return []ReplicaHealth{HealthNotChecked, HealthHealthy, HealthUnhealthy}
}

// ReplicaStatus is what a node reports of one replica.
type ReplicaStatus struct {
	ID     ReplicaID     `json:"id"`
	Phase  ReplicaPhase  `json:"phase"`
	Health ReplicaHealth `json:"health"`
	// Restarts counts the starts after the first.
	Restarts int `json:"restarts,omitempty"`
	// Endpoint is host:port of its first port, Ports all of them by name.
	Endpoint string         `json:"endpoint,omitempty"`
	Ports    map[string]int `json:"ports,omitempty"`
	PID      int            `json:"pid,omitempty"`
	// Reason is a stable word, Message a sentence without output or secrets.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Age is how long it has been so.
	Age time.Duration `json:"age,omitempty"`
	// Deployment and Revision are what the node knows of it, told in complete reports and of what its set
	// does not list.
	Deployment DeploymentName `json:"deployment,omitempty"`
	Revision   int64          `json:"revision,omitempty"`
}

// The reasons that nodes give.
const (
	ReasonExited          = "exited"           // with its exit in the message
	ReasonNotStarted      = "not_started"      // its program could not be run
	ReasonStartupDeadline = "startup_deadline" // it was not healthy in time
	ReasonProbesFailed    = "probes_failed"    // unhealthy_threshold in a row
	ReasonRestartsUsedUp  = "restarts_used_up" // it failed again after the last restart
	ReasonNoDefinition    = "no_definition"    // its definition was not to be had, or is not understood
	ReasonNoDriver        = "no_driver"        // the node has no driver of that name
	ReasonNoImage         = "no_image"         // its image was not to be had
	ReasonOutOfMemory     = "out_of_memory"
	ReasonPortTaken       = "port_taken"
	ReasonGPUTaken        = "gpu_taken"
	ReasonNodeStopped     = "node_stopped" // its node was stopped, and ended it
	// ReasonIsolationMissing: the node cannot keep the commands of its project from others.
	ReasonIsolationMissing = string(IsolationMissing)
)

// ReplicasReport is what a node says of its replicas: what changed, or all (Complete), by a set
// that it had then.
type ReplicasReport struct {
	Node NodeName `json:"node"`
	// Connection is the one that it came by. A report of one that has ended is taken no more: a
	// newer one may have been.
	Connection ConnectionID `json:"connection"`
	// Set is the one that was taken last. One of an older era says nothing of what this era listed.
	Set      SetVersion `json:"set"`
	Complete bool       `json:"complete,omitempty"`
	// Whole is set of a complete one when nothing else can be there: not before the node read a set, nor
	// while what an earlier agent started may be hidden by a driver that does not answer.
	Whole    bool            `json:"whole,omitempty"`
	Replicas []ReplicaStatus `json:"replicas"`
}

// ReplicaSeen is a replica as the decision about its deployment looks at it.
type ReplicaSeen struct {
	ID             ReplicaID     `json:"id"`
	Node           NodeName      `json:"node"`
	Site           SiteName      `json:"site"`
	State          ReplicaState  `json:"state"`
	Health         ReplicaHealth `json:"health"`
	Phase          ReplicaPhase  `json:"phase,omitempty"` // "" before its node said anything
	Revision       int64         `json:"revision"`
	ProcessVersion int64         `json:"processVersion"`
	Restarts       int           `json:"restarts,omitempty"`
	CreatedAt      time.Time     `json:"createdAt"`
	// Since is when State last changed, or its node last started it anew.
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	// Stop is the time between the polite and the forced stop of its own revision.
	Stop time.Duration `json:"stop,omitempty"`
	// StopBy is when a TERMINATING one is taken for gone although its node has not said so.
	StopBy time.Time `json:"stopBy,omitzero"`
	// Unheard is since when its node is not connected, zero while it is; HeardSince is since when it is.
	// Leave says that the node is drained, removed or revoked: what runs there is to run elsewhere. Lost says that the node
	// listed what it has, and this was not in it.
	Unheard    time.Time `json:"unheard,omitzero"`
	HeardSince time.Time `json:"heardSince,omitzero"`
	Leave      bool      `json:"leave,omitempty"`
	Gone       bool      `json:"gone,omitempty"` // its node is removed or revoked: nobody will say that it ended
	Lost       bool      `json:"lost,omitempty"`
}

// NodeReplica is one line of a node's set: what it is to run, or to end.
type NodeReplica struct {
	ID             ReplicaID      `json:"id"`
	Deployment     DeploymentName `json:"deployment"`
	Revision       int64          `json:"revision"`
	ProcessVersion int64          `json:"processVersion"`
	// Definition is the hash of the body to fetch; the node runs exactly that.
	Definition Hash `json:"definition"`
	// Run is false for one that is to end.
	Run bool `json:"run"`
	// StopSeconds is the time between the polite and the forced stop: of this very revision.
	StopSeconds int `json:"stopSeconds"`
	// Project is that of the deployment.
	Project ProjectName `json:"project"`
}

// NodeReplicas is the set of one node: all that it is to run, and by name what it is to end. What it
// does not list is not ended: the node says that it has it (X3).
type NodeReplicas struct {
	Era     int64 `json:"era"`
	Version int64 `json:"version"`
	// Count is how many lines the region wrote: a set that was cut short is not acted upon.
	Count    int           `json:"count"`
	Replicas []NodeReplica `json:"replicas"`
}

// MaxNodeReplicas bounds a node's set; MaxReportedReplicas a complete report, which is one message and
// may hold as many again that the set does not list.
const (
	MaxNodeReplicas     = 2000
	MaxReportedReplicas = 2 * MaxNodeReplicas
)

// UnlistedSeen is what the region knows of a replica that a node has, and that is no live one there.
type UnlistedSeen struct {
	// Named is set while the node's set names it as one to end, Listed while it waits for an operator.
	Named, Listed bool
	// Ended says that the region had it there, and ended it; Over that nothing of it runs any more.
	Ended, Over bool
}
