package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// X2: statements travel together, and stand or fall together.
func TestPipeline(t *testing.T) {
	t.Parallel()

	// failing makes every insert into a table fail.
	failing := func(b *bench, table string) {
		b.Exec(`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not here'; END $$`)
		b.Exec(`CREATE TRIGGER fail BEFORE INSERT ON ` + table + ` FOR EACH ROW EXECUTE FUNCTION fail()`)
	}

	t.Run("a statement that was kept back fails the whole, and is named", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		c := b.ChangeOf(`{"a":1}`)
		failing(b, "outbox") // the last write of a release, which nobody reads the result of
		_, err := b.PutInstance(t.Context(), c)
		stores.Refused(t, fleet.Internal, err)
		var sql *pgconn.PgError
		require.ErrorAs(t, err, &sql)
		require.Contains(t, causes(err), "PutOutbox")
		require.Equal(t, []int64{0, 0, 0}, stores.Scan[[]int64](b, `SELECT ARRAY[(SELECT count(*) FROM revisions),
			(SELECT count(*) FROM operations), (SELECT count(*) FROM objects WHERE kind = 'instance')]`))

		b.Exec(`DROP TRIGGER fail ON outbox`)
		for range 30 { // more than there are connections: none was left in a transaction
			b.Put(`{"a":1}`)
		}
	})

	t.Run("a read that fails is named", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		c := b.ChangeOf(`{"a":1}`)
		b.Exec(`ALTER TABLE objects RENAME COLUMN spec TO was_spec`)
		_, err := b.PutInstance(t.Context(), c)
		stores.Refused(t, fleet.Internal, err)
		require.Regexp(t, `[A-Z]\w+: ERROR: column`, causes(err))
	})

	t.Run("a dry run finds what the real one would", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		c := b.ChangeOf(`{"a":1}`, dryRun)
		failing(b, "outbox")
		_, err := b.PutInstance(t.Context(), c)
		stores.Refused(t, fleet.Internal, err)
	})

	t.Run("a caller that goes away leaves nothing half done", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		c := b.ChangeOf(`{"a":1}`)
		held, err := b.Raw.Begin(t.Context())
		require.NoError(t, err)
		_, err = held.Exec(t.Context(), `LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE`)
		require.NoError(t, err)
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := b.PutInstance(ctx, c)
			done <- err
		}()
		b.WaitsForLock(1)
		leave()
		require.Error(t, <-done)
		require.NoError(t, held.Rollback(t.Context()))
		require.EqualValues(t, 1, b.Put(`{"a":1}`).Operation.Revision, "the first was never written")
	})
}

// causes is what an error's own text leaves out.
func causes(err error) string {
	var all []string
	for ; err != nil; err = errors.Unwrap(err) {
		all = append(all, err.Error())
	}
	return strings.Join(all, "; ")
}

// X13, N21: a walk is one transaction, and a repeated one finds what it did.
func TestWalk(t *testing.T) {
	t.Parallel()

	// visit looks, claims and prepares, as the first visit of an entity does.
	visit := func(b *bench) (fleet.Walked, error) {
		claim := stores.ClaimOf(run1, "1")
		return b.Walk(b.Ctx(), stores.SubjectOf(run1), fleet.Step{}, func(seen fleet.InstanceSeen, taken int) (fleet.Step, bool) {
			switch {
			case taken == 1:
				return fleet.Step{Claim: &claim}, true
			case taken == 2 && seen.Open.Active().State == fleet.TargetWaiting:
				return fleet.Step{Prepare: &fleet.Prepare{
					Subject: stores.SubjectOf(run1), Delivery: seen.Open.ID, Node: nodeA, TTL: 5 * minute, TokenHash: make([]byte, 32),
				}}, true
			}
			return fleet.Step{}, false
		})
	}

	t.Run("sees after each step what it did", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		w, err := visit(b)
		require.NoError(t, err)
		require.Len(t, w.Steps, 3)
		require.Equal(t, fleet.TargetWaiting, w.Seen.Open.Active().State, "a notify changes nothing that is decided on")
		require.Equal(t, string(w.Seen.Open.ID), w.Prepared.Command.DeploymentID)
		require.EqualValues(t, 1, w.Prepared.Command.Revision.Version.Revision)
		require.False(t, w.Seen.At.IsZero())
		require.Equal(t, "notified", b.Delivery(w.Seen.Open.ID).Phase)
	})

	t.Run("again finds its own claim, and a node that may have been told", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		first, err := visit(b)
		require.NoError(t, err)
		again, err := visit(b)
		require.NoError(t, err)
		require.Equal(t, first.Seen.Open.ID, again.Seen.Open.ID)
		require.Equal(t, fleet.TargetNotified, again.Seen.Open.Active().State)
		require.Nil(t, again.Prepared)
		require.Equal(t, 1, stores.Scan[int](b, "SELECT count(*) FROM deliveries"))
	})

	t.Run("leaves nothing of its first steps when a later one fails", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Exec(`ALTER TABLE fetch_tokens RENAME TO elsewhere`)
		_, err := visit(b)
		stores.Refused(t, fleet.Internal, err)
		require.Zero(t, stores.Scan[int](b, "SELECT count(*) FROM deliveries"))
		require.Equal(t, 1, stores.Scan[int](b, "SELECT count(*) FROM outbox"), "it is woken again")
	})

	t.Run("counts the doors that wait for word", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		ask := stores.TurnOf(fleet.OperationDeploy)
		ask.Door.Workflow, ask.Door.Run = "any", "door-run"
		out, err := b.TurnInstance(t.Context(), ask)
		require.NoError(t, err)
		d := b.MustClaim(run1, "1")
		b.MustRecord(d, nodeA)
		b.MustRecord(d, stores.NodeB)
		require.Equal(t, 1, b.MustEnd(d, fleet.DeliverySucceeded).Untold)
		require.NoError(t, b.DoorTold(t.Context(), out.Operation.ID))
		require.Zero(t, b.MustObserve(run1).Untold)
	})
}
