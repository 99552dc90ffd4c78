package deployments_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// late has what is to end on a node that is cut off be past its time, and goes on until nothing is left to do.
func (b *bench) late() {
	b.T.Helper()
	b.visits()
	b.obey(nodeB)
	b.Exec(`UPDATE replicas SET stop_by = now() - interval '1 s' WHERE node = $1 AND state = 'TERMINATING'`, nodeA)
	b.visits()
}

// endedAs is how an operation ended, and with what reason.
func (b *bench) endedAs(op *postgres.Operation) string {
	b.T.Helper()
	o := b.Operation(op.ID)
	return string(o.State) + " " + o.Reason
}

// X4, X6: what ended without its node's word may run on: a stop, a restart and a destroy say so, by the
// nodes that are still to confirm it, and end as they would else.
func TestDeploymentConfirms(t *testing.T) {
	t.Parallel()
	const unknown = "unknown not_confirmed"
	stop := asking(func(s *fleet.DeploymentSpec) { s.State = fleet.StateStopped })
	cutOff := func(t *testing.T) *bench {
		b := setup(t).deployable()
		b.putDeployment()
		b.settles()
		require.Len(t, b.on(nodeA), 1)
		b.disconnect(nodeA)
		return b
	}

	t.Run("a stop", func(t *testing.T) {
		t.Parallel()
		b := cutOff(t)
		out := b.putDeployment(stop)
		b.late()
		require.Equal(t, unknown, b.endedAs(out.Operation))
		require.Contains(t, b.Operation(out.Operation.ID).Message, string(nodeA))
		require.NotContains(t, b.Operation(out.Operation.ID).Message, string(nodeB))
	})

	t.Run("a destroy, which frees the name", func(t *testing.T) {
		t.Parallel()
		b := cutOff(t)
		out, err := b.turnDeployment(fleet.OperationDestroy)
		require.NoError(t, err)
		b.late()
		require.Equal(t, unknown, b.endedAs(out.Operation))
		require.Equal(t, fleet.DeploymentTerminated, b.viewed().State)
		_, err = b.GetObject(t.Context(), webKey)
		stores.Refused(t, fleet.NotFound, err)

		b.putDeployment() // another declaration, which has nothing on that node
		b.settles()
		b.disconnect(nodeA)
		out, err = b.turnDeployment(fleet.OperationRestart)
		require.NoError(t, err)
		b.settles()
		require.Equal(t, "succeeded converged", b.endedAs(out.Operation))
	})

	t.Run("a restart, until the node says that it ended", func(t *testing.T) {
		t.Parallel()
		b := cutOff(t)
		b.Exec(`UPDATE connections SET ended_at = now() - interval '1 hour' WHERE node = $1`, nodeA)
		old := b.on(nodeA)[0].ID
		b.visits()
		b.obey(nodeB)
		b.late()
		require.Equal(t, fleet.ReplicaTerminated, b.replica(old).State)
		restart := func() string {
			out, err := b.turnDeployment(fleet.OperationRestart)
			require.NoError(t, err)
			for range 10 {
				b.visits()
				b.obey(nodeB)
			}
			b.visits()
			return b.endedAs(out.Operation)
		}
		require.Equal(t, unknown, restart())
		b.Exec(`DELETE FROM replicas WHERE id = $1`, old)
		require.Equal(t, unknown, restart(), "also when its row is collected")
		b.tells(nodeA, stopped(old))
		require.Equal(t, "succeeded converged", restart())
	})

	t.Run("until an operator gives the node up, but for what is open then", func(t *testing.T) {
		t.Parallel()
		for name, giveUp := range map[string]func(*bench){
			"revoked": func(b *bench) { require.NoError(t, b.RevokeNode(t.Context(), nodeA)) },
			"removed": func(b *bench) { b.Exec(`UPDATE nodes SET removed_at = now() WHERE name = $1`, nodeA) },
		} {
			b := cutOff(t)
			before := b.putDeployment(stop)
			b.visits()
			b.obey(nodeB)
			giveUp(b)
			b.visits()
			require.Equal(t, unknown, b.endedAs(before.Operation), name)
			out, err := b.turnDeployment(fleet.OperationDestroy)
			require.NoError(t, err)
			b.late()
			require.Equal(t, "succeeded destroyed", b.endedAs(out.Operation), name)
		}
	})

	t.Run("but not of what its node said has exited, and may only start again", func(t *testing.T) {
		t.Parallel()
		b := setup(t).deployable()
		b.putDeployment()
		b.settles()
		id := b.on(nodeA)[0].ID
		out := b.putDeployment(stop)
		b.visits()
		b.tells(nodeA, exited(id))
		b.obey(nodeB)
		b.visits()
		require.Contains(t, b.named(nodeA), id)
		require.Equal(t, "succeeded stopped", b.endedAs(out.Operation))
	})

	t.Run("and of what a node has again that had ended", func(t *testing.T) {
		t.Parallel()
		b := setup(t).deployable()
		b.putDeployment()
		b.settles()
		id := b.on(nodeA)[0].ID
		require.NoError(t, b.RemoveReplica(b.Ctx(), stores.WriteOf(webKey), id))
		b.tells(nodeA, stopped(id))
		b.settles()
		b.tells(nodeA, healthy(id))
		require.Contains(t, b.named(nodeA), id)
		out := b.putDeployment(stop)
		for range 3 {
			b.visits()
			for _, r := range b.replicas() {
				b.tells(r.Node, stopped(r.ID))
			}
		}
		require.Equal(t, unknown, b.endedAs(out.Operation))
	})
}
