package collect_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func TestCollectBodies(t *testing.T) {
	t.Parallel()

	t.Run("keeps what anything refers to, and what was used lately", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		overrides, base, merged := stores.JSONOf(`{"over":1}`), stores.JSONOf(`{"base":1}`), `{"base":1,"over":1}`
		for _, body := range []string{`{"over":1}`, `{"base":1}`, `{"lost":1}`, `{"spec":1}`} {
			_, err := b.PutBody(b.Ctx(), project, []byte(body))
			require.NoError(t, err)
		}
		_, err := b.Declare(b.Ctx(), stores.WriteOf(fleet.ObjectKey{Kind: fleet.KindTemplate, Name: "furnace"}), fleet.TemplateSpec{Base: base})
		require.NoError(t, err)
		b.Put(merged, func(c *deliveries.InstanceChange) {
			c.Spec.Config, c.Spec.Template, c.Spec.TemplateGeneration, c.Spec.Overrides = nil, "furnace", 1, &overrides
		})
		b.Put(`{"spec":1}`, stores.Named("other"), stores.Unreleased)
		require.Empty(t, b.CollectAll(), "nothing is old enough")
		b.Age("25 hours")
		_, err = b.PutBody(b.Ctx(), project, []byte(`{"fresh":1}`))
		require.NoError(t, err)
		require.Equal(t, map[fleet.CollectedKind]int64{fleet.CollectBodies: 1}, b.CollectAll())
		for _, body := range []string{merged, `{"over":1}`, `{"base":1}`, `{"spec":1}`, `{"fresh":1}`} {
			require.True(t, b.Stored(body), body)
		}
		require.False(t, b.Stored(`{"lost":1}`))
		require.Zero(t, stores.Scan[int](b, `SELECT count(*) FROM body_chunks c WHERE NOT EXISTS (SELECT 1 FROM bodies b WHERE b.id = c.body_id)`))
		require.Equal(t, 5, stores.Scan[int](b, `SELECT count(*) FROM body_projects`))

		// The template's write, of another instance, is gone: its overrides stay by the revision.
		b.Put(`{"now":1}`)
		b.Age("25 hours")
		b.CollectAll()
		require.True(t, b.Stored(`{"over":1}`), "a rollback writes that spec again")
	})

	t.Run("starts the grace anew with each use", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		again := func() {
			_, err := b.PutBody(b.Ctx(), project, []byte("x"))
			require.NoError(t, err)
		}
		again()
		b.Age("25 hours")
		again()
		require.Zero(t, b.Collect(fleet.CollectBodies))
		b.Age("23 hours")
		require.Zero(t, b.Collect(fleet.CollectBodies))
		b.Age("2 hours")
		require.EqualValues(t, 1, b.Collect(fleet.CollectBodies))
		again()
		require.True(t, b.Stored("x"), "it can come again")
	})

	t.Run("takes a large body a few chunks at a time, and its name at once", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		data := stores.BodyBytes(40*postgres.ChunkSize + 1)
		h, err := b.PutBody(b.Ctx(), project, data)
		require.NoError(t, err)
		b.Age("25 hours")
		require.EqualValues(t, 1, b.Collect(fleet.CollectBodies))
		_, err = b.OpenBody(b.Ctx(), h)
		stores.Refused(t, fleet.NotFound, err)
		n, more, err := b.CollectPage(b.Ctx(), fleet.CollectChunks, fleet.DefaultRetention())
		require.NoError(t, err)
		require.True(t, more)
		require.EqualValues(t, 32, n)
		_, err = b.PutBody(b.Ctx(), project, data)
		require.NoError(t, err, "while the old one is still being removed")
		require.EqualValues(t, 9, b.Collect(fleet.CollectChunks))
		require.Equal(t, 41, stores.Scan[int](b, `SELECT count(*) FROM body_chunks`))
		require.Equal(t, 1, stores.Scan[int](b, `SELECT count(*) FROM bodies`))
	})

	t.Run("takes an abandoned upload with its half body, never one that moves", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		old, err := b.StartUpload(b.Ctx(), project)
		require.NoError(t, err)
		_, err = b.AppendUpload(b.Ctx(), old.ID, 0, bytes.NewReader(stores.BodyBytes(3*postgres.ChunkSize)), false)
		require.NoError(t, err)
		moving, err := b.StartUpload(b.Ctx(), project)
		require.NoError(t, err)
		b.Age("25 hours")
		_, err = b.AppendUpload(b.Ctx(), moving.ID, 0, bytes.NewReader(stores.BodyBytes(postgres.ChunkSize)), false)
		require.NoError(t, err)
		require.Equal(t, map[fleet.CollectedKind]int64{fleet.CollectUploads: 1, fleet.CollectChunks: 3}, b.CollectAll())
		_, err = b.AppendUpload(b.Ctx(), old.ID, 3*postgres.ChunkSize, bytes.NewReader(stores.BodyBytes(10)), true)
		stores.Refused(t, fleet.NotFound, err)
		content, err := b.FinishUpload(b.Ctx(), moving.ID, "")
		require.NoError(t, err)
		require.EqualValues(t, postgres.ChunkSize, content.Size)
		require.Empty(t, b.CollectAll(), "a body is as old as its name")
	})
}

func TestCollectHistories(t *testing.T) {
	t.Parallel()

	t.Run("keeps the newest, the desired, the deployed and where a rollback goes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"n":1}`)
		b.Deploy("1") // the only one before the deployed one that was ever applied
		b.Put(`{"n":2}`)
		b.Deploy("2")
		for n := 3; n <= 30; n++ { // none of these gets anywhere
			b.Put(fmt.Sprintf(`{"n":%d}`, n))
			d := b.MustClaim(stores.Run1, fmt.Sprint(n))
			b.MustEnd(d, fleet.DeliveryFailed)
			b.Exec(`UPDATE deliveries SET settled_as = 'not_applied' WHERE state = 'failed'`)
		}
		b.CollectAll()
		require.Len(t, b.Numbers("revisions"), 30)
		b.Age("31 days")
		b.Exec(`DELETE FROM owed`)
		b.CollectAll()
		want := []int64{1, 2, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30}
		require.Equal(t, want, b.Numbers("deliveries"))
		require.Equal(t, want, b.Numbers("revisions"))
		b.Age("25 hours")
		b.CollectAll()
		require.False(t, b.Stored(`{"n":20}`))
		require.True(t, b.Stored(`{"n":21}`))
		out := b.Turn(fleet.OperationRollback)
		require.EqualValues(t, 31, out.Operation.Revision)
		b.Deploy("back to 2")
		require.Equal(t, stores.JSONOf(`{"n":2}`).Hash, b.DeployedRevision().Content.Hash)
	})

	t.Run("keeps what is open, unsettled, owed, held or ticketed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for n := 1; n <= 30; n++ {
			b.Put(fmt.Sprintf(`{"n":%d}`, n))
			switch n {
			case 2:
				b.MustEnd(b.MustClaim(stores.Run1, "2"), fleet.DeliveryUnknown, stores.Because("timeout"))
			case 7:
				b.MustClaim(stores.Run1, "7")
			}
		}
		b.Exec(`DELETE FROM owed`)
		b.Exec(`INSERT INTO owed (site, name, node, revision, action, due) VALUES ($1, $2, $3, 3, 'deploy', true)`, plant, stores.Press, stores.NodeB)
		b.Exec(`INSERT INTO snapshot_tickets VALUES (repeat('a', 32), $1, $2, $3, 4, now())`, plant, stores.Press, stores.NodeB)
		b.Exec(`INSERT INTO node_held (site, name, node, era, revision, enabled, deleted, running, high_era, high_revision)
			VALUES ($1, $2, $3, 1, 5, true, false, true, 1, 5)`, plant, stores.Press, stores.NodeB)
		b.Exec(`UPDATE deliveries SET ended_at = NULL WHERE state = 'open'`)
		b.Age("400 days")
		b.CollectAll()
		require.Equal(t, []int64{2, 7}, b.Numbers("deliveries"))
		require.Equal(t, []int64{2, 3, 4, 5, 7, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30}, b.without(b.Numbers("revisions"), b.running()))
	})

	// N105
	t.Run("keeps what a kept delivery came from, and no longer", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		deploy := func(n int) {
			b.Put(fmt.Sprintf(`{"n":%d}`, n))
			b.Deploy(fmt.Sprint(n))
			b.Age("31 days")
			b.CollectAll()
		}
		for n := 1; n <= 11; n++ {
			deploy(n)
		}
		require.EqualValues(t, 2, slices.Min(b.Numbers("deliveries")))
		require.EqualValues(t, 1, slices.Min(b.Numbers("revisions")))
		require.True(t, b.Stored(`{"n":1}`))
		deploy(12)
		require.EqualValues(t, 3, slices.Min(b.Numbers("deliveries")))
		require.EqualValues(t, 2, slices.Min(b.Numbers("revisions")))
	})

	t.Run("forgets a deleted instance but for its tombstone", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for n := 1; n <= 3; n++ {
			b.Put(fmt.Sprintf(`{"n":%d}`, n))
			b.Deploy(fmt.Sprint(n))
		}
		b.Turn(fleet.OperationDelete)
		d := b.MustClaim(stores.Run1, "delete")
		b.MustRecord(d, stores.NodeA)
		b.MustRecord(d, stores.NodeB)
		b.MustEnd(d, fleet.DeliverySucceeded)
		b.Exec(`UPDATE deliveries SET ended_at = ended_at - interval '31 days' WHERE id <> $1`, d.ID)
		b.Exec(`UPDATE revisions SET created_at = created_at - interval '31 days'`)
		b.CollectAll()
		require.Equal(t, []int64{3, 4}, b.Numbers("revisions"), "while its last delivery would be kept anyhow (N105)")
		b.Age("31 days")
		b.CollectAll()
		b.Age("25 hours")
		b.CollectAll()
		require.Equal(t, []int64{4}, b.Numbers("revisions"))
		require.EqualValues(t, 3, b.Delivery(d.ID).FromGeneration) // N105
		require.Zero(t, stores.Scan[int](b, `SELECT count(*) FROM operations`))
		require.Zero(t, stores.Scan[int](b, `SELECT count(*) FROM bodies`))
		require.Equal(t, "4 4 true default", stores.Scan[string](b, `SELECT concat_ws(' ', last_revision, desired_revision,
			CASE WHEN deleted THEN 'true' END, project) FROM subjects`))
		b.Put(`{"n":5}`)
		require.EqualValues(t, 5, b.Deploy("again").Revision.Version.Revision)
	})

	t.Run("walks on from where it ended, over however many instances", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.histories(1000, 20)
		keep := fleet.DefaultRetention()
		_, more, err := b.CollectPage(b.Ctx(), fleet.CollectRevisions, keep)
		require.NoError(t, err)
		require.True(t, more)
		b.Collect(fleet.CollectRevisions)
		require.Equal(t, 10_000, stores.Scan[int](b, `SELECT count(*) FROM revisions`))
		require.Equal(t, "", stores.Scan[string](b, `SELECT string_agg(site || name, '') FROM collection_places`), "and begins anew")
	})
}

// One instance with a long history is collected by short pages too.
func TestCollectOneLongHistory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.histories(1, 20_000)
	b.Exec(`UPDATE subjects SET attempts = last_revision`)
	b.Exec(`INSERT INTO deliveries (id, site, name, revision, attempt, claim, node, epoch, state, phase, settled_as, requested_by,
			workflow_id, run_id, deadline_at, ended_at)
		SELECT md5(revision::text), site, name, revision, revision, md5(revision::text), 'n', 1, 'failed', 'closed', 'not_applied', 'a',
			'w', 'r', now(), now() - interval '40 days' FROM revisions`)
	b.Exec(`INSERT INTO snapshots SELECT site, name, 19995, md5('19995'), 1 FROM subjects`)
	b.Exec(`ANALYZE`)
	ctx, cancel := stores.ContextWithDeadline(t)
	defer cancel()
	for _, kind := range []fleet.CollectedKind{fleet.CollectDeliveries, fleet.CollectRevisions, fleet.CollectBodies} {
		require.EqualValues(t, 19_990, b.Collect(kind), kind)
		require.NoError(t, ctx.Err())
	}
}

func (b *bench) running() []int64 {
	return stores.Scan[[]int64](b, `SELECT coalesce(array_agg(revision), '{}') FROM operations
		WHERE state = 'running' AND revision NOT IN (2, 3, 4, 5, 7) AND revision < 21`)
}

func (b *bench) without(all, some []int64) []int64 {
	b.T.Helper()
	gone := map[int64]bool{}
	for _, n := range some {
		gone[n] = true
	}
	var out []int64
	for _, n := range all {
		if !gone[n] {
			out = append(out, n)
		}
	}
	return out
}

// histories makes instances with so many old revisions of one body each.
func (b *bench) histories(instances, revisions int) {
	b.T.Helper()
	b.Exec(`INSERT INTO subjects (site, name, last_revision, desired_revision)
		SELECT $1, 'i' || i, $3, $3 FROM generate_series(1, $2::int) i`, plant, instances, revisions)
	b.Exec(`INSERT INTO bodies (hash, size, used_at) SELECT sha256(convert_to('body ' || i || ' ' || r, 'UTF8')), 0, now() - interval '40 days'
		FROM generate_series(1, $1::int) i, generate_series(1, $2::int) r`, instances, revisions)
	b.Exec(`INSERT INTO revisions (site, name, revision, era, action, body_hash, enabled, durability, generation, spec, created_by, created_at)
		SELECT $1, 'i' || i, r, 1, 'deploy', sha256(convert_to('body ' || i || ' ' || r, 'UTF8')), true, 'sync', 1, '{}', 'ann', now() - interval '40 days'
		FROM generate_series(1, $2::int) i, generate_series(1, $3::int) r`, plant, instances, revisions)
	b.Exec(`ANALYZE`)
}

func TestCollectOperations(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Put(`{"n":1}`)
	b.Deploy("1")
	b.Put(`{"n":2}`)
	byDoor := deliveries.InstanceTurn{Write: stores.WriteOf(stores.PressKey), Kind: fleet.OperationDisable}
	byDoor.Door = postgres.Door{Workflow: "door", Run: "r"}
	untold, err := b.TurnInstance(b.Ctx(), byDoor)
	require.NoError(t, err)
	b.Deploy("2")
	running := b.Put(`{"n":3}`)
	b.Age("31 days")
	require.EqualValues(t, 2, b.Collect(fleet.CollectOperations))
	b.Operation(untold.Operation.ID) // its door waits
	b.Operation(running.Operation.ID)
	b.Exec(`UPDATE operations SET door_told = true WHERE door_run <> ''`)
	require.EqualValues(t, 1, b.Collect(fleet.CollectOperations))
}

// X24: no gap without a word. What is collected is the oldest of the feed, and who goes on
// from before its end is told.
func TestCollectEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for n := range 5 {
		b.Put(fmt.Sprintf(`{"n":%d}`, n))
	}
	all := b.Feed(postgres.Cursor{})
	require.Len(t, all, 6)
	b.Exec(`UPDATE events SET at = now() - interval '8 days' WHERE seq <> $1`, all[3].Cursor.Seq)
	require.EqualValues(t, 3, b.Collect(fleet.CollectEvents), "a younger one keeps what follows it")

	for i, e := range all {
		rest, err := b.ReadFeed(b.Ctx(), e.Cursor, 100)
		if i < 2 {
			stores.Refused(t, fleet.Gone, err)
			stores.Refused(t, fleet.Gone, b.FeedKept(b.Ctx(), e.Cursor))
			require.ErrorContains(t, err, all[2].Cursor.String(), "it says from where on they are kept")
			continue
		}
		require.NoError(t, err)
		require.Len(t, rest, 5-i)
	}
	_, err := b.ReadFeed(b.Ctx(), postgres.Cursor{}, 100)
	stores.Refused(t, fleet.Gone, err)
	end, err := b.FeedEnd(b.Ctx())
	require.NoError(t, err)
	require.NoError(t, b.FeedKept(b.Ctx(), end))
	newest, err := b.ListEvents(b.Ctx(), postgres.Cursor{}, 100)
	require.NoError(t, err)
	require.Len(t, newest, 3)
	b.Age("8 days")
	require.EqualValues(t, 3, b.Collect(fleet.CollectEvents))
	require.NoError(t, b.FeedKept(b.Ctx(), all[5].Cursor), "who has read all has lost nothing")
}

// A change that commits late is never passed over by the collection either.
func TestCollectEventsBelowTheOldestTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	slow, err := b.Raw.Begin(b.Ctx())
	require.NoError(t, err)
	defer slow.Rollback(context.WithoutCancel(b.Ctx())) // none after the commit below
	_, err = slow.Exec(b.Ctx(), `INSERT INTO events (era, type, kind, project, scope, name, uid, generation, actor, at)
		VALUES (1, 'created', 'project', 'slow', '', 'slow', gen_random_uuid(), 1, 'test', now() - interval '9 days')`)
	require.NoError(t, err)
	b.Put(`{"n":1}`)
	b.Age("8 days")
	require.LessOrEqual(t, b.Collect(fleet.CollectEvents), int64(1), "the site's event, and none after the slow one")
	require.NoError(t, slow.Commit(b.Ctx()))
	require.Len(t, b.Feed(horizon(b)), stores.Scan[int](b, `SELECT count(*) FROM events`), "the late one is in what is kept")
}

func horizon(b *bench) postgres.Cursor {
	b.T.Helper()
	var c postgres.Cursor
	require.NoError(b.T, b.Raw.QueryRow(b.Ctx(), `SELECT era, xid::text::bigint, seq FROM feed_horizon`).Scan(&c.Era, &c.Xid, &c.Seq))
	return c
}
