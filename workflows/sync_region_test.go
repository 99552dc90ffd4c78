package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workflows"
)

// M21 to M26, X8: a comparison goes on until it is done, says what it waits for, and a request meanwhile causes one more turn.
func TestSync(t *testing.T) {
	t.Parallel()
	comparing := func(signalled bool, turns ...fleet.SyncTurn) (env *testsuite.TestWorkflowEnvironment, calls *int) {
		var suite testsuite.WorkflowTestSuite
		env = suite.NewTestWorkflowEnvironment()
		env.SetTestTimeout(time.Minute)
		env.RegisterWorkflowWithOptions(workflows.Sync, workflow.RegisterOptions{Name: workflows.TypeSync})
		env.RegisterActivity(&activities.Regions{})
		calls = new(int)
		env.OnActivity("CompareRegion", mock.Anything, mock.Anything).Return(func(_ context.Context, v fleet.SyncVisit) (fleet.SyncTurn, error) {
			require.Equal(t, fleet.RegionName("eu"), v.Peer)
			if *calls++; *calls == 1 && signalled {
				env.SignalWorkflow(workflows.SignalWake, nil)
			}
			return turns[min(*calls, len(turns))-1], nil
		})
		return env, calls
	}
	run := func(t *testing.T, env *testsuite.TestWorkflowEnvironment) (out workflows.DoorResult) {
		t.Helper()
		env.ExecuteWorkflow(workflows.TypeSync, workflows.SyncInput{Peer: "eu"})
		require.NoError(t, env.GetWorkflowError())
		require.NoError(t, env.GetWorkflowResult(&out))
		return out
	}
	page, end := fleet.SyncTurn{At: 128, Ranges: 256}, fleet.SyncTurn{At: 256, Ranges: 256, Done: true, SyncCounts: fleet.SyncCounts{Compared: 9, Lost: 1, Waiting: 2}}
	t.Run("page by page", func(t *testing.T) {
		t.Parallel()
		env, calls := comparing(false, page, end)
		out := run(t, env)
		require.Equal(t, fleet.OperationSucceeded, out.State)
		require.Equal(t, "9 objects compared with region eu, 0 differed; 0 written, 0 removed, 1 lost: holdfast sync lost, 2 set aside: holdfast sync quarantine eu", out.Message)
		require.Equal(t, 2, *calls)
	})
	t.Run("waits", func(t *testing.T) {
		t.Parallel()
		env, calls := comparing(false, fleet.SyncTurn{Waits: "the link is cut"}, end)
		env.RegisterDelayedCallback(func() {
			value, err := env.QueryWorkflow(workflows.QueryStatus)
			require.NoError(t, err)
			var status workflows.SyncStatus
			require.NoError(t, value.Get(&status))
			require.Equal(t, "the link is cut", status.Turn.Waits)
		}, time.Second)
		require.NotContains(t, run(t, env).Message, "cut")
		require.Equal(t, 2, *calls)
	})
	t.Run("a wake ends the wait", func(t *testing.T) {
		t.Parallel()
		env, calls := comparing(false, fleet.SyncTurn{Waits: "the link is cut"}, end)
		start := env.Now()
		env.RegisterDelayedCallback(func() { env.SignalWorkflow(workflows.SignalWake, nil) }, time.Second)
		run(t, env)
		require.Equal(t, 2, *calls)
		require.Less(t, env.Now().Sub(start), 10*time.Second)
	})
	t.Run("a request meanwhile", func(t *testing.T) {
		t.Parallel()
		env, calls := comparing(true, end)
		run(t, env)
		require.Equal(t, 2, *calls)
	})
	t.Run("until the region is no peer any more", func(t *testing.T) {
		t.Parallel()
		env, _ := comparing(false, page, fleet.SyncTurn{Left: true, Done: true})
		out := run(t, env)
		require.Equal(t, fleet.OperationFailed, out.State)
		require.Equal(t, "not_found", out.Reason)
	})
}
