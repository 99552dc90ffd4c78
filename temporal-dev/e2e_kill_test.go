package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// story is an instance whose revisions are released one after the other, with a command
// that must never run twice.
type story struct {
	*stack
	key     fleet.ObjectKey
	witness *witness
	start   float64 // seconds that the command takes to count as started
	number  int
}

func newStory(t *testing.T, s *stack, site, name string) *story {
	t.Helper()
	st := &story{stack: s, key: instanceKey(site, name), witness: newWitness(t)}
	op, hash := st.release(t)
	requireSucceeded(t, st.ended(t, op.ID))
	st.good(t, hash)
	return st
}

// release puts the next revision and gives its operation and hash.
func (st *story) release(t *testing.T) (api.Operation, string) {
	t.Helper()
	st.number++
	config := fmt.Appendf(nil, `{"instance":%q,"number":%d}`, st.key.Name, st.number)
	return st.put(t, st.key, api.InstancePut{Config: config, Run: st.witness.run(st.start)}), hashOf(config)
}

// good checks that both nodes hold the newest revision and that the active runs it once.
func (st *story) good(t *testing.T, hash string) {
	t.Helper()
	st.held(t, st.key, hash)
	st.activeFile(t, st.key, "config.json", hash)
	st.witness.runs(t, hash)
	st.witness.alone(t)
}

// survives releases a revision, has something killed on its way, and checks how it ends.
func (st *story) survives(t *testing.T, fired func() bool) {
	t.Helper()
	op, hash := st.release(t)
	waitFor(t, "it was killed", func(context.Context) error {
		if fired() {
			return nil
		}
		return errNotYet
	})
	ended := st.ended(t, op.ID)
	t.Logf("ended as %s %s", ended.State, ended.Reason)
	st.good(t, hash)
	require.Equal(t, fleet.OperationSucceeded, ended.State, "%+v", ended)
}

// stopped takes a node away in the middle of a delivery, as an upgrade of its machine does.
func (st *story) stopped(t *testing.T, node string) {
	t.Helper()
	st.start = 7 // longer than a node waits for its work before it stops
	op, hash := st.release(t)
	st.underWay(t, op)
	st.order(t, "stop", node)
	st.order(t, "start", node)
	ended := st.ended(t, op.ID)
	t.Logf("ended as %s %s", ended.State, ended.Reason)
	st.good(t, hash)
}

// outlives has the node work while Temporal is away, until it gives up or is done.
func (st *story) outlives(t *testing.T, away string) {
	t.Helper()
	st.start = 8
	active := st.holder(t, st.key.Scope)
	op, hash := st.release(t)
	pid := st.witness.runs(t, hash)
	st.order(t, "stop", away)
	waitFor(t, "the node gave up, or switched", func(ctx context.Context) error {
		held, err := st.stores.current(ctx, active, st.key.Name)
		if err == nil && held.hash != hash && alive(pid) {
			err = errNotYet
		}
		return err
	})
	st.order(t, "start", away)
	ended := st.ended(t, op.ID)
	t.Logf("ended as %s %s", ended.State, ended.Reason)
	require.NotContains(t, []string{"internal", "apply_failed"}, ended.Reason, "it says nothing about the revision: %+v", ended)
	st.good(t, hash)
}

// underWay waits until the active was told of an operation's delivery.
func (st *story) underWay(t *testing.T, op api.Operation) {
	t.Helper()
	waitFor(t, "the active was told", func(ctx context.Context) error {
		n, err := st.count(ctx, `SELECT count(*) FROM operations o JOIN delivery_nodes d USING (delivery_id)
			WHERE o.id = $1 AND d.role = 'active' AND d.state = 'notified'`, op.ID)
		if err == nil && n == 0 {
			err = errNotYet
		}
		return err
	})
}

// asleep checks that nothing of the product runs in Temporal once all has converged.
func (s *stack) asleep(t *testing.T) {
	t.Helper()
	s.settled(t)
	waitFor(t, "no entity runs", func(ctx context.Context) error {
		list, err := s.temporal.ListWorkflowExecutions(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: temporalNamespace, Query: `ExecutionStatus = "Running" AND WorkflowType = "Instance"`,
		})
		if err == nil && len(list.GetExecutions()) > 0 {
			err = fmt.Errorf("%v runs", list.GetExecutions()[0].GetExecution())
		}
		return err
	})
}

// N14, N16, N62, X2, X6, X11, X13, X28
func TestE2EServerKilled(t *testing.T) {
	t.Parallel()
	s := startStack(t, 1)
	s.watchOrder(t, pair("plant-1")...)
	st := newStory(t, s, "plant-1", "press-7")
	for _, step := range []string{"observe", "claim", "prepare", "record", "end"} {
		for _, when := range []string{"before_", "after_"} {
			t.Run(when+step, func(t *testing.T) {
				st.survives(t, s.arm(t, serverName, when+step))
			})
		}
	}
	for _, name := range []string{temporalName, postgresName, serverName} {
		t.Run(name+" in the middle", func(t *testing.T) {
			st.start = 1.5
			first, _ := st.release(t)
			st.underWay(t, first)
			kill9(t, s.pid(t, name))
			second, hash := st.release(t) // while it is away
			ended := s.ended(t, first.ID)
			require.Contains(t, []fleet.OperationState{fleet.OperationSuperseded, fleet.OperationSucceeded}, ended.State, "%+v", ended)
			requireSucceeded(t, s.ended(t, second.ID))
			st.good(t, hash)
		})
	}
	t.Run("temporal away for longer than a heartbeat", func(t *testing.T) { st.outlives(t, temporalName) })
	s.asleep(t)
	runs := s.histories(t)
	requireSmall(t, runs)
	for _, r := range runs {
		last := r.events[len(r.events)-1].GetEventType()
		require.NotEqual(t, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED, last, r.id)
	}
}

// N7, N43, N45, N61, N63, N64, N95, X2, X13, X28
func TestE2ENodeKilled(t *testing.T) {
	t.Parallel()
	s := startStack(t, 3)
	roles := map[string]func(t *testing.T, site string) string{"active": s.holder, "standby": s.standby}
	t.Run("at any step", func(t *testing.T) {
		for _, d := range []struct {
			site, role string
			steps      []string
			stops      bool
		}{
			{"plant-1", "active", []string{"before_fetch", "after_fetch", "before_start", "after_start"}, false},
			{"plant-2", "active", []string{"before_switch", "after_switch", "before_reply"}, true},
			{"plant-3", "standby", []string{"before_fetch", "after_fetch", "before_reply"}, true},
		} {
			node := func(t *testing.T) string { return roles[d.role](t, d.site) }
			t.Run(d.site, func(t *testing.T) {
				t.Parallel()
				s.watchOrder(t, pair(d.site)...)
				st := newStory(t, s, d.site, "press-7")
				for _, step := range d.steps {
					t.Run("the "+d.role+" "+step, func(t *testing.T) { st.survives(t, s.arm(t, node(t), step)) })
				}
				if d.stops {
					t.Run("the "+d.role+" is stopped cleanly", func(t *testing.T) { st.stopped(t, node(t)) })
				}
			})
		}
	})
	s.asleep(t)
}
