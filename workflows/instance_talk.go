package workflows

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// notify prepares a token and tells a node, after the pause that a retry has.
func (e *instance) notify(ctx workflow.Context, a decide.InstanceAction) error {
	if a.Wait > 0 && e.pause(ctx, a) {
		return e.observe(ctx)
	}
	p := fleet.Prepare{Subject: e.self, Node: a.Node, TTL: e.in.Limits.PendingTTL}
	if a.Do == decide.DoServe {
		p.Ticket = ticketID(e.self.Run, e.nextStep())
	} else {
		p.Delivery = e.seen.Open.ID
	}
	var cmd fleet.RefreshDeploymentCommand
	err := workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, storeOptions()), instances.Prepare, p).Get(ctx, &cmd)
	if err != nil {
		return e.notPrepared(ctx, a, p.Delivery, err)
	}
	cmd.IdleTimeout = e.in.Limits.Request
	total := e.in.Limits.Total
	if e.seen.Open != nil {
		total = e.seen.Open.Deadline.Sub(workflow.Now(ctx))
	}
	ctx, cancel := workflow.WithCancel(ctx)
	ctx = workflow.WithActivityOptions(ctx, notifyOptions(a.Node, e.in.Limits.Request, max(total, nodeHeartbeat)))
	e.talk = &talk{
		action: a, delivery: p.Delivery, cancel: cancel,
		answer: workflow.ExecuteActivity(ctx, nodes.RefreshDeployment, cmd),
	}
	return nil
}

// ticketID is fixed by run and step, so that a repeated step makes the same ticket.
func ticketID(run, step string) fleet.DeliveryID {
	sum := sha256.Sum256([]byte(run + "/ticket/" + step))
	return fleet.DeliveryID(hex.EncodeToString(sum[:16]))
}

// notPrepared: a conflict means that the delivery moved on; anything else that the node
// cannot be told now.
func (e *instance) notPrepared(ctx workflow.Context, a decide.InstanceAction, id fleet.DeliveryID, err error) error {
	if kind := kindOf(err); kind != fleet.Conflict {
		return e.miss(ctx, a, id, fleet.TargetFailed, fleet.Unavailable, err.Error())
	}
	return e.observe(ctx)
}

func (e *instance) ask(ctx workflow.Context, a decide.InstanceAction) {
	e.memory.Asks++
	ctx, cancel := workflow.WithCancel(ctx)
	ctx = workflow.WithActivityOptions(ctx, askOptions(a.Node, e.in.Limits.Request/4))
	e.talk = &talk{action: a, cancel: cancel, answer: workflow.ExecuteActivity(ctx, nodes.QueryDeployment, e.in.Instance)}
	if e.seen.Open != nil {
		e.talk.delivery = e.seen.Open.ID
	}
}

// pause waits before a retry and says whether a wake cut it short.
func (e *instance) pause(ctx workflow.Context, a decide.InstanceAction) bool {
	woken := false
	ctx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	workflow.NewSelector(ctx).
		AddFuture(workflow.NewTimer(ctx, a.Wait), func(workflow.Future) {}).
		AddReceive(e.wake, func(c workflow.ReceiveChannel, _ bool) { woken = c.ReceiveAsync(nil) }).
		Select(ctx)
	return woken
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
		return e.observe(ctx)
	}
	t := e.talk
	e.talk = nil
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
		return e.step(ctx, instances.Record, fleet.Record{Subject: e.self, Delivery: t.delivery, Node: t.action.Node, Response: res})
	}
	state, kind, message := classify(err, t.action.Node)
	return e.miss(ctx, t.action, t.delivery, state, kind, message)
}

// answered: what the node holds settles the open delivery, or the ones before it.
func (e *instance) answered(ctx workflow.Context, t *talk) error {
	var held fleet.Held
	if err := t.answer.Get(ctx, &held); err != nil {
		if t.delivery == "" {
			return nil
		}
		return e.miss(ctx, t.action, t.delivery, fleet.TargetUnknown, fleet.Communication, "the node did not answer")
	}
	switch {
	case t.delivery == "" || e.seen.Open == nil:
		return e.step(ctx, instances.Settle, fleet.Settle{Subject: e.self, Node: t.action.Node, Held: held})
	case decide.Applied(held, e.seen.Open.Revision):
		return e.step(ctx, instances.Record, fleet.Record{
			Subject: e.self, Delivery: t.delivery, Node: t.action.Node,
			Response: fleet.DeploymentStatusResponse{Already: true, Held: held},
		})
	}
	return e.miss(ctx, t.action, t.delivery, fleet.TargetFailed, fleet.Communication, "its answer was lost, and it does not hold the revision")
}

func (e *instance) miss(ctx workflow.Context, a decide.InstanceAction, id fleet.DeliveryID, state fleet.TargetState, kind fleet.Kind, message string) error {
	return e.step(ctx, instances.Miss, fleet.Miss{
		Subject: e.self, Delivery: id, Node: a.Node, State: state, Reason: kind, Message: message,
	})
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

// say keeps the status that people see in Temporal Web and by the status query.
func (e *instance) say(ctx workflow.Context, a decide.InstanceAction) {
	e.status = InstanceStatus{Seen: e.seen, Rule: a.Rule}
	line := fmt.Sprintf("**%s**: %s", a.Rule, a.Do)
	if a.Node != "" {
		line += " " + string(a.Node)
		e.status.Waits = "for node " + string(a.Node)
	}
	if o := e.seen.Open; o != nil {
		line += fmt.Sprintf(", revision %d, delivery %s, until %s", o.Revision.Version.Revision, o.ID, o.Deadline.Format("15:04:05"))
		e.status.Until = &o.Deadline
	}
	workflow.SetCurrentDetails(ctx, line)
}
