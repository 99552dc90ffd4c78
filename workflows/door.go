package workflows

import (
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// DoorResult says how the operation that a door asked for ended.
type DoorResult struct {
	Operation fleet.OperationID    `json:"operation"`
	State     fleet.OperationState `json:"state"`
	Reason    string               `json:"reason,omitempty"`
	Message   string               `json:"message,omitempty"`
	Revision  int64                `json:"revision,omitempty"`
	Hash      fleet.Hash           `json:"revisionHash,omitempty"`
}

var doors *activities.Doors

// door requests an operation, wakes its entity and waits until the operation has ended. Its death loses only the
// waiter.
func door(ctx workflow.Context, kind fleet.OperationKind, in doorInput) (DoorResult, error) {
	if id := workflow.GetInfo(ctx).WorkflowExecution.ID; fleet.ReservedID(id) {
		drain(workflow.GetSignalChannel(ctx, SignalWake)) // meant for the entity; the outbox and the sweeps repeat it
		return DoorResult{}, refused(errReserved(id))
	}
	if err := in.Validate(); err != nil {
		return DoorResult{}, refused(err)
	}
	ended := workflow.GetSignalChannel(ctx, SignalOperationEnded)
	local := workflow.WithLocalActivityOptions(ctx, storeOptions())
	var op activities.OperationView
	if err := workflow.ExecuteLocalActivity(local, doors.Request, activities.DoorRequest{Kind: kind, Input: in}).Get(ctx, &op); err != nil {
		return DoorResult{}, err
	}
	workflow.SetCurrentDetails(ctx, "operation "+string(op.Operation)+", served by workflow "+op.Subject)
	if err := workflow.ExecuteLocalActivity(local, doors.Wake, op.Subject).Get(ctx, nil); err != nil {
		workflow.GetLogger(ctx).Warn("the outbox wakes the entity", "error", err)
	}
	if err := awaitEnd(ctx, ended, &op); err != nil {
		return DoorResult{}, err
	}
	return result(op)
}

// errReserved refuses an id that an entity of the region may need.
func errReserved(id string) error {
	kinds := fleet.EntityKinds()
	forms := make([]string, len(kinds))
	for i, k := range kinds {
		forms[i] = k.Prefix + ".…"
	}
	return fleet.Errorf(fleet.Invalid, "the workflow id %.200q is reserved for the region, as are all of the forms %s; use another id",
		id, strings.Join(forms, ", "))
}

// refused ends a workflow that nothing can be done for.
func refused(err error) error {
	return temporal.NewNonRetryableApplicationError(err.Error(), string(fleet.KindOf(err)), nil)
}

// lookEvery is how often a door looks by itself, should the word of the end be lost.
const lookEvery = time.Minute

func awaitEnd(ctx workflow.Context, ended workflow.ReceiveChannel, op *activities.OperationView) error {
	local := workflow.WithLocalActivityOptions(ctx, storeOptions())
	for !op.State.Ended() {
		left := time.Duration(op.SecondsLeft * float64(time.Second))
		timer, stop := workflow.WithCancel(ctx)
		workflow.NewSelector(ctx).
			AddReceive(ended, func(c workflow.ReceiveChannel, _ bool) {
				var end fleet.OperationEnd
				if c.ReceiveAsync(&end) && end.Operation == op.Operation {
					op.OperationEnd = end
				}
			}).
			AddFuture(workflow.NewTimer(timer, max(time.Second, min(left, lookEvery))), func(workflow.Future) {}).
			Select(ctx)
		stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if op.State.Ended() {
			return nil
		}
		if err := workflow.ExecuteLocalActivity(local, doors.Look, op.Operation).Get(ctx, op); err != nil {
			workflow.GetLogger(ctx).Warn("the operation cannot be read now", "error", err)
		}
	}
	return nil
}

func drain(c workflow.ReceiveChannel) {
	for c.ReceiveAsync(nil) {
		continue
	}
}

// result fails the door's workflow when the operation failed, so that Temporal shows it.
func result(op activities.OperationView) (DoorResult, error) {
	r := DoorResult{
		Operation: op.Operation, State: op.State, Reason: op.Reason, Message: op.Message,
		Revision: op.Revision.Revision, Hash: op.Hash,
	}
	switch op.State {
	case fleet.OperationFailed, fleet.OperationUnknown, fleet.OperationCancelled:
		return r, temporal.NewNonRetryableApplicationError(
			"operation "+string(op.Operation)+" "+string(op.State)+": "+op.Reason+" "+op.Message, string(op.State), nil, r)
	case fleet.OperationRunning, fleet.OperationSucceeded, fleet.OperationSuperseded:
	}
	return r, nil
}
