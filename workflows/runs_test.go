package workflows_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	deploymentpb "go.temporal.io/api/deployment/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/workflows"
)

// runTemporal knows one run, and lists it to whoever searches.
type runTemporal struct {
	client.Client // the rest is called by nobody

	info   *workflowpb.WorkflowExecutionInfo
	reason string // of its end
	query  string // that was searched by
}

func (r *runTemporal) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: r.info}, nil
}

func (r *runTemporal) TerminateWorkflow(_ context.Context, _, _, reason string, _ ...any) error {
	r.reason, r.info.Status = reason, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED
	return nil
}

func (r *runTemporal) GetWorkflowHistory(context.Context, string, string, bool, enumspb.HistoryEventFilterType) client.HistoryEventIterator {
	return lastEvent{event: &historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_WorkflowExecutionTerminatedEventAttributes{
		WorkflowExecutionTerminatedEventAttributes: &historypb.WorkflowExecutionTerminatedEventAttributes{Reason: r.reason},
	}}}
}

func (r *runTemporal) ListWorkflow(_ context.Context, in *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	r.query = in.GetQuery()
	return &workflowservice.ListWorkflowExecutionsResponse{Executions: []*workflowpb.WorkflowExecutionInfo{r.info}}, nil
}

type lastEvent struct{ event *historypb.HistoryEvent }

func (lastEvent) HasNext() bool                            { return true }
func (l lastEvent) Next() (*historypb.HistoryEvent, error) { return l.event, nil }

func runOf(build string, behavior enumspb.VersioningBehavior, status enumspb.WorkflowExecutionStatus) *runTemporal {
	return &runTemporal{reason: "by hand", info: &workflowpb.WorkflowExecutionInfo{
		Execution: &commonpb.WorkflowExecution{WorkflowId: "node.a", RunId: "r1"}, Status: status,
		VersioningInfo: &workflowpb.WorkflowExecutionVersioningInfo{
			Behavior: behavior, DeploymentVersion: &deploymentpb.WorkerDeploymentVersion{BuildId: build},
		},
	}}
}

// X25
func TestRunState(t *testing.T) {
	t.Parallel()
	const (
		pinned, moves = enumspb.VERSIONING_BEHAVIOR_PINNED, enumspb.VERSIONING_BEHAVIOR_AUTO_UPGRADE
		open, ended   = enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED
	)
	live := func(_ context.Context, build string) (bool, error) { return build == "new", nil }
	for name, c := range map[string]struct {
		run  *runTemporal
		want decide.RunState
	}{
		"its build has a worker":                        {runOf("new", pinned, open), decide.RunOpen},
		"its build has none":                            {runOf("old", pinned, open), decide.RunStranded},
		"its build has none, and any other goes on":     {runOf("old", moves, open), decide.RunOpen},
		"its build is not known":                        {runOf("", pinned, open), decide.RunOpen},
		"nobody has begun it":                           {runOf("", enumspb.VERSIONING_BEHAVIOR_UNSPECIFIED, open), decide.RunOpen},
		"a person ended it, and its build has a worker": {runOf("new", pinned, ended), decide.RunTerminated},
		"a person ended it, and its build has none":     {runOf("old", pinned, ended), decide.RunTerminated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flows := &workflows.Client{Temporal: c.run}
			got, err := flows.RunState(t.Context(), "node.a", "r1", live)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			run, err := flows.StrandedRun(t.Context(), "node.a", live)
			require.NoError(t, err)
			require.Equal(t, c.want == decide.RunStranded, run == "r1")
		})
	}
	t.Run("one that was ended for being stranded hands over what it was at, as if it were open", func(t *testing.T) {
		t.Parallel()
		run := runOf("old", pinned, open)
		flows := &workflows.Client{Temporal: run}
		require.NoError(t, flows.EndStranded(t.Context(), "node.a", "r1", "; its operation goes on"))
		got, err := flows.RunState(t.Context(), "node.a", "r1", live)
		require.NoError(t, err)
		require.Equal(t, decide.RunStranded, got)
	})
	t.Run("a build is searched by whatever its name", func(t *testing.T) {
		t.Parallel()
		run := runOf("old", pinned, open)
		flows := &workflows.Client{Temporal: run}
		found, _, err := flows.PinnedElsewhere(t.Context(), []string{"new", `o'b\`}, nil)
		require.NoError(t, err)
		require.Equal(t, []workflows.OpenRun{{Workflow: "node.a", Run: "r1"}}, found)
		require.Contains(t, run.query, `NOT IN ('holdfast:new', 'holdfast:o\'b\\')`)
	})
}
