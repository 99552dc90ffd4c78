package activities

import (
	"context"
	"encoding/json"

	"go.temporal.io/sdk/activity"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// requester writes a request through the one write path. The same door asks once, however
// often its activity runs.
type requester interface {
	Request(ctx context.Context, r DoorRequest, by string) (OperationView, error)
	Operation(ctx context.Context, id fleet.OperationID) (OperationView, error)
}

// waker wakes the entity of a subject: signal it, and start it when it does not run.
type waker interface {
	Wake(ctx context.Context, subject string) error
}

// starterReader reads who started a workflow run.
type starterReader interface {
	StartedBy(ctx context.Context, workflow, run string) (string, error)
}

// Doors are what a door does: write the request, wake the entity, look at the operation.
type Doors struct {
	Requests requester
	Entities waker
	Starts   starterReader
}

// DoorRequest is one thing asked for through a workflow.
type DoorRequest struct {
	Kind     fleet.OperationKind `json:"kind"`
	Site     fleet.SiteName      `json:"site"`
	Instance fleet.InstanceName  `json:"instance"`
	Node     fleet.NodeName      `json:"node,omitempty"`  // instead of an instance
	Fleet    fleet.FleetName     `json:"fleet,omitempty"` // instead of an instance
	Drain    *fleet.DrainOrder   `json:"drain,omitempty"` // of a node
	// Deployment, and to how many replicas it is scaled, instead of an instance.
	Deployment fleet.DeploymentName `json:"deployment,omitempty"`
	Replicas   *int                 `json:"replicas,omitempty"`
	// Module, its input and how long it may take, instead of an instance.
	Module  string          `json:"module,omitempty"`
	Input   json.RawMessage `json:"input,omitempty"`
	Seconds int             `json:"seconds,omitempty"`
	Force   bool            `json:"force,omitempty"`   // of a failover to Node
	DrainOf fleet.NodeName  `json:"drainOf,omitempty"` // whose drain asks for a failover
	// Foreign is set of a door under a workflow id that the region gives to a run of another subject.
	Foreign  bool   `json:"foreign,omitempty"`
	Workflow string `json:"workflow"`
	Run      string `json:"run"`
}

// Subject is the entity that serves what is asked for, "" of an execution: each has a new one.
func (r DoorRequest) Subject() string {
	switch r.Kind {
	case fleet.OperationReconcile:
		return fleet.NodeSubject(r.Node)
	case fleet.OperationDrain:
		return fleet.DrainSubject(r.Node)
	case fleet.OperationFailover:
		return fleet.SiteSubject(r.Site)
	case fleet.OperationFleet:
		return fleet.FleetSubject(r.Fleet)
	case fleet.OperationConverge, fleet.OperationScale, fleet.OperationRestart, fleet.OperationDestroy:
		return fleet.DeploymentSubject(r.Deployment)
	case fleet.OperationExecute:
		return ""
	case fleet.OperationDeploy, fleet.OperationEnable, fleet.OperationDisable, fleet.OperationDelete, fleet.OperationRollback:
	}
	return fleet.InstanceSubject(r.Site, r.Instance)
}

// OperationView is an operation as a door sees it.
type OperationView struct {
	fleet.OperationEnd
	Subject string `json:"subject"`
	// SecondsLeft until its deadline.
	SecondsLeft float64 `json:"secondsLeft"`
}

// Request writes what the door asks for, as whoever started it (temporal:<identity>).
func (d *Doors) Request(ctx context.Context, in DoorRequest) (OperationView, error) {
	if err := in.validate(); err != nil {
		return OperationView{}, fail(ctx, err)
	}
	info := activity.GetInfo(ctx).WorkflowExecution
	in.Workflow, in.Run = info.ID, info.RunID
	if in.Foreign { // here and not in the workflow, whose histories stay as they are
		return OperationView{}, fail(ctx, in.foreign())
	}
	by, err := d.Starts.StartedBy(ctx, in.Workflow, in.Run)
	if err != nil {
		return OperationView{}, fail(ctx, err)
	}
	v, err := d.Requests.Request(ctx, in, "temporal:"+by)
	return v, fail(ctx, err)
}

// Wake hurries the entity; the outbox makes it sure.
func (d *Doors) Wake(ctx context.Context, subject string) error {
	return fail(ctx, d.Entities.Wake(ctx, subject))
}

// Look reads an operation.
func (d *Doors) Look(ctx context.Context, id fleet.OperationID) (OperationView, error) {
	v, err := d.Requests.Operation(ctx, id)
	return v, fail(ctx, err)
}

// foreign refuses a door that would get the wakes of another entity (X23).
func (r DoorRequest) foreign() error {
	allowed := "any id that begins with no kind of object and a dot"
	if own := r.Subject(); own != "" {
		allowed += ", or " + own
	}
	return fleet.Errorf(fleet.Invalid, "the workflow id %.200s is that of another entity; allowed is %s", r.Workflow, allowed)
}

func (r DoorRequest) validate() error {
	switch r.Kind {
	case fleet.OperationReconcile, fleet.OperationDrain:
		return fleet.ValidateName("/node", string(r.Node))
	case fleet.OperationFailover:
		if err := fleet.ValidateName("/site", string(r.Site)); err != nil || r.Node == "" {
			return err
		}
		return fleet.ValidateName("/to", string(r.Node))
	case fleet.OperationFleet:
		return fleet.ValidateName("/fleet", string(r.Fleet))
	case fleet.OperationConverge, fleet.OperationScale, fleet.OperationRestart, fleet.OperationDestroy:
		if r.Kind == fleet.OperationScale && r.Replicas == nil {
			return fleet.Errorf(fleet.Invalid, "to how many replicas?").At("/replicas")
		}
		return fleet.ValidateName("/deployment", string(r.Deployment))
	case fleet.OperationExecute:
		return fleet.ValidExecution(r.Module, r.Input, r.Seconds)
	case fleet.OperationDeploy, fleet.OperationEnable, fleet.OperationDisable, fleet.OperationDelete, fleet.OperationRollback:
	}
	if err := fleet.ValidateName("/site", string(r.Site)); err != nil {
		return err
	}
	return fleet.ValidateName("/instance", string(r.Instance))
}
