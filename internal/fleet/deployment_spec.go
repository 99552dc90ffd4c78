package fleet

import (
	"slices"
	"time"
)

// DeploymentSpec is the declaration of a deployment, bodies by hash. Durations are in seconds.
type DeploymentSpec struct {
	Type DeploymentType `json:"type"`
	// Process is what runs; the type's values fill in omitted fields (S120).
	Process Process `json:"process"`
	// Model is what a model server serves: a name or a path, as its type expects.
	Model string `json:"model,omitempty"`
	// ModelDefinition is for type custom (S121).
	ModelDefinition *ModelDefinition `json:"modelDefinition,omitempty"`
	Resources       Resources        `json:"resources"`
	Replicas        ReplicaBounds    `json:"replicas"`
	Placement       PlacementSpec    `json:"placement"`
	State           DesiredState     `json:"state"`
	Recovery        Recovery         `json:"recovery"`
	// Strategy is how a newer revision replaces the one that runs.
	Strategy Strategy `json:"strategy,omitzero"`
	// Update is which changes of what runs wait for a restart; empty for none.
	Update UpdateMode `json:"update,omitempty"`
	// MemoryKeepsVersion has every change wait as long as Resources.Memory is declared; for UpdateVersioned only (F7).
	MemoryKeepsVersion bool `json:"memoryKeepsVersion,omitempty"`
	// SecretEnv names variables of Process.Env whose values are shown redacted.
	SecretEnv []string `json:"secretEnv,omitempty"`
}

// DeploymentType selects the generator of the definition.
type DeploymentType string

// The types. A process runs its command as it is; so does a cmd, as a server on port 8000 (S119).
const (
	TypeProcess DeploymentType = "process"
	TypeCmd     DeploymentType = "cmd"
	TypeVLLM    DeploymentType = "vllm"
	TypeTGI     DeploymentType = "tgi"
	TypeSGLang  DeploymentType = "sglang"
	TypeNIM     DeploymentType = "nim"
	TypeMAX     DeploymentType = "max"
	TypeCustom  DeploymentType = "custom" // by a model definition
)

// DeploymentTypes lists all types.
func DeploymentTypes() []DeploymentType {
	return []DeploymentType{TypeProcess, TypeCmd, TypeVLLM, TypeTGI, TypeSGLang, TypeNIM, TypeMAX, TypeCustom}
}

// DesiredState is started or stopped.
type DesiredState string

// Stopped keeps the declaration and ends all replicas.
const (
	StateStarted DesiredState = "started"
	StateStopped DesiredState = "stopped"
)

// Driver is what runs a replica on its node.
type Driver string

// A process runs in its own process group under a guardian; docker uses the node's engine.
const (
	DriverProcess Driver = "process"
	DriverDocker  Driver = "docker"
)

// Process is what runs: as declared, and after generation as a node runs it (Definition). In Command, Args, the
// values of Env and the contents of Files, the node replaces ${PORT}, ${PORT_NAME} (upper case, one per port) and
// the ${HOLDFAST_…} variables of the environment; $$ is a dollar sign.
type Process struct {
	// Driver is docker where Image is set, else process.
	Driver Driver `json:"driver,omitempty"`
	Image  string `json:"image,omitempty"`
	// Command and Args together are the command of a process. In a container, Command replaces the image's
	// ENTRYPOINT and Args its CMD; without Command, its ENTRYPOINT stays.
	Command []string          `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	// Files are written below the replica's working directory before it starts, for example "conf/nginx.conf".
	// HOLDFAST_CONFIG is the absolute path of the first.
	Files []ProcessFile `json:"files,omitempty"`
	// Ports: the first gets the traffic and, unless Health names another, the probes.
	Ports  []ProcessPort `json:"ports,omitempty"`
	Health *HealthCheck  `json:"health,omitempty"`
	// Readiness is a second check beside Health. While it fails, the replica is not routable, and nothing else follows. Nil
	// has none, as has type "none".
	Readiness *HealthCheck `json:"readiness,omitempty"`
	Startup   *Startup     `json:"startup,omitempty"`
	// StopSeconds is the time between SIGTERM and SIGKILL (default 10).
	StopSeconds int `json:"stopSeconds,omitempty"`
	// PreStart are commands that must succeed, one after the other, before Command starts.
	PreStart [][]string `json:"preStart,omitempty"`
	// SharedMemory is the size of a container's /dev/shm in bytes; 0 is the engine's default. Used shared memory
	// counts as the replica's memory. A process uses its machine's.
	SharedMemory int64 `json:"sharedMemory,omitempty"`
}

// Argv is the whole command line.
func (p Process) Argv() []string { return slices.Concat(p.Command, p.Args) }

// RunBy is its driver, by its image if it names none.
func (p Process) RunBy() Driver {
	if p.InContainer() {
		return DriverDocker
	}
	return DriverProcess
}

// ChecksReadiness reports whether it has a readiness check.
func (p Process) ChecksReadiness() bool {
	return p.Readiness != nil && p.Readiness.Type != HealthNone
}

// InContainer reports whether a node's engine runs it.
func (p Process) InContainer() bool {
	return p.Driver == DriverDocker || p.Driver == "" && p.Image != ""
}

// ProcessFile is one file: its content is a body in a declared spec, and inline in a definition.
type ProcessFile struct {
	Path    string   `json:"path"`
	Body    *Content `json:"body,omitempty"`
	Content string   `json:"content,omitempty"`
}

// ProcessPort is a port that the program listens on. With port 0 the node chooses a free one.
type ProcessPort struct {
	Name string `json:"name"`
	Port int    `json:"port,omitempty"`
}

// HealthCheck defines when a replica is healthy (S75 to S87). With type "none" there are no probes: a running
// replica is healthy.
type HealthCheck struct {
	Type HealthType `json:"type,omitempty"`
	// Port names one of the ports; the default is the first.
	Port               string  `json:"port,omitempty"`
	Path               string  `json:"path,omitempty"`            // "/health"
	Method             string  `json:"method,omitempty"`          // "GET"
	ExpectedStatus     int     `json:"expected_status,omitempty"` // any of 200 to 399 by default
	Interval           float64 `json:"interval,omitempty"`        // 10
	Timeout            float64 `json:"timeout,omitempty"`         // 5, below Interval
	UnhealthyThreshold int     `json:"unhealthy_threshold,omitempty"`
	HealthyThreshold   int     `json:"healthy_threshold,omitempty"`
}

// HealthType is how a replica is probed.
type HealthType string

// An http probe checks the status of an answer, a tcp probe connects.
const (
	HealthHTTP HealthType = "http"
	HealthTCP  HealthType = "tcp"
	HealthNone HealthType = "none"
)

// Startup is how long a replica may take until its first success (S84). Until then it is probed every 100 ms, and
// failures do not count.
type Startup struct {
	Deadline float64 `json:"deadline"`
}

// Resources are what one replica uses of its node.
type Resources struct {
	CPU    float64 `json:"cpu,omitempty"`    // cores
	Memory int64   `json:"memory,omitempty"` // bytes
	GPUs   int     `json:"gpus,omitempty"`
}

// ReplicaBounds are the bounds of the target, which is stored beside the spec (S85, S108).
type ReplicaBounds struct {
	Min     int `json:"min"`
	Max     int `json:"max"`
	Initial int `json:"initial"`
}

// Spread is what replicas are spread over first.
type Spread string

// Over sites and, within them, nodes; over nodes regardless of site; or wherever most room is.
const (
	SpreadSites Spread = "sites"
	SpreadNodes Spread = "nodes"
	SpreadNone  Spread = "none"
)

// PlacementSpec selects the nodes that may run replicas: at any of Sites, in any of Pools, with all Labels,
// offering all Modules. Empty means any.
type PlacementSpec struct {
	Sites   []SiteName        `json:"sites,omitempty"`
	Pools   []PoolName        `json:"pools,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Modules []string          `json:"modules,omitempty"`
	Spread  Spread            `json:"spread"`
}

// Recovery defines retries (S45, S106, S107). Zero values mean the defaults.
type Recovery struct {
	// Restarts is how often a node restarts a replica with failing probes before it gives up (default 3). The count
	// resets once the replica was healthy for ResetSeconds (default 600).
	Restarts     int `json:"restarts,omitempty"`
	ResetSeconds int `json:"resetSeconds,omitempty"`
	// Attempts is how often PROVISIONING is tried before ERROR (default 3). AttemptSeconds is the pause after the
	// first failure (default 10), doubled each time up to CrashMaxSeconds.
	Attempts       int `json:"attempts,omitempty"`
	AttemptSeconds int `json:"attemptSeconds,omitempty"`
	// Crashes is how many failures in RUNNING are replaced at once (default 3). After that there is a pause of
	// CrashSeconds (30), doubled up to CrashMaxSeconds (960, or the longest declared first pause), until GiveUp
	// consecutive failures (200).
	Crashes         int `json:"crashes,omitempty"`
	CrashSeconds    int `json:"crashSeconds,omitempty"`
	CrashMaxSeconds int `json:"crashMaxSeconds,omitempty"`
	GiveUp          int `json:"giveUp,omitempty"`
	// LostSeconds is how long a node may be disconnected before its replicas run elsewhere (default 30).
	LostSeconds int `json:"lostSeconds,omitempty"`
}

// ModelDefinition is the model definition file of type custom, with its own field names (S121).
type ModelDefinition struct {
	Name      string       `json:"name,omitempty"`
	ModelPath string       `json:"model_path,omitempty"`
	Service   ModelService `json:"service"`
}

// ModelService defines how a model is served.
type ModelService struct {
	PreStartActions []ModelAction `json:"pre_start_actions,omitempty"`
	StartCommand    []string      `json:"start_command,omitempty"`
	Port            int           `json:"port,omitempty"`
	HealthCheck     *ModelHealth  `json:"health_check,omitempty"`
}

// ModelAction is a step before the start; only run_command with args.command is supported.
type ModelAction struct {
	Action string         `json:"action"`
	Args   map[string]any `json:"args,omitempty"`
}

// ModelHealth is the check of a model definition.
type ModelHealth struct {
	Path               string  `json:"path"`
	Interval           float64 `json:"interval,omitempty"`
	MaxRetries         int     `json:"max_retries,omitempty"`
	MaxWaitTime        float64 `json:"max_wait_time,omitempty"`
	ExpectedStatusCode int     `json:"expected_status_code,omitempty"`
	InitialDelay       float64 `json:"initial_delay,omitempty"`
}

// Definition is the result of a generator: all that a node needs to run a replica. Its canonical form is a body,
// identified by its hash.
type Definition struct {
	Process
	Resources Resources `json:"resources"`
	Recovery  Recovery  `json:"recovery"`
}

// PoolSpec selects nodes (at any of Sites, any of Nodes, with all Labels) and limits what deployments that name the
// pool may run there; 0 means no limit.
type PoolSpec struct {
	Sites  []SiteName        `json:"sites,omitempty"`
	Nodes  []NodeName        `json:"nodes,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// MaxReplicas is per node.
	MaxReplicas int `json:"maxReplicas,omitempty"`
}

// NodeFacts are what a node reports about its machine when it registers.
type NodeFacts struct {
	// Address is the host of its endpoints, where other machines reach its ports.
	Address   string            `json:"address,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Drivers   []Driver          `json:"drivers,omitempty"`
	Resources Resources         `json:"resources"`
	// Separation is whether it isolates commands of several projects.
	Separation Separation `json:"isolation,omitempty"`
	// Readiness is set if its agent runs readiness checks.
	Readiness bool `json:"readiness,omitempty"`
}

// NodeRoom is a node as input of placement.
type NodeRoom struct {
	Node    NodeName          `json:"node"`
	Site    SiteName          `json:"site"`
	Project ProjectName       `json:"project,omitempty"` // of the site
	Labels  map[string]string `json:"labels,omitempty"`
	Pools   []PoolName        `json:"pools,omitempty"`
	Modules []string          `json:"modules,omitempty"`
	Drivers []Driver          `json:"drivers,omitempty"`
	// Separation and Readiness are as the node reported them.
	Separation Separation `json:"isolation,omitempty"`
	Readiness  bool       `json:"readiness,omitempty"`
	// Total is what the machine has, Taken what its replicas request, including TERMINATING ones.
	Total Resources `json:"total"`
	Taken Resources `json:"taken"`
	// Ports are the fixed ports of its replicas.
	Ports []int `json:"ports,omitempty"`
	// Old are its live replicas of the deployment with an earlier process version.
	Old []OldReplica `json:"old,omitempty"`
	// Replicas counts all its replicas, Own those of the deployment, Failing those of the deployment that recently
	// failed there.
	Replicas int `json:"replicas"`
	Own      int `json:"own"`
	Failing  int `json:"failing,omitempty"`
	// PoolFull are its pools at their limit, PoolOver those above it.
	PoolFull []PoolName `json:"poolFull,omitempty"`
	PoolOver []PoolName `json:"poolOver,omitempty"`
	// Away is why nothing is placed there now: "" or a stable word (not_connected, cordoned, draining, full).
	Away string `json:"away,omitempty"`
	// Unheard is since when it is disconnected, zero while it is connected.
	Unheard time.Time `json:"unheard,omitzero"`
}

// OldReplica is what a replica frees on its node when it ends.
type OldReplica struct {
	ID        ReplicaID `json:"id"`
	Resources Resources `json:"resources"`
	Ports     []int     `json:"ports,omitempty"`
}
