package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()

	t.Run("answers the same request from what the first one started", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		first := b.Put(`{"a":1}`, keyed("k", "h"))
		before := b.rows()
		again := b.Put(`{"a":1}`, keyed("k", "h"))
		require.Equal(t, first.Operation.ID, again.Operation.ID)
		require.Equal(t, first.After.Generation, again.After.Generation)
		require.False(t, again.Changed)
		require.Equal(t, before, b.rows())
	})

	t.Run("answers also when more was asked for since", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		first := b.Put(`{"a":1}`, keyed("k", "h"))
		b.Put(`{"a":2}`)
		require.Equal(t, first.Operation.ID, b.Put(`{"a":1}`, keyed("k", "h")).Operation.ID)
		_, want, err := b.Deployed(t.Context(), pressKey)
		require.NoError(t, err)
		require.Equal(t, stores.JSONOf(`{"a":2}`).Hash, want.Content.Hash, "the repeat undid what came later")
	})

	t.Run("is refused for another body", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`, keyed("k", "h"))
		before := b.rows()
		_, err := b.PutInstance(t.Context(), b.ChangeOf(`{"a":2}`, keyed("k", "other")))
		stores.Refused(t, fleet.Conflict, err)
		require.Equal(t, before, b.rows())
	})

	t.Run("is each person's own", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		first := b.Put(`{"a":1}`, keyed("k", "h"))
		second := b.Put(`{"a":2}`, keyed("k", "other"), func(c *deliveries.InstanceChange) { c.Actor = "ben" })
		require.NotEqual(t, first.Operation.ID, second.Operation.ID)
	})

	t.Run("answers nobody of another project, whoever the caller is taken for", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		turn := stores.TurnOf(fleet.OperationEnable)
		turn.Idempotency = postgres.Idempotency{Key: "k", Hash: []byte("h")}
		_, err := b.TurnInstance(t.Context(), turn)
		require.NoError(t, err)
		turn.Project = "another"
		_, err = b.TurnInstance(t.Context(), turn)
		stores.Refused(t, fleet.Conflict, err)
	})

	t.Run("is not used up by a refusal or a dry run", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		c := b.ChangeOf(`{"a":1}`, keyed("k", "h"))
		c.IfMatch = 99
		_, err := b.PutInstance(t.Context(), c)
		stores.Refused(t, fleet.Precondition, err)
		b.Put(`{"a":1}`, keyed("k", "h"), dryRun)
		require.NotNil(t, b.Put(`{"a":1}`, keyed("k", "h")).Operation)
	})

	t.Run("sent many times at once starts one operation", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		const senders = 8
		ids := make([]fleet.OperationID, senders)
		require.NoError(t, stores.AtOnce(senders, func(i int) error {
			turn := stores.TurnOf(fleet.OperationDeploy)
			turn.Idempotency = postgres.Idempotency{Key: "k", Hash: []byte("h")}
			out, err := b.TurnInstance(t.Context(), turn)
			if err == nil {
				ids[i] = out.Operation.ID
			}
			return err
		}))
		for _, id := range ids {
			require.Equal(t, ids[0], id)
		}
		require.Equal(t, 2, stores.Scan[int](b, "SELECT count(*) FROM operations"), "the PUT's and one more")
	})

	t.Run("sent at once for two objects is taken by one of them", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		changes := []deliveries.InstanceChange{
			b.ChangeOf(`{"a":1}`, keyed("k", "one"), stores.Named("one")), b.ChangeOf(`{"a":1}`, keyed("k", "two"), stores.Named("two")),
		}
		refusals := make(chan error, 2)
		require.NoError(t, stores.AtOnce(2, func(i int) error {
			_, err := b.PutInstance(t.Context(), changes[i])
			refusals <- err
			return nil
		}))
		one, two := <-refusals, <-refusals
		if one == nil {
			one = two
		} else {
			require.NoError(t, two)
		}
		stores.Refused(t, fleet.Conflict, one)
		require.Equal(t, 1, stores.Scan[int](b, "SELECT count(*) FROM operations"))
	})

	t.Run("holds for declared objects too", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		w := stores.WriteOf(fleet.ObjectKey{Kind: fleet.KindProject, Name: "new"})
		w.Idempotency = postgres.Idempotency{Key: "k", Hash: []byte("h")}
		first, err := b.Declare(t.Context(), w, fleet.ProjectSpec{})
		require.NoError(t, err)
		again, err := b.Declare(t.Context(), w, fleet.ProjectSpec{})
		require.NoError(t, err)
		require.Equal(t, first.After.ResourceVersion, again.After.ResourceVersion)
		w.Idempotency.Hash = []byte("other")
		_, err = b.Declare(t.Context(), w, fleet.ProjectSpec{})
		stores.Refused(t, fleet.Conflict, err)
	})
}

// X23: a repeat may not be possible any more, or be possible again; either way it is answered and does nothing.
func TestRepeatOfWhatIsOver(t *testing.T) {
	t.Parallel()
	b := bare(t)
	key := fleet.ObjectKey{Kind: fleet.KindProject, Name: "new"}
	made := stores.WriteOf(key)
	made.IfMatch, made.Idempotency = postgres.NoVersion, postgres.Idempotency{Key: "made", Hash: []byte("h")}
	first, err := b.Declare(t.Context(), made, fleet.ProjectSpec{})
	require.NoError(t, err)
	again, err := b.Declare(t.Context(), made, fleet.ProjectSpec{})
	require.NoError(t, err, "it exists by now")
	require.Equal(t, first.After.ResourceVersion, again.After.ResourceVersion)

	gone := stores.WriteOf(key)
	gone.Idempotency = postgres.Idempotency{Key: "gone", Hash: []byte("h")}
	for range 2 {
		_, err = b.DeleteDeclared(t.Context(), gone)
		require.NoError(t, err, "the second finds nothing to delete")
	}
	again, err = b.Declare(t.Context(), made, fleet.ProjectSpec{})
	require.NoError(t, err)
	require.Nil(t, again.After, "it is not made once more")
	require.Equal(t, 2, stores.Scan[int](b, "SELECT count(*) FROM events WHERE kind = 'project' AND name = 'new'"))
}

// X23
func TestDoorRun(t *testing.T) {
	t.Parallel()

	byDoor := func(workflow, run string) deliveries.InstanceTurn {
		turn := stores.TurnOf(fleet.OperationDeploy)
		turn.Door = postgres.Door{Workflow: workflow, Run: run}
		return turn
	}

	t.Run("asks once, however often its activity runs", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		const tries = 8
		ids := make([]fleet.OperationID, tries)
		require.NoError(t, stores.AtOnce(tries, func(i int) error {
			out, err := b.TurnInstance(t.Context(), byDoor("mine", "r1"))
			if err == nil {
				ids[i] = out.Operation.ID
			}
			return err
		}))
		for _, id := range ids {
			require.Equal(t, ids[0], id)
		}
	})

	t.Run("is another request in another run, or under another id", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		ids := map[fleet.OperationID]bool{}
		for _, turn := range []deliveries.InstanceTurn{byDoor("mine", "r1"), byDoor("mine", "r2"), byDoor("yours", "r1")} {
			out, err := b.TurnInstance(t.Context(), turn)
			require.NoError(t, err)
			ids[out.Operation.ID] = true
		}
		require.Len(t, ids, 3)
	})

	t.Run("is told the end until it is known", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		out, err := b.TurnInstance(t.Context(), byDoor("mine", "r1"))
		require.NoError(t, err)
		untold := func(subject string) []postgres.Operation {
			list, err := b.UntoldDoors(t.Context(), subject, 10)
			require.NoError(t, err)
			return list
		}
		require.Empty(t, untold(""), "it runs")
		b.Deploy("1")
		for _, of := range []string{"", "instance.plant.press"} {
			list := untold(of)
			require.Len(t, list, 1, "the PUT had no door")
			require.Equal(t, out.Operation.ID, list[0].ID)
			require.Equal(t, postgres.Door{Workflow: "mine", Run: "r1"}, list[0].Door)
		}
		require.Empty(t, untold("instance.plant.other"))
		require.NoError(t, b.DoorTold(t.Context(), out.Operation.ID))
		require.Empty(t, untold(""))
	})
}
