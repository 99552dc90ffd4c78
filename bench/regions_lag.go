package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

const (
	lagObjects = 1000
	lagPrefix  = "lag-"
	lagEvery   = 10 * time.Millisecond // 100/s
	lagWrites  = 50                    // times n, in a round
	lagAtOnce  = 16                    // where the rate is measured
	lagLook    = 2 * time.Millisecond
	lagPatient = 2 * time.Minute

	lagLimit  = 3.0
	rateLimit = 0.5
)

// The yardstick has the rows of copies in tables of their own, which Postgres replicates. Its receivers wait for their disk as a
// region does, which a subscription by default does not.
const (
	plainShared = `CREATE SCHEMA yardstick; CREATE TABLE yardstick.objects (LIKE public.copies INCLUDING ALL)`
	plainFill   = `INSERT INTO yardstick.objects
		SELECT 'eu', kind, scope, name, 'eu', owner_epoch, resource_version, uid, project, service, labels, generation, spec, syncing,
			created_by, created_at, updated_at, deleting_since, resource_version FROM objects WHERE name LIKE 'lag-%'`
	plainPublish   = `CREATE PUBLICATION yardstick FOR TABLE yardstick.objects`
	plainSubscribe = `CREATE SUBSCRIPTION yardstick_%s CONNECTION '%s' PUBLICATION yardstick WITH (synchronous_commit = on)`
	plainSwitch    = `ALTER SUBSCRIPTION yardstick_%s %s`
	// plainCurrent: all subscriptions have what was written until the switch.
	plainCurrent = `SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'yardstick%' AND active AND confirmed_flush_lsn >= $1::pg_lsn`
	plainUpdate  = `UPDATE yardstick.objects SET labels = labels || jsonb_build_object('n', $2::text), generation = generation + 1, updated_at = now()
		WHERE kind = 'pool' AND scope = '' AND name = $1 AND region = 'eu'`
	plainSeen = `SELECT name, (labels ->> 'n')::bigint FROM yardstick.objects WHERE kind = 'pool' AND scope = '' AND region = 'eu' AND name = ANY($1)`
	copySeen  = `SELECT name, (labels ->> 'n')::bigint FROM copies WHERE kind = 'pool' AND scope = '' AND region = 'eu' AND name = ANY($1)`
	// ownUpdate is a write of an object and its event, without what the server does around them.
	ownUpdate = `WITH o AS (SELECT * FROM objects WHERE kind = 'pool' AND scope = '' AND name = $1),
		n AS (SELECT o.labels || jsonb_build_object('n', $2::text) AS labels FROM o),
		a AS (INSERT INTO events (era, type, kind, project, scope, name, uid, generation, actor, before, after)
			SELECT r.era, 'updated', o.kind, o.project, o.scope, o.name, o.uid, o.generation + 1, 'bench',
				jsonb_build_object('labels', o.labels, 'spec', o.spec, 'syncing', o.syncing, 'ownerEpoch', o.owner_epoch),
				jsonb_build_object('labels', n.labels, 'spec', o.spec, 'syncing', o.syncing, 'ownerEpoch', o.owner_epoch)
			FROM o, n, region r RETURNING seq)
		UPDATE objects x SET labels = n.labels, generation = x.generation + 1, resource_version = a.seq, updated_at = now()
		FROM a, n WHERE x.kind = 'pool' AND x.scope = '' AND x.name = $1`
)

// measureLag writes single objects of which two other regions have copies, against single rows that Postgres replicates
// between the same servers.
func measureLag(ctx context.Context, l *lab) ([]figure, error) {
	s, err := l.startSharing(ctx)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	peaks, err := servers(s.all())
	if err != nil {
		return nil, err
	}
	l.say("seeding %d pools, and the yardstick …", lagObjects)
	if err := s.replicate(ctx); err != nil {
		return nil, err
	}
	var figures []figure
	memory, err := highest(peaks, func() (err error) {
		figures, err = s.lags(ctx)
		return err
	})
	return append(figures, memoryFigure("regions", "changes that reach two others", memory)), err
}

// replicate makes the yardstick of the same rows.
func (s *sharing) replicate(ctx context.Context) error {
	if err := seed(ctx, s.owner.db, lagPrefix, lagObjects, owningRegion, "us", "ap"); err != nil {
		return err
	}
	if err := s.copied(ctx, lagPrefix, lagObjects); err != nil {
		return err
	}
	at, err := s.owner.postgresURL()
	if err != nil {
		return err
	}
	for _, m := range s.all() {
		if _, err := m.db.Exec(ctx, plainShared); err != nil {
			return fmt.Errorf("make the yardstick: %w", err)
		}
	}
	if _, err := s.owner.db.Exec(ctx, plainFill); err != nil {
		return fmt.Errorf("fill the yardstick: %w", err)
	}
	for _, m := range s.all() { // as autovacuum will: without it, each look reads all rows of the project
		if _, err := m.db.Exec(ctx, `ANALYZE objects, copies, events`); err != nil {
			return fmt.Errorf("analyse what was seeded: %w", err)
		}
	}
	if _, err := s.owner.db.Exec(ctx, plainPublish); err != nil {
		return fmt.Errorf("publish the yardstick: %w", err)
	}
	for _, m := range s.others {
		if _, err := m.db.Exec(ctx, fmt.Sprintf(plainSubscribe, m.name, at)); err != nil {
			return fmt.Errorf("subscribe to the yardstick: %w", err)
		}
		if err := awaited(ctx, m.name+" has the yardstick", func(ctx context.Context) (bool, error) {
			n, err := m.count(ctx, `SELECT count(*) FROM yardstick.objects`)
			return n == lagObjects, err
		}); err != nil {
			return err
		}
		if _, err := m.db.Exec(ctx, `ANALYZE yardstick.objects`); err != nil {
			return fmt.Errorf("analyse the yardstick: %w", err)
		}
	}
	return nil
}

// rest has Postgres replicate nothing: its processes read all that is written, also what Holdfast writes.
func (s *sharing) rest(ctx context.Context) error { return s.switchTo(ctx, "DISABLE") }

// replicates has Postgres replicate the yardstick again, and waits until that is current.
func (s *sharing) replicates(ctx context.Context) error {
	if err := s.switchTo(ctx, "ENABLE"); err != nil {
		return err
	}
	var at string
	if err := s.owner.db.QueryRow(ctx, `SELECT pg_current_wal_lsn()::text`).Scan(&at); err != nil {
		return fmt.Errorf("switch the yardstick: %w", err)
	}
	return awaited(ctx, "the yardstick is current", func(ctx context.Context) (bool, error) {
		n, err := s.owner.count(ctx, plainCurrent, at)
		return n == len(s.others), err
	})
}

func (s *sharing) switchTo(ctx context.Context, to string) error {
	for _, m := range s.others {
		if _, err := m.db.Exec(ctx, fmt.Sprintf(plainSwitch, m.name, to)); err != nil {
			return fmt.Errorf("switch the yardstick: %w", err)
		}
	}
	return nil
}

// traffic is one side: how a row is written, and how receivers see the rows of some names.
type traffic struct {
	*sharing
	before func(ctx context.Context) error
	write  func(ctx context.Context, name string, number int) error
	seen   string
	next   int // numbers rise over all rounds
}

// lags measures one write after the other at a fixed rate, then as many as go.
func (s *sharing) lags(ctx context.Context) ([]figure, error) {
	byAPI := &traffic{sharing: s, before: s.rest, seen: copySeen, write: s.put}
	bySQL := &traffic{sharing: s, before: s.rest, seen: copySeen, write: s.update(ownUpdate)}
	plain := &traffic{sharing: s, before: s.replicates, seen: plainSeen, write: s.update(plainUpdate)}
	s.l.say("writing 100/s …")
	var middle, bare series
	last, err := s.l.inTurn(ctx, byAPI.lag(&middle.ours), plain.lag(&middle.plain))
	if err != nil {
		return nil, err
	}
	bySQL.next = byAPI.next
	if _, err := bySQL.lag(&bare.ours)(ctx, 0); err != nil {
		return nil, err
	}
	byAPI.next = bySQL.next
	s.l.say("writing as fast as all follow, through the API …")
	rate, err := s.l.inTurn(ctx, byAPI.rate, plain.rate)
	if err != nil {
		return nil, err
	}
	bySQL.next = byAPI.next
	s.l.say("writing as fast as all follow, by SQL …")
	followed, err := s.l.inTurn(ctx, bySQL.rate, plain.rate)
	note := fmt.Sprintf("p50 %.1f ms against %.1f ms; %.1f ms if written by SQL as the yardstick is", median(middle.ours), median(middle.plain), median(bare.ours))
	return []figure{
		{name: "regions: write until readable in two others, 100/s, p99", unit: "ms", series: last, limit: lagLimit, note: note},
		{name: "regions: writes that two others follow, through the API", unit: "/s", series: rate, limit: rateLimit, least: true},
		{name: "regions: writes that two others follow, by SQL", unit: "/s", series: followed, limit: rateLimit, least: true},
	}, err
}

// put is a write as a user makes it.
func (s *sharing) put(ctx context.Context, name string, number int) error {
	_, err := s.owner.api.Put(ctx, fleet.ObjectKey{Kind: fleet.KindPool, Name: name},
		api.PoolPut{Project: sharedProject, Labels: map[string]string{"n": strconv.Itoa(number), "line": "line-1", "owner": name, "room": "room-1", "team": "maintenance"}, MaxReplicas: 3},
		api.Mutation{})
	return err
}

// update is a transaction of one statement.
func (s *sharing) update(sql string) func(ctx context.Context, name string, number int) error {
	return func(ctx context.Context, name string, number int) error {
		_, err := s.owner.db.Exec(ctx, sql, name, strconv.Itoa(number))
		return err
	}
}

// lag is the p99 of one round, in ms; its p50 is kept.
func (t *traffic) lag(middle *[]float64) turn {
	return func(ctx context.Context, _ int) (float64, error) {
		if err := t.before(ctx); err != nil {
			return 0, err
		}
		times, err := t.run(ctx, lagWrites*t.l.n, func(ctx context.Context, count int, one func(i int) error) error {
			group, ctx := errgroup.WithContext(ctx)
			tick := time.NewTicker(lagEvery)
			defer tick.Stop()
			for i := range count {
				select {
				case <-ctx.Done():
				case <-tick.C:
					group.Go(func() error { return one(i) })
				}
			}
			return group.Wait()
		})
		if err != nil {
			return 0, err
		}
		*middle = append(*middle, inMillis(quantile(times, 0.5)))
		return inMillis(quantile(times, 0.99)), nil
	}
}

// rate is writes a second, until the last of them is readable everywhere.
func (t *traffic) rate(ctx context.Context, _ int) (float64, error) {
	if err := t.before(ctx); err != nil {
		return 0, err
	}
	began, count := time.Now(), 2*lagWrites*t.l.n
	_, err := t.run(ctx, count, func(ctx context.Context, count int, one func(i int) error) error {
		group, _ := errgroup.WithContext(ctx)
		group.SetLimit(lagAtOnce)
		for i := range count {
			group.Go(func() error { return one(i) })
		}
		return group.Wait()
	})
	return float64(count) / time.Since(began).Seconds(), err
}

// run makes writes, and gives the time until each of them was readable in all receivers.
func (t *traffic) run(ctx context.Context, count int, pace func(ctx context.Context, count int, one func(i int) error) error) ([]time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first := t.next
	t.next += count
	var watchers []*watcherOf
	group, watching := errgroup.WithContext(ctx)
	for _, m := range t.others {
		w := &watcherOf{db: m.db, seen: t.seen, open: map[string][]awaitedWrite{}, times: make([]time.Duration, count), left: count}
		watchers = append(watchers, w)
		group.Go(func() error { return w.run(watching) })
	}
	err := pace(watching, count, func(i int) error {
		name, number := fmt.Sprintf("%s%06d", lagPrefix, (first+i)%lagObjects), first+i+1
		for _, w := range watchers {
			w.expect(name, awaitedWrite{i, number, time.Now()})
		}
		return t.write(watching, name, number)
	})
	if err != nil {
		cancel()
		_ = group.Wait() // it ends with that
		return nil, fmt.Errorf("write: %w", err)
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("wait until all is readable: %w", err)
	}
	times := watchers[0].times
	for _, w := range watchers[1:] {
		for i, took := range w.times {
			times[i] = max(times[i], took)
		}
	}
	return times, nil
}

// watcherOf looks at one receiver's rows.
type watcherOf struct {
	db   *pgxpool.Pool
	seen string

	mu    sync.Mutex
	open  map[string][]awaitedWrite
	times []time.Duration
	left  int
}

type awaitedWrite struct {
	index, number int
	began         time.Time
}

func (w *watcherOf) expect(name string, one awaitedWrite) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[name] = append(w.open[name], one)
}

// run looks until all writes were seen.
func (w *watcherOf) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lagPatient)
	defer cancel()
	for {
		w.mu.Lock()
		names, left := slices.Collect(maps.Keys(w.open)), w.left
		w.mu.Unlock()
		if left == 0 {
			return nil
		}
		if len(names) > 0 {
			if err := w.look(ctx, names); err != nil {
				return err
			}
		}
		if err := pause.For(ctx, lagLook); err != nil {
			return fmt.Errorf("%d writes are not readable: %w", left, err)
		}
	}
}

func (w *watcherOf) look(ctx context.Context, names []string) error {
	rows, err := w.db.Query(ctx, w.seen, names)
	if err != nil {
		return err
	}
	defer rows.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for rows.Next() {
		var name string
		var number int
		if err := rows.Scan(&name, &number); err != nil {
			return err
		}
		w.open[name] = slices.DeleteFunc(w.open[name], func(one awaitedWrite) bool {
			if one.number > number {
				return false
			}
			w.times[one.index] = time.Since(one.began)
			w.left--
			return true
		})
		if len(w.open[name]) == 0 {
			delete(w.open, name)
		}
	}
	return rows.Err()
}
