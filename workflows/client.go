package workflows

import (
	"context"
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

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

// Wake starts the entity of a subject, or signals it when it runs. The start comes first,
// with its first task served by this very process: an entity that begins looks by itself.
func (c *Client) Wake(ctx context.Context, subject string) error {
	if node, ok := ParseNodeSubject(subject); ok {
		return c.StartReconcile(ctx, node, fleet.ReconcileRequest)
	}
	if node, ok := ParseDrainSubject(subject); ok {
		return c.wakeDrain(ctx, node)
	}
	if site, ok := ParseSiteSubject(subject); ok {
		return c.wakeSite(ctx, site)
	}
	if name, ok := ParseFleetSubject(subject); ok {
		return c.wakeFleet(ctx, name)
	}
	if name, ok := ParseDeploymentSubject(subject); ok {
		return c.wakeDeployment(ctx, name)
	}
	if id, ok := ParseExecutionSubject(subject); ok {
		return c.startExecution(ctx, id)
	}
	site, instance, ok := ParseInstanceSubject(subject)
	if !ok {
		return fleet.Errorf(fleet.Invalid, "%.80q is no entity", subject)
	}
	options := client.StartWorkflowOptions{
		ID: subject, TaskQueue: QueueServers, WorkflowTaskTimeout: taskTimeout,
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(AttributeSite).ValueSet(string(site)),
			temporal.NewSearchAttributeKeyKeyword(AttributeInstance).ValueSet(string(instance)),
		),
	}
	in := InstanceInput{Site: site, Instance: instance, Limits: c.Limits}
	return c.startOrWake(ctx, options, TypeInstance, in)
}

// startOrWake starts an entity, or signals the one that runs.
func (c *Client) startOrWake(ctx context.Context, options client.StartWorkflowOptions, workflow string, in any) error {
	begin := options
	begin.EnableEagerStart, begin.WorkflowExecutionErrorWhenAlreadyStarted = true, true
	begin.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL
	_, err := c.Temporal.ExecuteWorkflow(ctx, begin, workflow, in)
	var runs *serviceerror.WorkflowExecutionAlreadyStarted
	if !errors.As(err, &runs) {
		return unavailable("wake "+options.ID, err)
	}
	_, err = c.Temporal.SignalWithStartWorkflow(ctx, options.ID, SignalWake, nil, options, workflow, in)
	return unavailable("wake "+options.ID, err)
}

// wakeDeployment starts the entity of a deployment, or has the one that runs look again.
func (c *Client) wakeDeployment(ctx context.Context, name fleet.DeploymentName) error {
	options := client.StartWorkflowOptions{
		ID: fleet.DeploymentSubject(name), TaskQueue: QueueServers, WorkflowTaskTimeout: taskTimeout,
		TypedSearchAttributes: deploymentAttributes(name),
	}
	return c.startOrWake(ctx, options, TypeDeployment, DeploymentInput{Deployment: name})
}

// StartReconcile starts ReconcileNode of a node for a reason, or has the one that runs look
// again.
func (c *Client) StartReconcile(ctx context.Context, node fleet.NodeName, reason string) error {
	options := client.StartWorkflowOptions{
		ID: NodeEntity(node), TaskQueue: QueueServers, WorkflowTaskTimeout: taskTimeout,
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(AttributeNode).ValueSet(string(node)),
		),
	}
	_, err := c.Temporal.SignalWithStartWorkflow(ctx, options.ID, SignalWake, nil, options, TypeReconcileNode, ReconcileNodeInput{Node: node, Reason: reason})
	return unavailable("start the reconcile of "+string(node), err)
}

// wakeDrain starts the entity of a node's drain, or has the one that runs look again.
func (c *Client) wakeDrain(ctx context.Context, node fleet.NodeName) error {
	options := client.StartWorkflowOptions{
		ID: fleet.DrainSubject(node), TaskQueue: QueueServers, WorkflowTaskTimeout: taskTimeout,
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(AttributeNode).ValueSet(string(node)),
		),
	}
	_, err := c.Temporal.SignalWithStartWorkflow(ctx, options.ID, SignalWake, nil, options, TypeDrainNode, DrainNodeInput{Node: node, Serve: true})
	return unavailable("wake "+options.ID, err)
}

// startExecution starts the run of a durable execution, unless it runs.
func (c *Client) startExecution(ctx context.Context, id fleet.OperationID) error {
	_, err := c.Temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: fleet.ExecutionSubject(id), TaskQueue: QueueServers, WorkflowTaskTimeout: taskTimeout,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, TypeExecuteModule, ExecuteModuleInput{Operation: id})
	return unavailable("start execution "+string(id), err)
}

// wakeSite starts the entity of a site's lease, or has the one that runs look again.
func (c *Client) wakeSite(ctx context.Context, site fleet.SiteName) error {
	options := client.StartWorkflowOptions{
		ID: fleet.SiteSubject(site), TaskQueue: QueueServers, WorkflowTaskTimeout: taskTimeout,
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(AttributeSite).ValueSet(string(site)),
		),
	}
	in := FailoverSiteInput{Site: site, Serve: true, Take: c.Take}
	_, err := c.Temporal.SignalWithStartWorkflow(ctx, options.ID, SignalWake, nil, options, TypeFailoverSite, in)
	return unavailable("wake "+options.ID, err)
}

// wakeFleet starts the entity of a fleet change, or has the one that runs look again.
func (c *Client) wakeFleet(ctx context.Context, name fleet.FleetName) error {
	options := client.StartWorkflowOptions{ID: fleet.FleetSubject(name), TaskQueue: QueueServers, WorkflowTaskTimeout: taskTimeout}
	_, err := c.Temporal.SignalWithStartWorkflow(ctx, options.ID, SignalWake, nil, options, TypeFleet, FleetInput{Fleet: name, Limits: c.Limits})
	return unavailable("wake "+options.ID, err)
}

// deliverSiteSpan is how many times the longest delivery one run may last: it goes on in a
// new one after the first.
const deliverSiteSpan = 4

// DeliverSite has what waits at a site delivered in batches.
func (c *Client) DeliverSite(ctx context.Context, site fleet.SiteName) error {
	options := client.StartWorkflowOptions{
		ID: DeliverSiteID(site), TaskQueue: QueueServers, WorkflowTaskTimeout: taskTimeout,
		WorkflowRunTimeout:    deliverSiteSpan * c.Limits.orDefault().Total,
		TypedSearchAttributes: temporal.NewSearchAttributes(temporal.NewSearchAttributeKeyKeyword(AttributeSite).ValueSet(string(site))),
	}
	in := DeliverSiteInput{Site: site, Limits: c.Limits}
	_, err := c.Temporal.SignalWithStartWorkflow(ctx, options.ID, SignalWake, nil, options, TypeDeliverSite, in)
	return unavailable("deliver at "+string(site), err)
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
