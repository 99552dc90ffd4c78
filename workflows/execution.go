package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// ExecutionInput names the operation, which holds the module and its input.
type ExecutionInput struct {
	Operation fleet.OperationID `json:"operation"`
}

// executionOptions are for one try of a module.
func executionOptions(left time.Duration) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		StartToCloseTimeout: left, ScheduleToStartTimeout: time.Minute, HeartbeatTimeout: 10 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			MaximumAttempts: 3, InitialInterval: time.Second, NonRetryableErrorTypes: refusals(),
		},
	}
}

const (
	firstGap = time.Second
	maxGap   = 30 * time.Second
	// maxBegun is how often a module is asked again that gave no answer.
	maxBegun = 3
)

var modules *activities.Modules

// Execution runs a module of a provider until it has answered, or its deadline passed. What
// was begun without an answer is asked again under the same execution id. docs/modules.md
// draws it.
func Execution(ctx workflow.Context, in ExecutionInput) (DoorResult, error) {
	e := &execution{id: in.Operation, gap: firstGap}
	if served, err := e.begin(ctx); err != nil || !served {
		return DoorResult{Operation: in.Operation}, err
	}
	for !e.step.State.Ended() {
		if err := e.try(ctx); err != nil {
			return e.result(), err
		}
		if err := e.wait(ctx); err != nil {
			return e.result(), err
		}
	}
	return e.result(), nil
}

// execution is the run that carries one operation out.
type execution struct {
	id    fleet.OperationID
	until time.Time
	gap   time.Duration
	begun int // tries that may have run the module
	step  activities.ExecutionStep
}

// begin takes the operation over; one that has ended is served by nobody.
func (e *execution) begin(ctx workflow.Context) (bool, error) {
	var begun activities.BegunExecution
	err := insist(ctx, modules.BeginExecution, activities.BeginExecution{
		Operation: e.id, Run: workflow.GetInfo(ctx).WorkflowExecution.RunID,
	}, &begun)
	if err != nil && kindOf(err) == fleet.IllegalState {
		return false, nil
	}
	e.until = workflow.Now(ctx).Add(time.Duration(begun.SecondsLeft * float64(time.Second)))
	e.step.State = fleet.OperationRunning
	return true, err
}

func (e *execution) try(ctx workflow.Context) error {
	left := e.until.Sub(workflow.Now(ctx))
	if left <= 0 {
		return e.giveUp(ctx)
	}
	in := activities.RunModule{Operation: e.id, Last: e.begun+1 >= maxBegun}
	var step activities.ExecutionStep
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, executionOptions(left)), modules.RunModule, in).Get(ctx, &step)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil { // the server that made the try is gone, or its database
		step = activities.ExecutionStep{State: fleet.OperationRunning, Reason: string(kindOf(err)), Message: "the try was lost", Begun: true}
	}
	e.step = step
	if step.Begun {
		e.begun++
	}
	if e.begun >= maxBegun && !step.State.Ended() {
		return e.giveUp(ctx)
	}
	return nil
}

// wait says what it waits for, and when it goes on (X8).
func (e *execution) wait(ctx workflow.Context) error {
	if e.step.State.Ended() {
		return nil
	}
	pause := max(0, min(e.gap, e.until.Sub(workflow.Now(ctx))))
	e.gap = min(2*e.gap, maxGap)
	workflow.SetCurrentDetails(ctx, "**"+e.step.Reason+"**: "+e.step.Message+"\n\nagain at "+
		workflow.Now(ctx).Add(pause).UTC().Format(time.RFC3339)+", until "+e.until.UTC().Format(time.RFC3339))
	return workflow.Sleep(ctx, pause)
}

// giveUp ends what has no time left: unknown, when the module may have run.
func (e *execution) giveUp(ctx workflow.Context) error {
	end := fleet.ExecutionEnd{
		Operation: e.id, State: fleet.OperationFailed, Reason: "deadline", Message: "nobody could be asked in time: " + e.step.Message,
	}
	if e.begun > 0 {
		end.State, end.Reason, end.Message = fleet.OperationUnknown, "no_answer", "it may have been done: "+e.step.Message
	}
	e.step = activities.ExecutionStep{State: end.State, Reason: end.Reason, Message: end.Message}
	return insist(ctx, modules.EndExecution, end, nil)
}

func (e *execution) result() DoorResult {
	return DoorResult{Operation: e.id, State: e.step.State, Reason: e.step.Reason, Message: e.step.Message}
}
