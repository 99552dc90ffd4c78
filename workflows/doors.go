package workflows

import (
	"encoding/json"

	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Types of the doors, which any Temporal client starts.
const (
	TypeDeployInstance     = "DeployInstance"
	TypeSetInstanceState   = "SetInstanceState"
	TypeDeployFleet        = "DeployFleet"
	TypeConvergeDeployment = "ConvergeDeployment"
	TypeScaleDeployment    = "ScaleDeployment"
	TypeRestartDeployment  = "RestartDeployment"
	TypeRolloutDeployment  = "RolloutDeployment"
	TypeDestroyDeployment  = "DestroyDeployment"
	TypeReconcileNode      = "ReconcileNode"
	TypeDrainNode          = "DrainNode"
	TypeFailoverSite       = "FailoverSite"
	TypeExecuteModule      = "ExecuteModule"
	TypeApplyRegionPolicy  = "ApplyRegionPolicy"
	TypeSyncRegion         = "SyncRegion"
	TypeHandOverRegion     = "HandOverRegion"
)

// Doors are the workflow types by which any Temporal client requests an operation, one row each: the type and what
// it requests. Each waits for the operation, and fails when that fails.
func Doors() map[string]any {
	return map[string]any{
		TypeDeployInstance:   requests[DeployInstanceInput](fleet.OperationDeploy), // delivers the desired revision
		TypeSetInstanceState: SetInstanceState,
		TypeDeployFleet:      requests[DeployFleetInput](fleet.OperationFleet), // joins a run that is under way
		// ConvergeDeployment releases what was only written, and starts again what was given up.
		TypeConvergeDeployment: requests[DeploymentDoorInput](fleet.OperationConverge),
		TypeScaleDeployment:    requests[ScaleDeploymentInput](fleet.OperationScale),
		TypeRestartDeployment:  requests[RestartDeploymentInput](fleet.OperationRestart),
		TypeRolloutDeployment:  requests[RolloutDeploymentInput](fleet.OperationTurn),
		TypeDestroyDeployment:  requests[DeploymentDoorInput](fleet.OperationDestroy),
		TypeReconcileNode:      requests[ReconcileNodeInput](fleet.OperationReconcile),
		TypeDrainNode:          requests[DrainNodeInput](fleet.OperationDrain),
		TypeFailoverSite:       requests[FailoverSiteInput](fleet.OperationFailover),
		TypeExecuteModule:      requests[ExecuteModuleInput](fleet.OperationExecute),
		TypeApplyRegionPolicy:  requests[ApplyRegionPolicyInput](fleet.OperationApplyPolicy), // to all that the holder governs
		TypeSyncRegion:         requests[SyncRegionInput](fleet.OperationSync),
		TypeHandOverRegion:     requests[HandOverRegionInput](fleet.OperationHandOver), // of a policy holder, to another region
	}
}

// doorInput is what a person gives to a door.
type doorInput interface {
	// Validate refuses what no operation could be requested for.
	Validate() error
}

// requests makes the door that requests operations of a kind.
func requests[T doorInput](kind fleet.OperationKind) func(workflow.Context, T) (DoorResult, error) {
	return func(ctx workflow.Context, in T) (DoorResult, error) { return door(ctx, kind, in) }
}

// DeployInstanceInput names an instance: {"site":"plant-1","instance":"press-7"}.
type DeployInstanceInput struct {
	Site     fleet.SiteName     `json:"site"`
	Instance fleet.InstanceName `json:"instance"`
}

// Validate refuses names that no instance has.
func (in DeployInstanceInput) Validate() error {
	if err := fleet.ValidateName("/site", string(in.Site)); err != nil {
		return err
	}
	return fleet.ValidateName("/instance", string(in.Instance))
}

// SetInstanceStateInput names an instance and the state it is to have: enabled, disabled
// or deleted.
type SetInstanceStateInput struct {
	Site     fleet.SiteName     `json:"site"`
	Instance fleet.InstanceName `json:"instance"`
	State    string             `json:"state"`
}

// SetInstanceState enables, disables or deletes an instance, and waits for its nodes.
func SetInstanceState(ctx workflow.Context, in SetInstanceStateInput) (DoorResult, error) {
	kind, ok := map[string]fleet.OperationKind{
		"enabled": fleet.OperationEnable, "disabled": fleet.OperationDisable, "deleted": fleet.OperationDelete,
	}[in.State]
	if !ok {
		return DoorResult{}, refused(fleet.Errorf(fleet.Invalid, `unknown state %.40q: want enabled, disabled or deleted`, in.State))
	}
	return door(ctx, kind, DeployInstanceInput{Site: in.Site, Instance: in.Instance})
}

// DeployFleetInput names a fleet change: {"fleet":"press-v7"}.
type DeployFleetInput struct {
	Fleet fleet.FleetName `json:"fleet"`
}

// Validate refuses a name that no fleet change has.
func (in DeployFleetInput) Validate() error { return fleet.ValidateName("/fleet", string(in.Fleet)) }

// DeploymentDoorInput names a deployment: {"deployment":"web"}.
type DeploymentDoorInput struct {
	Deployment fleet.DeploymentName `json:"deployment"`
}

// Validate refuses a name that no deployment has.
func (in DeploymentDoorInput) Validate() error {
	return fleet.ValidateName("/deployment", string(in.Deployment))
}

// RestartDeploymentInput names a deployment: {"deployment":"web"}. New replicas start before old ones end, or after all have
// ended.
type RestartDeploymentInput struct {
	Deployment fleet.DeploymentName `json:"deployment"`
	StopFirst  bool                 `json:"stopFirst,omitempty"`
}

// Validate refuses a name that no deployment has.
func (in RestartDeploymentInput) Validate() error {
	return fleet.ValidateName("/deployment", string(in.Deployment))
}

// RolloutDeploymentInput names a deployment, and the revision to go back to: {"deployment":"web","revision":3}. Or it names what is
// asked of its rollout: pause, resume, promote, cancel, retry or rollback, that without a revision. With Rollout and Step a late
// request changes nothing.
type RolloutDeploymentInput struct {
	Deployment fleet.DeploymentName `json:"deployment"`
	Revision   int64                `json:"revision,omitempty"`
	Verb       string               `json:"verb,omitempty"`
	Rollout    int64                `json:"rollout,omitempty"`
	Step       int                  `json:"step,omitempty"`
	Reason     string               `json:"reason,omitempty"`
}

// RolloutVerbs are what may be asked of a rollout, by the state that they lead to; those without one do more.
func RolloutVerbs() map[string]fleet.RolloutEvent {
	return map[string]fleet.RolloutEvent{
		"pause": fleet.RolloutPause, "resume": fleet.RolloutResume, "promote": fleet.RolloutPromote, "cancel": fleet.RolloutCancel,
		"retry": "", "rollback": "",
	}
}

// Validate refuses an unknown verb, and a revision beside another verb than rollback.
func (in RolloutDeploymentInput) Validate() error {
	_, known := RolloutVerbs()[in.Verb]
	switch {
	case in.Revision < 0 || in.Rollout < 0 || in.Step < 0:
		return fleet.Errorf(fleet.Invalid, "invalid number: want 1 or more").At("/revision")
	case in.Verb == "" && in.Revision == 0:
		return fleet.Errorf(fleet.Invalid, "give a revision to go back to, or a verb").At("/verb")
	case in.Verb != "" && !known:
		return fleet.Errorf(fleet.Invalid, "unknown verb %.40q: use pause, resume, promote, cancel, retry or rollback", in.Verb).At("/verb")
	case in.Revision > 0 && in.Verb != "" && in.Verb != "rollback":
		return fleet.Errorf(fleet.Invalid, "only a rollback goes to a revision").At("/revision")
	}
	return fleet.ValidateName("/deployment", string(in.Deployment))
}

// ScaleDeploymentInput names a deployment and its new target, within its bounds: {"deployment":"web","replicas":5}.
type ScaleDeploymentInput struct {
	Deployment fleet.DeploymentName `json:"deployment"`
	Replicas   *int                 `json:"replicas"`
}

// Validate refuses a scale without a target.
func (in ScaleDeploymentInput) Validate() error {
	if in.Replicas == nil {
		return fleet.Errorf(fleet.Invalid, "replicas is required: give a whole number, 0 or more").At("/replicas")
	}
	return fleet.ValidateName("/deployment", string(in.Deployment))
}

// ReconcileNodeInput names a node: {"node":"plant-1-b"}.
type ReconcileNodeInput struct {
	Node fleet.NodeName `json:"node"`
}

// Validate refuses a name that no node has.
func (in ReconcileNodeInput) Validate() error { return fleet.ValidateName("/node", string(in.Node)) }

// DrainNodeInput names a node: {"node":"plant-1-a","reason":"new disk","deadlineSeconds":60}.
// Force stops what runs there when there is no other place for it.
type DrainNodeInput struct {
	Node            fleet.NodeName `json:"node"`
	Reason          string         `json:"reason,omitempty"`
	DeadlineSeconds int64          `json:"deadlineSeconds,omitempty"`
	Force           bool           `json:"force,omitempty"`
}

// Validate refuses a name that no node has.
func (in DrainNodeInput) Validate() error { return fleet.ValidateName("/node", string(in.Node)) }

// FailoverSiteInput names a site and the node that is to be its active, "" for the other of the
// pair: {"site":"plant-1","to":"plant-1-b"}. Force does not ask the holder first. DrainOf is the
// node whose drain asks.
type FailoverSiteInput struct {
	Site    fleet.SiteName `json:"site"`
	To      fleet.NodeName `json:"to,omitempty"`
	Force   bool           `json:"force,omitempty"`
	DrainOf fleet.NodeName `json:"drainOf,omitempty"`
}

// Validate refuses names that no site or node has.
func (in FailoverSiteInput) Validate() error {
	if err := fleet.ValidateName("/site", string(in.Site)); err != nil || in.To == "" {
		return err
	}
	return fleet.ValidateName("/to", string(in.To))
}

// ExecuteModuleInput names a module and what it is given:
// {"module":"acme.vision.Detect","input":{"image":"…"}}. Who starts it so has the input in the
// history: give it no secret.
type ExecuteModuleInput struct {
	Module         string          `json:"module"`
	Input          json.RawMessage `json:"input,omitempty"`
	TimeoutSeconds int             `json:"timeoutSeconds,omitempty"`
}

// Validate refuses a name that no module has, and an input or a time beyond the limits.
func (in ExecuteModuleInput) Validate() error {
	return fleet.ValidExecution(in.Module, in.Input, in.TimeoutSeconds)
}

// ApplyRegionPolicyInput names a policy holder: {"holder":"project/p1"}.
type ApplyRegionPolicyInput struct {
	Holder string `json:"holder"`
}

// Validate refuses what cannot carry a policy.
func (in ApplyRegionPolicyInput) Validate() error {
	_, err := fleet.ParseHolder("/holder", in.Holder)
	return err
}

// SyncRegionInput names a peer: {"peer":"us"}. AcceptRemovals has the comparison take all copies away that the peer does not
// know.
type SyncRegionInput struct {
	Peer           fleet.RegionName `json:"peer"`
	AcceptRemovals bool             `json:"acceptRemovals,omitempty"`
}

// Validate refuses a name that no region has.
func (in SyncRegionInput) Validate() error { return fleet.ValidateName("/peer", string(in.Peer)) }

// HandOverRegionInput names a policy holder and the region that is to control it: {"holder":"project/p1","to":"us"}. Region
// created the holder, "" as in a write. With Force, this region claims it without its owner.
type HandOverRegionInput struct {
	Holder string `json:"holder"`
	Region string `json:"region,omitempty"`
	To     string `json:"to"`
	Force  bool   `json:"force,omitempty"`
}

// Validate refuses what cannot carry a policy, and what is no name of a region.
func (in HandOverRegionInput) Validate() error {
	if _, err := fleet.ParseHolder("/holder", in.Holder); err != nil {
		return err
	}
	if in.Region != "" {
		if err := fleet.ValidateName("/region", in.Region); err != nil {
			return err
		}
	}
	return fleet.ValidateName("/to", in.To)
}
