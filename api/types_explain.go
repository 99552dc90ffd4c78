package api

import (
	"time"
)

// Explanation answers why a deployment is where it is: what is declared, what runs, what failed
// and how, what it waits for until when, and where there would be room for it.
type Explanation struct {
	Name      string           `json:"name"`
	Project   string           `json:"project"`
	Status    DeploymentStatus `json:"status"`
	Spec      *ExplainedSpec   `json:"spec,omitempty" doc:"what is released of it, declared where nothing is; missing of a deployment that has ended"`
	Causes    []Cause          `json:"causes" doc:"what keeps it from running as declared, the weightiest first"`
	Replicas  []Replica        `json:"replicas" doc:"that live"`
	Ended     []Replica        `json:"ended" doc:"the last ones that ended, newest first"`
	Uncounted []Uncounted      `json:"uncounted,omitempty" doc:"that may run and count no more, newest first"`
	Decisions []Decision       `json:"decisions" doc:"the last ones, newest first"`
	Output    *FailedOutput    `json:"output,omitempty" doc:"of the replica that failed last"`
	Nodes     []NodeFree       `json:"nodes" doc:"what is free where, and why no replica goes there"`
	MoreNodes int              `json:"moreNodes,omitempty" doc:"that are not listed"`
}

// Uncounted is a replica that may run on a node although it counts towards nothing: its node was asked to end
// it and has not answered that (it may have started it again after it said that it ended), or it waits for
// an operator, as an orphan of its node.
type Uncounted struct {
	ID     ReplicaID `json:"id"`
	Node   string    `json:"node"`
	Reason string    `json:"reason" enum:"told_to_end,never_known,over_cap"`
	Since  time.Time `json:"since"`
	Hint   string    `json:"hint,omitempty" doc:"what to do"`
}

// ExplainedSpec is in short what is released of a declaration, which is of an earlier generation than what was
// only written since.
type ExplainedSpec struct {
	Type           DeploymentType      `json:"type"`
	Driver         Driver              `json:"driver"`
	Image          string              `json:"image,omitempty"`
	Command        []string            `json:"command,omitempty"`
	Model          string              `json:"model,omitempty"`
	Ports          []ProcessPort       `json:"ports,omitempty"`
	Health         *HealthCheck        `json:"health,omitempty"`
	Readiness      *HealthCheck        `json:"readiness,omitempty"`
	StartupSeconds float64             `json:"startupSeconds,omitempty"`
	Resources      ResourceTotal       `json:"resources"`
	Replicas       ReplicaBounds       `json:"replicas"`
	Placement      DeploymentPlacement `json:"placement"`
	State          DesiredState        `json:"state"`
	Recovery       Recovery            `json:"recovery"`
	Generation     int64               `json:"generation"`
}

// Cause is something that keeps a deployment from running as declared. A pause after failures is none: what
// failed is, and the status says until when it waits.
type Cause struct {
	Code    string `json:"code" enum:"bad_definition,isolation,readiness,no_resources,pool_misconfigured,image,preparation,program,node"`
	Reason  string `json:"reason" doc:"the stable word behind it"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty" doc:"what to do"`
}

// FailedOutput is the last that a failed replica wrote.
type FailedOutput struct {
	Replica ReplicaID `json:"replica"`
	Node    string    `json:"node"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at" doc:"of its end, or of the failure"`
	Text    string    `json:"text" doc:"at most 4 KiB, from the start of a line"`
}

// NodeFree is what a node has left for a replica. Why says why none goes there, "" when one
// could.
type NodeFree struct {
	Node     string            `json:"node"`
	Site     string            `json:"site"`
	Labels   map[string]string `json:"labels,omitempty"`
	Pools    []PoolName        `json:"pools,omitempty"`
	Total    ResourceTotal     `json:"total"`
	Free     ResourceTotal     `json:"free"`
	Replicas int               `json:"replicas" doc:"of all deployments"`
	Own      int               `json:"own" doc:"of this one"`
	Failing  int               `json:"failing,omitempty" doc:"of this one, that failed there lately"`
	Why      string            `json:"why,omitempty" doc:"a stable word"`
	Message  string            `json:"message,omitempty"`
}
