package region

import (
	"context"
	"strconv"
	"sync"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/workflows"
)

// healTemporal is what the region's own client of Temporal speaks to: who is woken waits in
// a queue until the scheduler picks it, and who runs is signalled.
type healTemporal struct {
	client.Client // the rest of it is called by nobody
	region        *healRegion
}

func (t *healTemporal) ExecuteWorkflow(_ context.Context, o client.StartWorkflowOptions, _ any, args ...any) (client.WorkflowRun, error) {
	w := t.region.now
	if w.wakeIsLost(o.ID) {
		return nil, serviceerror.NewUnavailable("lost")
	}
	if w.entities[o.ID] != nil {
		return nil, serviceerror.NewWorkflowExecutionAlreadyStarted("it runs", "", "")
	}
	w.enqueue(o.ID, args[0])
	return nil, nil
}

func (t *healTemporal) SignalWithStartWorkflow(_ context.Context, id, signal string, _ any, _ client.StartWorkflowOptions, _ any, args ...any) (client.WorkflowRun, error) {
	w := t.region.now
	if w.wakeIsLost(id) {
		return nil, serviceerror.NewUnavailable("lost")
	}
	if e := w.entities[id]; e != nil {
		e.signal(signal)
		return nil, nil
	}
	w.enqueue(id, args[0])
	return nil, nil
}

func (t *healTemporal) DescribeWorkflowExecution(_ context.Context, _, run string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	status, known := t.region.now.runs[run]
	if !known {
		return nil, serviceerror.NewNotFound("no such run")
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Status: status}}, nil
}

// ListWorkflow finds nothing: no run is pinned to any build.
func (t *healTemporal) ListWorkflow(context.Context, *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	return &workflowservice.ListWorkflowExecutionsResponse{}, nil
}

// GetWorkflowHistory has no reason to read: whoever ended a run was a person.
func (t *healTemporal) GetWorkflowHistory(context.Context, string, string, bool, enumspb.HistoryEventFilterType) client.HistoryEventIterator {
	return noEvents{}
}

type noEvents struct{ client.HistoryEventIterator }

func (noEvents) HasNext() bool { return false }

// healEntity is one run of an entity: queued, or at work in an environment of its own.
type healEntity struct {
	world   *healWorld
	subject string
	run     string
	input   any
	env     *testsuite.TestWorkflowEnvironment
	dead    bool // terminated: its workflow can take no step any more
	short   bool // its history is long from the start
	visits  int
	retries int // visits whose answer was lost

	mu     sync.Mutex
	cond   *sync.Cond
	visit  *activities.Visited // of the signal that is waited for
	awaits bool
	sleeps bool // for a while, because the store refused it
	starts int  // activities begun, and how many of them have ended
	turn   int

	// Of the entity of a fleet change.
	child   *healEntity // the part of a site that is at work
	parked  bool        // it waits, and is not in the queue
	busy    bool        // it has a part of a site delivered
	signals int         // that came, and those that came before the last look
	heard   int
	looking int // looks that have not ended
}

func (w *healWorld) enqueue(subject string, input any) {
	w.queue = append(w.queue, w.newEntity(subject, input))
}

// newEntity begins a run.
func (w *healWorld) newEntity(subject string, input any) *healEntity {
	e := &healEntity{world: w, subject: subject, run: "run-" + strconv.Itoa(len(w.runs)), input: input}
	e.cond = sync.NewCond(&e.mu)
	w.runs[e.run] = enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	w.entities[subject] = e
	return e
}

// close takes a run out of the way of the next one.
func (e *healEntity) close(as enumspb.WorkflowExecutionStatus) {
	if e.world.entities[e.subject] == e {
		delete(e.world.entities, e.subject)
	}
	if e.world.runs[e.run] == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		e.world.runs[e.run] = as
	}
}

// terminate ends a run from outside, and the part of a site that it waits for.
func (e *healEntity) terminate() {
	e.mu.Lock()
	child := e.child
	e.mu.Unlock()
	if child != nil {
		child.terminate()
	}
	e.dead = true
	e.close(enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED)
	for i, q := range e.world.queue {
		if q == e {
			e.world.queue = append(e.world.queue[:i:i], e.world.queue[i+1:]...)
			break
		}
	}
}

// signal wakes a run that is at work, and returns when it has taken its step: the workflow
// of an instance visits the store for each signal, and perhaps speaks to a node anew.
func (e *healEntity) signal(name string) {
	if e.env == nil {
		e.world.unpark() // else it looks when it begins
		return
	}
	switch e.workflow() {
	case workflows.TypeFleet:
		e.signalFleet(name)
		return
	case workflows.TypeNode, workflows.TypeDeliverSite:
		e.env.SignalWorkflow(name, nil)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	starts := e.starts
	e.visit, e.awaits = nil, !e.sleeps
	e.env.SignalWorkflow(name, nil)
	for e.awaits {
		e.cond.Wait()
	}
	if e.visit == nil || e.short {
		return
	}
	if e.visit.Command == nil && e.visit.Next.Do != decide.DoAsk {
		return
	}
	for e.starts == starts {
		e.cond.Wait()
	}
}

// visited says that a visit has ended; nil is one that the store refused.
func (e *healEntity) visited(out *activities.Visited) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.awaits {
		e.visit, e.awaits = out, false
	}
	e.sleeps = out == nil
	if out != nil && out.Next.Do == decide.DoNothing {
		e.close(enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED)
	}
	e.cond.Broadcast()
}

// enter begins an activity: those of one run are at work one after another, in the order in
// which they were asked for.
func (e *healEntity) enter() {
	e.mu.Lock()
	defer e.mu.Unlock()
	mine := e.starts
	e.starts++
	e.cond.Broadcast()
	for e.turn != mine {
		e.cond.Wait()
	}
}

func (e *healEntity) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.turn++
	e.cond.Broadcast()
}

// rest waits for the activities that the workflow did not wait for: a look that cancels it is one.
func (e *healEntity) rest() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.turn != e.starts || e.looking > 0 {
		e.cond.Wait()
	}
}
