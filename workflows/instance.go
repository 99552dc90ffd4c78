package workflows

import (
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
	// Tries bounds the notifies of one node in one delivery (N48, N67: 3), each with a token
	// of its own, so that a passing failure to fetch is tried again.
	Tries int `json:"tries,omitempty"`
}

// The defaults of DeliveryLimits.
const (
	DefaultRequest    = decide.DefaultTake
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
	if l.Tries <= 0 {
		l.Tries = decide.DefaultTries
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
// when there is nothing left to do. Each visit at the store says what is next (it is
// decide.Instance that decides); the conversation with the nodes is here. docs/delivery.md
// draws it.
func Instance(ctx workflow.Context, in InstanceInput) error {
	e, err := newInstance(ctx, in)
	if err != nil {
		return err
	}
	for {
		if err := e.look(ctx); err != nil {
			return err
		}
		if err := e.run(ctx); err != nil {
			return err
		}
		switch {
		case e.now.Next.Do != decide.DoNothing: // cut short by its own length; the next run asks whoever was told
			e.woken() // it begins with a look, which sees what these announce
			return workflow.NewContinueAsNewError(ctx, TypeInstance, in)
		case !e.woken():
			return nil
		}
	}
}

type instance struct {
	in     InstanceInput
	self   fleet.Subject
	wake   workflow.ReceiveChannel
	now    activities.Visited
	visits int
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
	e.now.Run.Tries, e.now.Run.Take = in.Limits.Tries, in.Limits.Request
	err := workflow.SetQueryHandler(ctx, QueryStatus, func() (InstanceStatus, error) { return e.status(), nil })
	return e, err
}

// run does what is next until there is nothing to do, or the history is long.
func (e *instance) run(ctx workflow.Context) error {
	for e.now.Next.Do != decide.DoNothing && !workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
		workflow.SetCurrentDetails(ctx, e.details())
		if err := e.act(ctx, e.now.Next); err != nil {
			return err
		}
	}
	workflow.SetCurrentDetails(ctx, e.details())
	return nil
}

func (e *instance) act(ctx workflow.Context, a decide.InstanceAction) error {
	switch {
	case e.now.Command != nil:
		e.notify(ctx, a, *e.now.Command)
		return e.listen(ctx)
	case a.Do == decide.DoNotify && a.Wait > 0:
		return e.pause(ctx, a)
	case a.Do == decide.DoAsk:
		e.ask(ctx, a)
		return e.listen(ctx)
	case a.Do == decide.DoWait:
		return e.listen(ctx)
	}
	return e.look(ctx) // the visit was cut short
}

// look drains the signals first: what they announced is in what is read after them.
func (e *instance) look(ctx workflow.Context) error {
	e.woken()
	return e.visit(ctx, fleet.Step{})
}

func (e *instance) woken() bool {
	woken := false
	for e.wake.ReceiveAsync(nil) {
		woken = true
	}
	return woken
}

var (
	outcomeKey = temporal.NewSearchAttributeKeyKeyword(AttributeOutcome)
	instances  *activities.Instances
	nodes      *activities.Node
)

// storeGap is the pause of an entity whose database does not answer.
const storeGap = 2 * time.Second

// visit tells the store what happened, and hears what is next. While the database is away
// it waits: the operations sweep ends what takes too long. A conflict means that the world
// moved, so it is looked at anew.
func (e *instance) visit(ctx workflow.Context, step fleet.Step) error {
	e.visits++
	in := activities.Visit{
		Subject: e.self, Step: step, Run: e.now.Run, Workflow: workflow.GetInfo(ctx).WorkflowExecution.ID,
		Number: e.visits, Total: e.in.Limits.Total, TTL: e.in.Limits.PendingTTL,
	}
	for {
		var out activities.Visited
		err := workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, storeOptions()), instances.Visit, in).Get(ctx, &out)
		if err == nil {
			return e.heard(ctx, out)
		}
		switch kindOf(err) {
		case fleet.NotFound:
			return e.heard(ctx, activities.Visited{Next: decide.InstanceAction{Rule: "never_released", Do: decide.DoNothing}})
		case fleet.Conflict:
			in.Step = fleet.Step{}
		case fleet.Invalid, fleet.Denied, fleet.Unauthenticated, fleet.IllegalState, fleet.Precondition, fleet.TooLarge,
			fleet.Stale, fleet.HashMismatch, fleet.ApplyFailed, fleet.Gone, fleet.IsolationMissing, fleet.NotOwner:
			return err
		case fleet.Communication, fleet.RateLimited, fleet.Unavailable, fleet.Internal:
		}
		if err := workflow.Sleep(ctx, storeGap); err != nil {
			return err
		}
	}
}

// heard takes over what a visit came to. A node that does not count any more is let go.
// Success is the rule and needs no mark: each change of an attribute writes the run's row
// in Temporal's visibility store again.
func (e *instance) heard(ctx workflow.Context, out activities.Visited) error {
	e.now = out
	if out.Run.InFlight == "" {
		e.hangUp()
	}
	if out.Ended == "" || out.Ended == fleet.OperationSucceeded {
		return nil
	}
	return workflow.UpsertTypedSearchAttributes(ctx, outcomeKey.ValueSet(string(out.Ended)))
}
