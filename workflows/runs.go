package workflows

import (
	"context"
	"errors"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/holdfast-io/holdfast/internal/decide"
)

// Live says whether a build has a worker. It is asked after a run was seen to be pinned to the
// build: one that is new to who asks may have come just before.
type Live func(ctx context.Context, build string) (bool, error)

// RunState says how a run stands.
func (c *Client) RunState(ctx context.Context, workflow, run string, live Live) (decide.RunState, error) {
	if run == "" {
		return decide.RunUnserved, nil
	}
	state, _, err := c.look(ctx, workflow, run, live)
	return state, err
}

// StrandedRun gives the newest run of a workflow if no worker can go on with it, else "". An
// operation that such a run should take is taken by none.
func (c *Client) StrandedRun(ctx context.Context, workflow string, live Live) (string, error) {
	state, run, err := c.look(ctx, workflow, "", live)
	if state != decide.RunStranded {
		return "", err
	}
	return run, err
}

// look gives a run's state and id; run "" is the newest.
func (c *Client) look(ctx context.Context, workflow, run string, live Live) (decide.RunState, string, error) {
	d, err := c.Temporal.DescribeWorkflowExecution(ctx, workflow, run)
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return decide.RunMissing, "", nil
	}
	if err != nil {
		return "", "", unavailable("look at the workflow", err)
	}
	info := d.GetWorkflowExecutionInfo()
	state, run := stateOf(info), info.GetExecution().GetRunId()
	lost := false
	if state == decide.RunOpen {
		lost, err = unserved(ctx, info, live)
	}
	if state == decide.RunTerminated { // what was ended for being stranded is no less wanted
		lost, err = c.endedStranded(ctx, workflow, run)
	}
	if lost {
		state = decide.RunStranded
	}
	return state, run, err
}

// unserved says that an open run is pinned to a build without a worker.
func unserved(ctx context.Context, info *workflowpb.WorkflowExecutionInfo, live Live) (bool, error) {
	v := info.GetVersioningInfo()
	build := v.GetDeploymentVersion().GetBuildId()
	if v.GetBehavior() != enumspb.VERSIONING_BEHAVIOR_PINNED || build == "" { // nobody knows which
		return false, nil
	}
	lives, err := live(ctx, build)
	return err == nil && !lives, err
}

func stateOf(info *workflowpb.WorkflowExecutionInfo) decide.RunState {
	switch info.GetStatus() {
	case enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED:
		return decide.RunTerminated
	case enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return decide.RunTimedOut
	case enumspb.WORKFLOW_EXECUTION_STATUS_FAILED:
		return decide.RunFailed
	case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW:
		return decide.RunCompleted
	case enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED,
		enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED:
	}
	return decide.RunOpen
}

// stranded begins the reason of each run that is ended because no worker can go on with it.
const stranded = "stranded: no worker of its version"

// EndStranded terminates a run that no worker can go on with; more may say what that means to
// whoever waits for it.
func (c *Client) EndStranded(ctx context.Context, workflow, run, more string) error {
	err := c.Temporal.TerminateWorkflow(ctx, workflow, run, stranded+more)
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return nil
	}
	return unavailable("end the stranded run", err)
}

func (c *Client) endedStranded(ctx context.Context, workflow, run string) (bool, error) {
	events := c.Temporal.GetWorkflowHistory(ctx, workflow, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
	if !events.HasNext() {
		return false, nil
	}
	last, err := events.Next()
	if err != nil {
		return false, unavailable("read why the workflow ended", err)
	}
	return strings.HasPrefix(last.GetWorkflowExecutionTerminatedEventAttributes().GetReason(), stranded), nil
}

// OpenRun is a run that is open.
type OpenRun struct{ Workflow, Run string }

const pinnedPage = 100

// PinnedElsewhere gives a page of the open runs that are pinned to none of some builds, by what
// is known for searching: a moment old, so look at each. Next is nil after the last page.
func (c *Client) PinnedElsewhere(ctx context.Context, builds []string, page []byte) (runs []OpenRun, next []byte, err error) {
	res, err := c.Temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		PageSize: pinnedPage, NextPageToken: page, Query: pinnedElsewhere(builds),
	})
	if err != nil {
		return nil, nil, unavailable("list what is pinned to other builds", err)
	}
	for _, e := range res.GetExecutions() {
		runs = append(runs, OpenRun{e.GetExecution().GetWorkflowId(), e.GetExecution().GetRunId()})
	}
	return runs, res.GetNextPageToken(), nil
}

func pinnedElsewhere(builds []string) string {
	versions := make([]string, len(builds))
	for i, b := range builds {
		versions[i] = "'" + quoting.Replace(VersionedAs+":"+b) + "'"
	}
	return "ExecutionStatus = 'Running' AND TemporalWorkflowVersioningBehavior = 'Pinned' AND TemporalWorkerDeployment = '" + VersionedAs +
		"' AND TemporalWorkerDeploymentVersion NOT IN (" + strings.Join(versions, ", ") + ")"
}

var quoting = strings.NewReplacer(`\`, `\\`, `'`, `\'`)
