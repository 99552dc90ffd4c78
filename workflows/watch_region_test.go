package workflows_test

import (
	"context"
	"errors"
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

// M14, M30, M48: a peer is followed turn after turn, whatever becomes of a turn, until it is none any more.
func TestWatchRegion(t *testing.T) {
	t.Parallel()
	watching := func(turn func(n int) (fleet.Followed, error)) (*testsuite.TestWorkflowEnvironment, *int) {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestWorkflowEnvironment()
		env.SetTestTimeout(time.Minute)
		env.RegisterWorkflowWithOptions(workflows.WatchRegion, workflow.RegisterOptions{Name: workflows.TypeWatchRegion})
		env.RegisterActivity(&activities.Regions{})
		turns := 0
		env.OnActivity("FollowPeer", mock.Anything, activities.FollowPeer{Peer: "eu"}).Return(
			func(context.Context, activities.FollowPeer) (fleet.Followed, error) { turns++; return turn(turns) })
		return env, &turns
	}
	t.Run("until it leaves", func(t *testing.T) {
		t.Parallel()
		env, turns := watching(func(n int) (fleet.Followed, error) { return fleet.Followed{Left: n == 3}, nil })
		env.ExecuteWorkflow(workflows.TypeWatchRegion, workflows.WatchRegionInput{Peer: "eu"})
		require.NoError(t, env.GetWorkflowError())
		require.Equal(t, 3, *turns)
	})
	t.Run("again after a turn that failed", func(t *testing.T) {
		t.Parallel()
		env, turns := watching(func(n int) (fleet.Followed, error) {
			if n < 4 {
				return fleet.Followed{}, errors.New("the database is away")
			}
			return fleet.Followed{Left: true}, nil
		})
		env.ExecuteWorkflow(workflows.TypeWatchRegion, workflows.WatchRegionInput{Peer: "eu"})
		require.NoError(t, env.GetWorkflowError())
		require.Equal(t, 4, *turns)
	})
	t.Run("by another run after many turns, so that no history grows without end (X15)", func(t *testing.T) {
		t.Parallel()
		env, turns := watching(func(int) (fleet.Followed, error) { return fleet.Followed{}, nil })
		env.ExecuteWorkflow(workflows.TypeWatchRegion, workflows.WatchRegionInput{Peer: "eu"})
		var next *workflow.ContinueAsNewError
		require.ErrorAs(t, env.GetWorkflowError(), &next)
		require.Equal(t, 100, *turns)
	})
}
