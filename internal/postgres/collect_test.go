package postgres_test

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
)

// collect takes pages of one kind until there is no more, and counts what went.
func (b *bench) collect(kind fleet.CollectedKind) int64 {
	b.t.Helper()
	var all int64
	for {
		n, more, err := b.CollectPage(b.ctx(), kind, fleet.DefaultRetention())
		require.NoError(b.t, err)
		if all += n; !more {
			return all
		}
	}
}

func (b *bench) collectAll() map[fleet.CollectedKind]int64 {
	b.t.Helper()
	out := map[fleet.CollectedKind]int64{}
	for _, kind := range fleet.CollectedKinds() {
		if n := b.collect(kind); n > 0 {
			out[kind] = n
		}
	}
	return out
}

// age makes all that there is older.
func (b *bench) age(by string) {
	b.t.Helper()
	for _, sql := range []string{
		`UPDATE bodies SET used_at = used_at - $1::interval`,
		`UPDATE uploads SET updated_at = updated_at - $1::interval`,
		`UPDATE revisions SET created_at = created_at - $1::interval`,
		`UPDATE deliveries SET ended_at = ended_at - $1::interval`,
		`UPDATE operations SET ended_at = ended_at - $1::interval`,
		`UPDATE events SET at = at - $1::interval`,
	} {
		b.exec(sql, by)
	}
}

func (b *bench) stored(body string) bool {
	b.t.Helper()
	return scan[bool](b, `SELECT EXISTS (SELECT 1 FROM bodies WHERE hash = sha256(convert_to($1, 'UTF8')))`, body)
}

func (b *bench) numbers(table string) []int64 {
	b.t.Helper()
	return scan[[]int64](b, `SELECT coalesce(array_agg(DISTINCT revision ORDER BY revision), '{}') FROM `+table)
}

func TestCollectBodies(t *testing.T) {
	t.Parallel()

	t.Run("keeps what anything refers to, and what was used lately", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		overrides, base, merged := jsonOf(`{"over":1}`), jsonOf(`{"base":1}`), `{"base":1,"over":1}`
		for _, body := range []string{`{"over":1}`, `{"base":1}`, `{"lost":1}`, `{"spec":1}`} {
			_, err := b.PutBody(b.ctx(), project, []byte(body))
			require.NoError(t, err)
		}
		_, err := b.Declare(b.ctx(), writeOf(fleet.ObjectKey{Kind: fleet.KindTemplate, Name: "furnace"}), fleet.TemplateSpec{Base: base})
		require.NoError(t, err)
		b.put(merged, func(c *deliveries.InstanceChange) {
			c.Spec.Config, c.Spec.Template, c.Spec.TemplateGeneration, c.Spec.Overrides = nil, "furnace", 1, &overrides
		})
		b.put(`{"spec":1}`, named("other"), unreleased)
		require.Empty(t, b.collectAll(), "nothing is old enough")
		b.age("25 hours")
		_, err = b.PutBody(b.ctx(), project, []byte(`{"fresh":1}`))
		require.NoError(t, err)
		require.Equal(t, map[fleet.CollectedKind]int64{fleet.CollectBodies: 1}, b.collectAll())
		for _, body := range []string{merged, `{"over":1}`, `{"base":1}`, `{"spec":1}`, `{"fresh":1}`} {
			require.True(t, b.stored(body), body)
		}
		require.False(t, b.stored(`{"lost":1}`))
		require.Zero(t, scan[int](b, `SELECT count(*) FROM body_chunks c WHERE NOT EXISTS (SELECT 1 FROM bodies b WHERE b.id = c.body_id)`))
		require.Equal(t, 5, scan[int](b, `SELECT count(*) FROM body_projects`))

		// The template's write, of another instance, is gone: its overrides stay by the revision.
		b.put(`{"now":1}`)
		b.age("25 hours")
		b.collectAll()
		require.True(t, b.stored(`{"over":1}`), "a rollback writes that spec again")
	})

	t.Run("starts the grace anew with each use", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		again := func() {
			_, err := b.PutBody(b.ctx(), project, []byte("x"))
			require.NoError(t, err)
		}
		again()
		b.age("25 hours")
		again()
		require.Zero(t, b.collect(fleet.CollectBodies))
		b.age("23 hours")
		require.Zero(t, b.collect(fleet.CollectBodies))
		b.age("2 hours")
		require.EqualValues(t, 1, b.collect(fleet.CollectBodies))
		again()
		require.True(t, b.stored("x"), "it can come again")
	})

	t.Run("takes a large body a few chunks at a time, and its name at once", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		data := bodyBytes(40*postgres.ChunkSize + 1)
		h, err := b.PutBody(b.ctx(), project, data)
		require.NoError(t, err)
		b.age("25 hours")
		require.EqualValues(t, 1, b.collect(fleet.CollectBodies))
		_, err = b.OpenBody(b.ctx(), h)
		refused(t, fleet.NotFound, err)
		n, more, err := b.CollectPage(b.ctx(), fleet.CollectChunks, fleet.DefaultRetention())
		require.NoError(t, err)
		require.True(t, more)
		require.EqualValues(t, 32, n)
		_, err = b.PutBody(b.ctx(), project, data)
		require.NoError(t, err, "while the old one is still being removed")
		require.EqualValues(t, 9, b.collect(fleet.CollectChunks))
		require.Equal(t, 41, scan[int](b, `SELECT count(*) FROM body_chunks`))
		require.Equal(t, 1, scan[int](b, `SELECT count(*) FROM bodies`))
	})

	t.Run("takes an abandoned upload with its half body, never one that moves", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		old, err := b.StartUpload(b.ctx(), project)
		require.NoError(t, err)
		_, err = b.AppendUpload(b.ctx(), old.ID, 0, bytes.NewReader(bodyBytes(3*postgres.ChunkSize)), false)
		require.NoError(t, err)
		moving, err := b.StartUpload(b.ctx(), project)
		require.NoError(t, err)
		b.age("25 hours")
		_, err = b.AppendUpload(b.ctx(), moving.ID, 0, bytes.NewReader(bodyBytes(postgres.ChunkSize)), false)
		require.NoError(t, err)
		require.Equal(t, map[fleet.CollectedKind]int64{fleet.CollectUploads: 1, fleet.CollectChunks: 3}, b.collectAll())
		_, err = b.AppendUpload(b.ctx(), old.ID, 3*postgres.ChunkSize, bytes.NewReader(bodyBytes(10)), true)
		refused(t, fleet.NotFound, err)
		content, err := b.FinishUpload(b.ctx(), moving.ID, "")
		require.NoError(t, err)
		require.EqualValues(t, postgres.ChunkSize, content.Size)
		require.Empty(t, b.collectAll(), "a body is as old as its name")
	})
}

func TestCollectHistories(t *testing.T) {
	t.Parallel()

	t.Run("keeps the newest, the desired, the deployed and where a rollback goes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.put(`{"n":1}`)
		b.deploy("1") // the only one before the deployed one that was ever applied
		b.put(`{"n":2}`)
		b.deploy("2")
		for n := 3; n <= 30; n++ { // none of these gets anywhere
			b.put(fmt.Sprintf(`{"n":%d}`, n))
			d := b.claim(run1, fmt.Sprint(n))
			b.end(d, fleet.DeliveryFailed)
			b.exec(`UPDATE deliveries SET settled_as = 'not_applied' WHERE state = 'failed'`)
		}
		b.collectAll()
		require.Len(t, b.numbers("revisions"), 30)
		b.age("31 days")
		b.exec(`DELETE FROM owed`)
		b.collectAll()
		want := []int64{1, 2, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30}
		require.Equal(t, want, b.numbers("deliveries"))
		require.Equal(t, want, b.numbers("revisions"))
		b.age("25 hours")
		b.collectAll()
		require.False(t, b.stored(`{"n":20}`))
		require.True(t, b.stored(`{"n":21}`))
		out := b.turn(fleet.OperationRollback)
		require.EqualValues(t, 31, out.Operation.Revision)
		b.deploy("back to 2")
		require.Equal(t, jsonOf(`{"n":2}`).Hash, b.deployed().Content.Hash)
	})

	t.Run("keeps what is open, unsettled, owed, held or ticketed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for n := 1; n <= 30; n++ {
			b.put(fmt.Sprintf(`{"n":%d}`, n))
			switch n {
			case 2:
				b.end(b.claim(run1, "2"), fleet.DeliveryUnknown, because("timeout"))
			case 7:
				b.claim(run1, "7")
			}
		}
		b.exec(`DELETE FROM owed`)
		b.exec(`INSERT INTO owed (site, name, node, revision, action, due) VALUES ($1, $2, $3, 3, 'deploy', true)`, plant, press, nodeB)
		b.exec(`INSERT INTO snapshot_tickets VALUES (repeat('a', 32), $1, $2, $3, 4, now())`, plant, press, nodeB)
		b.exec(`INSERT INTO node_held (site, name, node, era, revision, enabled, deleted, running, high_era, high_revision)
			VALUES ($1, $2, $3, 1, 5, true, false, true, 1, 5)`, plant, press, nodeB)
		b.exec(`UPDATE deliveries SET ended_at = NULL WHERE state = 'open'`)
		b.age("400 days")
		b.collectAll()
		require.Equal(t, []int64{2, 7}, b.numbers("deliveries"))
		require.Equal(t, []int64{2, 3, 4, 5, 7, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30}, b.without(b.numbers("revisions"), b.running()))
	})

	// N105
	t.Run("keeps what a kept delivery came from, and no longer", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		deploy := func(n int) {
			b.put(fmt.Sprintf(`{"n":%d}`, n))
			b.deploy(fmt.Sprint(n))
			b.age("31 days")
			b.collectAll()
		}
		for n := 1; n <= 11; n++ {
			deploy(n)
		}
		require.EqualValues(t, 2, slices.Min(b.numbers("deliveries")))
		require.EqualValues(t, 1, slices.Min(b.numbers("revisions")))
		require.True(t, b.stored(`{"n":1}`))
		deploy(12)
		require.EqualValues(t, 3, slices.Min(b.numbers("deliveries")))
		require.EqualValues(t, 2, slices.Min(b.numbers("revisions")))
	})

	t.Run("forgets a deleted instance but for its tombstone", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for n := 1; n <= 3; n++ {
			b.put(fmt.Sprintf(`{"n":%d}`, n))
			b.deploy(fmt.Sprint(n))
		}
		b.turn(fleet.OperationDelete)
		d := b.claim(run1, "delete")
		b.record(d, nodeA)
		b.record(d, nodeB)
		b.end(d, fleet.DeliverySucceeded)
		b.exec(`UPDATE deliveries SET ended_at = ended_at - interval '31 days' WHERE id <> $1`, d.ID)
		b.exec(`UPDATE revisions SET created_at = created_at - interval '31 days'`)
		b.collectAll()
		require.Equal(t, []int64{3, 4}, b.numbers("revisions"), "while its last delivery would be kept anyhow (N105)")
		b.age("31 days")
		b.collectAll()
		b.age("25 hours")
		b.collectAll()
		require.Equal(t, []int64{4}, b.numbers("revisions"))
		require.EqualValues(t, 3, b.delivery(d.ID).FromGeneration) // N105
		require.Zero(t, scan[int](b, `SELECT count(*) FROM operations`))
		require.Zero(t, scan[int](b, `SELECT count(*) FROM bodies`))
		require.Equal(t, "4 4 true default", scan[string](b, `SELECT concat_ws(' ', last_revision, desired_revision,
			CASE WHEN deleted THEN 'true' END, project) FROM subjects`))
		b.put(`{"n":5}`)
		require.EqualValues(t, 5, b.deploy("again").Revision.Version.Revision)
	})

	t.Run("walks on from where it ended, over however many instances", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.histories(1000, 20)
		keep := fleet.DefaultRetention()
		_, more, err := b.CollectPage(b.ctx(), fleet.CollectRevisions, keep)
		require.NoError(t, err)
		require.True(t, more)
		b.collect(fleet.CollectRevisions)
		require.Equal(t, 10_000, scan[int](b, `SELECT count(*) FROM revisions`))
		require.Equal(t, "", scan[string](b, `SELECT string_agg(site || name, '') FROM collection_places`), "and begins anew")
	})
}

// One instance with a long history is collected by short pages too.
func TestCollectOneLongHistory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.histories(1, 20_000)
	b.exec(`UPDATE subjects SET attempts = last_revision`)
	b.exec(`INSERT INTO deliveries (id, site, name, revision, attempt, claim, node, epoch, state, phase, settled_as, requested_by,
			workflow_id, run_id, deadline_at, ended_at)
		SELECT md5(revision::text), site, name, revision, revision, md5(revision::text), 'n', 1, 'failed', 'closed', 'not_applied', 'a',
			'w', 'r', now(), now() - interval '40 days' FROM revisions`)
	b.exec(`INSERT INTO snapshots SELECT site, name, 19995, md5('19995'), 1 FROM subjects`)
	b.exec(`ANALYZE`)
	ctx, cancel := contextWithDeadline(t)
	defer cancel()
	for _, kind := range []fleet.CollectedKind{fleet.CollectDeliveries, fleet.CollectRevisions, fleet.CollectBodies} {
		require.EqualValues(t, 19_990, b.collect(kind), kind)
		require.NoError(t, ctx.Err())
	}
}

func (b *bench) running() []int64 {
	return scan[[]int64](b, `SELECT coalesce(array_agg(revision), '{}') FROM operations
		WHERE state = 'running' AND revision NOT IN (2, 3, 4, 5, 7) AND revision < 21`)
}

func (b *bench) without(all, some []int64) []int64 {
	b.t.Helper()
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
	b.t.Helper()
	b.exec(`INSERT INTO subjects (site, name, last_revision, desired_revision)
		SELECT $1, 'i' || i, $3, $3 FROM generate_series(1, $2::int) i`, plant, instances, revisions)
	b.exec(`INSERT INTO bodies (hash, size, used_at) SELECT sha256(convert_to('body ' || i || ' ' || r, 'UTF8')), 0, now() - interval '40 days'
		FROM generate_series(1, $1::int) i, generate_series(1, $2::int) r`, instances, revisions)
	b.exec(`INSERT INTO revisions (site, name, revision, era, action, body_hash, enabled, durability, generation, spec, created_by, created_at)
		SELECT $1, 'i' || i, r, 1, 'deploy', sha256(convert_to('body ' || i || ' ' || r, 'UTF8')), true, 'sync', 1, '{}', 'ann', now() - interval '40 days'
		FROM generate_series(1, $2::int) i, generate_series(1, $3::int) r`, plant, instances, revisions)
	b.exec(`ANALYZE`)
}

func TestCollectOperations(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(`{"n":1}`)
	b.deploy("1")
	b.put(`{"n":2}`)
	byDoor := deliveries.InstanceTurn{Write: writeOf(pressKey), Kind: fleet.OperationDisable}
	byDoor.Door = postgres.Door{Workflow: "door", Run: "r"}
	untold, err := b.TurnInstance(b.ctx(), byDoor)
	require.NoError(t, err)
	b.deploy("2")
	running := b.put(`{"n":3}`)
	b.age("31 days")
	require.EqualValues(t, 2, b.collect(fleet.CollectOperations))
	b.operation(untold.Operation.ID) // its door waits
	b.operation(running.Operation.ID)
	b.exec(`UPDATE operations SET door_told = true WHERE door_run <> ''`)
	require.EqualValues(t, 1, b.collect(fleet.CollectOperations))
}

// X24: no gap without a word. What is collected is the oldest of the feed, and who goes on
// from before its end is told.
func TestCollectEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for n := range 5 {
		b.put(fmt.Sprintf(`{"n":%d}`, n))
	}
	all := b.feed(postgres.Cursor{})
	require.Len(t, all, 6)
	b.exec(`UPDATE events SET at = now() - interval '8 days' WHERE seq <> $1`, all[3].Cursor.Seq)
	require.EqualValues(t, 3, b.collect(fleet.CollectEvents), "a younger one keeps what follows it")

	for i, e := range all {
		rest, err := b.ReadFeed(b.ctx(), e.Cursor, 100)
		if i < 2 {
			refused(t, fleet.Gone, err)
			refused(t, fleet.Gone, b.FeedKept(b.ctx(), e.Cursor))
			require.ErrorContains(t, err, all[2].Cursor.String(), "it says from where on they are kept")
			continue
		}
		require.NoError(t, err)
		require.Len(t, rest, 5-i)
	}
	_, err := b.ReadFeed(b.ctx(), postgres.Cursor{}, 100)
	refused(t, fleet.Gone, err)
	end, err := b.FeedEnd(b.ctx())
	require.NoError(t, err)
	require.NoError(t, b.FeedKept(b.ctx(), end))
	newest, err := b.ListEvents(b.ctx(), postgres.Cursor{}, 100)
	require.NoError(t, err)
	require.Len(t, newest, 3)
	b.age("8 days")
	require.EqualValues(t, 3, b.collect(fleet.CollectEvents))
	require.NoError(t, b.FeedKept(b.ctx(), all[5].Cursor), "who has read all has lost nothing")
}

// A change that commits late is never passed over by the collection either.
func TestCollectEventsBelowTheOldestTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	slow, err := b.raw.Begin(b.ctx())
	require.NoError(t, err)
	defer slow.Rollback(context.WithoutCancel(b.ctx())) // none after the commit below
	_, err = slow.Exec(b.ctx(), `INSERT INTO events (era, type, kind, project, scope, name, uid, generation, actor, at)
		VALUES (1, 'created', 'project', 'slow', '', 'slow', gen_random_uuid(), 1, 'test', now() - interval '9 days')`)
	require.NoError(t, err)
	b.put(`{"n":1}`)
	b.age("8 days")
	require.LessOrEqual(t, b.collect(fleet.CollectEvents), int64(1), "the site's event, and none after the slow one")
	require.NoError(t, slow.Commit(b.ctx()))
	require.Len(t, b.feed(horizon(b)), scan[int](b, `SELECT count(*) FROM events`), "the late one is in what is kept")
}

func horizon(b *bench) postgres.Cursor {
	b.t.Helper()
	var c postgres.Cursor
	require.NoError(b.t, b.raw.QueryRow(b.ctx(), `SELECT era, xid::text::bigint, seq FROM feed_horizon`).Scan(&c.Era, &c.Xid, &c.Seq))
	return c
}
