package activities

import (
	"context"

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

// DoorRequest is what a door requests: an operation of a kind, with the input of the door's workflow.
type DoorRequest struct {
	Kind     fleet.OperationKind `json:"kind"`
	Input    any                 `json:"input"`
	Workflow string              `json:"workflow,omitempty"`
	Run      string              `json:"run,omitempty"`
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
	info := activity.GetInfo(ctx).WorkflowExecution
	in.Workflow, in.Run = info.ID, info.RunID
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
