package api

import "github.com/holdfast-io/holdfast/internal/fleet"

// The nouns that the contract shares with the rest of Holdfast. docs/concepts.md says what each is.
type (
	// Action is what a revision asks of its nodes.
	Action = fleet.Action
	// ChangePath is how a change of a deployment's spec reaches what runs.
	ChangePath = fleet.ChangePath
	// ConditionStatus is whether a condition holds.
	ConditionStatus = fleet.ConditionStatus
	// ConnectionEvent moves a connection.
	ConnectionEvent = fleet.ConnectionEvent
	// ConnectionID identifies one registration of a provider: 32 hex digits, never reused.
	ConnectionID = fleet.ConnectionID
	// ConnectionState is the state of a connection.
	ConnectionState = fleet.ConnectionState
	// CopyVersion orders the states of an object.
	CopyVersion = fleet.CopyVersion
	// DeclaredKind is what the region, its clients and the CLI know of a kind of declared objects.
	DeclaredKind = fleet.DeclaredKind
	// Condition is one side of a status, with a stable reason.
	Condition = fleet.Condition
	// DeploymentEvent moves a deployment.
	DeploymentEvent = fleet.DeploymentEvent
	// DeploymentState is the state of a deployment.
	DeploymentState = fleet.DeploymentState
	// DeploymentType selects the generator of the definition.
	DeploymentType = fleet.DeploymentType
	// DesiredState is started or stopped.
	DesiredState = fleet.DesiredState
	// DisabledSync matches copies that are not made: of a kind, from a region to a region. A blank field matches any.
	DisabledSync = fleet.DisabledSync
	// DrainPhase is the phase of a node's drain.
	DrainPhase = fleet.DrainPhase
	// Driver is what runs a replica on its node.
	Driver = fleet.Driver
	// Durability is when an operation on an instance succeeds.
	Durability = fleet.Durability
	// Error is the error of every package that knows what went wrong.
	Error = fleet.Error
	// CheckFailure is why a check of a replica fails: its last failure, and how often.
	CheckFailure = fleet.CheckFailure
	// FailedChecks are the checks of a replica that fail.
	FailedChecks = fleet.FailedChecks
	// FleetCounts counts the targets of a wave or of a run by state.
	FleetCounts = fleet.FleetCounts
	// FleetEvent moves a run.
	FleetEvent = fleet.FleetEvent
	// FleetSelector picks instances: at one of Sites (any if empty), with all Labels, and with the template of the change if that names one.
	FleetSelector = fleet.FleetSelector
	// FleetState is the state of one run of a fleet change.
	FleetState = fleet.FleetState
	// FleetTargetState is the state of one instance of a run.
	FleetTargetState = fleet.FleetTargetState
	// FleetWave takes instances, ordered by site and name, until Percent (default 100) of those selected at its Sites (default all) are in this wave or an earlier one.
	FleetWave = fleet.FleetWave
	// Hash is a SHA-256 in hex.
	Hash = fleet.Hash
	// HealthCheck defines when a replica is healthy.
	HealthCheck = fleet.HealthCheck
	// HealthType is how a replica is probed.
	HealthType = fleet.HealthType
	// Isolation is what an isolated last holder does.
	Isolation = fleet.Isolation
	// Kind is the error vocabulary of Holdfast: the Temporal error type, the tail of the HTTP problem type, and the word that the CLI prints.
	Kind = fleet.Kind
	// MultiRegionPolicy names the regions that may declare objects under a policy holder, and get copies of them.
	MultiRegionPolicy = fleet.MultiRegionPolicy
	// ModelAction is a step before the start; only run_command with args.command is supported.
	ModelAction = fleet.ModelAction
	// ModelDefinition is for type custom.
	ModelDefinition = fleet.ModelDefinition
	// ModelHealth is the check of a model definition.
	ModelHealth = fleet.ModelHealth
	// ModelService defines how a model is served.
	ModelService = fleet.ModelService
	// NodeName names a node.
	NodeName = fleet.NodeName
	// ObjectKey names one object of a region; Scope is the site of an instance, else "".
	ObjectKey = fleet.ObjectKey
	// ObjectKind is the kind of a declared object.
	ObjectKind = fleet.ObjectKind
	// OnChange is how a running command is notified of a new config.
	OnChange = fleet.OnChange
	// OperationState is the state of a requested operation.
	OperationState = fleet.OperationState
	// PoolName names a pool: a DNS label, unique in a region.
	PoolName = fleet.PoolName
	// ProcessPort is a port that the program listens on.
	ProcessPort = fleet.ProcessPort
	// Recovery defines retries.
	Recovery = fleet.Recovery
	// RegionName names a region.
	RegionName = fleet.RegionName
	// ReplicaBounds are the bounds of the target, which is stored beside the spec.
	ReplicaBounds = fleet.ReplicaBounds
	// ReplicaEvent moves a replica.
	ReplicaEvent = fleet.ReplicaEvent
	// ReplicaHealth is the result of a replica's probes.
	ReplicaHealth = fleet.ReplicaHealth
	// ReplicaID identifies one replica for ever: 12 hex digits.
	ReplicaID = fleet.ReplicaID
	// ReplicaPhase is a node's report about a replica's process.
	ReplicaPhase = fleet.ReplicaPhase
	// ReplicaState is the state of a replica.
	ReplicaState = fleet.ReplicaState
	// Role is a node's role at its site.
	Role = fleet.Role
	// RolloutEvent moves a rollout.
	RolloutEvent = fleet.RolloutEvent
	// RolloutClock is what started the time of a rollout without progress again, or stops it.
	RolloutClock = fleet.RolloutClock
	// RolloutPhase is what a rollout under way is at.
	RolloutPhase = fleet.RolloutPhase
	// RolloutState is the state of a rollout.
	RolloutState = fleet.RolloutState
	// Run is the command of an instance.
	Run = fleet.Run
	// Share is a number of replicas: a count, or a part of the target such as "25%".
	Share = fleet.Share
	// SiteName names a site.
	SiteName = fleet.SiteName
	// SpecChange is a field of a spec that differs from what runs, as a JSON pointer, with its path.
	SpecChange = fleet.SpecChange
	// Spread is what replicas are spread over first.
	Spread = fleet.Spread
	// Startup is how long a replica may take until its first success, Settle how long after that until it is healthy or unhealthy, Stop how long it may take to end.
	Startup = fleet.Startup
	// Strategy is how a deployment moves to a newer revision.
	Strategy = fleet.Strategy
	// StrategyType is how replicas of the new revision take the place of the others.
	StrategyType = fleet.StrategyType
	// CanaryStep is a share of the replicas, and what follows.
	CanaryStep = fleet.CanaryStep
	// UpdateMode is which changes of a deployment wait for a restart.
	UpdateMode = fleet.UpdateMode
	// TookOver names a state of an object by its owner and version.
	TookOver = fleet.TookOver
	// WhenFull is what a rollout does without room for a surge.
	WhenFull = fleet.WhenFull
	// Window is a recurring time in which sites may switch: on Days ("mon" to "sun", default all) from From to To ("22:00", past midnight if To is not later) in Zone (default UTC).
	Window = fleet.Window
)

// KindOf is the kind of an error, Internal for one that is not an *Error.
func KindOf(err error) Kind { return fleet.KindOf(err) }

// Their values.
const (
	PathInPlace          = fleet.PathInPlace
	PathNewRuntimeObject = fleet.PathNewRuntimeObject
	PathNeedsRestart     = fleet.PathNeedsRestart
	PathDeferred         = fleet.PathDeferred

	ConditionTrue    = fleet.ConditionTrue
	ConditionFalse   = fleet.ConditionFalse
	ConditionUnknown = fleet.ConditionUnknown

	ConnectionRegistered   = fleet.ConnectionRegistered
	ConnectionActive       = fleet.ConnectionActive
	ConnectionDraining     = fleet.ConnectionDraining
	ConnectionDisconnected = fleet.ConnectionDisconnected

	DeploymentPending      = fleet.DeploymentPending
	DeploymentProvisioning = fleet.DeploymentProvisioning
	DeploymentRunning      = fleet.DeploymentRunning
	DeploymentDestroying   = fleet.DeploymentDestroying
	DeploymentTerminated   = fleet.DeploymentTerminated
	DeploymentError        = fleet.DeploymentError

	TypeProcess = fleet.TypeProcess
	TypeCmd     = fleet.TypeCmd
	TypeVLLM    = fleet.TypeVLLM
	TypeTGI     = fleet.TypeTGI
	TypeSGLang  = fleet.TypeSGLang
	TypeNIM     = fleet.TypeNIM
	TypeMAX     = fleet.TypeMAX
	TypeCustom  = fleet.TypeCustom

	StateStarted = fleet.StateStarted
	StateStopped = fleet.StateStopped

	DrainMoving   = fleet.DrainMoving
	DrainDraining = fleet.DrainDraining
	DrainEnded    = fleet.DrainEnded

	DriverProcess = fleet.DriverProcess
	DriverDocker  = fleet.DriverDocker

	DurabilitySync  = fleet.DurabilitySync
	DurabilityAsync = fleet.DurabilityAsync

	FleetPause     = fleet.FleetPause
	FleetResume    = fleet.FleetResume
	FleetCancel    = fleet.FleetCancel
	FleetRetry     = fleet.FleetRetry
	FleetRollback  = fleet.FleetRollback
	FleetStop      = fleet.FleetStop
	FleetFinish    = fleet.FleetFinish
	FleetSupersede = fleet.FleetSupersede

	FleetRunning    = fleet.FleetRunning
	FleetPaused     = fleet.FleetPaused
	FleetStopped    = fleet.FleetStopped
	FleetSucceeded  = fleet.FleetSucceeded
	FleetCancelled  = fleet.FleetCancelled
	FleetSuperseded = fleet.FleetSuperseded

	FleetTargetWaiting    = fleet.FleetTargetWaiting
	FleetTargetDelivering = fleet.FleetTargetDelivering
	FleetTargetStaged     = fleet.FleetTargetStaged
	FleetTargetSucceeded  = fleet.FleetTargetSucceeded
	FleetTargetUnchanged  = fleet.FleetTargetUnchanged
	FleetTargetSuperseded = fleet.FleetTargetSuperseded
	FleetTargetFailed     = fleet.FleetTargetFailed

	HealthHTTP = fleet.HealthHTTP
	HealthTCP  = fleet.HealthTCP
	HealthNone = fleet.HealthNone

	IsolationStop = fleet.IsolationStop
	IsolationRun  = fleet.IsolationRun

	Invalid          = fleet.Invalid
	Unauthenticated  = fleet.Unauthenticated
	Denied           = fleet.Denied
	NotFound         = fleet.NotFound
	Conflict         = fleet.Conflict
	IllegalState     = fleet.IllegalState
	Precondition     = fleet.Precondition
	TooLarge         = fleet.TooLarge
	RateLimited      = fleet.RateLimited
	Stale            = fleet.Stale
	HashMismatch     = fleet.HashMismatch
	ApplyFailed      = fleet.ApplyFailed
	Communication    = fleet.Communication
	Unavailable      = fleet.Unavailable
	Gone             = fleet.Gone
	IsolationMissing = fleet.IsolationMissing
	NotOwner         = fleet.NotOwner
	Internal         = fleet.Internal

	KindDeployment   = fleet.KindDeployment
	KindPool         = fleet.KindPool
	KindFleet        = fleet.KindFleet
	KindOrganization = fleet.KindOrganization
	KindProject      = fleet.KindProject
	KindService      = fleet.KindService
	KindRegion       = fleet.KindRegion
	KindSite         = fleet.KindSite
	KindTemplate     = fleet.KindTemplate
	KindInstance     = fleet.KindInstance

	OnChangeRestart = fleet.OnChangeRestart
	OnChangeSignal  = fleet.OnChangeSignal

	OperationRunning    = fleet.OperationRunning
	OperationSucceeded  = fleet.OperationSucceeded
	OperationFailed     = fleet.OperationFailed
	OperationUnknown    = fleet.OperationUnknown
	OperationCancelled  = fleet.OperationCancelled
	OperationSuperseded = fleet.OperationSuperseded

	HealthNotChecked = fleet.HealthNotChecked
	HealthHealthy    = fleet.HealthHealthy
	HealthUnhealthy  = fleet.HealthUnhealthy
	HealthDegraded   = fleet.HealthDegraded

	PhasePreparing = fleet.PhasePreparing
	PhasePreStart  = fleet.PhasePreStart
	PhaseLaunching = fleet.PhaseLaunching
	PhaseRunning   = fleet.PhaseRunning
	PhaseStopping  = fleet.PhaseStopping
	PhaseExited    = fleet.PhaseExited
	PhaseFailed    = fleet.PhaseFailed
	PhaseStopped   = fleet.PhaseStopped

	ReplicaStarting    = fleet.ReplicaStarting
	ReplicaHealthy     = fleet.ReplicaHealthy
	ReplicaUnhealthy   = fleet.ReplicaUnhealthy
	ReplicaTerminating = fleet.ReplicaTerminating
	ReplicaTerminated  = fleet.ReplicaTerminated

	RoleActive  = fleet.RoleActive
	RoleStandby = fleet.RoleStandby
	RoleWorker  = fleet.RoleWorker

	SpreadSites = fleet.SpreadSites
	SpreadNodes = fleet.SpreadNodes
	SpreadNone  = fleet.SpreadNone
)
