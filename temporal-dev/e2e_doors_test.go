//go:build slow

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workflows"
)

const starter = "somebody@laptop"

// door is a start as tctl and temporal send it: one JSON payload, no headers, no version.
func (s *stack) door(t *testing.T, id, kind, input string, limit time.Duration) *commonpb.WorkflowExecution {
	t.Helper()
	started, err := s.tryDoor(t.Context(), id, kind, input, limit)
	require.NoError(t, err)
	return started
}

func (s *stack) tryDoor(
	ctx context.Context, id, kind, input string, limit time.Duration,
) (*commonpb.WorkflowExecution, error) {
	request := doorRequest(id, kind, input)
	if limit > 0 {
		request.WorkflowExecutionTimeout = durationpb.New(limit)
	}
	started, err := s.temporal.StartWorkflowExecution(ctx, request)
	return &commonpb.WorkflowExecution{WorkflowId: id, RunId: started.GetRunId()}, err
}

func doorRequest(id, kind, input string) *workflowservice.StartWorkflowExecutionRequest {
	return &workflowservice.StartWorkflowExecutionRequest{
		Namespace: temporalNamespace, WorkflowId: id, RequestId: rand.Text(), Identity: starter,
		WorkflowType: &commonpb.WorkflowType{Name: kind}, TaskQueue: &taskqueuepb.TaskQueue{Name: "holdfast"},
		Input: &commonpb.Payloads{Payloads: []*commonpb.Payload{{
			Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(input),
		}}},
	}
}

// closed waits for the end of a run.
func (s *stack) closed(t *testing.T, of *commonpb.WorkflowExecution) enumspb.WorkflowExecutionStatus {
	t.Helper()
	var status enumspb.WorkflowExecutionStatus
	waitFor(t, of.GetWorkflowId()+" ends", func(ctx context.Context) error {
		d, err := s.temporal.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
			Namespace: temporalNamespace, Execution: of,
		})
		status = d.GetWorkflowExecutionInfo().GetStatus()
		if err == nil && status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
			err = errNotYet
		}
		return err
	})
	return status
}

// result waits for a door that completes, and reads what it answered.
func (s *stack) result(t *testing.T, of *commonpb.WorkflowExecution) workflows.DoorResult {
	t.Helper()
	status := s.closed(t, of)
	events := s.events(t, of)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, status, "%v", events[len(events)-1])
	var r workflows.DoorResult
	last := events[len(events)-1].GetWorkflowExecutionCompletedEventAttributes()
	require.NoError(t, json.Unmarshal(last.GetResult().GetPayloads()[0].GetData(), &r))
	return r
}

// operationsEnd waits until no operation of an instance is running, and lists how they ended.
func (s *stack) operationsEnd(t *testing.T, key fleet.ObjectKey) map[string]int {
	t.Helper()
	waitFor(t, "all operations of "+key.Name+" end", func(ctx context.Context) error {
		n, err := s.count(ctx, `SELECT count(*) FROM operations WHERE site = $1 AND name = $2 AND state = 'running'`, key.Scope, key.Name)
		if err == nil && n > 0 {
			err = errNotYet
		}
		return err
	})
	rows, err := s.pg.Query(t.Context(), `SELECT state || ' ' || reason, count(*) FROM operations
		WHERE site = $1 AND name = $2 GROUP BY 1`, key.Scope, key.Name)
	require.NoError(t, err)
	defer rows.Close()
	ends := map[string]int{}
	for rows.Next() {
		var how string
		var n int
		require.NoError(t, rows.Scan(&how, &n))
		ends[how] = n
	}
	require.NoError(t, rows.Err())
	return ends
}

func (s *stack) terminate(t *testing.T, id string) {
	t.Helper()
	_, err := s.temporal.TerminateWorkflowExecution(t.Context(), &workflowservice.TerminateWorkflowExecutionRequest{
		Namespace: temporalNamespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: id},
		Identity: starter, Reason: "by hand",
	})
	require.NoError(t, err)
}

func (st *story) input() string {
	return `{"site":"` + st.key.Scope + `","instance":"` + st.key.Name + `"}`
}

func (st *story) entity() string { return "instance." + st.key.Scope + "." + st.key.Name }

// takeID starts a workflow under the id of the entity, as soon as no run of the entity has it: a
// wake may start one after another.
func (st *story) takeID(t *testing.T, kind string, limit time.Duration) *commonpb.WorkflowExecution {
	t.Helper()
	var run *commonpb.WorkflowExecution
	waitFor(t, kind+" takes the id "+st.entity(), func(ctx context.Context) error {
		var err error
		run, err = st.tryDoor(ctx, st.entity(), kind, st.input(), limit)
		return err
	})
	return run
}

// refused waits until a door has ended without an operation, because its id is reserved.
func (s *stack) refused(t *testing.T, door *commonpb.WorkflowExecution) {
	t.Helper()
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, s.closed(t, door))
	events := s.events(t, door)
	failure := events[len(events)-1].GetWorkflowExecutionFailedEventAttributes().GetFailure()
	require.Equal(t, string(fleet.Invalid), failure.GetApplicationFailureInfo().GetType())
	for _, k := range fleet.EntityKinds() {
		require.Contains(t, failure.GetMessage(), k.Prefix+".")
	}
	n, err := s.count(t.Context(), `SELECT count(*) FROM operations WHERE door_run = $1`, door.GetRunId())
	require.NoError(t, err)
	require.Zero(t, n)
}

// N88, N93, X20, X23
func (s *stack) doorsOpen(t *testing.T) {
	const site, lost = "plant-10", "plant-11"
	s.watchOrder(t, append(pair(site), pair(lost)...)...)
	together(t, []part{
		{"whatever becomes of a workflow, its operation ends", func(t *testing.T) {
			s.lostWorkflows(t, lost)
		}},
		{"delivers under any id, and restarts nothing", func(t *testing.T) {
			st := newStory(t, s, site, "plain")
			starts := st.witness.starts(t)
			hash := starts[0].hash
			pid := st.witness.runs(t, hash)
			r := s.result(t, s.door(t, "any-"+rand.Text(), "DeployInstance", st.input(), 0))
			require.Equal(t, fleet.OperationSucceeded, r.State)
			require.EqualValues(t, 1, r.Revision)
			require.EqualValues(t, hash, r.Hash)
			op := s.ended(t, string(r.Operation))
			require.Equal(t, "temporal:"+starter, op.RequestedBy)
			require.Equal(t, pid, st.witness.runs(t, hash))
			require.Equal(t, starts, st.witness.starts(t))
		}},
		{"is served when it asks twice at once", func(t *testing.T) {
			st := newStory(t, s, site, "twice")
			starts := st.witness.starts(t)
			first := s.door(t, "a-"+rand.Text(), "DeployInstance", st.input(), 0)
			second := s.door(t, "b-"+rand.Text(), "DeployInstance", st.input(), 0)
			require.Equal(t, fleet.OperationSucceeded, s.result(t, first).State)
			require.Equal(t, fleet.OperationSucceeded, s.result(t, second).State)
			require.Equal(t, starts, st.witness.starts(t))
		}},
		{"disables, enables and deletes", func(t *testing.T) {
			s.setStates(t, newStory(t, s, site, "states"))
		}},
		{"is refused under an entity's id, which works as if nothing had been there", func(t *testing.T) {
			st := newStory(t, s, site, "own-id")
			door := st.takeID(t, "DeployInstance", 0)
			op, hash := st.release(t) // wakes the same id
			s.refused(t, door)
			requireSucceeded(t, s.ended(t, op.ID))
			st.good(t, hash)
			require.Equal(t, map[string]int{"succeeded ": 2}, s.operationsEnd(t, st.key))
		}},
	})
}

func (s *stack) setStates(t *testing.T, st *story) {
	t.Helper()
	hash := st.witness.starts(t)[0].hash
	set := func(state string) workflows.DoorResult {
		input := `{"site":"` + st.key.Scope + `","instance":"` + st.key.Name + `","state":"` + state + `"}`
		r := s.result(t, s.door(t, "state-"+rand.Text(), "SetInstanceState", input, 0))
		require.Equal(t, fleet.OperationSucceeded, r.State, "%+v", r)
		return r
	}
	enabled := func(want bool) {
		for _, node := range pair(st.key.Scope) {
			got, err := s.stores.current(t.Context(), node, st.key.Name)
			require.NoError(t, err)
			require.Equal(t, want, got.enabled, node)
		}
	}
	pid := st.witness.runs(t, hash)
	require.EqualValues(t, 2, set("disabled").Revision)
	eventually(t, "it stopped", func() bool { return !alive(pid) })
	enabled(false)
	require.EqualValues(t, 3, set("enabled").Revision)
	pid = st.witness.runs(t, hash)
	enabled(true)
	require.EqualValues(t, 4, set("deleted").Revision)
	eventually(t, "it stopped", func() bool { return !alive(pid) })
	for _, node := range pair(st.key.Scope) {
		got, err := s.stores.current(t.Context(), node, st.key.Name)
		require.NoError(t, err)
		require.Equal(t, "delete", got.action, node)
	}
	_, _, err := s.api.Object(t.Context(), st.key)
	require.Equal(t, fleet.NotFound, fleet.KindOf(err))
	require.Len(t, st.witness.starts(t), 2)
}

// lostWorkflows holds the active node's work, so that everything is in flight, and takes the
// workflows away. N61, X6, X7, X25
func (s *stack) lostWorkflows(t *testing.T, site string) {
	t.Run("a door that times out", func(t *testing.T) {
		st := newStory(t, s, site, "timed-out")
		hash := st.witness.starts(t)[0].hash
		letGo := s.hold(t, s.holder(t, site), "before_reply")
		limit := e2eTiming().Delivery.Request / 2 // it opens its operation, and that is still at work
		for opened := int64(0); opened == 0; {    // on a busy machine it may not come that far
			door := s.door(t, "short-"+rand.Text(), "DeployInstance", st.input(), limit)
			require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT, s.closed(t, door))
			var err error
			opened, err = s.count(t.Context(), `SELECT count(*) FROM operations WHERE door_run = $1`, door.GetRunId())
			require.NoError(t, err)
		}
		letGo()
		ends := s.operationsEnd(t, st.key) // also those opened after their door had timed out
		require.Len(t, ends, 1, "%v", ends)
		require.GreaterOrEqual(t, ends["succeeded "], 2, "%v", ends)
		st.good(t, hash)
	})
	t.Run("an entity that times out, for a person started it", func(t *testing.T) {
		st := newStory(t, s, site, "entity-timed-out")
		st.closed(t, &commonpb.WorkflowExecution{WorkflowId: st.entity()})
		for out := false; !out; { // it may have ended before there was something to do
			letGo := s.hold(t, s.holder(t, site), "before_fetch")
			run := st.takeID(t, "Instance", time.Second)
			op, hash := st.release(t)
			out = s.closed(t, run) == enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT
			letGo()
			t.Logf("ended as %v", s.ended(t, op.ID).State)
			st.good(t, hash)
			t.Logf("ends: %v", s.operationsEnd(t, st.key))
		}
	})
	t.Run("an entity that is terminated by hand", func(t *testing.T) {
		st := newStory(t, s, site, "terminated")
		letGo := s.hold(t, s.holder(t, site), "before_fetch")
		op, hash := st.release(t)
		st.underWay(t, op)
		s.terminate(t, st.entity())
		ended := s.ended(t, op.ID)
		require.Equal(t, fleet.OperationFailed, ended.State, "%+v", ended)
		require.Equal(t, "workflow_terminated", ended.Reason)
		letGo()
		st.good(t, hash)
	})
}
