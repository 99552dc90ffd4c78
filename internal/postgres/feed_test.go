package postgres_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// watcher reads the feed in small pages until it has seen the event of the name "last".
func (b *bench) watcher(ctx context.Context, page int32) <-chan []postgres.Event {
	out := make(chan []postgres.Event, 1)
	tick := time.NewTicker(time.Millisecond)
	go func() {
		defer tick.Stop()
		var seen []postgres.Event
		defer func() { out <- seen }()
		var at postgres.Cursor
		for {
			events, err := b.ReadFeed(ctx, at, page)
			if err != nil {
				return
			}
			for _, e := range events {
				seen, at = append(seen, e), e.Cursor
				if e.Key.Name == "last" {
					return
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// hold begins a transaction that writes when it is told to.
func (b *bench) hold() pgx.Tx {
	b.T.Helper()
	tx, err := b.Raw.Begin(b.Ctx())
	require.NoError(b.T, err)
	b.T.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // does nothing when it has ended
	return tx
}

func writeEvent(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := tx.Exec(ctx, `INSERT INTO events (era, type, kind, project, scope, name, uid, generation, actor)
		SELECT era, 'updated', 'instance', 'default', 'plant', $1, gen_random_uuid(), 1, 'raw' FROM region`, name)
	return err
}

func namesOf(events []postgres.Event) []string {
	names := make([]string, len(events))
	for i, e := range events {
		names[i] = e.Key.Name
	}
	return names
}

// lockNumber is the advisory lock of an object, as any writer takes it.
func lockNumber(k fleet.ObjectKey) int64 {
	sum := sha256.Sum256([]byte(k.String()))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// X24
func TestFeedOrder(t *testing.T) {
	t.Parallel()

	t.Run("loses nothing of two transactions that commit in the reverse order of their numbers", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		ctx, stop := stores.ContextWithDeadline(t)
		defer stop()
		var watchers []<-chan []postgres.Event
		for page := range 4 {
			watchers = append(watchers, b.watcher(ctx, int32(page+1)))
		}
		one, two, three := b.hold(), b.hold(), b.hold()
		require.NoError(t, writeEvent(ctx, one, "one"))
		_, err := three.Exec(ctx, "SELECT pg_current_xact_id()") // an id before its event's number
		require.NoError(t, err)
		require.NoError(t, writeEvent(ctx, two, "two"))
		require.NoError(t, two.Commit(ctx))
		require.NoError(t, writeEvent(ctx, three, "three"))
		require.NoError(t, three.Commit(ctx))
		events, err := b.ReadFeed(ctx, postgres.Cursor{}, 10)
		require.NoError(t, err)
		require.Empty(t, events, "the first transaction still runs")
		list, err := b.ListEvents(ctx, postgres.Cursor{}, 10)
		require.NoError(t, err)
		require.Empty(t, list)
		end, err := b.FeedEnd(ctx)
		require.NoError(t, err)
		require.NoError(t, one.Commit(ctx))
		last := b.hold()
		require.NoError(t, writeEvent(ctx, last, "last"))
		require.NoError(t, last.Commit(ctx))

		want := []string{"one", "three", "two", "last"}
		for _, w := range watchers {
			require.Equal(t, want, namesOf(<-w))
		}
		require.Equal(t, want, namesOf(b.Feed(end)), "what ended the feed then was below all that ran")
		list, err = b.ListEvents(ctx, postgres.Cursor{}, 10)
		require.NoError(t, err)
		require.Equal(t, []string{"last", "two", "three", "one"}, namesOf(list))
		list, err = b.ListEvents(ctx, list[1].Cursor, 1)
		require.NoError(t, err)
		require.Equal(t, []string{"three"}, namesOf(list))
	})

	t.Run("is each object's own when a writer that began first comes second", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":0}`)
		ctx, stop := stores.ContextWithDeadline(t)
		defer stop()
		watchers := []<-chan []postgres.Event{b.watcher(ctx, 1), b.watcher(ctx, 100)}
		gate := b.hold()
		_, err := gate.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockNumber(pressKey))
		require.NoError(t, err)
		early := b.hold() // began before all, and writes to the press last
		_, err = early.Exec(ctx, "SELECT 1")
		require.NoError(t, err)

		writers := make(chan error, 2)
		for i, body := range []string{`{"a":1}`, `{"a":2}`} {
			c := b.ChangeOf(body)
			go func() {
				_, err := b.PutInstance(ctx, c)
				writers <- err
			}()
			b.WaitsForLock(i + 1)
		}
		require.Zero(t, stores.Scan[int](b, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND wait_event_type = 'Lock' AND backend_xid IS NOT NULL`), "waiting for the lock takes no transaction id")
		require.NoError(t, gate.Commit(ctx))
		require.NoError(t, <-writers)
		require.NoError(t, <-writers)
		_, err = early.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockNumber(pressKey))
		require.NoError(t, err)
		require.NoError(t, writeEvent(ctx, early, string(stores.Press)))
		require.NoError(t, early.Commit(ctx))
		last := b.hold()
		require.NoError(t, writeEvent(ctx, last, "last"))
		require.NoError(t, last.Commit(ctx))

		for _, w := range watchers {
			var pressed []postgres.Event
			for _, e := range <-w {
				if e.Key == pressKey {
					pressed = append(pressed, e)
				}
			}
			require.Len(t, pressed, 4)
			chained(t, pressed[:3])
			require.Equal(t, "raw", pressed[3].Actor)
			for i := 1; i < len(pressed); i++ {
				require.Greater(t, pressed[i].Cursor.Xid, pressed[i-1].Cursor.Xid)
			}
		}
	})

	t.Run("is that of the locks when two write each other's objects", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":0}`)
		b.Put(`{"a":0}`, stores.Named("other"))
		ctx, stop := stores.ContextWithDeadline(t)
		defer stop()
		w := b.watcher(ctx, 3)
		x, y := b.hold(), b.hold()
		other := fleet.InstanceKey(stores.Plant, "other")
		write := func(tx pgx.Tx, k fleet.ObjectKey) {
			_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockNumber(k))
			require.NoError(t, err)
			require.NoError(t, writeEvent(ctx, tx, k.Name))
		}
		write(x, pressKey) // x has the lower id
		write(y, other)
		done := make(chan error, 2)
		for _, key := range []fleet.ObjectKey{pressKey, other} {
			c := b.ChangeOf(`{"a":1}`, stores.Named(key.Name))
			go func() {
				_, err := b.PutInstance(ctx, c)
				done <- err
			}()
		}
		b.WaitsForLock(2)
		require.NoError(t, y.Commit(ctx))
		require.NoError(t, <-done) // the other is changed while x still holds the press
		require.NoError(t, x.Commit(ctx))
		require.NoError(t, <-done)
		last := b.hold()
		require.NoError(t, writeEvent(ctx, last, "last"))
		require.NoError(t, last.Commit(ctx))
		var order []string
		for _, e := range (<-w)[3:] {
			order = append(order, e.Key.Name+" "+e.Actor)
		}
		require.ElementsMatch(t, []string{"press raw", "other raw", "press ann", "other ann", "last raw"}, order)
		for _, name := range []string{"press", "other"} {
			require.Less(t, indexOf(order, name+" raw"), indexOf(order, name+" ann"))
		}
	})
}

func indexOf(list []string, s string) int {
	for i, v := range list {
		if v == s {
			return i
		}
	}
	return -1
}

// chained checks that each event of an object begins where the one before ended.
func chained(t *testing.T, events []postgres.Event) {
	t.Helper()
	var before json.RawMessage
	for i, e := range events {
		if e.Type == "status" {
			continue
		}
		require.Equal(t, compact(t, before), compact(t, e.Before), "event %d of %s", i, e.Key)
		before = e.After
	}
}

func compact(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	if raw == nil {
		return ""
	}
	var v any
	require.NoError(t, json.Unmarshal(raw, &v))
	out, err := json.Marshal(v)
	require.NoError(t, err)
	return string(out)
}

// X24
func TestFeedUnderLoad(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, stop := stores.ContextWithDeadline(t)
	defer stop()
	var watchers []<-chan []postgres.Event
	for _, page := range []int32{1, 2, 5, 1000} {
		watchers = append(watchers, b.watcher(ctx, page))
	}
	const writers, rounds = 8, 12
	objects := []string{"a", "b", "c"}
	changes := make([][]deliveries.InstanceChange, writers)
	for i := range changes {
		for j := range rounds {
			name := objects[rand.IntN(len(objects))]
			changes[i] = append(changes[i], b.ChangeOf(fmt.Sprintf(`{"a":"%d-%d"}`, i, j), stores.Named(name)))
		}
	}
	require.NoError(t, stores.AtOnce(writers+2, func(i int) error {
		for j := range rounds {
			if i < writers {
				if _, err := b.PutInstance(ctx, changes[i][j]); err != nil {
					return err
				}
				continue
			}
			// One that holds its id open over the commits of others, or gives up.
			tx, err := b.Raw.Begin(ctx)
			if err != nil {
				return err
			}
			if err := writeEvent(ctx, tx, fmt.Sprintf("raw-%d-%d", i, j)); err != nil {
				return err
			}
			w := stores.WriteOf(fleet.ObjectKey{Kind: fleet.KindProject, Name: fmt.Sprintf("p-%d-%d", i, j)})
			if _, err := b.Declare(ctx, w, fleet.ProjectSpec{}); err != nil {
				return err
			}
			end := tx.Commit
			if j%3 == 0 {
				end = tx.Rollback
			}
			if err := end(ctx); err != nil {
				return err
			}
		}
		return nil
	}))
	last := b.hold()
	require.NoError(t, writeEvent(ctx, last, "last"))
	require.NoError(t, last.Commit(ctx))

	want := stores.Scan[[]int64](b, "SELECT array_agg(seq ORDER BY era, xid, seq) FROM events")
	require.Len(t, want, 1+writers*rounds+2*rounds+2*rounds*2/3+1)
	for _, w := range watchers {
		seen := <-w
		got := make([]int64, len(seen))
		objects := map[fleet.ObjectKey][]postgres.Event{}
		for i, e := range seen {
			got[i] = e.Cursor.Seq
			objects[e.Key] = append(objects[e.Key], e)
		}
		require.Equal(t, want, got, "every committed change exactly once, in one order")
		for _, events := range objects {
			chained(t, events)
		}
	}
}

// X24
func TestFeedProperty(t *testing.T) {
	t.Parallel()
	b := bare(t)
	from := postgres.Cursor{}
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		conns := make([]pgx.Tx, rapid.IntRange(1, 4).Draw(rt, "transactions"))
		committed, readers := map[string]bool{}, make([]postgres.Cursor, 2)
		seen := [][]string{{}, {}}
		for i := range readers {
			readers[i] = from
		}
		pending := make([][]string, len(conns))
		defer func() {
			for _, tx := range conns {
				if tx != nil { // the check failed
					_ = tx.Rollback(context.Background())
				}
			}
		}()
		read := func(i int, page int32) {
			events, err := b.ReadFeed(ctx, readers[i], page)
			require.NoError(rt, err)
			for _, e := range events {
				require.True(rt, committed[e.Key.Name], "it was shown before its commit")
				seen[i], readers[i] = append(seen[i], e.Key.Name), e.Cursor
			}
		}
		end := func(i int, commit bool) {
			if conns[i] == nil {
				return
			}
			if !commit {
				require.NoError(rt, conns[i].Rollback(ctx))
			} else {
				for _, name := range pending[i] {
					committed[name] = true
				}
				require.NoError(rt, conns[i].Commit(ctx))
			}
			conns[i], pending[i] = nil, nil
		}
		for step := range rapid.IntRange(5, 25).Draw(rt, "steps") {
			i := rapid.IntRange(0, len(conns)-1).Draw(rt, "transaction")
			switch rapid.SampledFrom([]string{"write", "write", "commit", "rollback", "read"}).Draw(rt, "do") {
			case "write":
				if conns[i] == nil {
					tx, err := b.Raw.Begin(ctx)
					require.NoError(rt, err)
					conns[i] = tx
				}
				name := fmt.Sprintf("%d-%d", i, step)
				require.NoError(rt, writeEvent(ctx, conns[i], name))
				pending[i] = append(pending[i], name)
			case "commit":
				end(i, true)
			case "rollback":
				end(i, false)
			case "read":
				read(i%len(readers), int32(rapid.IntRange(1, 3).Draw(rt, "page")))
			}
		}
		for i := range conns {
			end(i, true)
		}
		all := namesOf(b.Feed(from))
		require.Len(rt, all, len(committed))
		for i := range readers {
			read(i, 1000)
			require.Equal(rt, all, seen[i], "every reader sees all of it once, in the same order")
		}
		from = readers[0]
	})
}

func TestCursor(t *testing.T) {
	t.Parallel()
	c := postgres.Cursor{Era: 1, Xid: 22, Seq: 333}
	got, err := postgres.ParseCursor(c.String())
	require.NoError(t, err)
	require.Equal(t, c, got)
	for _, bad := range []string{"", "1", "1.2", "1.2.3.4", "1.2.x", "1.2.-3", " 1.2.3", "1.2.3 ", "01.2.3", "1.2.99999999999999999999"} {
		_, err := postgres.ParseCursor(bad)
		stores.Refused(t, fleet.Invalid, err)
	}
}
