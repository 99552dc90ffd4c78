package fleet

import (
	"slices"
	"time"
)

// DeploymentSpec is what a person declares of a deployment, bodies by hash. Durations are seconds.
type DeploymentSpec struct {
	Type DeploymentType `json:"type"`
	// Process says what runs; what the type gives is merged under it, field by field (S120).
	Process Process `json:"process"`
	// Model is what a model server serves: a name or a path, as its type takes it.
	Model string `json:"model,omitempty"`
	// ModelDefinition is that of type custom (S121).
	ModelDefinition *ModelDefinition `json:"modelDefinition,omitempty"`
	Resources       Resources        `json:"resources"`
	Replicas        ReplicaBounds    `json:"replicas"`
	Placement       PlacementSpec    `json:"placement"`
	State           DesiredState     `json:"state"`
	Recovery        Recovery         `json:"recovery"`
	// SecretEnv names values of Process.Env that are shown redacted.
	SecretEnv []string `json:"secretEnv,omitempty"`
}

// DeploymentType says which generator makes the definition.
type DeploymentType string

// The types; a process runs its command as it is, and a cmd too, as a server on port 8000 (S119).
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

// DeploymentTypes lists them.
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

// A process runs in a process group of its own under a guardian; docker asks the node's engine.
const (
	DriverProcess Driver = "process"
	DriverDocker  Driver = "docker"
)

// Process is what runs, as it is declared, and after generation as a node runs it (Definition).
// In Command, in Args, in the values of Env and in the contents of Files, ${PORT}, ${PORT_NAME} (upper case,
// one for each port) and the ${HOLDFAST_…} names of the environment are replaced; $$ is a dollar.
type Process struct {
	// Driver is docker where Image is set, else process.
	Driver Driver `json:"driver,omitempty"`
	Image  string `json:"image,omitempty"`
	// Command and Args are run as one where it is a process. In a container Command takes the place
	// of the image's ENTRYPOINT, and Args that of its CMD; without Command its ENTRYPOINT stays.
	Command []string          `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	// Files are written below the replica's directory, which is its working directory, before it
	// starts: "conf/nginx.conf". HOLDFAST_CONFIG is the absolute path of the first.
	Files []ProcessFile `json:"files,omitempty"`
	// Ports: the first is the one that gets traffic and, unless it says otherwise, probes.
	Ports   []ProcessPort `json:"ports,omitempty"`
	Health  *HealthCheck  `json:"health,omitempty"`
	Startup *Startup      `json:"startup,omitempty"`
	// StopSeconds is the time between SIGTERM and SIGKILL (default 10).
	StopSeconds int `json:"stopSeconds,omitempty"`
	// PreStart are commands that must succeed, one after the other, before Command starts.
	PreStart [][]string `json:"preStart,omitempty"`
	// SharedMemory is the size of a container's /dev/shm, in bytes; 0 is the engine's default. What is
	// used of it counts as the replica's memory. A process has its machine's.
	SharedMemory int64 `json:"sharedMemory,omitempty"`
}

// Argv is all of what is run, as one command.
func (p Process) Argv() []string { return slices.Concat(p.Command, p.Args) }

// InContainer says whether a node's engine runs it.
func (p Process) InContainer() bool {
	return p.Driver == DriverDocker || p.Driver == "" && p.Image != ""
}

// ProcessFile is one file: its content in a declared spec is a body, and inline in a definition.
type ProcessFile struct {
	Path    string   `json:"path"`
	Body    *Content `json:"body,omitempty"`
	Content string   `json:"content,omitempty"`
}

// ProcessPort is a port that the program listens on. Port 0 has the node choose a free one.
type ProcessPort struct {
	Name string `json:"name"`
	Port int    `json:"port,omitempty"`
}

// HealthCheck says when a replica is healthy (S75 to S87). Type "none" has no probes: what runs is
// healthy.
type HealthCheck struct {
	Type HealthType `json:"type,omitempty"`
	// Port names one of the ports, the first by default.
	Port               string  `json:"port,omitempty"`
	Path               string  `json:"path,omitempty"`            // "/health"
	Method             string  `json:"method,omitempty"`          // "GET"
	ExpectedStatus     int     `json:"expected_status,omitempty"` // any of 200 to 399 by default
	Interval           float64 `json:"interval,omitempty"`        // 10
	Timeout            float64 `json:"timeout,omitempty"`         // 5, below Interval
	UnhealthyThreshold int     `json:"unhealthy_threshold,omitempty"`
	HealthyThreshold   int     `json:"healthy_threshold,omitempty"`
}

// HealthType says how a replica is probed.
type HealthType string

// An http probe wants a status, a tcp probe a connection.
const (
	HealthHTTP HealthType = "http"
	HealthTCP  HealthType = "tcp"
	HealthNone HealthType = "none"
)

// Startup is how long a replica may take until its first success (S84); until then it is probed
// every 100 ms and no failure counts.
type Startup struct {
	Deadline float64 `json:"deadline"`
}

// Resources are what one replica takes of its node.
type Resources struct {
	CPU    float64 `json:"cpu,omitempty"`    // cores
	Memory int64   `json:"memory,omitempty"` // bytes
	GPUs   int     `json:"gpus,omitempty"`
}

// ReplicaBounds bound the target count, which lives beside the spec (S85, S108).
type ReplicaBounds struct {
	Min     int `json:"min"`
	Max     int `json:"max"`
	Initial int `json:"initial"`
}

// Spread says over what replicas are spread first.
type Spread string

// Over sites and, within them, nodes; over nodes whatever their sites; or wherever there is most
// room.
const (
	SpreadSites Spread = "sites"
	SpreadNodes Spread = "nodes"
	SpreadNone  Spread = "none"
)

// PlacementSpec says which nodes may run replicas: of any of Sites, in any of Pools, with all
// Labels, offering all Modules; each is any when it is empty.
type PlacementSpec struct {
	Sites   []SiteName        `json:"sites,omitempty"`
	Pools   []PoolName        `json:"pools,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Modules []string          `json:"modules,omitempty"`
	Spread  Spread            `json:"spread"`
}

// Recovery are the terms of tries (S45, S106, S107). Zero values mean the defaults.
type Recovery struct {
	// Restarts is how often a node restarts a replica whose probes fail before it is given up there
	// (default 3); it counts anew once the replica was healthy for ResetSeconds (default 600).
	Restarts     int `json:"restarts,omitempty"`
	ResetSeconds int `json:"resetSeconds,omitempty"`
	// Attempts is how often PROVISIONING is tried before ERROR (default 3), AttemptSeconds the pause
	// after the first failure, doubled each time (default 10) up to CrashMaxSeconds.
	Attempts       int `json:"attempts,omitempty"`
	AttemptSeconds int `json:"attemptSeconds,omitempty"`
	// Crashes: in RUNNING that many are replaced at once (default 3), then after CrashSeconds (30)
	// doubled up to CrashMaxSeconds (960, or the longest first pause that is declared), until GiveUp in a
	// row (200).
	Crashes         int `json:"crashes,omitempty"`
	CrashSeconds    int `json:"crashSeconds,omitempty"`
	CrashMaxSeconds int `json:"crashMaxSeconds,omitempty"`
	GiveUp          int `json:"giveUp,omitempty"`
	// LostSeconds is how long a node may be unheard before its replicas run elsewhere (default 30).
	LostSeconds int `json:"lostSeconds,omitempty"`
}

// ModelDefinition is the model definition file of type custom, with its own names (S121).
type ModelDefinition struct {
	Name      string       `json:"name,omitempty"`
	ModelPath string       `json:"model_path,omitempty"`
	Service   ModelService `json:"service"`
}

// ModelService says how a model is served.
type ModelService struct {
	PreStartActions []ModelAction `json:"pre_start_actions,omitempty"`
	StartCommand    []string      `json:"start_command,omitempty"`
	Port            int           `json:"port,omitempty"`
	HealthCheck     *ModelHealth  `json:"health_check,omitempty"`
}

// ModelAction is one step before the start: run_command with args.command is understood.
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

// Definition is what a generator makes: all that a node needs to run a replica. Its canonical form
// is a body, by whose hash it is known.
type Definition struct {
	Process
	Resources Resources `json:"resources"`
	Recovery  Recovery  `json:"recovery"`
}

// PoolSpec selects nodes (of any of Sites, any of Nodes, with all Labels) and bounds what
// deployments that name the pool may run there; 0 is no bound.
type PoolSpec struct {
	Sites  []SiteName        `json:"sites,omitempty"`
	Nodes  []NodeName        `json:"nodes,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// MaxReplicas is per node.
	MaxReplicas int `json:"maxReplicas,omitempty"`
}

// NodeFacts are what a node tells of its machine when it registers.
type NodeFacts struct {
	// Address is where others reach what listens on it: the host of endpoints.
	Address   string            `json:"address,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Drivers   []Driver          `json:"drivers,omitempty"`
	Resources Resources         `json:"resources"`
	// Separation says whether it keeps commands of several projects apart.
	Separation Separation `json:"isolation,omitempty"`
}

// NodeRoom is a node as placement looks at it.
type NodeRoom struct {
	Node    NodeName          `json:"node"`
	Site    SiteName          `json:"site"`
	Project ProjectName       `json:"project,omitempty"` // of the site
	Labels  map[string]string `json:"labels,omitempty"`
	Pools   []PoolName        `json:"pools,omitempty"`
	Modules []string          `json:"modules,omitempty"`
	Drivers []Driver          `json:"drivers,omitempty"`
	// Separation is as the node told it.
	Separation Separation `json:"isolation,omitempty"`
	// Total is what the machine has, Taken what replicas that are there, TERMINATING ones too, ask for.
	Total Resources `json:"total"`
	Taken Resources `json:"taken"`
	// Ports are fixed ports that replicas there have.
	Ports []int `json:"ports,omitempty"`
	// Old are live replicas of the deployment there that run an earlier process version.
	Old []OldReplica `json:"old,omitempty"`
	// Replicas counts all that are there, Own those of the deployment, Failing those of it that
	// failed there lately.
	Replicas int `json:"replicas"`
	Own      int `json:"own"`
	Failing  int `json:"failing,omitempty"`
	// PoolFull are the pools of it whose bound is reached, PoolOver those of them where it is exceeded.
	PoolFull []PoolName `json:"poolFull,omitempty"`
	PoolOver []PoolName `json:"poolOver,omitempty"`
	// Away says why nothing is placed there: "" or a stable word (not_connected, cordoned, draining, full).
	Away string `json:"away,omitempty"`
	// Unheard is since when it is not connected, zero while it is.
	Unheard time.Time `json:"unheard,omitzero"`
}

// OldReplica is what a replica leaves on its node when it ends.
type OldReplica struct {
	ID        ReplicaID `json:"id"`
	Resources Resources `json:"resources"`
	Ports     []int     `json:"ports,omitempty"`
}
