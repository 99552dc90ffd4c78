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

// ReconcileNodeInput names a node: {"node":"plant-1-b"}. Reason is why the region compares it
// by itself; without one the run is a door, and asks in its starter's name.
type ReconcileNodeInput struct {
	Node   fleet.NodeName `json:"node"`
	Reason string         `json:"reason,omitempty"`
}

// Why a node is compared with its site's expected set.
const (
	ReconcileStart    = "start"
	ReconcilePeer     = "peer"
	ReconcileRequest  = "request"
	ReconcileSchedule = "schedule"
)

var reconciles *activities.Reconciles

// ReconcileNode has a node compare itself with what its site expects, and then does what
// only the region can: settle, number anew, and start what is owed. It drops nothing that
// the region does not confirm absent. docs/reconcile.md draws it.
func ReconcileNode(ctx workflow.Context, in ReconcileNodeInput) (DoorResult, error) {
	var res DoorResult
	r := &reconcileNode{node: in.Node, reason: in.Reason}
	if in.Reason == "" {
		req := activities.DoorRequest{Kind: fleet.OperationReconcile, Node: in.Node}
		if workflow.GetInfo(ctx).WorkflowExecution.ID != NodeEntity(in.Node) {
			return door(ctx, req)
		}
		if err := insist(ctx, doors.Request, req, nil); err != nil {
			return res, err
		}
		r.reason = ReconcileRequest
	}
	wake := workflow.GetSignalChannel(ctx, SignalWake)
	for {
		drain(wake)
		if err := r.pass(ctx); err != nil {
			return res, err
		}
		if !wake.ReceiveAsync(nil) {
			return r.result, nil
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return res, workflow.NewContinueAsNewError(ctx, TypeReconcileNode, ReconcileNodeInput{Node: in.Node, Reason: ReconcileRequest})
		}
		r.reason = ReconcileRequest
	}
}

// reconcileNode is the entity of a node.
type reconcileNode struct {
	node   fleet.NodeName
	reason string
	begun  int
	result DoorResult
}

// compareTries bounds how often one pass asks a node that cannot reach the region.
const compareTries = 3

// pass is one comparison and what follows from it.
func (r *reconcileNode) pass(ctx workflow.Context) error {
	began, id, report, failure, err := r.compare(ctx)
	if err != nil {
		return err
	}
	woken, err := r.mend(ctx, failure == nil && report.Clean())
	if err != nil {
		return err
	}
	served, err := r.serve(ctx, began)
	if err != nil {
		return err
	}
	state, reason, message := decide.ReconcileOutcome(report, woken+served)
	if failure != nil {
		state, reason, message = fleet.OperationFailed, failure.reason, failure.message
	}
	r.result = DoorResult{State: state, Reason: reason, Message: message}
	workflow.SetCurrentDetails(ctx, "**"+string(state)+"** "+reason+": "+message)
	end := fleet.ReconcileEnd{
		ID: id, Node: r.node, By: began, State: state, Reason: reason, Message: message,
		Fetched: report.Fetched, Dropped: report.Dropped, Waiting: report.Waiting,
	}
	return insist(ctx, reconciles.End, end, nil)
}

// unheard is why a node's own comparison came to nothing.
type unheard struct{ reason, message string }

// compare has the node compare itself; each try has a token of its own.
func (r *reconcileNode) compare(ctx workflow.Context) (began time.Time, id string, report fleet.ReconcileReport, failure *unheard, err error) { //nolint:revive // what a pass is made of
	for try := 1; ; try++ {
		r.begun++
		in := activities.BeginReconcile{
			Node: r.node, Reason: r.reason, Run: workflow.GetInfo(ctx).WorkflowExecution.RunID, Number: r.begun,
		}
		var begun activities.BegunReconcile
		if err := insist(ctx, reconciles.Begin, in, &begun); err != nil {
			return began, id, report, nil, err
		}
		if began.IsZero() {
			began = begun.By
		}
		if begun.Command == nil {
			return began, id, report, &unheard{begun.Why, "node " + string(r.node) + " has nothing to be compared with"}, nil
		}
		id = begun.Command.ID
		workflow.SetCurrentDetails(ctx, "**compare**: node "+string(r.node)+" fetches what its site expects ("+r.reason+")")
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, compareOptions(r.node)), nodes.Reconcile, *begun.Command).Get(ctx, &report)
		if err == nil {
			return began, id, report, nil, nil
		}
		if ctx.Err() != nil {
			return began, id, report, nil, ctx.Err()
		}
		failure = explain(err, r.node)
		if failure.reason != string(fleet.Communication) || try == compareTries {
			return began, id, report, failure, nil
		}
		if err := workflow.Sleep(ctx, storeGap<<try); err != nil {
			return began, id, report, nil, err
		}
	}
}

func explain(err error, node fleet.NodeName) *unheard {
	var timeout *temporal.TimeoutError
	if errors.As(err, &timeout) {
		if timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START {
			return &unheard{string(fleet.Unavailable), "node " + string(node) + " was not there to compare itself; it is compared when it starts"}
		}
		return &unheard{string(fleet.Communication), "node " + string(node) + " stopped answering"}
	}
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return &unheard{string(kindOf(err)), app.Message()}
	}
	return &unheard{string(fleet.Internal), "the answer could not be read"}
}

// mend does what only the region can, page by page of what drifted, and counts the subjects
// that were woken. There is nothing to it when the node is as expected, unless it was the
// region's own records that said otherwise.
func (r *reconcileNode) mend(ctx workflow.Context, clean bool) (int, error) { //nolint:revive // clean is an observation
	woken := 0
	if clean && r.reason != ReconcileSchedule {
		return woken, nil
	}
	page := activities.ReconcilePage{Node: r.node}
	for {
		var done activities.ReconciledPage
		if err := insist(ctx, reconciles.Page, page, &done); err != nil {
			return woken, err
		}
		woken += done.Woken
		if page.After = done.Next; page.After == "" {
			return woken, nil
		}
	}
}

// serve starts what the node is still owed, and counts the subjects that were woken.
func (r *reconcileNode) serve(ctx workflow.Context, began time.Time) (int, error) {
	woken := 0
	for {
		var done activities.ServedPage
		in := activities.OwedPage{Node: r.node, Before: began}
		if err := insist(ctx, reconciles.Serve, in, &done); err != nil {
			return woken, err
		}
		woken += done.Woken
		if !done.More {
			return woken, nil
		}
	}
}

// storeTries bounds how long a step waits for a database that does not answer: some five
// minutes. Whoever asked is served by the run that the sweep starts then.
const storeTries = 20

// insist repeats a step at the store while it is only not answered.
func insist(ctx workflow.Context, step, in, out any) error {
	local := workflow.WithLocalActivityOptions(ctx, storeOptions())
	for try := 1; ; try++ {
		err := workflow.ExecuteLocalActivity(local, step, in).Get(ctx, out)
		if err == nil || !kindOf(err).Retryable() || try == storeTries {
			return err
		}
		if err := workflow.Sleep(ctx, storeGap); err != nil {
			return err
		}
	}
}
