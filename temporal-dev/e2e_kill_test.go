package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
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

// onNode is one node's line of an instance's status.
func onNode(t *testing.T, status api.InstanceStatus, node string) api.InstanceOnNode {
	t.Helper()
	for _, n := range status.Nodes {
		if n.Node == node {
			return n
		}
	}
	require.Fail(t, "no such node", "%s in %+v", node, status)
	return api.InstanceOnNode{}
}
