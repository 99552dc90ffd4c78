package workflows

import (
	"cmp"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// NodeInput names a node, and why it is compared: what fleet.Reconcile… lists.
type NodeInput struct {
	Node   fleet.NodeName `json:"node"`
	Reason string         `json:"reason,omitempty"`
}

var reconciles *activities.Reconciles

// Node has a node compare itself with what its site expects, and then does what
// only the region can: settle, number anew, and start what is owed. It drops nothing that
// the region does not confirm absent. docs/reconcile.md draws it.
func Node(ctx workflow.Context, in NodeInput) (DoorResult, error) {
	var res DoorResult
	r := &reconcileNode{node: in.Node, reason: cmp.Or(in.Reason, fleet.ReconcileRequest)}
	r.asked = r.reason == fleet.ReconcileRequest
	wake := workflow.GetSignalChannel(ctx, SignalWake)
	for {
		for wake.ReceiveAsync(nil) {
			r.asked = true // this pass serves it, whatever it began for
		}
		if err := r.pass(ctx); err != nil {
			return res, err
		}
		if !wake.ReceiveAsync(nil) {
			return r.result, nil
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return res, workflow.NewContinueAsNewError(ctx, TypeNode, NodeInput{Node: in.Node, Reason: fleet.ReconcileRequest})
		}
		r.reason, r.asked = fleet.ReconcileRequest, true
	}
}

// reconcileNode is the entity of a node.
type reconcileNode struct {
	node   fleet.NodeName
	reason string
	asked  bool // a request may wait: the node hashes its files too
	begun  int
	result DoorResult
}

// pass is one comparison and what follows from it.
func (r *reconcileNode) pass(ctx workflow.Context) error {
	c, err := r.compare(ctx)
	if err != nil {
		return err
	}
	if decide.RegionMends(c.ReconcilePass, r.reason == fleet.ReconcileSchedule) {
		if c.Woken, err = r.mend(ctx); err != nil {
			return err
		}
	}
	served, err := r.serve(ctx, c.began)
	if err != nil {
		return err
	}
	c.Woken += served
	state, reason, message := decide.ReconcileOutcome(c.ReconcilePass)
	r.result = DoorResult{State: state, Reason: reason, Message: message}
	workflow.SetCurrentDetails(ctx, "**"+string(state)+"** "+reason+": "+message)
	end := fleet.ReconcileEnd{
		ID: c.id, Node: r.node, By: c.began, State: state, Reason: reason, Message: message,
		Fetched: c.Report.Fetched, Dropped: c.Report.Dropped, Waiting: c.Report.Waiting, Restored: c.Report.Restored,
	}
	return insist(ctx, reconciles.End, end, nil)
}

// comparison is a pass as far as it is known: when it began at the store, and under which id.
type comparison struct {
	decide.ReconcilePass
	began time.Time
	id    string
}

// compare has the node compare itself; each try has a token of its own.
func (r *reconcileNode) compare(ctx workflow.Context) (comparison, error) {
	var c comparison
	for {
		command, err := r.begin(ctx, &c)
		if err != nil || command == nil {
			return c, err
		}
		workflow.SetCurrentDetails(ctx, "**compare**: node "+string(r.node)+" fetches what its site expects ("+r.reason+")")
		err = workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, compareOptions(r.node)), nodes.Reconcile, *command).Get(ctx, &c.Report)
		if ctx.Err() != nil {
			return c, ctx.Err()
		}
		c.Tries++
		c.Failure, c.Message = "", ""
		if err != nil {
			_, kind, message := classify(err, r.node)
			c.Failure, c.Message = string(kind), message
		}
		wait, again := decide.CompareAgain(c.ReconcilePass)
		if !again {
			return c, nil
		}
		if err := workflow.Sleep(ctx, wait); err != nil {
			return c, err
		}
	}
}

// begin prepares the next try, nil when the node cannot be told.
func (r *reconcileNode) begin(ctx workflow.Context, c *comparison) (*fleet.ReconcileCommand, error) {
	r.begun++
	in := activities.BeginReconcile{
		Node: r.node, Reason: r.reason, Asked: r.asked, Run: workflow.GetInfo(ctx).WorkflowExecution.RunID, Number: r.begun,
	}
	var begun activities.BegunReconcile
	if err := insist(ctx, reconciles.Begin, in, &begun); err != nil {
		return nil, err
	}
	if c.began.IsZero() {
		c.began = begun.By
	}
	if begun.Command == nil {
		c.Failure, c.Message = begun.Why, "node "+string(r.node)+" has nothing to be compared with"
		return nil, nil
	}
	c.id = begun.Command.ID
	return begun.Command, nil
}

// mend does what only the region can, page by page of what drifted, and counts the subjects
// that were woken.
func (r *reconcileNode) mend(ctx workflow.Context) (int, error) {
	woken := 0
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
