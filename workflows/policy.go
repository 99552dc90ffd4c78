package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// PolicyInput names a policy holder.
type PolicyInput struct {
	Kind fleet.ObjectKind `json:"kind"`
	Name string           `json:"name"`
}

// PolicyStatus answers the status query: how far the policy is applied.
type PolicyStatus struct {
	Holder string           `json:"holder"`
	Turn   fleet.PolicyTurn `json:"turn"`
}

// policyOptions are for some pages of objects. If all tries fail, the run fails, and the outbox starts another.
var policyOptions = workflow.ActivityOptions{
	StartToCloseTimeout: 10 * time.Minute, ScheduleToStartTimeout: time.Minute, HeartbeatTimeout: 10 * time.Second,
	RetryPolicy: &temporal.RetryPolicy{
		MaximumAttempts: 6, InitialInterval: time.Second, MaximumInterval: 5 * time.Second, NonRetryableErrorTypes: refusals(),
	},
}

// cancelOptions are for one call of the new owner; the run waits before it tries again.
var cancelOptions = workflow.ActivityOptions{
	StartToCloseTimeout: 20 * time.Second, ScheduleToStartTimeout: time.Minute,
	RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1, NonRetryableErrorTypes: refusals()},
}

// The pauses between two looks at a hand-over that waits for another region.
const (
	firstHandOverPause = time.Second
	lastHandOverPause  = 15 * time.Second
)

var policies *activities.Policies

// Policy applies the policy of a holder to all that it governs, page by page, until one full turn was made with the
// newest policy. Postgres stores the position, so a new run continues there. docs/policy.md draws it.
func Policy(ctx workflow.Context, in PolicyInput) (DoorResult, error) {
	status := PolicyStatus{Holder: string(in.Kind) + "/" + in.Name}
	err := workflow.SetQueryHandler(ctx, QueryStatus, func() (PolicyStatus, error) { return status, nil })
	if err != nil {
		return DoorResult{}, err
	}
	wake := workflow.GetSignalChannel(ctx, SignalWake)
	acting := workflow.WithActivityOptions(ctx, policyOptions)
	visit := fleet.PolicyVisit{Kind: in.Kind, Name: in.Name, Run: workflow.GetInfo(ctx).WorkflowExecution.RunID}
	for pause := firstHandOverPause; ; {
		drain(wake)               // the activity reads what they announced
		var turn fleet.PolicyTurn // a new one: what is empty in an answer is not sent
		if err := workflow.ExecuteActivity(acting, policies.ApplyPolicy, visit).Get(ctx, &turn); err != nil {
			return DoorResult{}, err
		}
		status.Turn = turn
		message := fmt.Sprintf("generation %d of %s: %d objects visited, the syncing of %d changed",
			status.Turn.Generation, status.Holder, status.Turn.Visited, status.Turn.Refreshed)
		workflow.SetCurrentDetails(ctx, "**apply** "+message)
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return DoorResult{}, workflow.NewContinueAsNewError(ctx, TypePolicy, in)
		}
		if status.Turn.Waits {
			if err := awaitHandOver(ctx, visit, *status.Turn.HandOver, pause); err != nil {
				return DoorResult{}, err
			}
			pause = min(2*pause, lastHandOverPause)
			continue
		}
		pause = firstHandOverPause
		if status.Turn.Done && !wake.ReceiveAsync(nil) {
			return DoorResult{State: fleet.OperationSucceeded, Reason: "applied", Message: message}, nil
		}
	}
}

// awaitHandOver cancels a hand-over that the operator wants back, and waits for the other region, or for a wake.
func awaitHandOver(ctx workflow.Context, visit fleet.PolicyVisit, h fleet.HandOver, pause time.Duration) error {
	workflow.SetCurrentDetails(ctx, "**hand over** to region "+h.To+": "+h.Waits)
	if h.Cancel {
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, cancelOptions), policies.CancelHandOver, visit).Get(ctx, nil)
		if err == nil {
			return nil
		}
		workflow.GetLogger(ctx).Info("the hand-over was not cancelled yet", "holder", visit.Name, "err", err)
	}
	_, err := workflow.AwaitWithTimeout(ctx, pause, func() bool { return workflow.GetSignalChannel(ctx, SignalWake).Len() > 0 })
	return err
}
