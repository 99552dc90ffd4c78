package workflows

import (
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// DrainInput names the node that is drained.
type DrainInput struct {
	Node fleet.NodeName `json:"node"`
	// Kept is what the run before remembered.
	Kept *KeptDrain `json:"kept,omitempty"`
}

// KeptDrain is what survives a run that continues as new.
type KeptDrain struct {
	Began time.Time       `json:"began"` // of the drain that Run is about
	Run   decide.DrainRun `json:"run"`
}

// DrainStatus answers the status query: what is seen, and why the entity waits (X8).
type DrainStatus struct {
	Seen fleet.DrainSeen    `json:"seen"`
	Run  decide.DrainRun    `json:"run"`
	Next decide.DrainAction `json:"next"`
}

var drains *activities.Drains

// Drain empties a node: it is cordoned, its site's lease goes to its peer, its connections
// finish what they have, and at the deadline are cut off. docs/drain.md draws it.
func Drain(ctx workflow.Context, in DrainInput) (DoorResult, error) {
	d := &drainNode{node: in.Node, wake: workflow.GetSignalChannel(ctx, SignalWake)}
	if in.Kept != nil {
		d.kept = *in.Kept
	}
	err := workflow.SetQueryHandler(ctx, QueryStatus, func() (DrainStatus, error) {
		return DrainStatus{Seen: d.seen, Run: d.kept.Run, Next: d.next}, nil
	})
	if err != nil {
		return DoorResult{}, err
	}
	for {
		if err := d.look(ctx); err != nil {
			return d.result, err
		}
		if d.talk == nil && workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return DoorResult{}, workflow.NewContinueAsNewError(ctx, TypeDrain, DrainInput{Node: in.Node, Kept: &d.kept})
		}
		if d.seen.Operation == "" { // no drain is open
			if !d.wake.ReceiveAsync(nil) {
				return d.result, nil
			}
			continue
		}
		if err := d.act(ctx); err != nil {
			return d.result, err
		}
	}
}

// drainNode is the entity of a node's drain.
type drainNode struct {
	node   fleet.NodeName
	wake   workflow.ReceiveChannel
	seen   fleet.DrainSeen
	kept   KeptDrain
	next   decide.DrainAction
	noted  string // the rule that people see
	talk   *drainTalk
	result DoorResult
}

// drainTalk is what was asked of another and is not answered.
type drainTalk struct {
	answer workflow.Future
	cancel workflow.CancelFunc
	heard  func(err error)
}

var phaseKey = temporal.NewSearchAttributeKeyKeyword(AttributePhase)

// look drains the signals first: what they announced is in what is read after them.
func (d *drainNode) look(ctx workflow.Context) error {
	drain(d.wake)
	in := fleet.DrainLook{Node: d.node, Run: workflow.GetInfo(ctx).WorkflowExecution.RunID}
	if d.next.Do == decide.DrainWait {
		in.Phase, in.Rule, in.Message = d.next.Phase, d.next.Rule, d.next.Message
		d.noted = d.next.Rule
	}
	d.seen = fleet.DrainSeen{}
	if err := insist(ctx, drains.SeeDrain, in, &d.seen); err != nil {
		return err
	}
	if d.seen.Operation == "" {
		return nil
	}
	if !d.seen.Began.Equal(d.kept.Began) {
		d.hangUp()
		d.kept = KeptDrain{Began: d.seen.Began}
	}
	before := d.next
	d.next = decide.Drain(d.seen, d.run(ctx))
	workflow.SetCurrentDetails(ctx, "**"+d.next.Rule+"**: node "+string(d.node)+". "+d.next.Message)
	if d.next.Do == before.Do && d.next.Do != decide.DrainWait { // the row did not follow
		if err := workflow.Sleep(ctx, storeGap); err != nil {
			return err
		}
	}
	if before.Phase == d.next.Phase {
		return nil
	}
	return workflow.UpsertTypedSearchAttributes(ctx, phaseKey.ValueSet(string(d.next.Phase)))
}

// run is what is remembered, as the database times it. Again was noted by Temporal's clock, and
// counts by that where the two differ by more than a rest.
func (d *drainNode) run(ctx workflow.Context) decide.DrainRun {
	run := d.kept.Run
	if ahead := workflow.Now(ctx).Sub(d.seen.At); ahead.Abs() > decide.DrainMoveAgain && !run.Again.IsZero() {
		run.Again = run.Again.Add(-ahead)
	}
	return run
}

func (d *drainNode) act(ctx workflow.Context) error {
	connections := activities.DrainConnections{Node: d.node, IDs: d.next.Connections}
	switch d.next.Do {
	case decide.DrainMove:
		d.move(ctx)
	case decide.DrainStop:
		d.stop(ctx)
	case decide.DrainAsk:
		d.kept.Run.Asked = true
		return insist(ctx, drains.AskDrain, connections, nil)
	case decide.DrainEvict:
		d.kept.Run.Evicted = true
		return insist(ctx, drains.EvictReplicas, d.node, nil)
	case decide.DrainCut:
		return insist(ctx, drains.CutDrain, connections, nil)
	case decide.DrainWait:
		return d.wait(ctx)
	case decide.DrainFinish, decide.DrainClose:
		return d.finish(ctx)
	}
	return nil
}

// move asks for a failover as anybody would. The child is a door: its end loses only the waiter,
// and who ends the drain cancels the operation.
func (d *drainNode) move(ctx workflow.Context) {
	ctx, cancel := workflow.WithCancel(ctx)
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowExecutionTimeout: d.next.Limit, WorkflowTaskTimeout: taskTimeout,
		ParentClosePolicy: enumspb.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
	})
	in := FailoverSiteInput{Site: d.seen.Site, To: d.seen.Peer.Node, DrainOf: d.node}
	d.kept.Run.Moving, d.kept.Run.Ran = true, d.kept.Run.Ran || d.seen.Running > 0
	d.talk = &drainTalk{answer: workflow.ExecuteChildWorkflow(ctx, TypeFailoverSite, in), cancel: cancel, heard: func(err error) {
		d.kept.Run.Moving, d.kept.Run.Refused = false, ""
		d.kept.Run.Again = workflow.Now(ctx).Add(decide.DrainMoveAgain)
		if err != nil {
			d.kept.Run.Refused = refusal(err)
		}
	}}
}

// refusal is what a failover answered.
func refusal(err error) string {
	var timeout *temporal.TimeoutError
	var app *temporal.ApplicationError
	switch {
	case errors.As(err, &timeout):
		return "the failover did not end in time"
	case errors.As(err, &app):
		return app.Message()
	}
	return "the failover could not be asked for"
}

// stop has the node stop what runs and give the lease back, to nobody.
func (d *drainNode) stop(ctx workflow.Context) {
	d.hangUp()
	ctx, cancel := workflow.WithCancel(ctx)
	ctx = workflow.WithActivityOptions(ctx, leaseOptions(d.node, d.next.Limit/2, d.next.Limit/2))
	in := fleet.HandOverCommand{Site: d.seen.Site, DeadlineSeconds: int64(d.next.Limit / 2 / time.Second), Signed: d.seen.Signed}
	answer := workflow.ExecuteActivity(ctx, nodes.HandOver, in)
	d.kept.Run.Stopping = true
	d.talk = &drainTalk{answer: answer, cancel: cancel, heard: func(err error) {
		var out fleet.HandOverResult
		if err == nil {
			err = answer.Get(ctx, &out)
		}
		d.kept.Run.Stopping, d.kept.Run.Stopped = false, err == nil && out.Released
		switch {
		case err != nil:
			_, _, d.kept.Run.Failed = classify(err, d.node)
		case !out.Released:
			d.kept.Run.Failed = out.Reason
		}
		if !d.kept.Run.Stopped && d.kept.Run.Failed == "" {
			d.kept.Run.Failed = "it did not say why"
		}
	}}
}

// hangUp lets go of who was asked; whatever comes of it shows in what is seen.
func (d *drainNode) hangUp() {
	if d.talk != nil {
		d.talk.cancel()
		d.talk, d.kept.Run.Moving, d.kept.Run.Stopping = nil, false, false
	}
}

// wait ends with an answer, with a wake, or at its time. What it waits for is written down by
// a look before.
func (d *drainNode) wait(ctx workflow.Context) error {
	if d.noted != d.next.Rule {
		return nil
	}
	timing, cancel := workflow.WithCancel(ctx)
	defer cancel()
	s := workflow.NewSelector(ctx).
		AddReceive(d.wake, func(c workflow.ReceiveChannel, _ bool) { c.ReceiveAsync(nil) }).
		AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {}).
		AddFuture(workflow.NewTimer(timing, d.next.Wait), func(workflow.Future) {})
	if talk := d.talk; talk != nil {
		s.AddFuture(talk.answer, func(f workflow.Future) {
			d.talk = nil
			talk.heard(f.Get(ctx, nil))
		})
	}
	s.Select(ctx)
	return ctx.Err()
}

// finish ends what was asked, and remembers it as the result of this run.
func (d *drainNode) finish(ctx workflow.Context) error {
	d.hangUp()
	end := fleet.DrainEnd{
		Node: d.node, Operation: d.seen.Operation, State: d.next.State, Reason: d.next.Rule, Message: d.next.Message,
	}
	d.result = DoorResult{Operation: d.seen.Operation, State: end.State, Reason: end.Reason, Message: end.Message}
	if err := insist(ctx, drains.EndDrain, end, nil); err != nil || end.State == fleet.OperationSucceeded {
		return err
	}
	return workflow.UpsertTypedSearchAttributes(ctx, outcomeKey.ValueSet(string(end.State)))
}
