package api

import (
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Redacted replaces a value that is marked secret.
const Redacted = "<redacted>"

// ApplySetLabel is the label of the objects that are declared, and pruned, together.
const ApplySetLabel = fleet.ApplySetLabel

// Manifest is one declared object among many; Spec is the body of its PUT, without project,
// service and labels, which stand beside it.
type Manifest struct {
	Kind    string            `json:"kind" doc:"Organization, Project, Service, Site, Pool, Template, Instance, Deployment, Region or Fleet, in any case"`
	Name    string            `json:"name"`
	Site    string            `json:"site,omitempty" doc:"of an instance"`
	Project string            `json:"project,omitempty"`
	Service string            `json:"service,omitempty" doc:"of the project; it never changes"`
	Labels  map[string]string `json:"labels,omitempty"`
	Spec    json.RawMessage   `json:"spec,omitempty"`
}

// PlanRequest is many objects to plan or to apply.
type PlanRequest struct {
	Objects   []Manifest `json:"objects"`
	ApplySet  string     `json:"applySet,omitempty" doc:"the objects get this label, and only objects with it are pruned"`
	Prune     bool       `json:"prune,omitempty" doc:"delete what carries the label and is not among the objects"`
	Reason    string     `json:"reason,omitempty"`
	Artifacts []Artifact `json:"artifacts,omitempty" doc:"of a plan: what will have been uploaded when it is applied"`
	// Plan binds an apply to what a plan answered; its differences may be left out.
	Plan *Plan `json:"plan,omitempty"`
}

// The actions of a plan. Of what is refused there is none.
const (
	PlanCreate    = string(decide.PlanCreate)
	PlanChange    = string(decide.PlanChange)
	PlanUnchanged = string(decide.PlanUnchanged)
	PlanDelete    = string(decide.PlanDelete)
)

// Plan is what an apply of the same request would do. Digest stands for the request and
// for all that the plan was made from; whoever sends the plan back with an apply gets
// exactly it, or nothing.
type Plan struct {
	Digest   string `json:"digest"`
	Valid    bool   `json:"valid" doc:"false when an object is refused; then nothing can be applied"`
	ApplySet string `json:"applySet,omitempty"`
	Prune    bool   `json:"prune,omitempty"`
	Deploy   bool   `json:"deploy"`
	// Changes is whether an apply would do anything.
	Changes    bool         `json:"changes"`
	Summary    PlanSummary  `json:"summary"`
	Objects    []PlanObject `json:"objects" doc:"in the order in which they are applied"`
	WouldPrune []PlanKey    `json:"wouldPrune,omitempty" doc:"carries the label and is not among the objects; stays, because prune was not asked for"`
}

// PlanSummary counts the objects of a plan by what becomes of them.
type PlanSummary struct {
	Create    int `json:"create"`
	Change    int `json:"change"`
	Unchanged int `json:"unchanged"`
	Delete    int `json:"delete"`
	Refused   int `json:"refused"`
}

// PlanKey names an object.
type PlanKey struct {
	Kind string `json:"kind"`
	Site string `json:"site,omitempty"`
	Name string `json:"name"`
	// Region is "" for what this region created or is to create.
	Region string `json:"region,omitempty" doc:"the other region that created the object, which this region owns"`
}

// PlanObject is what would become of one object. Generation and ResourceVersion are those
// that it was planned from: 0 and "" when there is none.
type PlanObject struct {
	PlanKey
	Project         string `json:"project,omitempty"`
	Action          string `json:"action,omitempty" enum:"create,change,unchanged,delete"`
	Generation      int64  `json:"generation"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Digest          string `json:"digest,omitempty" doc:"of all that would be written"`
	Hash            Hash   `json:"hash,omitempty" doc:"SHA-256 of the final config of an instance that changes"`
	Size            int64  `json:"size,omitempty"`
	Releases        bool   `json:"releases,omitempty" doc:"a revision is released and delivered; of a fleet change, a run begins"`
	Unreleased      bool   `json:"unreleased,omitempty" doc:"it stands as it is asked for, and was never released: that is the change"`
	// Declared is the difference of labels and spec, but for the config.
	Declared *Difference `json:"declared,omitempty"`
	// Nodes is the difference of the final config to what nodes hold; those with the same
	// content share one entry.
	Nodes []PlanNodes `json:"nodes,omitempty"`
	// Changes are the fields of a deployment that differ from what runs, each with its path.
	Changes []SpecChange `json:"changes,omitempty"`
	// Rollout is how replicas of a deployment would be replaced, nil where none would.
	Rollout *PlanRollout `json:"rollout,omitempty"`
	Problem *Problem     `json:"problem,omitempty"`
}

// PlanRollout is what a rollout takes. It is as of the time of the plan, and not part of its digest.
type PlanRollout struct {
	Strategy StrategyType  `json:"strategy" enum:"rolling,canary,recreate"`
	Steps    int           `json:"steps,omitempty" doc:"of a canary, with the last"`
	Replicas int           `json:"replicas" doc:"replicas that are replaced"`
	Most     int           `json:"most" doc:"replicas at a time"`
	Peak     ResourceTotal `json:"peak" doc:"what those take at most"`
	Surge    int           `json:"surge" doc:"replicas above the target"`
	// MinHealthyTime is as declared, or by default.
	MinHealthyTime float64 `json:"minHealthyTime" doc:"seconds for which a new replica must be routable until one that works ends for it"`
	Room           *int    `json:"room,omitempty" doc:"how many of the surge have room now; missing where it was not looked for"`
	Why            string  `json:"why,omitempty" doc:"why not all of the surge have room"`
}

// Difference is the changes from one JSON document to another. More counts those that were
// left out because there are too many; Omitted says why there are none at all.
type Difference struct {
	Changes []Change `json:"changes"`
	More    int      `json:"more,omitempty"`
	Omitted string   `json:"omitted,omitempty"`
}

// Change is one step of RFC 6902, with what was there before. A value that is too long is
// left out and has its size instead.
type Change struct {
	Op        string          `json:"op" enum:"add,remove,replace"`
	Path      string          `json:"path" doc:"a JSON pointer"`
	From      json.RawMessage `json:"from,omitempty"`
	To        json.RawMessage `json:"to,omitempty"`
	FromBytes int             `json:"fromBytes,omitempty"`
	ToBytes   int             `json:"toBytes,omitempty"`
}

// PlanNodes is some nodes that hold the same content, and how it differs.
type PlanNodes struct {
	Nodes []PlanNode `json:"nodes"`
	Hash  Hash       `json:"hash,omitempty" doc:"missing where nothing is held"`
	Size  int64      `json:"size,omitempty"`
	Difference
}

// PlanNode is one node and the revision that it holds, 0 for none.
type PlanNode struct {
	Node     string `json:"node"`
	Role     Role   `json:"role"`
	Revision int64  `json:"revision"`
	Enabled  bool   `json:"enabled"`
	Running  bool   `json:"running"`
}

// Applied is the result of an apply, with each object in a separate transaction: one
// that failed, which has a problem, does not undo the others.
type Applied struct {
	Digest  string          `json:"digest"`
	Failed  int             `json:"failed"`
	Objects []AppliedObject `json:"objects"`
}

// AppliedObject is one object after an apply: what it is now, and what was started.
type AppliedObject struct {
	PlanKey
	Action          string     `json:"action"`
	Generation      int64      `json:"generation,omitempty"`
	ResourceVersion string     `json:"resourceVersion,omitempty"`
	Operation       *Operation `json:"operation,omitempty"`
	// Changes are the fields of a deployment that differ from what runs, each with its path.
	Changes []SpecChange `json:"changes,omitempty"`
	Problem *Problem     `json:"problem,omitempty"`
}
