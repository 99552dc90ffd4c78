package workflows_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workflows"
)

var press = workflows.InstanceInput{Site: "plant-1", Instance: "press-7"}

func (b *bench) runInstance(t *testing.T) {
	t.Helper()
	b.ExecuteWorkflow(workflows.TypeInstance, press)
	require.True(t, b.IsWorkflowCompleted())
}

// N21, N36, N45, N78, N102: persist, tell the active, record, tell the standby, end.
func TestInstance(t *testing.T) {
	t.Parallel()
	t.Run("delivers to both nodes with one regular activity each", func(t *testing.T) {
		t.Parallel()
		var told atomic.Int32
		b := newEnv(t, nodeApplier{apply: func(fleet.RefreshDeploymentCommand) error { told.Add(1); return nil }}, fakeRequests{})
		b.runInstance(t)
		require.NoError(t, b.GetWorkflowError())
		require.EqualValues(t, 2, told.Load())
		require.Equal(t, 1, b.region.claims)
		require.Len(t, b.region.ends, 1)
		require.Equal(t, fleet.OperationSucceeded, b.region.ends[0].Operation)
	})
	t.Run("ends at once when nothing is asked", func(t *testing.T) {
		t.Parallel()
		b := newEnv(t, nodeApplier{}, fakeRequests{})
		b.region.seen.Asked = 0
		b.runInstance(t)
		require.NoError(t, b.GetWorkflowError())
		require.Zero(t, b.region.claims)
	})
	t.Run("records a failure to apply and ends", func(t *testing.T) {
		t.Parallel()
		b := newEnv(t, nodeApplier{apply: func(fleet.RefreshDeploymentCommand) error {
			return fleet.Errorf(fleet.ApplyFailed, "the command ended with code 3")
		}}, fakeRequests{})
		b.runInstance(t)
		require.Len(t, b.region.misses, 1)
		require.Equal(t, fleet.ApplyFailed, b.region.misses[0].Reason)
		require.Equal(t, "apply_failed", b.region.ends[0].Reason)
		require.False(t, b.region.ends[0].Owe)
	})
	t.Run("tries a failure of communication three times, then owes it", func(t *testing.T) { // N41, X4
		t.Parallel()
		b := newEnv(t, nodeApplier{apply: func(fleet.RefreshDeploymentCommand) error {
			return fleet.Errorf(fleet.Communication, "Communication failure: connection reset")
		}}, fakeRequests{})
		b.runInstance(t)
		require.Len(t, b.region.misses, 3)
		require.True(t, b.region.ends[0].Owe)
	})
}

// N44, N61, N74, N81, N87: an answer that was lost is unknown until the node was asked.
func TestInstanceUnknown(t *testing.T) {
	t.Parallel()
	lost := temporal.NewHeartbeatTimeoutError()
	t.Run("the node holds it", func(t *testing.T) {
		t.Parallel()
		b := newEnv(t, nodeApplier{held: func() (fleet.Held, error) { return fleet.Held{Revision: revision(2), Known: true}, nil }}, fakeRequests{})
		calls := 0
		b.OnActivity("RefreshDeployment", mock.Anything, mock.Anything).Return(
			func(_ context.Context, cmd fleet.RefreshDeploymentCommand) (fleet.DeploymentStatusResponse, error) {
				if calls++; calls == 1 {
					return fleet.DeploymentStatusResponse{}, lost
				}
				return fleet.DeploymentStatusResponse{Held: fleet.Held{Revision: cmd.Revision, Known: true}}, nil
			})
		b.runInstance(t)
		require.Equal(t, fleet.TargetUnknown, b.region.misses[0].State)
		require.Equal(t, fleet.OperationSucceeded, b.region.ends[0].Operation)
	})
	t.Run("the node does not answer at all", func(t *testing.T) {
		t.Parallel()
		b := newEnv(t, nodeApplier{held: func() (fleet.Held, error) { return fleet.Held{}, fleet.Errorf(fleet.Unavailable, "away") }}, fakeRequests{})
		b.OnActivity("RefreshDeployment", mock.Anything, mock.Anything).Return(fleet.DeploymentStatusResponse{}, lost)
		b.runInstance(t)
		require.Equal(t, fleet.OperationUnknown, b.region.ends[0].Operation)
		require.Equal(t, fleet.DeliveryUnknown, b.region.ends[0].State)
		require.True(t, b.region.ends[0].Owe)
	})
}

// N16, N65, X7: a newer revision and a cancellation are accepted while a node works.
func TestInstanceCutShort(t *testing.T) {
	t.Parallel()
	slow := func(b *bench) {
		b.OnActivity("RefreshDeployment", mock.Anything, mock.Anything).After(10*time.Second).
			Return(fleet.DeploymentStatusResponse{Held: fleet.Held{Revision: revision(2), Known: true}}, nil)
	}
	t.Run("by a newer revision", func(t *testing.T) {
		t.Parallel()
		b := newEnv(t, nodeApplier{}, fakeRequests{})
		slow(b)
		b.RegisterDelayedCallback(func() {
			b.region.change(func(s *fleet.InstanceSeen) { s.Desired, s.Asked = revision(3), 2 })
			b.SignalWorkflow(workflows.SignalWake, nil)
		}, time.Second)
		b.runInstance(t)
		require.Equal(t, 2, b.region.claims)
		require.EqualValues(t, 3, b.region.seen.Snapshot.Version.Revision)
	})
	t.Run("by a cancellation", func(t *testing.T) {
		t.Parallel()
		b := newEnv(t, nodeApplier{}, fakeRequests{})
		slow(b)
		b.RegisterDelayedCallback(func() {
			b.region.change(func(s *fleet.InstanceSeen) { s.Cancelled, s.Asked = 1, 0 })
			b.SignalWorkflow(workflows.SignalWake, nil)
		}, time.Second)
		b.runInstance(t)
		require.Equal(t, fleet.OperationCancelled, b.region.ends[0].Operation)
		require.EqualValues(t, 1, b.region.seen.Snapshot.Version.Revision)
	})
}

// X15: however often it is woken while a node works, its history stays short.
func TestInstanceContinuesAsNew(t *testing.T) {
	t.Parallel()
	t.Run("with a node under way, which the next run asks", func(t *testing.T) {
		t.Parallel()
		b := newEnv(t, nodeApplier{}, fakeRequests{})
		b.OnActivity("RefreshDeployment", mock.Anything, mock.Anything).After(time.Hour).
			Return(fleet.DeploymentStatusResponse{Held: fleet.Held{Revision: revision(2), Known: true}}, nil)
		b.RegisterDelayedCallback(func() {
			b.SetContinueAsNewSuggested(true)
			b.SignalWorkflow(workflows.SignalWake, nil)
		}, time.Second)
		b.runInstance(t)
		var again *workflow.ContinueAsNewError
		require.ErrorAs(t, b.GetWorkflowError(), &again)
		require.Equal(t, workflows.TypeInstance, again.WorkflowType.Name)
		require.Equal(t, fleet.TargetNotified, b.region.seen.Open.Active().State)
		require.Empty(t, b.region.ends)
	})
	t.Run("but not when there is nothing left to do", func(t *testing.T) {
		t.Parallel()
		b := newEnv(t, nodeApplier{}, fakeRequests{})
		b.region.seen.Asked = 0
		b.SetContinueAsNewSuggested(true)
		b.runInstance(t)
		require.NoError(t, b.GetWorkflowError())
	})
}

// N63, N83, N102: a standby that is down fails a sync operation, and is served when due.
func TestInstanceStandby(t *testing.T) {
	t.Parallel()
	t.Run("is down", func(t *testing.T) {
		t.Parallel()
		b := newEnv(t, nodeApplier{}, fakeRequests{})
		calls := 0
		b.OnActivity("RefreshDeployment", mock.Anything, mock.Anything).Return(
			func(_ context.Context, cmd fleet.RefreshDeploymentCommand) (fleet.DeploymentStatusResponse, error) {
				if calls++; calls == 1 {
					return fleet.DeploymentStatusResponse{Held: fleet.Held{Revision: cmd.Revision, Known: true}}, nil
				}
				return fleet.DeploymentStatusResponse{}, fleet.Errorf(fleet.Unavailable, "no poller")
			})
		b.runInstance(t)
		require.Equal(t, "not_replicated", b.region.ends[0].Reason)
		require.Equal(t, fleet.OperationFailed, b.region.ends[0].Operation)
	})
	t.Run("is served what it is owed", func(t *testing.T) {
		t.Parallel()
		b := newEnv(t, nodeApplier{}, fakeRequests{})
		b.region.change(func(s *fleet.InstanceSeen) {
			s.Asked, s.Owed = 0, []fleet.OwedSeen{{Node: "b", Role: fleet.RoleStandby, Revision: revision(1).Version}}
		})
		b.runInstance(t)
		require.Zero(t, b.region.claims)
		require.Empty(t, b.region.seen.Owed)
	})
}

// X20, X23, X25: a door asks once, and waits.
func TestDoors(t *testing.T) {
	t.Parallel()
	in := workflows.DeployInstanceInput{Site: "plant-1", Instance: "press-7"}
	t.Run("waits for the word of the end", func(t *testing.T) {
		t.Parallel()
		b := newEnv(t, nodeApplier{}, fakeRequests{subject: "instance.plant-1.press-7", first: fleet.OperationRunning, last: fleet.OperationRunning})
		b.RegisterDelayedCallback(func() {
			b.SignalWorkflow(workflows.SignalOperationEnded, fleet.OperationEnd{Operation: "op", State: fleet.OperationSucceeded})
		}, time.Second)
		b.ExecuteWorkflow(workflows.TypeDeployInstance, in)
		var res workflows.DoorResult
		require.NoError(t, b.GetWorkflowResult(&res))
		require.Equal(t, fleet.OperationSucceeded, res.State)
	})
	t.Run("looks by itself when the word was lost", func(t *testing.T) {
		t.Parallel()
		b := newEnv(t, nodeApplier{}, fakeRequests{subject: "s", first: fleet.OperationRunning, last: fleet.OperationFailed})
		b.ExecuteWorkflow(workflows.TypeDeployInstance, in)
		require.ErrorContains(t, b.GetWorkflowError(), "failed")
	})
	t.Run("refuses bad names and states", func(t *testing.T) { // X19
		t.Parallel()
		for _, in := range []workflows.SetInstanceStateInput{
			{Site: "Plant 1", Instance: "press-7", State: "enabled"},
			{Site: "plant-1", Instance: "", State: "enabled"},
			{Site: "plant-1", Instance: "press-7", State: "gone"},
		} {
			b := newEnv(t, nodeApplier{}, fakeRequests{})
			b.ExecuteWorkflow(workflows.TypeSetInstanceState, in)
			var app *temporal.ApplicationError
			require.ErrorAs(t, b.GetWorkflowError(), &app)
			require.Equal(t, string(fleet.Invalid), app.Type())
		}
	})
}
