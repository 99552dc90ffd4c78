package nodes_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func askOf(node fleet.NodeName) nodes.ReconcileRequest {
	return nodes.ReconcileRequest{Request: postgres.Request{Actor: "ada", Limit: minute}, Node: node}
}

func TestAskReconcile(t *testing.T) {
	t.Parallel()

	t.Run("opens an operation of the site's project, and wakes the node", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op, err := b.AskReconcile(t.Context(), askOf(nodeB))
		require.NoError(t, err)
		require.Equal(t, []any{nodeB, plant, stores.Project, fleet.InstanceName("")}, []any{op.Node, op.Site, op.Project, op.Instance})
		waiting, err := b.WaitingWakes(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Contains(t, waiting, fleet.NodeSubject(nodeB))
	})

	t.Run("answers a door that asks twice with its operation", func(t *testing.T) { // X13, X23
		t.Parallel()
		b := setup(t)
		in := askOf(nodeB)
		in.Door = postgres.Door{Workflow: "by-hand", Run: "run-7"}
		ids := make([]fleet.OperationID, 4)
		require.NoError(t, stores.AtOnce(len(ids), func(i int) error {
			op, err := b.AskReconcile(b.Ctx(), in)
			ids[i] = op.ID
			return err
		}))
		for _, id := range ids {
			require.Equal(t, ids[0], id)
		}
		require.Equal(t, int64(1), stores.Scan[int64](b, "SELECT count(*) FROM operations"))
	})

	t.Run("of another project's node finds none", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		in := askOf(nodeB)
		in.Project = "other"
		_, err := b.AskReconcile(t.Context(), in)
		stores.Refused(t, fleet.NotFound, err)
		in.Node, in.Site = "", plant
		_, err = b.AskReconciles(t.Context(), in)
		stores.Refused(t, fleet.NotFound, err)
		require.Zero(t, stores.Scan[int64](b, "SELECT count(*) FROM operations"))
	})

	t.Run("does not lend its name to an instance", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`, stores.Named(string(nodeB)), stores.Unreleased)
		_, err := b.AskReconcile(t.Context(), askOf(nodeB))
		require.NoError(t, err)
		open, err := b.OpenSubjects(t.Context(), deliveries.OpenSubject{}, -time.Minute, 10)
		require.NoError(t, err)
		require.Empty(t, open, "a node's operation was taken for that of an instance")
	})
}

func TestCancelReconcile(t *testing.T) { // X7
	t.Parallel()
	b := setup(t)
	in := askOf(nodeB)
	in.Door = postgres.Door{Workflow: "by-hand", Run: "run-7"}
	op, err := b.AskReconcile(t.Context(), in)
	require.NoError(t, err)
	ended, err := b.CancelOperation(t.Context(), op.ID)
	require.NoError(t, err)
	require.Equal(t, fleet.OperationCancelled, ended.State)
	require.NotNil(t, ended.EndedAt)
	doors, err := b.UntoldDoors(t.Context(), "", 10)
	require.NoError(t, err)
	require.Len(t, doors, 1, "its door is to be told")
	_, err = b.CancelOperation(t.Context(), op.ID)
	stores.Refused(t, fleet.IllegalState, err)
	require.NoError(t, b.EndReconcile(t.Context(), fleet.ReconcileEnd{Node: nodeB, By: ended.EndedAt.Add(time.Hour), State: fleet.OperationSucceeded}))
	require.Equal(t, fleet.OperationCancelled, b.Operation(op.ID).State)
}
