package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// executionStore keeps what executions are given and give back.
type executionStore interface {
	// ServeExecution is illegal_state for one that has ended.
	ServeExecution(ctx context.Context, in BeginExecution, build string) (left time.Duration, err error)
	ExecutionInput(ctx context.Context, id fleet.OperationID) (fleet.Execution, error)
	NoteExecution(ctx context.Context, id fleet.OperationID, reason, message string) error
	// EndExecution ends it once: what ended it first stays.
	EndExecution(ctx context.Context, e fleet.ExecutionEnd) error
}

// executor runs modules. Unavailable was begun by nobody, communication may have been.
type executor interface {
	Execute(ctx context.Context, e fleet.Execution) (fleet.ExecutionAnswer, error)
}

// Modules are the steps of ExecuteModule.
type Modules struct {
	Store    executionStore
	Executor executor
	Doors    doorTeller
	Build    string
}

// BeginExecution names an execution and the run that serves it.
type BeginExecution struct {
	Operation fleet.OperationID `json:"operation"`
	Run       string            `json:"run"`
}

// BegunExecution says how long there is left.
type BegunExecution struct {
	SecondsLeft float64 `json:"secondsLeft"`
}

// BeginExecution takes an execution over for a run. Each has one workflow id, so that two runs
// do not serve it side by side.
func (m *Modules) BeginExecution(ctx context.Context, in BeginExecution) (BegunExecution, error) {
	if activity.GetInfo(ctx).WorkflowExecution.ID != fleet.ExecutionSubject(in.Operation) {
		return BegunExecution{}, fail(ctx, fleet.Errorf(fleet.Invalid, "operation %s runs under the workflow id %s only", in.Operation, fleet.ExecutionSubject(in.Operation)).
			At("/operation").WithHint("start ExecuteModule with a module and its input"))
	}
	left, err := m.Store.ServeExecution(ctx, in, m.Build)
	return BegunExecution{left.Seconds()}, fail(ctx, err)
}

// RunModule is one try of an execution: its key is the operation, and a provider sees it.
type RunModule struct {
	Operation fleet.OperationID `json:"operation"`
	// Last says that a try without an answer is not followed by another.
	Last bool `json:"last,omitempty"`
}

// ExecutionStep is what a try came to. While it runs, Reason and Message say what it waits
// for, and Begun that the module may have been.
type ExecutionStep struct {
	State   fleet.OperationState `json:"state"`
	Reason  string               `json:"reason,omitempty"`
	Message string               `json:"message,omitempty"`
	Begun   bool                 `json:"begun,omitempty"`
}

// RunModule runs the module and stores what it answers; input and output stay out of the
// history (X10, X27).
func (m *Modules) RunModule(ctx context.Context, in RunModule) (ExecutionStep, error) {
	stop := beating(ctx)
	defer stop()
	e, err := m.Store.ExecutionInput(ctx, in.Operation)
	if err != nil {
		return ExecutionStep{}, fail(ctx, err)
	}
	answer, err := m.Executor.Execute(ctx, e)
	end := endOfTry(in, e.Module, answer, err)
	step := ExecutionStep{State: end.State, Reason: end.Reason, Message: end.Message, Begun: fleet.KindOf(err) == fleet.Communication}
	if end.State == fleet.OperationRunning {
		return step, fail(ctx, m.Store.NoteExecution(ctx, in.Operation, end.Reason, end.Message))
	}
	return step, m.end(ctx, end)
}

// EndExecution gives an execution up.
func (m *Modules) EndExecution(ctx context.Context, end fleet.ExecutionEnd) error {
	return m.end(ctx, end)
}

func (m *Modules) end(ctx context.Context, end fleet.ExecutionEnd) error {
	if err := m.Store.EndExecution(ctx, end); err != nil {
		return fail(ctx, err)
	}
	return fail(ctx, m.Doors.TellDoors(ctx, fleet.ExecutionSubject(end.Operation)))
}

// endOfTry says how an execution ends with a try; it is running when there may be another.
func endOfTry(in RunModule, of fleet.ModuleRef, answer fleet.ExecutionAnswer, err error) fleet.ExecutionEnd {
	end := fleet.ExecutionEnd{Operation: in.Operation, State: fleet.OperationSucceeded, Output: answer.Output, Connection: answer.Connection}
	if err == nil {
		return end
	}
	kind := fleet.KindOf(err)
	end.Output, end.Reason, end.State = nil, string(kind), fleet.OperationFailed
	switch {
	case kind == fleet.Communication && in.Last:
		end.State, end.Reason, end.Message = fleet.OperationUnknown, "no_answer", said(err)
	case kind == fleet.Communication || kind == fleet.Unavailable:
		end.State, end.Message = fleet.OperationRunning, said(err)
	case kind == fleet.ApplyFailed: // what a module says stays out of the history
		end.Message, end.Failure = "module "+of.String()+" failed; the output of the operation says why", said(err)
	default:
		end.Message, end.Failure = said(err), said(err)
	}
	return end
}

func said(err error) string {
	var known *fleet.Error
	if errors.As(err, &known) {
		return known.Error()
	}
	return "the region failed to do this"
}

const beatEvery = 2 * time.Second

// beating sends heartbeats until it is told to stop.
func beating(ctx context.Context) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				activity.RecordHeartbeat(ctx)
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}
