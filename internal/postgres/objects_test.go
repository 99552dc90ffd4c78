package postgres_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// rows counts all that a write could leave behind.
func (b *bench) rows() map[string]int {
	b.T.Helper()
	out := map[string]int{}
	for _, table := range []string{"objects", "events", "outbox", "revisions", "operations", "subjects", "idempotency"} {
		out[table] = stores.Scan[int](b, "SELECT count(*) FROM "+table)
	}
	return out
}

// X1
func TestGeneration(t *testing.T) {
	t.Parallel()

	t.Run("rises with each change of the spec and with nothing else", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.EqualValues(t, 1, b.Put(`{"a":1}`).After.Generation)
		relabelled := b.Put(`{"a":1}`, stores.Labelled(map[string]string{"line": "3"}))
		require.EqualValues(t, 1, relabelled.After.Generation, "labels only")
		require.Nil(t, relabelled.Operation, "labels concern no node")
		again := b.Put(`{"a":1}`, stores.Labelled(map[string]string{"line": "3"}))
		require.EqualValues(t, 1, again.After.Generation)
		require.False(t, again.Changed)
		require.Nil(t, again.Operation, "nothing had to be started")
		require.EqualValues(t, 2, b.Put(`{"a":2}`).After.Generation)
		require.EqualValues(t, 3, b.Put(`{"a":2}`, stores.As(fleet.DurabilityAsync)).After.Generation)
		require.EqualValues(t, 4, b.Turn(fleet.OperationDisable).After.Generation)
		require.EqualValues(t, 4, b.Turn(fleet.OperationDisable).After.Generation, "it is disabled already")
		require.EqualValues(t, 5, b.Turn(fleet.OperationDelete).After.Generation)
	})

	t.Run("counts every one of many changes made at once", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		const writers = 20
		changes := make([]deliveries.InstanceChange, writers)
		for i := range changes {
			changes[i] = b.ChangeOf(string(rune('a' + i)))
		}
		require.NoError(t, stores.AtOnce(writers, func(i int) error {
			_, err := b.PutInstance(t.Context(), changes[i])
			return err
		}))
		o, err := b.GetObject(t.Context(), pressKey)
		require.NoError(t, err)
		require.EqualValues(t, writers, o.Generation)
		require.Equal(t, writers, stores.Scan[int](b, "SELECT count(DISTINCT generation) FROM revisions"))
	})

	t.Run("of a template goes on after it was deleted, for specs pin it", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		w := stores.WriteOf(fleet.ObjectKey{Kind: fleet.KindTemplate, Name: "base"})
		first, err := b.Declare(t.Context(), w, b.TemplateOf(`{}`))
		require.NoError(t, err)
		require.EqualValues(t, 1, first.After.Generation)
		_, err = b.DeleteDeclared(t.Context(), w)
		require.NoError(t, err)
		second, err := b.Declare(t.Context(), w, b.TemplateOf(`{"b":1}`))
		require.NoError(t, err)
		require.EqualValues(t, 2, second.After.Generation)
		old, generation, err := b.TemplateSpec(t.Context(), "base", 1)
		require.NoError(t, err)
		require.EqualValues(t, 1, generation)
		require.Equal(t, stores.JSONOf(`{}`), old.Base)
	})
}

func TestIfMatch(t *testing.T) {
	t.Parallel()

	t.Run("lets the change through that knows the newest resource version", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		first := b.Put(`{"a":1}`).After
		c := b.ChangeOf(`{"a":2}`)
		c.IfMatch = first.ResourceVersion
		second, err := b.PutInstance(t.Context(), c)
		require.NoError(t, err)
		require.Greater(t, second.After.ResourceVersion, first.ResourceVersion)
		require.Equal(t, second.After.ResourceVersion, b.Feed(postgres.Cursor{})[2].Cursor.Seq, "it is the number of the event")
	})

	t.Run("refuses an older one, and stores nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		first := b.Put(`{"a":1}`).After
		b.Put(`{"a":2}`)
		before := b.rows()
		c := b.ChangeOf(`{"a":3}`)
		c.IfMatch = first.ResourceVersion
		_, err := b.PutInstance(t.Context(), c)
		stores.Refused(t, fleet.Precondition, err)
		turn := stores.TurnOf(fleet.OperationDelete)
		turn.IfMatch = first.ResourceVersion
		_, err = b.TurnInstance(t.Context(), turn)
		stores.Refused(t, fleet.Precondition, err)
		require.Equal(t, before, b.rows())
	})

	t.Run("refuses one of an object that is not there", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		c := b.ChangeOf(`{"a":1}`)
		c.IfMatch = 7
		_, err := b.PutInstance(t.Context(), c)
		stores.Refused(t, fleet.Precondition, err)
	})

	t.Run("for any version wants one that is there at the moment of the write", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		c := b.ChangeOf(`{"a":1}`)
		c.IfMatch = postgres.AnyVersion
		_, err := b.PutInstance(t.Context(), c)
		stores.Refused(t, fleet.Precondition, err)
		b.Put(`{"a":1}`)
		c = b.ChangeOf(`{"a":2}`)
		c.IfMatch = postgres.AnyVersion
		_, err = b.PutInstance(t.Context(), c)
		require.NoError(t, err)
		turn := stores.TurnOf(fleet.OperationDisable)
		turn.IfMatch = postgres.AnyVersion
		_, err = b.TurnInstance(t.Context(), turn)
		require.NoError(t, err)
	})

	t.Run("lets one of many writers win that saw the same", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		seen := b.Put(`{"a":0}`).After.ResourceVersion
		won := make(chan bool, 8)
		changes := make([]deliveries.InstanceChange, cap(won))
		for i := range changes {
			changes[i] = b.ChangeOf(string(rune('a' + i)))
			changes[i].IfMatch = seen
		}
		require.NoError(t, stores.AtOnce(cap(won), func(i int) error {
			_, err := b.PutInstance(t.Context(), changes[i])
			won <- err == nil
			if fleet.KindOf(err) == fleet.Precondition {
				return nil
			}
			return err
		}))
		wins := 0
		for range cap(won) {
			if <-won {
				wins++
			}
		}
		require.Equal(t, 1, wins)
	})

	t.Run("does not change with what the system finds out", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		seen := b.Put(`{"a":1}`).After.ResourceVersion
		b.Deploy("1")
		o, err := b.GetObject(t.Context(), pressKey)
		require.NoError(t, err)
		require.Equal(t, seen, o.ResourceVersion)
	})
}

// X2
func TestWrite(t *testing.T) {
	t.Parallel()

	t.Run("leaves object, event, revision, operation and outbox row, or nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		before := b.rows()
		out := b.Put(`{"a":1}`)
		after := b.rows()
		for _, table := range []string{"objects", "events", "outbox", "revisions", "operations", "subjects"} {
			require.Equal(t, before[table]+1, after[table], table)
		}
		require.Equal(t, "instance.plant.press", stores.Scan[string](b, "SELECT subject FROM outbox"))
		require.Equal(t, fleet.OperationRunning, b.Operation(out.Operation.ID).State)

		b.Exec(`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no outbox'; END $$`)
		b.Exec(`CREATE TRIGGER fail BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION fail()`)
		_, err := b.PutInstance(t.Context(), b.ChangeOf(`{"a":2}`))
		stores.Refused(t, fleet.Internal, err)
		require.Equal(t, after, b.rows(), "the outbox row could not be written")
	})

	t.Run("of a dry run stores nothing and says what would be", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		before := b.rows()
		out := b.Put(`{"a":2}`, dryRun, keyed("k", "h"))
		require.True(t, out.Changed)
		require.EqualValues(t, 2, out.After.Generation)
		turn := stores.TurnOf(fleet.OperationDelete)
		turn.DryRun = true
		deleted, err := b.TurnInstance(t.Context(), turn)
		require.NoError(t, err)
		require.NotNil(t, deleted.After.DeletingSince)
		w := stores.WriteOf(fleet.ObjectKey{Kind: fleet.KindProject, Name: "new"})
		w.DryRun = true
		_, err = b.Declare(t.Context(), w, fleet.ProjectSpec{})
		require.NoError(t, err)
		require.Equal(t, before, b.rows())
		o, err := b.GetObject(t.Context(), pressKey)
		require.NoError(t, err)
		require.EqualValues(t, 1, o.Generation)
	})

	t.Run("of a dry run is refused like the real one", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		c := b.ChangeOf(`{"a":1}`, dryRun)
		c.Key.Scope = "nowhere"
		_, err := b.PutInstance(t.Context(), c)
		stores.Refused(t, fleet.NotFound, err)
	})

	t.Run("without release writes the spec and starts nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		out := b.Put(`{"a":1}`, stores.Unreleased)
		require.Nil(t, out.Operation)
		rows := b.rows()
		require.Zero(t, rows["revisions"]+rows["operations"]+rows["outbox"])
		_, err := b.TurnInstance(t.Context(), stores.TurnOf(fleet.OperationDeploy))
		stores.Refused(t, fleet.IllegalState, err)
		turn := stores.TurnOf(fleet.OperationDeploy)
		c := b.ChangeOf(`{"a":1}`)
		turn.Unreleased = &c
		started, err := b.TurnInstance(t.Context(), turn)
		require.NoError(t, err)
		require.EqualValues(t, 1, started.Operation.Revision)
	})

	t.Run("keeps the project of an object for ever", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		c := b.ChangeOf(`{"a":2}`)
		c.Project = "other"
		_, err := b.PutInstance(t.Context(), c)
		stores.Refused(t, fleet.Conflict, err)
	})
}

// X17
func TestEventPairs(t *testing.T) {
	t.Parallel()

	t.Run("tell what was declared before and after", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Put(`{"a":2}`, stores.Labelled(map[string]string{"line": "3"}))
		b.Turn(fleet.OperationDelete)
		b.Deploy("1")
		var got []postgres.Event
		for _, e := range b.Feed(postgres.Cursor{}) {
			if e.Key == pressKey {
				got = append(got, e)
			}
		}
		require.Len(t, got, 4)
		one, two := stores.JSONOf(`{"a":1}`).Hash, stores.JSONOf(`{"a":2}`).Hash
		created, updated, deleting, deleted := got[0], got[1], got[2], got[3]

		require.Equal(t, "created", created.Type)
		require.Nil(t, created.Before)
		require.Contains(t, string(created.After), one)
		require.Equal(t, "updated", updated.Type)
		require.JSONEq(t, string(created.After), string(updated.Before))
		require.Contains(t, string(updated.After), two)
		require.Contains(t, string(updated.After), `"line": "3"`)
		require.Equal(t, "deleting", deleting.Type)
		require.JSONEq(t, string(updated.After), string(deleting.Before))
		require.Equal(t, "deleted", deleted.Type)
		require.Nil(t, deleted.After)
		require.NotNil(t, deleted.Before)
		for i, e := range got {
			require.Equal(t, "ann", e.Actor)
			require.Equal(t, project, e.Project)
			require.Equal(t, created.UID, e.UID)
			require.EqualValues(t, min(i+1, 3), e.Generation)
		}
	})

	t.Run("are missing where nothing changed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		n := len(b.Feed(postgres.Cursor{}))
		b.Put(`{"a":1}`)
		b.Turn(fleet.OperationEnable)
		b.Turn(fleet.OperationDeploy)
		require.Len(t, b.Feed(postgres.Cursor{}), n)
	})

	// X17
	t.Run("of a status name the delivery before and after its end", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.Deploy("1")
		events := b.Feed(postgres.Cursor{})
		status := events[len(events)-1]
		require.Equal(t, "status", status.Type)
		side := `{"delivery":"%s","state":"%s","reason":"","revision":1,"revisionHash":"%s"}`
		require.JSONEq(t, fmt.Sprintf(side, d.ID, "open", stores.JSONOf(`{"a":1}`).Hash), string(status.Before))
		require.JSONEq(t, fmt.Sprintf(side, d.ID, "succeeded", stores.JSONOf(`{"a":1}`).Hash), string(status.After))
	})
}

func TestDeletionMark(t *testing.T) {
	t.Parallel()

	t.Run("stays until the active has confirmed, then the object goes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Turn(fleet.OperationDelete)
		o, err := b.GetObject(t.Context(), pressKey)
		require.NoError(t, err)
		require.NotNil(t, o.DeletingSince)
		_, err = b.TurnInstance(t.Context(), stores.TurnOf(fleet.OperationEnable))
		stores.Refused(t, fleet.IllegalState, err)
		b.Deploy("2")
		_, err = b.GetObject(t.Context(), pressKey)
		stores.Refused(t, fleet.NotFound, err)
		require.True(t, stores.Scan[bool](b, "SELECT deleted FROM subjects"))
	})

	t.Run("goes at once where nothing was ever released", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`, stores.Unreleased)
		out := b.Turn(fleet.OperationDelete)
		require.Nil(t, out.Operation)
		_, err := b.GetObject(t.Context(), pressKey)
		stores.Refused(t, fleet.NotFound, err)
	})

	t.Run("is superseded by a PUT, which makes a new object with the next number", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		first := b.Put(`{"a":1}`)
		b.Deploy("1")
		gone := b.Turn(fleet.OperationDelete)
		d := b.MustClaim(run1, "2")
		again := b.Put(`{"a":1}`)
		require.Nil(t, again.After.DeletingSince)
		require.NotEqual(t, first.After.UID, again.After.UID)
		require.EqualValues(t, 3, again.After.Generation)
		require.EqualValues(t, 3, again.Operation.Revision)

		b.MustRecord(d, nodeA) // the delete had gone out already
		b.MustEnd(d, fleet.DeliverySucceeded)
		_, err := b.GetObject(t.Context(), pressKey)
		require.NoError(t, err, "the confirmed delete takes away what came after it")
		require.False(t, stores.Scan[bool](b, "SELECT deleted FROM subjects"))
		require.Equal(t, fleet.OperationSucceeded, b.Operation(gone.Operation.ID).State)
		b.Deploy("3")
		require.EqualValues(t, 3, b.DeployedRevision().Version.Revision)
	})

	t.Run("once confirmed leaves the counter to the next of that name", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		first := b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Turn(fleet.OperationDelete)
		b.Deploy("2")
		again := b.Put(`{"a":1}`)
		require.NotEqual(t, first.After.UID, again.After.UID)
		require.EqualValues(t, 1, again.After.Generation, "generations are of the object")
		require.EqualValues(t, 3, again.Operation.Revision, "numbers are of the name")
		require.False(t, stores.Scan[bool](b, "SELECT deleted FROM subjects"))
	})

	t.Run("leaves nothing to enable until the next release", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Turn(fleet.OperationDelete)
		b.Deploy("2")
		b.Put(`{"a":2}`, stores.Unreleased)
		for _, kind := range []fleet.OperationKind{fleet.OperationEnable, fleet.OperationDisable, fleet.OperationDeploy} {
			_, err := b.TurnInstance(t.Context(), stores.TurnOf(kind))
			stores.Refused(t, fleet.IllegalState, err)
		}
	})
}

func TestDeclared(t *testing.T) {
	t.Parallel()

	t.Run("sites with instances are not deleted", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`, stores.Unreleased)
		_, err := b.DeleteDeclared(t.Context(), stores.WriteOf(stores.SiteKey))
		stores.Refused(t, fleet.IllegalState, err)
		b.Turn(fleet.OperationDelete)
		_, err = b.DeleteDeclared(t.Context(), stores.WriteOf(stores.SiteKey))
		require.NoError(t, err)
		_, err = b.PutInstance(t.Context(), b.ChangeOf(`{"a":1}`))
		stores.Refused(t, fleet.NotFound, err)
	})

	t.Run("templates in use are not deleted", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		w := stores.WriteOf(fleet.ObjectKey{Kind: fleet.KindTemplate, Name: "base"})
		_, err := b.Declare(t.Context(), w, b.TemplateOf(`{}`))
		require.NoError(t, err)
		b.Put(`{}`, func(c *deliveries.InstanceChange) {
			c.Spec.Config, c.Spec.Template, c.Spec.TemplateGeneration = nil, "base", 1
		})
		_, err = b.DeleteDeclared(t.Context(), w)
		stores.Refused(t, fleet.IllegalState, err)
	})

	t.Run("a spec names only template generations that there are", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		c := b.ChangeOf(`{}`)
		c.Spec.Config, c.Spec.Template, c.Spec.TemplateGeneration = nil, "base", 1
		_, err := b.PutInstance(t.Context(), c)
		stores.Refused(t, fleet.NotFound, err)
	})

	t.Run("compositions are pinned to the generation of now", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		base := stores.WriteOf(fleet.ObjectKey{Kind: fleet.KindTemplate, Name: "base"})
		for _, body := range []string{`{}`, `{"b":1}`} {
			_, err := b.Declare(t.Context(), base, b.TemplateOf(body))
			require.NoError(t, err)
		}
		w := stores.WriteOf(fleet.ObjectKey{Kind: fleet.KindTemplate, Name: "top"})
		top := b.TemplateOf(`{}`)
		top.Compositions = []fleet.TemplatePin{{Name: "base"}}
		_, err := b.Declare(t.Context(), w, top)
		require.NoError(t, err)
		kept, _, err := b.TemplateSpec(t.Context(), "top", 0)
		require.NoError(t, err)
		require.Equal(t, []fleet.TemplatePin{{Name: "base", Generation: 2}}, kept.Compositions)
	})
}

func TestRollback(t *testing.T) {
	t.Parallel()

	to := func(b *bench, want string) {
		b.T.Helper()
		out := b.Turn(fleet.OperationRollback)
		_, desired, err := b.Deployed(b.Ctx(), pressKey)
		require.NoError(b.T, err)
		require.Equal(b.T, stores.JSONOf(want).Hash, desired.Content.Hash)
		require.Equal(b.T, out.Operation.Revision, desired.Version.Revision)
		require.Contains(b.T, string(out.After.Spec), stores.JSONOf(want).Hash, "the spec goes back too")
	}

	t.Run("goes to the deployed revision when a newer one is not deployed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Put(`{"a":2}`)
		to(b, `{"a":1}`)
	})

	t.Run("goes to the deployed one before the deployed one", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Put(`{"never":1}`)
		b.MustEnd(b.MustClaim(run1, "2"), fleet.DeliveryFailed)
		b.Put(`{"a":2}`)
		b.Deploy("3")
		to(b, `{"a":1}`)
	})

	t.Run("knows a command from another with the same config", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`, stores.Running("one"))
		b.Deploy("1")
		b.Put(`{"a":1}`, stores.Running("two"))
		b.Deploy("2")
		to(b, `{"a":1}`)
		_, desired, err := b.Deployed(t.Context(), pressKey)
		require.NoError(t, err)
		require.Equal(t, stores.JSONOf(`{"command":["one"]}`).Hash, desired.RunHash)
	})

	t.Run("is refused when nothing earlier was deployed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		_, err := b.TurnInstance(t.Context(), stores.TurnOf(fleet.OperationRollback))
		stores.Refused(t, fleet.IllegalState, err)
	})

	t.Run("to a number that there is not, or that is a delete, is refused", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Turn(fleet.OperationDelete)
		b.Put(`{"a":2}`)
		for _, revision := range []int64{2, 9} {
			turn := stores.TurnOf(fleet.OperationRollback)
			turn.Revision = revision
			_, err := b.TurnInstance(t.Context(), turn)
			stores.Refused(t, fleet.NotFound, err)
		}
	})
}
