package workflows

import (
	"context"
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Client starts, signals and reads the workflows of a region: one method each, so that
// nobody else builds ids or options.
type Client struct {
	Temporal client.Client
	Limits   DeliveryLimits
	// Take is how long a node may take to begin what it is asked about its site's lease.
	Take time.Duration
}

// taskTimeout is short, so that a workflow task held by a stopped server moves on soon.
const taskTimeout = 5 * time.Second

// Wake starts the entity of a subject, or signals it when it runs.
func (c *Client) Wake(ctx context.Context, subject string) error {
	kind, names, ok := fleet.ParseSubject(subject)
	if !ok {
		return fleet.Errorf(fleet.Invalid, "%.80q is not the id of an entity", subject)
	}
	e := entities[kind]
	return c.start(ctx, subject, e, names, e.input(c, names))
}

// StartReconcile starts the comparison of a node for a reason, or has the one that runs look again.
func (c *Client) StartReconcile(ctx context.Context, node fleet.NodeName, reason string) error {
	in := NodeInput{Node: node, Reason: reason}
	return c.start(ctx, fleet.NodeSubject(node), entities[fleet.EntityNode], []string{string(node)}, in)
}

// start first tries to start, with the first task served by this very process: an entity that begins looks by
// itself, so that no signal is needed.
func (c *Client) start(ctx context.Context, subject string, e entity, names []string, in any) error {
	options := client.StartWorkflowOptions{
		ID: subject, TaskQueue: QueueServers, WorkflowTaskTimeout: taskTimeout, TypedSearchAttributes: e.listed(names),
	}
	if e.lasts != nil {
		options.WorkflowRunTimeout = e.lasts(c)
	}
	begin := options
	begin.EnableEagerStart, begin.WorkflowExecutionErrorWhenAlreadyStarted = true, true
	begin.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL
	_, err := c.Temporal.ExecuteWorkflow(ctx, begin, e.workflow, in)
	var runs *serviceerror.WorkflowExecutionAlreadyStarted
	if !errors.As(err, &runs) {
		return unavailable("wake "+subject, err)
	}
	_, err = c.Temporal.SignalWithStartWorkflow(ctx, subject, SignalWake, nil, options, e.workflow, in)
	return unavailable("wake "+subject, err)
}

// OperationEnded tells a door how its operation ended. A door that is gone needs no word.
func (c *Client) OperationEnded(ctx context.Context, workflow, run string, end fleet.OperationEnd) error {
	err := c.Temporal.SignalWorkflow(ctx, workflow, run, SignalOperationEnded, end)
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return nil
	}
	return unavailable("tell the door", err)
}

// StartedBy reads the identity in the start event of a run.
func (c *Client) StartedBy(ctx context.Context, workflow, run string) (string, error) {
	events := c.Temporal.GetWorkflowHistory(ctx, workflow, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	first, err := events.Next()
	if err != nil {
		return "", unavailable("read who started the workflow", err)
	}
	return first.GetWorkflowExecutionStartedEventAttributes().GetIdentity(), nil
}

func unavailable(doing string, err error) error {
	if err == nil {
		return nil
	}
	return &fleet.Error{Kind: fleet.Unavailable, Message: doing, Err: err}
}
