package api

import (
	"time"
)

// DeploymentPut declares a deployment: what one replica runs, how many there are, and where.
// Durations are seconds.
type DeploymentPut struct {
	Project string            `json:"project,omitempty"`
	Service string            `json:"service,omitempty" doc:"of the project; it never changes"`
	Labels  map[string]string `json:"labels,omitempty"`
	Type    DeploymentType    `json:"type,omitempty" enum:"process,cmd,vllm,tgi,sglang,nim,max,custom" doc:"process by default, which runs command as it is; cmd has port 8000 unless others are declared"`
	Driver  Driver            `json:"driver,omitempty" enum:"process,docker" doc:"docker where there is an image, else process"`
	Image   string            `json:"image,omitempty"`
	Command []string          `json:"command,omitempty" doc:"in a container in place of the image's ENTRYPOINT; in it, in args, env and files, ${PORT}, ${PORT_NAME} and ${HOLDFAST_…} are replaced; $$ is a dollar"`
	Args    []string          `json:"args,omitempty" doc:"follow command; without command they are for the image's ENTRYPOINT, or are added to those of the type where the first is an option"`
	Env     map[string]string `json:"env,omitempty"`
	Files   []DeploymentFile  `json:"files,omitempty" doc:"written below the replica's working directory before it starts; HOLDFAST_CONFIG names the first"`
	Ports   []ProcessPort     `json:"ports,omitempty" doc:"the first gets traffic and probes; port 0 is a free one of the node"`
	Health  *HealthCheck      `json:"health,omitempty"`
	// Readiness is a second check of the same form: while it fails, a replica is not routable, and nothing else follows.
	Readiness *HealthCheck `json:"readiness,omitempty" doc:"while it fails, a replica is not routable, and nothing else follows"`
	Startup   *Startup     `json:"startup,omitempty"`
	// StopSeconds is the time between SIGTERM and SIGKILL.
	StopSeconds     int                 `json:"stopSeconds,omitempty"`
	PreStart        [][]string          `json:"preStart,omitempty" doc:"commands that must succeed before command starts"`
	SharedMemory    Memory              `json:"sharedMemory,omitempty" doc:"the size of a container's /dev/shm"`
	Model           string              `json:"model,omitempty" doc:"what a model server serves"`
	ModelDefinition *ModelDefinition    `json:"modelDefinition,omitempty" doc:"of type custom"`
	Resources       DeploymentResources `json:"resources,omitzero"`
	Replicas        ReplicaCounts       `json:"replicas,omitzero"`
	Placement       DeploymentPlacement `json:"placement,omitzero"`
	State           DesiredState        `json:"state,omitempty" enum:"started,stopped"`
	Recovery        Recovery            `json:"recovery,omitzero"`
	Strategy        Strategy            `json:"strategy,omitzero" doc:"how a newer revision replaces the one that runs"`
	Update          UpdateMode          `json:"update,omitempty" enum:"versioned" doc:"versioned: only changes of state, memory, ports and the type and endpoint of the check replace what runs; others wait for a restart"`
	// MemoryKeepsVersion has those wait as well.
	MemoryKeepsVersion bool     `json:"memoryKeepsVersion,omitempty" doc:"with update versioned: as long as memory is declared, every change waits for a restart"`
	SecretEnv          []string `json:"secretEnv,omitempty" doc:"names of env whose values are shown redacted"`
	Reason             string   `json:"reason,omitempty"`
}

// DeploymentFile is a file that each replica finds. Its content is never shown again: the
// spec names it by hash.
type DeploymentFile struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

// DeploymentResources are what one replica takes of its node.
type DeploymentResources struct {
	CPU    float64 `json:"cpu,omitempty" doc:"cores"`
	Memory Memory  `json:"memory,omitempty"`
	GPUs   int     `json:"gpus,omitempty"`
}

// DeploymentPlacement selects the nodes that may run replicas: at any of Sites, in any of Pools, with
// all Labels, offering all Modules; each is any when it is empty.
type DeploymentPlacement struct {
	Sites   []SiteName        `json:"sites,omitempty"`
	Pools   []PoolName        `json:"pools,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Modules []string          `json:"modules,omitempty"`
	Spread  Spread            `json:"spread,omitempty" enum:"sites,nodes,none" doc:"sites by default"`
}

// PoolPut declares a pool: nodes of any of Sites, any of Nodes, with all Labels.
type PoolPut struct {
	Project     string            `json:"project,omitempty"`
	Service     string            `json:"service,omitempty" doc:"of the project; it never changes"`
	Labels      map[string]string `json:"labels,omitempty"`
	Sites       []SiteName        `json:"sites,omitempty"`
	Nodes       []NodeName        `json:"nodes,omitempty"`
	NodeLabels  map[string]string `json:"nodeLabels,omitempty" doc:"that nodes of the pool have, all of them"`
	MaxReplicas int               `json:"maxReplicas,omitempty" doc:"on each node of the pool, 0 for no bound"`
}

// DeploymentStatus is the status of a deployment: where it stands, why, and what it waits for
// until when.
type DeploymentStatus struct {
	State     DeploymentState `json:"state"`
	Reason    string          `json:"reason,omitempty"`
	Message   string          `json:"message,omitempty"`
	Since     *time.Time      `json:"since,omitempty" doc:"of the state"`
	Available bool            `json:"available"`
	// Target is how many replicas there are to be now: scaling changes it, the spec bounds it.
	Target   int           `json:"target"`
	Replicas ReplicaTotals `json:"replicas"`
	// Revision is what should run. DeployingRevision is the revision that replaces it, or equal to it until every
	// replica runs it.
	Revision           int64           `json:"revision"`
	DeployingRevision  int64           `json:"deployingRevision,omitempty"`
	StableRevision     int64           `json:"stableRevision,omitempty" doc:"to which the rollout of its next start would return, if it is not Revision"`
	ObservedGeneration int64           `json:"observedGeneration" doc:"of the spec that Revision is of"`
	ProcessVersion     int64           `json:"processVersion"`
	Rollout            *Rollout        `json:"rollout,omitempty" doc:"the one under way"`
	PendingRestart     *PendingRestart `json:"pendingRestart,omitempty" doc:"what was released and waits for a restart"`
	Awaited            string          `json:"awaited,omitempty" doc:"what it waits for, in words"`
	Until              *time.Time      `json:"until,omitempty" doc:"when it continues by itself"`
	Workflow           *WorkflowRef    `json:"workflow,omitempty"`
	Synced             *Condition      `json:"synced,omitempty" doc:"whether what is declared is what runs: if not, the reason, and in hint the command that helps"`
	Conditions         []Condition     `json:"conditions"`
}

// PendingRestart is what a deployment waits to apply until a restart, or until a change that replaces what runs.
type PendingRestart struct {
	Revision int64        `json:"revision" doc:"that a restart rolls out"`
	Fields   []SpecChange `json:"fields" doc:"in which it differs from what is applied"`
}

// Rollout is the way of a deployment from its stable revision to a newer one. Only the first of Status's values is active.
type Rollout struct {
	Number       int64         `json:"number"`
	State        RolloutState  `json:"state" enum:"DEPLOYING,PREPAUSED,PAUSED,CANCELING,DEPLOYED,CANCELED,FAILED,SUPERSEDED"`
	Status       RolloutStatus `json:"status"`
	Phase        RolloutPhase  `json:"phase,omitempty" enum:"initializing,provisioning,provisioned,promoting,draining,rolling_back" doc:"of one under way"`
	FromRevision int64         `json:"fromRevision" doc:"the stable one, to which it returns"`
	ToRevision   int64         `json:"toRevision"`
	// ProcessVersion is that of the replicas of ToRevision.
	ProcessVersion int64        `json:"processVersion"`
	Reason         string       `json:"reason,omitempty" doc:"why it returns, or returned"`
	Message        string       `json:"message,omitempty" doc:"how far it is, or how it ended"`
	Failure        string       `json:"failure,omitempty" doc:"the newest of a replica of the new revision"`
	Step           int          `json:"step,omitempty" doc:"of a canary, from 1; the last brings all replicas"`
	Steps          int          `json:"steps,omitempty" doc:"of a canary"`
	Wanted         int          `json:"wanted" doc:"replicas of the new revision that there are to be now"`
	Proven         int          `json:"proven" doc:"replicas that count: routable for min_healthy_time"`
	MinHealthyTime float64      `json:"minHealthyTime" doc:"seconds for which a new replica must be routable to be proven, as declared or by default"`
	Strategy       Strategy     `json:"strategy"`
	ProgressAt     time.Time    `json:"progressAt" doc:"of the last progress"`
	Until          *time.Time   `json:"until,omitempty" doc:"when it is given up without progress, or in a pause if nobody resumes it"`
	Clock          RolloutClock `json:"clock,omitempty" doc:"what until counts from, or why it does not run: preparing, not_connected, old_replicas, replica_proven, step, returns, paused, reconnected, region_back, scaled or joined; without one, it counts from when the rollout began"`
	Deadline       *time.Time   `json:"deadline,omitempty" doc:"when it is given up at the latest"`
	CreatedBy      string       `json:"createdBy"`
	CreatedAt      time.Time    `json:"createdAt"`
	Since          time.Time    `json:"since" doc:"of the state"`
	EndedAt        *time.Time   `json:"endedAt,omitempty"`
}

// RestartMode is how a restart replaces the replicas.
type RestartMode string

// New before old, max_surge at a time; or all end, their nodes confirm it, and then the new ones start.
const (
	RestartRolling   RestartMode = "rolling"
	RestartStopFirst RestartMode = "stop_first"
)

// RestartRequest asks for new replicas. During a rollout it waits for its end.
type RestartRequest struct {
	Mode   RestartMode `json:"mode,omitempty" enum:"rolling,stop_first" doc:"default: rolling"`
	Reason string      `json:"reason,omitempty"`
}

// RolloutRequest asks something of a rollout.
type RolloutRequest struct {
	Rollout int64  `json:"rollout,omitempty" minimum:"0" doc:"its number, so that a late request changes no newer one; 0 is the one under way"`
	Step    int    `json:"step,omitempty" minimum:"0" doc:"its step, so that a late request changes nothing; 0 is the one under way"`
	Reason  string `json:"reason,omitempty"`
}

// RolloutStatus says in general whether a rollout is under way, and the reason (F68).
type RolloutStatus struct {
	Value  string `json:"value" enum:"ACTIVE,FINALIZED"`
	Reason string `json:"reason" enum:"DEPLOYING,PREPAUSED,PAUSED,CANCELING,DEPLOYED,CANCELED,FAILED,SUPERSEDED"`
}

// ReplicaTotals counts the replicas of a deployment by their states. Live ones whose nodes are not heard
// are Degraded, and counted nowhere else.
type ReplicaTotals struct {
	Desired     int `json:"desired"`
	Healthy     int `json:"healthy"`
	Routable    int `json:"routable" doc:"healthy ones that are ready too: with a readiness check, it passes"`
	Unhealthy   int `json:"unhealthy"`
	Starting    int `json:"starting"`
	Degraded    int `json:"degraded" doc:"live ones whose nodes are not heard"`
	Terminating int `json:"terminating"`
}

// Replica is one running copy of a deployment, or one that has ended. Health is DEGRADED while
// its node is not heard: what was said last may not be true any more.
type Replica struct {
	ID              ReplicaID      `json:"id"`
	Deployment      string         `json:"deployment"`
	Node            string         `json:"node"`
	Site            string         `json:"site"`
	State           ReplicaState   `json:"state"`
	Health          ReplicaHealth  `json:"health"`
	Routable        bool           `json:"routable" doc:"it is HEALTHY, and ready if it has a readiness check"`
	Phase           ReplicaPhase   `json:"phase,omitempty" doc:"as its node says: preparing (its definition is downloaded, its image pulled), pre_start (its preStart commands run), launching (its start is retried), running, stopping, exited, failed or stopped"`
	Revision        int64          `json:"revision"`
	ProcessVersion  int64          `json:"processVersion"`
	Endpoint        string         `json:"endpoint,omitempty"`
	Ports           map[string]int `json:"ports,omitempty"`
	PID             int            `json:"pid,omitempty"`
	Restarts        int            `json:"restarts"`
	Since           time.Time      `json:"since" doc:"of the state"`
	StartupDeadline *time.Time     `json:"startupDeadline,omitempty" doc:"of one that is STARTING and whose preStart commands or process run: its first probe has to succeed by then"`
	ProvenAt        *time.Time     `json:"provenAt,omitempty" doc:"of one that is routable and not proven yet: until then nothing that works ends for it"`
	Reason          string         `json:"reason,omitempty"`
	Message         string         `json:"message,omitempty"`
	Failing         FailedChecks   `json:"failing,omitzero" doc:"why its checks fail, or did when it ended"`
	CreatedAt       time.Time      `json:"createdAt"`
	EndedAt         *time.Time     `json:"endedAt,omitempty"`
}

// DeploymentRevision is one content that was released.
type DeploymentRevision struct {
	Revision       int64     `json:"revision"`
	Generation     int64     `json:"generation"`
	ProcessVersion int64     `json:"processVersion" doc:"that it was released with; 0: it waited for a restart"`
	Definition     Hash      `json:"definition" doc:"of what nodes run"`
	CreatedBy      string    `json:"createdBy"`
	CreatedAt      time.Time `json:"createdAt"`
	Reason         string    `json:"reason,omitempty"`
}

// Decision is one line of what became of a deployment and its replicas, and why. One that came
// several times in a row is a single line.
type Decision struct {
	At      time.Time `json:"at"`
	LastAt  time.Time `json:"lastAt"`
	Times   int       `json:"times"`
	Replica ReplicaID `json:"replica,omitempty"`
	Node    string    `json:"node,omitempty"`
	From    string    `json:"from,omitempty"`
	To      string    `json:"to,omitempty"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	Actor   string    `json:"actor,omitempty"`
}

// ReplicaLogChunk is output of one replica; Data is base64, because programs write what is no
// text too.
type ReplicaLogChunk struct {
	Replica ReplicaID `json:"replica"`
	Node    string    `json:"node"`
	Offset  int64     `json:"offset"`
	Data    string    `json:"data"`
}

// DeploymentTop is what the replicas of a deployment take, as sampled last.
type DeploymentTop struct {
	Deployment string        `json:"deployment"`
	CPU        float64       `json:"cpu" doc:"cores, of all replicas"`
	Memory     int64         `json:"memory" doc:"bytes, of all replicas"`
	Requested  ResourceTotal `json:"requested" doc:"what they ask for together"`
	Replicas   []ReplicaTop  `json:"replicas"`
}

// ResourceTotal is cores, bytes and GPUs.
type ResourceTotal struct {
	CPU    float64 `json:"cpu"`
	Memory int64   `json:"memory"`
	GPUs   int     `json:"gpus"`
}

// ReplicaTop is what one replica takes; At is missing while there is no sample of it.
type ReplicaTop struct {
	ID     ReplicaID    `json:"id"`
	Node   string       `json:"node"`
	State  ReplicaState `json:"state"`
	CPU    float64      `json:"cpu"`
	Memory int64        `json:"memory"`
	At     *time.Time   `json:"at,omitempty"`
}

// ScaleRequest asks for another target count, within the bounds of the spec.
type ScaleRequest struct {
	Replicas *int   `json:"replicas"`
	Reason   string `json:"reason,omitempty"`
}

// DeploymentProgress is how far an operation of a deployment is.
type DeploymentProgress struct {
	State    DeploymentState `json:"state"`
	Target   int             `json:"target"`
	Replicas ReplicaTotals   `json:"replicas"`
	Awaited  string          `json:"awaited,omitempty"`
	Until    *time.Time      `json:"until,omitempty"`
}
