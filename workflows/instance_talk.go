package workflows

import (
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// notify tells a node what was prepared for it.
func (e *instance) notify(ctx workflow.Context, a decide.InstanceAction, cmd fleet.RefreshDeploymentCommand) {
	e.now.Command = nil
	cmd.IdleTimeout = e.in.Limits.Request
	total, delivery := e.in.Limits.Total, fleet.DeliveryID("")
	if open := e.now.Seen.Open; a.Do == decide.DoNotify && open != nil {
		total, delivery = open.Deadline.Sub(e.now.Seen.At), open.ID
	}
	ctx, cancel := workflow.WithCancel(ctx)
	ctx = workflow.WithActivityOptions(ctx, notifyOptions(a.Node, e.in.Limits.Request, max(total, nodeHeartbeat)))
	e.say(&talk{action: a, delivery: delivery, cancel: cancel, answer: workflow.ExecuteActivity(ctx, nodes.RefreshDeployment, cmd)})
}

func (e *instance) ask(ctx workflow.Context, a decide.InstanceAction) {
	e.now.Run.Asks++
	ctx, cancel := workflow.WithCancel(ctx)
	ctx = workflow.WithActivityOptions(ctx, askOptions(a.Node, e.in.Limits.Request/4))
	t := &talk{action: a, cancel: cancel, answer: workflow.ExecuteActivity(ctx, nodes.QueryDeployment, e.in.Instance)}
	if open := e.now.Seen.Open; open != nil {
		t.delivery = open.ID
	}
	e.say(t)
}

func (e *instance) say(t *talk) {
	e.talk = t
	e.now.Run.InFlight, e.now.Run.Waited = t.action.Node, ""
}

// pause waits before a retry, or until a wake cuts it short, and looks again.
func (e *instance) pause(ctx workflow.Context, a decide.InstanceAction) error {
	timing, cancel := workflow.WithCancel(ctx)
	defer cancel()
	workflow.NewSelector(ctx).
		AddFuture(workflow.NewTimer(timing, a.Wait), func(workflow.Future) { e.now.Run.Waited = a.Node }).
		AddReceive(e.wake, func(c workflow.ReceiveChannel, _ bool) { c.ReceiveAsync(nil) }).
		Select(ctx)
	return e.look(ctx)
}

// listen waits for the node's answer or for a wake, whichever comes first. After a wake
// the decision may be to cut the node short: supersede and cancel are accepted at any
// instant (X7).
func (e *instance) listen(ctx workflow.Context) error {
	answered := false
	workflow.NewSelector(ctx).
		AddFuture(e.talk.answer, func(workflow.Future) { answered = true }).
		AddReceive(e.wake, func(c workflow.ReceiveChannel, _ bool) { c.ReceiveAsync(nil) }).
		Select(ctx)
	if !answered {
		return e.look(ctx)
	}
	t := e.talk
	e.talk, e.now.Run.InFlight = nil, ""
	if t.action.Do == decide.DoAsk {
		return e.answered(ctx, t)
	}
	return e.notified(ctx, t)
}

// hangUp lets go of a node without waiting: cancellation travels with its heartbeats, and
// whatever it still does is ordered by its own store.
func (e *instance) hangUp() {
	if e.talk != nil {
		e.talk.cancel()
		e.talk = nil
	}
}

func (e *instance) notified(ctx workflow.Context, t *talk) error {
	var res fleet.DeploymentStatusResponse
	err := t.answer.Get(ctx, &res)
	if err == nil {
		return e.visit(ctx, e.applied(t, res))
	}
	state, kind, message := classify(err, t.action.Node)
	return e.visit(ctx, e.miss(t, state, kind, message))
}

// answered: what the node holds settles the open delivery, or the ones before it.
func (e *instance) answered(ctx workflow.Context, t *talk) error {
	open := e.now.Seen.Open
	var held fleet.Held
	err := t.answer.Get(ctx, &held)
	switch {
	case err != nil && t.delivery == "":
		return e.look(ctx)
	case err != nil:
		return e.visit(ctx, e.miss(t, fleet.TargetUnknown, fleet.Communication, "the node did not answer"))
	case t.delivery == "" || open == nil:
		return e.visit(ctx, fleet.Step{Settle: &fleet.Settle{Subject: e.self, Node: t.action.Node, Held: held}})
	case decide.Applied(held, open.Revision):
		return e.visit(ctx, e.applied(t, fleet.DeploymentStatusResponse{Already: true, Held: held}))
	}
	return e.visit(ctx, e.miss(t, fleet.TargetFailed, fleet.Communication, "its answer was lost, and it does not hold the revision"))
}

func (e *instance) applied(t *talk, res fleet.DeploymentStatusResponse) fleet.Step {
	return fleet.Step{Record: &fleet.Record{Subject: e.self, Delivery: t.delivery, Node: t.action.Node, Response: res}}
}

func (e *instance) miss(t *talk, state fleet.TargetState, kind fleet.Kind, message string) fleet.Step {
	return fleet.Step{Miss: &fleet.Miss{
		Subject: e.self, Delivery: t.delivery, Node: t.action.Node, State: state, Reason: kind, Message: message,
	}}
}

// classify says what the end of a node's activity means. Never taken: the node was not
// there (unavailable). Taken and lost: unknown until the node is asked (N44, N81).
func classify(err error, node fleet.NodeName) (fleet.TargetState, fleet.Kind, string) {
	var timeout *temporal.TimeoutError
	if errors.As(err, &timeout) {
		if timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START {
			return fleet.TargetFailed, fleet.Unavailable, fmt.Sprintf("node %s was not there to take the task", node)
		}
		return fleet.TargetUnknown, fleet.Communication, fmt.Sprintf("node %s stopped answering", node)
	}
	if temporal.IsCanceledError(err) {
		return fleet.TargetUnknown, fleet.Communication, "it was cut short"
	}
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return fleet.TargetFailed, kindOf(err), app.Message()
	}
	return fleet.TargetUnknown, fleet.Internal, "the answer could not be read"
}

// kindOf reads the fleet kind from a Temporal error.
func kindOf(err error) fleet.Kind {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		for _, k := range fleet.Kinds() {
			if string(k) == app.Type() {
				return k
			}
		}
		return fleet.Internal
	}
	var timeout *temporal.TimeoutError
	if errors.As(err, &timeout) {
		return fleet.Unavailable
	}
	return fleet.KindOf(err)
}

// status answers the status query.
func (e *instance) status() InstanceStatus {
	s := InstanceStatus{Seen: e.now.Seen, Rule: e.now.Next.Rule}
	if n := e.now.Next.Node; n != "" {
		s.Waits = "for node " + string(n)
	}
	if o := e.now.Seen.Open; o != nil {
		s.Until = &o.Deadline
	}
	return s
}

// details are what people read in Temporal Web.
func (e *instance) details() string {
	a := e.now.Next
	line := fmt.Sprintf("**%s**: %s", a.Rule, a.Do)
	if a.Node != "" {
		line += " " + string(a.Node)
	}
	if o := e.now.Seen.Open; o != nil {
		line += fmt.Sprintf(", revision %d, delivery %s, until %s", o.Revision.Version.Revision, o.ID, o.Deadline.Format("15:04:05"))
	}
	return line
}
