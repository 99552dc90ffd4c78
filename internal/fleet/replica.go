package fleet

import "time"

// ReplicaID identifies one replica for ever: 12 hex digits.
type ReplicaID string

// ValidReplicaID reports whether s has the form of a replica id.
func ValidReplicaID(s string) bool { return isHex(s, 12) }

// ReplicaState is the state of a replica (S46).
type ReplicaState string

// TERMINATED is final.
const (
	ReplicaStarting    ReplicaState = "STARTING"
	ReplicaHealthy     ReplicaState = "HEALTHY"
	ReplicaUnhealthy   ReplicaState = "UNHEALTHY"
	ReplicaTerminating ReplicaState = "TERMINATING" // its node has to end it
	ReplicaTerminated  ReplicaState = "TERMINATED"
)

// ReplicaStates lists all states; a test compares it with the SQL CHECK.
func ReplicaStates() []ReplicaState {
	return []ReplicaState{ReplicaStarting, ReplicaHealthy, ReplicaUnhealthy, ReplicaTerminating, ReplicaTerminated}
}

// ReplicaEvent moves a replica.
type ReplicaEvent string

// Events from reports and from decisions.
const (
	ReplicaPassed    ReplicaEvent = "passed"    // enough consecutive probes succeeded
	ReplicaFailed    ReplicaEvent = "failed"    // enough probes failed, it ended by itself, or it did not start in time
	ReplicaRestarted ReplicaEvent = "restarted" // its node started it again
	ReplicaTerminate ReplicaEvent = "terminate" // it has to end
	ReplicaEnded     ReplicaEvent = "ended"     // it no longer runs, or its node will no longer run it
)

// ReplicaEvents lists all events.
func ReplicaEvents() []ReplicaEvent {
	return []ReplicaEvent{ReplicaPassed, ReplicaFailed, ReplicaRestarted, ReplicaTerminate, ReplicaEnded}
}

// replicaMachine has every transition of a replica (S46 to S56).
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

// Next is the only way to move a replica; a missing transition is illegal_state.
func (s ReplicaState) Next(on ReplicaEvent) (ReplicaState, error) {
	if to, ok := replicaMachine.next(s, on); ok {
		return to, nil
	}
	return s, Errorf(IllegalState, "a replica in state %s does not allow %s", s, on)
}

// Live reports whether the replica counts towards its deployment.
func (s ReplicaState) Live() bool {
	return s == ReplicaStarting || s == ReplicaHealthy || s == ReplicaUnhealthy
}

// ReplicaPhase is a node's report about a replica's process.
type ReplicaPhase string

// A replica is prepared, started, runs, and ends: by itself, as requested, or because it could not be kept running.
const (
	PhasePreparing ReplicaPhase = "preparing" // its definition is downloaded, its image pulled
	PhasePreStart  ReplicaPhase = "pre_start" // its preStart commands run
	PhaseLaunching ReplicaPhase = "launching" // its start failed, and its node retries it
	PhaseRunning   ReplicaPhase = "running"
	PhaseStopping  ReplicaPhase = "stopping"
	PhaseExited    ReplicaPhase = "exited"  // it ended by itself
	PhaseFailed    ReplicaPhase = "failed"  // given up on this node: it did not start, or restarts did not help
	PhaseStopped   ReplicaPhase = "stopped" // it ended as requested
)

// ReplicaPhases lists all phases.
func ReplicaPhases() []ReplicaPhase {
	return []ReplicaPhase{PhasePreparing, PhasePreStart, PhaseLaunching, PhaseRunning, PhaseStopping, PhaseExited, PhaseFailed, PhaseStopped}
}

// Known is the phase in the words of the build before, which refuses others: all before the program runs is preparing there.
func (p ReplicaPhase) Known() ReplicaPhase {
	if p == PhasePreStart || p == PhaseLaunching {
		return PhasePreparing
	}
	return p
}

// Exactly is the phase of which a build says Known, and beside it exact, if it is one that the build before does not know.
func (p ReplicaPhase) Exactly(exact ReplicaPhase) ReplicaPhase {
	if exact.Known() == p && exact != "" {
		return exact
	}
	return p
}

// Exact is the word beside Known, "" where that says all.
func (p ReplicaPhase) Exact() ReplicaPhase {
	if p.Known() == p {
		return ""
	}
	return p
}

// Over reports whether the replica no longer runs and its node will not start it again by itself.
func (p ReplicaPhase) Over() bool {
	return p == PhaseExited || p == PhaseFailed || p == PhaseStopped
}

// ReplicaHealth is the result of a replica's probes (S130).
type ReplicaHealth string

// Degraded is derived when it is read: the last report is old, because the replica's node is disconnected. It is
// not a statement about the replica itself.
const (
	HealthNotChecked ReplicaHealth = "NOT_CHECKED"
	HealthHealthy    ReplicaHealth = "HEALTHY"
	HealthUnhealthy  ReplicaHealth = "UNHEALTHY"
	HealthDegraded   ReplicaHealth = "DEGRADED"
)

// ReplicaHealths lists the stored ones; a test compares it with the SQL CHECK.
func ReplicaHealths() []ReplicaHealth {
	return []ReplicaHealth{HealthNotChecked, HealthHealthy, HealthUnhealthy}
}

// ReplicaStatus is a node's report of one replica.
type ReplicaStatus struct {
	ID     ReplicaID     `json:"id"`
	Phase  ReplicaPhase  `json:"phase"`
	Health ReplicaHealth `json:"health"`
	// Unready is set while it runs and its readiness check has not passed, or fails. It is never set without such a check,
	// nor by a node of the build before.
	Unready bool `json:"unready,omitempty"`
	// Restarts counts the starts after the first.
	Restarts int `json:"restarts,omitempty"`
	// Endpoint is host:port of its first port, Ports all of them by name.
	Endpoint string         `json:"endpoint,omitempty"`
	Ports    map[string]int `json:"ports,omitempty"`
	PID      int            `json:"pid,omitempty"`
	// Reason is a stable word, Message a sentence without output or secrets.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Age is how long it has been in this state.
	Age time.Duration `json:"age,omitempty"`
	// Deployment and Revision are what the node knows of it. They are sent in complete reports, and for what its
	// set does not list.
	Deployment DeploymentName `json:"deployment,omitempty"`
	Revision   int64          `json:"revision,omitempty"`
	// ProcessVersion and Definition (its ShortHash) are sent with Revision by nodes that send digests; others leave
	// Definition empty.
	ProcessVersion int64  `json:"processVersion,omitempty"`
	Definition     string `json:"definition,omitempty"`
	// HealthFailure and ReadinessFailure are why its checks fail, nil for one that does not, and from nodes of the build
	// before.
	HealthFailure    *ReportedFailure `json:"healthFailure,omitempty"`
	ReadinessFailure *ReportedFailure `json:"readinessFailure,omitempty"`
}

// FailsChecks reports whether a check fails in the report.
func (s ReplicaStatus) FailsChecks() bool { return s.HealthFailure != nil || s.ReadinessFailure != nil }

// FailedAt are the checks that fail, as reported at an instant.
func (s ReplicaStatus) FailedAt(now time.Time) FailedChecks {
	return FailedChecks{Health: s.HealthFailure.at(now), Readiness: s.ReadinessFailure.at(now)}
}

// The reasons that nodes report.
const (
	ReasonExited          = "exited"           // with its exit in the message
	ReasonNotStarted      = "not_started"      // its program could not be run
	ReasonStartupDeadline = "startup_deadline" // it was not healthy in time
	ReasonProbesFailed    = "probes_failed"    // unhealthy_threshold in a row
	ReasonRestartsUsedUp  = "restarts_used_up" // it failed again after the last restart
	ReasonNoDefinition    = "no_definition"    // its definition could not be fetched or understood
	ReasonNoDriver        = "no_driver"        // the node has no driver of that name
	ReasonNoImage         = "no_image"         // its image could not be pulled
	ReasonOutOfMemory     = "out_of_memory"
	ReasonPortTaken       = "port_taken"
	ReasonGPUTaken        = "gpu_taken"
	ReasonNodeStopped     = "node_stopped" // its node was stopped and ended it
	// ReasonIsolationMissing: the node cannot isolate the commands of its project from others.
	ReasonIsolationMissing = string(IsolationMissing)
)

// ReplicasReport is a node's report of its replicas: changes, or all of them (Complete), relative to a set.
type ReplicasReport struct {
	Node NodeName `json:"node"`
	// Connection is the one that sent it. A report from an ended connection is ignored: a newer one may have
	// arrived.
	Connection ConnectionID `json:"connection"`
	// Set is the last one that the node took. A report for an older era proves nothing about this era's set.
	Set      SetVersion `json:"set"`
	Complete bool       `json:"complete,omitempty"`
	// Whole is set for a complete report if the node can have no other replicas. It is not set before the node has
	// read a set, nor while a driver that does not answer may hide what an earlier agent started.
	Whole    bool            `json:"whole,omitempty"`
	Replicas []ReplicaStatus `json:"replicas"`
	// Digest, unless it is nil, is sent instead of Replicas.
	Digest *ReplicasDigest `json:"digest,omitempty"`
}

// ReplicaSeen is a replica as input of the decision about its deployment.
type ReplicaSeen struct {
	ID             ReplicaID     `json:"id"`
	Node           NodeName      `json:"node"`
	Site           SiteName      `json:"site"`
	State          ReplicaState  `json:"state"`
	Health         ReplicaHealth `json:"health"`
	Phase          ReplicaPhase  `json:"phase,omitempty"` // "" before its node's first report
	Revision       int64         `json:"revision"`
	ProcessVersion int64         `json:"processVersion"`
	Restarts       int           `json:"restarts,omitempty"`
	CreatedAt      time.Time     `json:"createdAt"`
	// Since is when State last changed, or its node last restarted it.
	Since time.Time `json:"since"`
	// Unready is as its node reported it, ReadySince when that last ended, zero if it never was unready.
	Unready    bool      `json:"unready,omitempty"`
	ReadySince time.Time `json:"readySince,omitzero"`
	// Worked is when the process started that was HEALTHY last, zero if none was.
	Worked  time.Time `json:"worked,omitzero"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	// Failing describes its checks that fail, or did when it ended, "" for none.
	Failing string `json:"failing,omitempty"`
	// Stop is the time between the graceful and the forced stop of its revision.
	Stop time.Duration `json:"stop,omitempty"`
	// StopBy is when a TERMINATING replica counts as ended although its node has not reported it.
	StopBy time.Time `json:"stopBy,omitzero"`
	// Unheard is since when its node is disconnected, zero while it is connected; HeardSince is since when it is
	// connected. Leave is set if the node is drained, removed or revoked, so its replicas must run elsewhere. Lost
	// is set if the node reported its replicas and this one was not among them.
	Unheard    time.Time `json:"unheard,omitzero"`
	HeardSince time.Time `json:"heardSince,omitzero"`
	Leave      bool      `json:"leave,omitempty"`
	LeaveBy    time.Time `json:"leaveBy,omitzero"` // the deadline of the drain, zero without one under way
	Gone       bool      `json:"gone,omitempty"`   // its node is removed or revoked, so its end is never reported
	Lost       bool      `json:"lost,omitempty"`
}

// Routable reports whether it may serve: it is HEALTHY, and ready if it has a readiness check (F72).
func (r ReplicaSeen) Routable() bool { return r.State == ReplicaHealthy && !r.Unready }

// NodeReplica is one line of a node's set: a replica to run or to end.
type NodeReplica struct {
	ID             ReplicaID      `json:"id"`
	Deployment     DeploymentName `json:"deployment"`
	Revision       int64          `json:"revision"`
	ProcessVersion int64          `json:"processVersion"`
	// Definition is the hash of the body to fetch; the node runs exactly that.
	Definition Hash `json:"definition"`
	// Run is false if it has to end.
	Run bool `json:"run"`
	// StopSeconds is the time between the graceful and the forced stop, of the last release that it obeys.
	StopSeconds int `json:"stopSeconds"`
	// Terms are those that a later release gave it in place; without them its definition's apply.
	Terms ReplicaTerms `json:"terms,omitzero"`
	// Project is the deployment's project.
	Project ProjectName `json:"project"`
}

// NodeReplicas is the set of one node: all replicas to run, and by name those to end. The node does not end a
// replica that the set does not list: it reports it (X3).
type NodeReplicas struct {
	Era     int64 `json:"era"`
	Version int64 `json:"version"`
	// Count is how many lines the region wrote: a truncated set is ignored.
	Count    int           `json:"count"`
	Replicas []NodeReplica `json:"replicas"`
}

// MaxNodeReplicas limits a node's set; MaxReportedReplicas a complete report, which is one message and may contain
// as many again that the set does not list.
const (
	MaxNodeReplicas     = 2000
	MaxReportedReplicas = 2 * MaxNodeReplicas
)

// UnlistedSeen is what the region knows of a replica that a node has and that is not live there.
type UnlistedSeen struct {
	// Named is set while the node's set lists it as one to end, Listed while it waits for an operator.
	Named, Listed bool
	// Ended is set if the region placed it there and ended it; Over if it no longer runs.
	Ended, Over bool
}
