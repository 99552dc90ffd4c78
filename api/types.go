package api

import (
	"encoding/json"
	"time"
)

// Object is how every declared object reads. Spec holds bodies by hash, never inline.
type Object struct {
	Kind string `json:"kind"`
	// Region created the object, if this is a copy of what another region owns.
	Region          string            `json:"region,omitempty"`
	Name            string            `json:"name"`
	Site            string            `json:"site,omitempty"`
	Project         string            `json:"project"`
	Service         string            `json:"service,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	UID             string            `json:"uid"`
	Generation      int64             `json:"generation"`
	ResourceVersion string            `json:"resourceVersion"`
	Syncing         json.RawMessage   `json:"syncing"`
	CreatedBy       string            `json:"createdBy"`
	CreatedAt       time.Time         `json:"createdAt"`
	UpdatedAt       time.Time         `json:"updatedAt"`
	DeletingSince   *time.Time        `json:"deletingSince,omitempty"`
	Spec            json.RawMessage   `json:"spec"`
	Status          json.RawMessage   `json:"status,omitempty"`
}

// List is the shape of every list; Next is "" on the last page.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// SitePut declares a site: its nodes and their roles. At most one is active.
type SitePut struct {
	Project string            `json:"project,omitempty"`
	Service string            `json:"service,omitempty" doc:"of the project; it never changes"`
	Labels  map[string]string `json:"labels,omitempty"`
	Nodes   []SiteNode        `json:"nodes"`
	// OnIsolation is what the last holder of the lease does that reaches neither peer nor region.
	OnIsolation  Isolation `json:"onIsolation,omitempty" enum:"stop,run"`
	AutoFailback bool      `json:"autoFailback,omitempty" doc:"hand the lease back to the declared active once it is there again"`
}

// SiteNode is one node of a site.
type SiteNode struct {
	Name string `json:"name"`
	Role Role   `json:"role" enum:"active,standby,worker"`
}

// SiteStatus is the status of a site: who may be active, by which epoch, and how the region's
// vote on it stands. Holder is the last one when Released.
type SiteStatus struct {
	Holder   string     `json:"holder,omitempty"`
	Epoch    int64      `json:"epoch"`
	Released bool       `json:"released,omitempty" doc:"no node holds the lease"`
	Target   string     `json:"target,omitempty" doc:"the only node that the region's vote favours"`
	Lost     bool       `json:"lost,omitempty" doc:"the region's vote was restored, and grants nothing before it has heard both nodes"`
	Voted    bool       `json:"voted" doc:"nodes have called for votes; before that the lease is whom the site declares"`
	Since    *time.Time `json:"since,omitempty" doc:"the lease is held, or was released"`
	// OnIsolation and Warning say whether there may be two actives during a partition.
	OnIsolation Isolation `json:"onIsolation"`
	Warning     string    `json:"warning,omitempty"`
	Nodes       []Node    `json:"nodes"`
}

// FailoverRequest asks that a site's lease goes to a node, or to the other of its pair. Force
// does not ask the holder to stop first: it runs out.
type FailoverRequest struct {
	To    string `json:"to,omitempty"`
	Force bool   `json:"force,omitempty"`
}

// TemplatePut declares a template: a base document, and the names of templates whose
// documents are merged over it in order.
type TemplatePut struct {
	Project      string            `json:"project,omitempty"`
	Service      string            `json:"service,omitempty" doc:"of the project; it never changes"`
	Labels       map[string]string `json:"labels,omitempty"`
	Base         json.RawMessage   `json:"base"`
	Compositions []string          `json:"compositions,omitempty" doc:"of this region, or copies of those of another region: eu/base"`
	Secrets      []string          `json:"secrets,omitempty" doc:"JSON pointers into the final config whose values viewers see redacted"`
}

// InstancePut declares an instance: exactly one of Config, Template (with Overrides) and
// Artifact. Enabled defaults to true, Durability to sync where the site has a standby.
type InstancePut struct {
	Project            string            `json:"project,omitempty"`
	Service            string            `json:"service,omitempty" doc:"of the project; it never changes"`
	Labels             map[string]string `json:"labels,omitempty"`
	Config             json.RawMessage   `json:"config,omitempty"`
	Template           string            `json:"template,omitempty" doc:"of this region, or the copy of one of another region: eu/press"`
	TemplateGeneration int64             `json:"templateGeneration,omitempty"`
	Overrides          json.RawMessage   `json:"overrides,omitempty"`
	Artifact           Hash              `json:"artifact,omitempty"`
	Enabled            *bool             `json:"enabled,omitempty"`
	Durability         Durability        `json:"durability,omitempty"`
	Run                *Run              `json:"run,omitempty"`
	Secrets            []string          `json:"secrets,omitempty" doc:"JSON pointers into the final config whose values viewers see redacted"`
	SecretEnv          []string          `json:"secretEnv,omitempty" doc:"names of the run section's environment whose values viewers see redacted"`
	Reason             string            `json:"reason,omitempty"`
}

// Accepted answers a mutation: Object as it now is, Operation when work was started (202).
type Accepted struct {
	Object    *Object    `json:"object,omitempty"`
	Operation *Operation `json:"operation,omitempty"`
	// Changes are the fields of a deployment that differ from what runs; none for a repeated Idempotency-Key.
	Changes []SpecChange `json:"changes,omitempty"`
	DryRun  bool         `json:"dryRun,omitempty"`
}

// InstanceStatus is the status of an instance.
type InstanceStatus struct {
	Phase              string           `json:"phase"`
	ObservedGeneration int64            `json:"observedGeneration"`
	Revision           int64            `json:"revision"`
	RevisionHash       Hash             `json:"revisionHash,omitempty"`
	DesiredRevision    int64            `json:"desiredRevision"`
	Replicated         string           `json:"replicated"`
	Nodes              []InstanceOnNode `json:"nodes"`
	Conditions         []Condition      `json:"conditions"`
}

// InstanceOnNode is what one node holds of an instance. Owed is the revision that it
// should hold and has not confirmed; OwedReason says why.
type InstanceOnNode struct {
	Node         string `json:"node"`
	Role         Role   `json:"role"`
	Epoch        int64  `json:"epoch"`
	Revision     int64  `json:"revision"`
	RevisionHash Hash   `json:"revisionHash,omitempty"`
	Running      bool   `json:"running"`
	Reason       string `json:"reason,omitempty"`
	Owed         int64  `json:"owed,omitempty"`
	OwedReason   string `json:"owedReason,omitempty"`
}

// Operation is the durable record of one thing asked for.
type Operation struct {
	ID          string              `json:"id"`
	Kind        string              `json:"kind"`
	Site        string              `json:"site,omitempty"`
	Instance    string              `json:"instance,omitempty"`
	Node        string              `json:"node,omitempty" doc:"that is compared, of a reconcile; that is to be active, of a failover"`
	Forced      bool                `json:"forced,omitempty" doc:"the holder is not asked first, of a failover"`
	Fleet       string              `json:"fleet,omitempty" doc:"that is run"`
	Module      string              `json:"module,omitempty" doc:"that is executed"`
	Deployment  string              `json:"deployment,omitempty"`
	Holder      string              `json:"holder,omitempty" doc:"whose policy is applied"`
	Region      string              `json:"region,omitempty" doc:"that is compared with"`
	Revision    int64               `json:"revision,omitempty"`
	State       OperationState      `json:"state"`
	Reason      string              `json:"reason,omitempty"`
	Message     string              `json:"message,omitempty"`
	RequestedBy string              `json:"requestedBy"`
	CreatedAt   time.Time           `json:"createdAt"`
	EndedAt     *time.Time          `json:"endedAt,omitempty"`
	Deadline    time.Time           `json:"deadline"`
	Progress    []NodeProgress      `json:"progress,omitempty"`
	FleetRun    *FleetProgress      `json:"fleetRun,omitempty" doc:"how far the fleet change is"`
	Replicas    *DeploymentProgress `json:"replicas,omitempty" doc:"how far the deployment is"`
	Delivery    string              `json:"delivery,omitempty"`
	Object      string              `json:"object,omitempty" doc:"path of the object that it is about; its status says what of it is synced now"`
	Workflow    *WorkflowRef        `json:"workflow,omitempty"`
}

// NodeProgress is how far one node is: bytes fetched of total, and its state. Bytes that the node held before
// count as fetched once it is done. Revision, Generation and RevisionHash are what it holds now (no hash: deleted
// there); only the progress of an operation has them.
type NodeProgress struct {
	Node         string `json:"node"`
	Role         Role   `json:"role"`
	State        string `json:"state"`
	Fetched      int64  `json:"fetched"`
	Total        int64  `json:"total"`
	Reason       string `json:"reason,omitempty"`
	Message      string `json:"message,omitempty"`
	Revision     int64  `json:"revision,omitempty"`
	Generation   int64  `json:"generation,omitempty"`
	RevisionHash Hash   `json:"revisionHash,omitempty"`
}

// WorkflowRef is the workflow run to open in Temporal Web.
type WorkflowRef struct {
	ID    string `json:"id"`
	RunID string `json:"runId"`
	URL   string `json:"url,omitempty"`
}

// Delivery is one line of an instance's delivery history: who, when, why, from which
// generation to which, and how it ended.
type Delivery struct {
	ID             string         `json:"id"`
	Attempt        int64          `json:"attempt"`
	Revision       int64          `json:"revision"`
	Era            int64          `json:"era"`
	Generation     int64          `json:"generation"`
	FromRevision   int64          `json:"fromRevision" doc:"deployed before it, 0 where nothing was"`
	FromGeneration int64          `json:"fromGeneration" doc:"the object's generation that fromRevision was released from"`
	Action         Action         `json:"action"`
	RevisionHash   Hash           `json:"revisionHash,omitempty"`
	State          string         `json:"state"`
	Phase          string         `json:"phase"`
	Reason         string         `json:"reason,omitempty"`
	Message        string         `json:"message,omitempty"`
	SettledAs      string         `json:"settledAs,omitempty"`
	RequestedBy    string         `json:"requestedBy"`
	Why            string         `json:"why,omitempty"`
	CreatedAt      time.Time      `json:"createdAt"`
	EndedAt        *time.Time     `json:"endedAt,omitempty"`
	Deadline       time.Time      `json:"deadline"`
	Nodes          []NodeProgress `json:"nodes"`
	Workflow       *WorkflowRef   `json:"workflow,omitempty"`
}

// Node is how a node reads. Ready: enrolled and answered with `started` since its start.
// Orphans counts those that wait for an operator; Reconcile is the last comparison, without
// the names that differ, and shown of one node only.
type Node struct {
	Name      string `json:"name"`
	Site      string `json:"site"`
	Role      Role   `json:"role"`
	Epoch     int64  `json:"epoch"`
	Enrolled  bool   `json:"enrolled"`
	Revoked   bool   `json:"revoked,omitempty"`
	Ready     bool   `json:"ready"`
	Instances int64  `json:"instances"`
	Owed      int64  `json:"owed"`
	Orphans   int64  `json:"orphans"`
	Isolation string `json:"isolation,omitempty" doc:"uid: it runs each project's commands as a separate user; none: it runs those of its site's project only; missing: it never reported it"`
	// Connection is the node's on the link.
	Connection NodeConnection `json:"connection"`
	// Key is missing while no region knows one.
	Key       *NodeKey   `json:"key,omitempty"`
	Reconcile *Reconcile `json:"reconcile,omitempty"`
	Cordon    *Cordon    `json:"cordon,omitempty" doc:"no new work goes there"`
	Drain     *NodeDrain `json:"drain,omitempty" doc:"the last one, until the node is uncordoned"`
	// Counters are what it counted since it started: refused stale actions among them.
	Counters   map[string]int64 `json:"counters,omitempty"`
	SeenAt     *time.Time       `json:"seenAt,omitempty"`
	StartedAt  *time.Time       `json:"startedAt,omitempty"`
	EnrolledAt *time.Time       `json:"enrolledAt,omitempty"`
}

// NodeKey is how old a node's key is, and how far its change.
type NodeKey struct {
	Since    time.Time  `json:"since" doc:"enrolled or changed"`
	Rotation string     `json:"rotation,omitempty" enum:"asked,offered" doc:"asked: the node has not answered yet; offered: the region knows the new key, and either works until the new one is used"`
	AskedAt  *time.Time `json:"askedAt,omitempty"`
}

// How far the change of a node's key is; "" is none.
const (
	RotationAsked   = "asked"
	RotationOffered = "offered"
)

// NodeConnection is where a node stands on the link; without one it is Disconnected.
type NodeConnection struct {
	ID       ConnectionID    `json:"id,omitempty"`
	State    ConnectionState `json:"state" enum:"Registered,Active,Draining,Disconnected"`
	Since    *time.Time      `json:"since,omitempty" doc:"of its stream; before that, of its registration"`
	InFlight int             `json:"inFlight" doc:"activities at work, as of its last heartbeats"`
}

// RollbackRequest names the revision to go back to. Without one it is the deployed one when
// the desired one is not deployed, or a rollout did not end DEPLOYED; else the deployed one before it.
type RollbackRequest struct {
	Revision int64  `json:"revision,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// ActionRequest goes with deploy, enable and disable.
type ActionRequest struct {
	Reason string `json:"reason,omitempty"`
}

// TokenRequest asks for an API token; Token is shown once, in the answer only.
type TokenRequest struct {
	Role    string `json:"role" enum:"admin,operator,viewer,provider"`
	Project string `json:"project,omitempty"`
	Note    string `json:"note,omitempty"`
	Seconds int64  `json:"seconds,omitempty" doc:"lifetime, 0 for no end"`
	// ModuleNamespaces are for a provider's token only.
	ModuleNamespaces []string `json:"moduleNamespaces,omitempty" doc:"what a provider may claim, with what lies below"`
}

// JoinTokenRequest asks for a token that enrols one node of a site once.
type JoinTokenRequest struct {
	Site    string `json:"site"`
	Node    string `json:"node"`
	Seconds int64  `json:"seconds,omitempty" doc:"lifetime, 3600 by default"`
}

// Token is an API or join token, or the invitation of a region. Token is set only in the answer that creates it.
type Token struct {
	ID        string     `json:"id"`
	Token     string     `json:"token,omitempty"`
	Role      string     `json:"role,omitempty"`
	Project   string     `json:"project,omitempty"`
	Site      string     `json:"site,omitempty"`
	Node      string     `json:"node,omitempty"`
	Region    string     `json:"region,omitempty"`
	Note      string     `json:"note,omitempty"`
	CreatedBy string     `json:"createdBy"`
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	UsedAt    *time.Time `json:"usedAt,omitempty"`
	RevokedAt *time.Time `json:"revokedAt,omitempty"`

	ModuleNamespaces []string `json:"moduleNamespaces,omitempty"`
}

// Artifact names uploaded bytes. While an upload is not complete, Upload and Offset say
// where to continue (header Upload-Offset).
type Artifact struct {
	SHA256 Hash   `json:"sha256,omitempty"`
	Size   int64  `json:"size"`
	Upload string `json:"upload,omitempty"`
	Offset int64  `json:"offset,omitempty"`
}

// Event is one committed change. ID resumes the stream after it (Last-Event-ID).
type Event struct {
	ID              string          `json:"id"`
	At              time.Time       `json:"at"`
	Type            string          `json:"type"`
	Kind            string          `json:"kind"`
	Region          string          `json:"region,omitempty" doc:"that created the object, if this is a copy of what another region owns"`
	Project         string          `json:"project"`
	Site            string          `json:"site,omitempty"`
	Name            string          `json:"name"`
	UID             string          `json:"uid"`
	Generation      int64           `json:"generation"`
	ResourceVersion string          `json:"resourceVersion"`
	Actor           string          `json:"actor"`
	Before          json.RawMessage `json:"before,omitempty" doc:"what was declared, or of type status what the region knew; absent where there was nothing"`
	After           json.RawMessage `json:"after,omitempty" doc:"the same after the change; absent where nothing is left"`
}

// LogChunk is output of an instance on one node.
type LogChunk struct {
	Node   string `json:"node"`
	Offset int64  `json:"offset"`
	Data   string `json:"data"`
}

// Problem is application/problem+json (RFC 9457). Type ends with the kind.
type Problem struct {
	Type         string `json:"type"`
	Title        string `json:"title"`
	Status       int    `json:"status"`
	Detail       string `json:"detail"`
	Field        string `json:"field,omitempty"`
	Hint         string `json:"hint,omitempty"`
	Owner        string `json:"owner,omitempty" doc:"the region that owns the object, of not_owner"`
	OwnerAddress string `json:"ownerAddress,omitempty" doc:"the URL of that region's API, as the region says; send it no token that is not of that region"`
	Region       string `json:"region,omitempty" doc:"the region that created the object, of not_owner: ?region= in the owner"`
	// Objects are those that a request of many objects was refused for, the first of them.
	Objects []ProblemObject `json:"objects,omitempty"`
}

// ProblemObject is what is wrong with one object of many.
type ProblemObject struct {
	PlanKey
	Detail string `json:"detail"`
	Field  string `json:"field,omitempty"`
	Hint   string `json:"hint,omitempty"`
}

// OrganizationPut declares an organization, whose policy governs its projects.
type OrganizationPut struct {
	Labels            map[string]string  `json:"labels,omitempty"`
	MultiRegionPolicy *MultiRegionPolicy `json:"multiRegionPolicy,omitempty"`
}

// ProjectPut declares a project.
type ProjectPut struct {
	Labels            map[string]string  `json:"labels,omitempty"`
	Organization      string             `json:"organization,omitempty" doc:"it never changes"`
	MultiRegionPolicy *MultiRegionPolicy `json:"multiRegionPolicy,omitempty" doc:"which regions may declare, and get copies of, what belongs to the project"`
}

// ServicePut declares a service of a project, whose policy governs the objects that name it.
type ServicePut struct {
	Project           string             `json:"project,omitempty"`
	Labels            map[string]string  `json:"labels,omitempty"`
	MultiRegionPolicy *MultiRegionPolicy `json:"multiRegionPolicy,omitempty"`
}
