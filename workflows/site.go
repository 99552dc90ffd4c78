package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// SiteInput names a site, and how long a node may take to begin what it is asked about the lease.
type SiteInput struct {
	Site fleet.SiteName `json:"site"`
	Take time.Duration  `json:"take,omitempty"`
}

// FailoverStatus answers the status query: what is seen, and why the entity waits (X8).
type FailoverStatus struct {
	Seen fleet.FailoverSeen    `json:"seen"`
	Run  decide.FailoverRun    `json:"run"`
	Next decide.FailoverAction `json:"next"`
}

var failovers *activities.Failovers

// defaultTake is how long a node may take to begin, for runs that nobody told.
const defaultTake = 15 * time.Second

// Site moves a site's lease: it asks the holder to stop and release and the target to
// stand, or without the holder has the votes wait until it ran out. The votes decide; this
// asks, records and follows up. docs/failover.md draws it.
func Site(ctx workflow.Context, in SiteInput) (DoorResult, error) {
	f := &failoverSite{site: in.Site, take: in.Take, wake: workflow.GetSignalChannel(ctx, SignalWake)}
	if f.take <= 0 {
		f.take = defaultTake
	}
	err := workflow.SetQueryHandler(ctx, QueryStatus, func() (FailoverStatus, error) {
		return FailoverStatus{Seen: f.seen, Run: f.run, Next: f.next}, nil
	})
	if err != nil {
		return DoorResult{}, err
	}
	for {
		if err := f.look(ctx); err != nil {
			return f.result, err
		}
		if f.talk == nil && workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return DoorResult{}, workflow.NewContinueAsNewError(ctx, TypeSite, in)
		}
		if f.next.Do == decide.FailoverNothing {
			if !f.wake.ReceiveAsync(nil) {
				return f.result, nil
			}
			continue
		}
		if err := f.act(ctx); err != nil {
			return f.result, err
		}
	}
}

// failoverSite is the entity of a site's lease.
type failoverSite struct {
	site   fleet.SiteName
	take   time.Duration
	wake   workflow.ReceiveChannel
	seen   fleet.FailoverSeen
	run    decide.FailoverRun
	next   decide.FailoverAction
	talk   *leaseTalk
	result DoorResult
}

// leaseTalk is what a node was asked and has not answered.
type leaseTalk struct {
	action decide.FailoverAction
	answer workflow.Future
	cancel workflow.CancelFunc
}

// look drains the signals first: what they announced is in what is read after them.
func (f *failoverSite) look(ctx workflow.Context) error {
	drain(f.wake)
	in := fleet.FailoverLook{Site: f.site, Run: workflow.GetInfo(ctx).WorkflowExecution.RunID}
	if f.seen.Operation != "" && f.next.Do != decide.FailoverFinish {
		in.To, in.Reason, in.Message = f.seen.To, f.next.Reason, f.next.Message
	}
	f.seen = fleet.FailoverSeen{}
	if err := insist(ctx, failovers.SeeFailover, in, &f.seen); err != nil {
		return err
	}
	if f.seen.Operation != f.run.Operation {
		f.hangUp()
		f.run = decide.FailoverRun{Operation: f.seen.Operation}
	}
	f.run = f.run.Watched(f.seen)
	f.next = decide.Failover(f.seen, f.run)
	workflow.SetCurrentDetails(ctx, "**"+f.next.Rule+"**: site "+string(f.site)+" to "+string(f.seen.To)+". "+f.next.Message)
	return nil
}

func (f *failoverSite) act(ctx workflow.Context) error {
	target := activities.FailoverTarget{Site: f.site, To: f.seen.To}
	switch f.next.Do {
	case decide.FailoverAim:
		f.run.Aimed = true
		return insist(ctx, failovers.AimVote, target, nil)
	case decide.FailoverWithdraw:
		return insist(ctx, failovers.AimVote, activities.FailoverTarget{Site: f.site}, nil)
	case decide.FailoverHandOver:
		limit := wholeSeconds(f.next.Limit)
		cmd := f.seen.HandOver(f.site)
		cmd.DeadlineSeconds, cmd.Signed = int64(limit/time.Second), f.seen.Signed.HandOver
		f.ask(ctx, limit, nodes.HandOver, cmd)
		return nil
	case decide.FailoverTakeOver:
		limit := wholeSeconds(f.next.Limit)
		signed := f.seen.Signed.TakeOver
		if f.next.Forced {
			signed = f.seen.Signed.Forced
		}
		f.ask(ctx, limit, nodes.TakeOver, fleet.TakeOverCommand{
			Site: f.site, Forced: f.next.Forced, DeadlineSeconds: int64(limit / time.Second), Signed: signed,
		})
		return nil
	case decide.FailoverWait:
		return f.wait(ctx)
	case decide.FailoverFinish:
		return f.finish(ctx)
	case decide.FailoverNothing:
	}
	return nil
}

func wholeSeconds(d time.Duration) time.Duration { return max(time.Second, d.Truncate(time.Second)) }

// ask sends a node an activity, whose answer is waited for together with wakes.
func (f *failoverSite) ask(ctx workflow.Context, limit time.Duration, step, in any) {
	ctx, cancel := workflow.WithCancel(ctx)
	ctx = workflow.WithActivityOptions(ctx, leaseOptions(f.next.Node, f.take, limit))
	f.talk = &leaseTalk{action: f.next, cancel: cancel, answer: workflow.ExecuteActivity(ctx, step, in)}
	f.run.InFlight = true
}

// hangUp lets go of a node without waiting: whatever it still does, votes decide.
func (f *failoverSite) hangUp() {
	if f.talk != nil {
		f.talk.cancel()
		f.talk = nil
	}
}

// wait ends with the node's answer, with a wake, or at its time.
func (f *failoverSite) wait(ctx workflow.Context) error {
	timing, cancel := workflow.WithCancel(ctx)
	defer cancel()
	var failed error
	answered := false
	s := workflow.NewSelector(ctx).
		AddReceive(f.wake, func(c workflow.ReceiveChannel, _ bool) { c.ReceiveAsync(nil) }).
		AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) { failed = ctx.Err() }).
		AddFuture(workflow.NewTimer(timing, f.next.Wait), func(workflow.Future) { f.run.Waits++ })
	if f.talk != nil {
		s.AddFuture(f.talk.answer, func(workflow.Future) { answered = true })
	}
	s.Select(ctx)
	if failed == nil && answered {
		f.answered(ctx)
	}
	return failed
}

// answered remembers what a node said.
func (f *failoverSite) answered(ctx workflow.Context) {
	t := f.talk
	f.talk, f.run = nil, f.run.Answered()
	a := &decide.NodeAnswer{Node: t.action.Node}
	var err error
	if t.action.Do == decide.FailoverHandOver {
		var out fleet.HandOverResult
		err = t.answer.Get(ctx, &out)
		a.Done, a.Epoch, a.Reason = out.Released, out.Epoch, out.Reason
		f.run.HandOver = a
	} else {
		var out fleet.TakeOverResult
		err = t.answer.Get(ctx, &out)
		a.Done, a.Epoch, a.Reason = out.Epoch > 0, out.Epoch, out.Reason
		f.run.TakeOver = a
	}
	if err != nil {
		_, _, a.Reason = classify(err, t.action.Node)
		a.NotThere = true
	}
}

// finish ends what was asked, and remembers it as the result of this run.
func (f *failoverSite) finish(ctx workflow.Context) error {
	f.hangUp()
	end := fleet.FailoverEnd{
		Site: f.site, To: f.seen.To, State: f.next.State, Reason: f.next.Reason, Message: f.next.Message,
		OnlyCancelled: f.next.State == fleet.OperationCancelled,
	}
	f.result = DoorResult{Operation: f.seen.Operation, State: end.State, Reason: end.Reason, Message: end.Message}
	return insist(ctx, failovers.EndFailover, end, nil)
}
