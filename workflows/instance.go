package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// InstanceInput names the instance. The deadlines travel along, so that a run keeps those
// that it was started with; zero values mean the defaults.
type InstanceInput struct {
	Site     fleet.SiteName     `json:"site"`
	Instance fleet.InstanceName `json:"instance"`
	Limits   DeliveryLimits     `json:"limits,omitzero"`
}

// DeliveryLimits bound one delivery.
type DeliveryLimits struct {
	// Request is how long a node may take to take the task, and then go without progress
	// (N37: 120 s).
	Request time.Duration `json:"request,omitempty"`
	// Total bounds the whole delivery (default 30 min).
	Total time.Duration `json:"total,omitempty"`
	// PendingTTL is how long a config can be fetched without progress (N20: 5 min).
	PendingTTL time.Duration `json:"pendingTtl,omitempty"`
}

// The defaults of DeliveryLimits.
const (
	DefaultRequest    = 120 * time.Second
	DefaultTotal      = 30 * time.Minute
	DefaultPendingTTL = 5 * time.Minute
)

func (l DeliveryLimits) orDefault() DeliveryLimits {
	if l.Request <= 0 {
		l.Request = DefaultRequest
	}
	if l.Total <= 0 {
		l.Total = DefaultTotal
	}
	if l.PendingTTL <= 0 {
		l.PendingTTL = DefaultPendingTTL
	}
	return l
}

// InstanceStatus answers the status query: what is seen, and why the entity waits (X8).
type InstanceStatus struct {
	Seen  fleet.InstanceSeen `json:"seen"`
	Rule  string             `json:"rule"`
	Waits string             `json:"waits,omitempty"`
	Until *time.Time         `json:"until,omitempty"`
}

// Instance is the entity of one instance: it serves all open operations of it and ends
// when there is nothing left to do. What it does next is decide.Instance; docs/delivery.md
// draws it.
func Instance(ctx workflow.Context, in InstanceInput) error {
	e, err := newInstance(ctx, in)
	if err != nil {
		return err
	}
	for {
		if err := e.observe(ctx); err != nil {
			return err
		}
		if err := e.run(ctx); err != nil {
			return err
		}
		if !e.woken() {
			return nil
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return workflow.NewContinueAsNewError(ctx, TypeInstance, in)
		}
	}
}

type instance struct {
	in     InstanceInput
	self   fleet.Subject
	wake   workflow.ReceiveChannel
	seen   fleet.InstanceSeen
	memory decide.InstanceRun
	status InstanceStatus
	steps  int
	talk   *talk
}

// talk is what was said to a node and not yet answered.
type talk struct {
	action   decide.InstanceAction
	delivery fleet.DeliveryID
	answer   workflow.Future
	cancel   workflow.CancelFunc
}

func newInstance(ctx workflow.Context, in InstanceInput) (*instance, error) {
	in.Limits = in.Limits.orDefault()
	e := &instance{
		in: in, wake: workflow.GetSignalChannel(ctx, SignalWake),
		self: fleet.Subject{Site: in.Site, Instance: in.Instance, Run: workflow.GetInfo(ctx).WorkflowExecution.RunID},
	}
	err := workflow.SetQueryHandler(ctx, QueryStatus, func() (InstanceStatus, error) { return e.status, nil })
	return e, err
}

// run takes step after step until the decision is that there is nothing to do.
func (e *instance) run(ctx workflow.Context) error {
	for {
		e.memory.InFlight = ""
		if e.talk != nil {
			e.memory.InFlight = e.talk.action.Node
		}
		a := decide.Instance(e.seen, e.memory, workflow.Now(ctx))
		e.say(ctx, a)
		if a.Do == decide.DoNothing {
			return nil
		}
		if err := e.act(ctx, a); err != nil {
			return err
		}
	}
}

func (e *instance) act(ctx workflow.Context, a decide.InstanceAction) error {
	switch a.Do {
	case decide.DoClaim:
		e.hangUp()
		e.memory.Asks = 0
		return e.step(ctx, instances.Claim, fleet.Claim{
			Subject: e.self, Step: e.nextStep(), Workflow: workflow.GetInfo(ctx).WorkflowExecution.ID,
			Deadline: e.in.Limits.Total, TTL: e.in.Limits.PendingTTL,
		})
	case decide.DoNotify, decide.DoServe:
		return e.notify(ctx, a)
	case decide.DoAsk:
		e.ask(ctx, a)
		return nil
	case decide.DoWait:
		return e.listen(ctx)
	case decide.DoEnd:
		e.hangUp()
		return e.end(ctx, a)
	case decide.DoNothing:
	}
	return nil
}

// observe drains the signals first: what they announced is in what is read after them.
func (e *instance) observe(ctx workflow.Context) error {
	e.woken()
	return e.step(ctx, instances.Observe, e.self)
}

func (e *instance) woken() bool {
	woken := false
	for e.wake.ReceiveAsync(nil) {
		woken = true
	}
	return woken
}

func (e *instance) nextStep() string {
	e.steps++
	return fmt.Sprintf("%d", e.steps)
}

func (e *instance) end(ctx workflow.Context, a decide.InstanceAction) error {
	end := fleet.End{
		Subject: e.self, State: a.State, Operation: a.Operation, Reason: a.Reason, Message: a.Message,
		Owe: a.Owe, OnlyCancelled: a.OnlyCancelled,
	}
	if e.seen.Open != nil {
		end.Delivery, end.Since = e.seen.Open.ID, e.seen.Open.Since
	}
	if err := e.step(ctx, instances.End, end); err != nil {
		return err
	}
	return workflow.UpsertTypedSearchAttributes(ctx, outcomeKey.ValueSet(string(a.Operation)))
}

var (
	outcomeKey = temporal.NewSearchAttributeKeyKeyword(AttributeOutcome)
	instances  *activities.Instances
	nodes      *activities.Node
)

// storeGap is the pause of an entity whose database does not answer.
const storeGap = 2 * time.Second

// step runs one database step, and what is seen after it is what is decided on. While the
// database is away it waits: the operations sweep ends what takes too long. A conflict
// means that the world moved, so it is looked at anew.
func (e *instance) step(ctx workflow.Context, activity, in any) error {
	for {
		var seen fleet.InstanceSeen
		err := workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, storeOptions()), activity, in).Get(ctx, &seen)
		if err == nil {
			e.seen = seen
			return nil
		}
		switch kindOf(err) {
		case fleet.NotFound:
			e.seen = fleet.InstanceSeen{}
			return nil
		case fleet.Conflict:
			activity, in = instances.Observe, e.self
		case fleet.Invalid, fleet.Denied, fleet.Unauthenticated, fleet.IllegalState, fleet.Precondition, fleet.TooLarge,
			fleet.Stale, fleet.HashMismatch, fleet.ApplyFailed:
			return err
		case fleet.Communication, fleet.RateLimited, fleet.Unavailable, fleet.Internal:
		}
		if err := workflow.Sleep(ctx, storeGap); err != nil {
			return err
		}
	}
}
