package fleet

import "time"

// Role is a node's role at its site.
type Role string

// The active runs instances, the standby stores them, a worker runs only replicas.
const (
	RoleActive  Role = "active"
	RoleStandby Role = "standby"
	RoleWorker  Role = "worker"
)

// RefreshDeploymentCommand notifies a node of a delivery: ids, numbers and a sealed token, never the config (N4,
// N34). It is the input of the node's activity and stays small.
type RefreshDeploymentCommand struct {
	DeploymentID string       `json:"deploymentId"` // of the delivery, or of a snapshot ticket
	Site         SiteName     `json:"site"`
	Instance     InstanceName `json:"instance"`
	Role         Role         `json:"role"` // that the receiving node must have
	Epoch        int64        `json:"epoch"`
	Revision     Revision     `json:"revision"`
	DeployedBy   string       `json:"deployedBy"`
	Timestamp    time.Time    `json:"timestamp"`
	// CentralFetchBaseURL is where the config is fetched, for example http://region:8080.
	CentralFetchBaseURL string `json:"centralFetchBaseUrl"`
	// FetchToken is sealed to the node's X25519 key; empty for a delete.
	FetchToken string `json:"fetchToken,omitempty"`
	// IdleTimeout is how long the node may go without progress before it gives up.
	IdleTimeout time.Duration `json:"idleTimeout"`
	// Signed is the region's signature, without which a node ignores a task.
	Signed Signature `json:"signed,omitzero"`
}

// Held is what a node's store holds of one instance: the truth that settles what the region does not know.
type Held struct {
	Revision
	// HighWater is the highest version ever accepted or tried, also when it failed.
	HighWater Version `json:"highWater"`
	// Known is false if the node never had the name.
	Known   bool `json:"known"`
	Running bool `json:"running"`
	// Exits counts how often the command has ended by itself since it was started, LastExit is how it ended last.
	Exits    int    `json:"exits,omitempty"`
	LastExit string `json:"lastExit,omitempty"`
}

// DeploymentStatusResponse is a node's answer to a notify that it carried out.
type DeploymentStatusResponse struct {
	// Already is set if the node already held it: nothing was downloaded or restarted (N93).
	Already bool  `json:"already"`
	Fetched int64 `json:"fetched"` // bytes read from the wire, before decompression
	Held    Held  `json:"held"`
}

// NodeInstance is one line of what a node reports that it holds, in started and in reports.
type NodeInstance struct {
	Instance InstanceName `json:"instance"`
	Held     Held         `json:"held"`
	// Reason is why an enabled instance does not run; "" if it runs or need not.
	Reason string `json:"reason,omitempty"`
}
