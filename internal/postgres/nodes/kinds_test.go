package nodes_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// X23: an entity ends, supersedes, counts and reports only operations of the kind that it serves. One of another kind on
// the same subject is left alone.
func TestOperationsOfAnotherKind(t *testing.T) {
	t.Parallel()
	failed := fleet.OperationFailed
	for _, row := range []struct {
		kind    fleet.OperationKind
		subject string
		open    func(*bench) (postgres.Operation, error)
		wanted  func(*bench) bool // whether the entity has something to do
		end     func(*bench, postgres.Operation) error
	}{
		{
			fleet.OperationFailover, fleet.SiteSubject(plant),
			func(b *bench) (postgres.Operation, error) {
				return b.AskFailover(b.Ctx(), nodes.FailoverRequest{Request: postgres.Request{Actor: "ann", Limit: minute}, Site: plant, To: nodeB})
			},
			func(b *bench) bool {
				seen, err := b.SeeFailover(b.Ctx(), fleet.FailoverLook{Site: plant, Run: run1, To: nodeB, Reason: "waits", Message: "for a vote"})
				require.NoError(b.T, err)
				return seen.Operation != ""
			},
			func(b *bench, _ postgres.Operation) error {
				return b.EndFailover(b.Ctx(), fleet.FailoverEnd{Site: plant, To: nodeB, State: failed, Reason: "deadline"})
			},
		},
		{
			fleet.OperationDrain, fleet.DrainSubject(nodeB),
			func(b *bench) (postgres.Operation, error) { return b.AskNodeDrain(b.Ctx(), stores.DrainOf(nodeB, 60)) },
			func(b *bench) bool { return b.MustSeeDrain(nodeB).Wanted },
			func(b *bench, op postgres.Operation) error {
				return b.EndDrain(b.Ctx(), fleet.DrainEnd{Node: nodeB, Operation: op.ID, State: failed, Reason: "deadline"})
			},
		},
		{
			fleet.OperationReconcile, fleet.NodeSubject(nodeB),
			func(b *bench) (postgres.Operation, error) { return b.AskReconcile(b.Ctx(), askOf(nodeB)) },
			nil,
			func(b *bench, _ postgres.Operation) error {
				return b.EndReconcile(b.Ctx(), fleet.ReconcileEnd{Node: nodeB, By: time.Now().Add(time.Hour), State: failed})
			},
		},
	} {
		t.Run(string(row.kind), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.MoveLease(nodeA)
			var other postgres.Operation
			require.NoError(t, b.Tx(t.Context(), func(q *db.Queries) (err error) {
				other, err = postgres.OpenOperation(t.Context(), q, postgres.Request{Actor: "ann", Limit: minute}, postgres.NewOperation{
					Kind: "inspect", Site: string(plant), Name: string(nodeB), Subject: row.subject, Project: fleet.DefaultProject,
				})
				return err
			}))
			if row.wanted != nil {
				require.False(t, row.wanted(b), "it asks for something else")
			}
			op, err := row.open(b)
			require.NoError(t, err)
			if row.wanted != nil {
				require.True(t, row.wanted(b))
			}
			require.NoError(t, row.end(b, op))
			require.Equal(t, failed, b.Operation(op.ID).State)
			other = b.Operation(other.ID)
			require.Equal(t, fleet.OperationRunning, other.State)
			require.Empty(t, other.Reason)
			if row.wanted != nil {
				require.False(t, row.wanted(b), "it has ended")
			}
		})
	}
}
