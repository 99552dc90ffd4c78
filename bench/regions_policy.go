package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

const (
	governedPrefix = "governed-"
	livePrefix     = "live-"
	liveObjects    = 200
	liveEvery      = 10 * time.Millisecond
	liveBefore     = 10 * time.Second
	policyLook     = 20 * time.Millisecond

	policyLimit = 0.5
	liveLimit   = 2.0
)

// plainGovern is the yardstick: the next rows after a name get another syncing, each with its event. A page is a transaction.
const plainGovern = `WITH k AS MATERIALIZED (
		SELECT uid FROM objects WHERE project = 'shared' AND service = '' AND kind = 'pool' AND scope = '' AND name > $1 ORDER BY name LIMIT 500 FOR UPDATE),
	a AS (
		INSERT INTO events (era, type, kind, project, scope, name, uid, generation, actor, before, after)
		SELECT r.era, 'updated', o.kind, o.project, o.scope, o.name, o.uid, o.generation, 'bench',
			jsonb_build_object('labels', o.labels, 'spec', o.spec, 'syncing', o.syncing, 'ownerEpoch', o.owner_epoch),
			jsonb_build_object('labels', o.labels, 'spec', o.spec, 'syncing', $2::jsonb, 'ownerEpoch', o.owner_epoch)
		FROM k JOIN objects o USING (uid), region r RETURNING uid, seq, name),
	u AS (UPDATE objects o SET syncing = $2, refreshed = a.seq FROM a WHERE o.uid = a.uid RETURNING o.name)
	SELECT count(*), coalesce(max(name), '') FROM u`

// governing is a region whose policy names regions that are not running: their work would happen on their own machines.
type governing struct {
	*member
	l       *lab
	changes int
	before  []float64 // p99 of live writes without other load, in ms
	during  []float64
	beside  []float64 // objects a second of a change during live writes
}

// measurePolicy changes the policy over many objects, against bare updates of the same rows with their events; then it does so while
// live writes continue.
func measurePolicy(ctx context.Context, l *lab) ([]figure, error) {
	r, err := l.start(ctx, "--empty", "--sites", "1")
	if err != nil {
		return nil, err
	}
	defer r.stop()
	m, err := l.member(ctx, r, ".")
	if err != nil {
		return nil, err
	}
	defer func() { m.temporal.Close(); m.db.Close() }()
	if err := pause.For(ctx, settle); err != nil {
		return nil, err
	}
	pid, err := m.pid("server")
	if err != nil {
		return nil, err
	}
	idle, err := rest(pid)
	if err != nil {
		return nil, err
	}
	g := &governing{member: m, l: l}
	l.say("seeding %d objects under a policy …", l.objects)
	if err := g.prepare(ctx); err != nil {
		return nil, err
	}
	var rate series
	memory, err := highest([]peak{idle}, func() (err error) {
		rate, err = l.inTurn(ctx, g.change, g.plainly)
		return err
	})
	objects := strconv.Itoa(l.objects)
	return []figure{
		{name: "regions: a policy change over " + objects + " objects", unit: "/s", series: rate, limit: policyLimit, least: true},
		{
			name: "regions: live write during a policy change, p99", unit: "ms", series: series{g.during, g.before}, limit: liveLimit,
			note: fmt.Sprintf("beside 100 of them a second, it changes %.0f objects a second", median(g.beside)),
		},
		memoryFigure("regions", "a policy change", memory),
	}, err
}

func (g *governing) prepare(ctx context.Context) error {
	if err := g.enable(ctx, "local"); err != nil {
		return err
	}
	if err := seed(ctx, g.db, governedPrefix, g.l.objects, "local"); err != nil {
		return err
	}
	if err := seed(ctx, g.db, livePrefix, liveObjects, "local"); err != nil {
		return err
	}
	if _, err := g.db.Exec(ctx, "VACUUM ANALYZE"); err != nil {
		return fmt.Errorf("prepare the tables: %w", err)
	}
	return nil
}

// applied waits until the policy is applied to all that it governs, and gives how many it changed.
func (g *governing) applied(ctx context.Context) (refreshed int, err error) {
	for {
		var done bool
		if err := g.db.QueryRow(ctx, `SELECT ended_at IS NOT NULL, refreshed FROM policy_turns WHERE kind = 'project' AND name = $1`, sharedProject).
			Scan(&done, &refreshed); err != nil || done {
			return refreshed, err
		}
		if err := pause.For(ctx, policyLook); err != nil {
			return 0, err
		}
	}
}

// change gives objects a second, from the write of the policy until all have it. Another change follows during live writes.
func (g *governing) change(ctx context.Context, _ int) (float64, error) {
	rate, err := g.once(ctx)
	if err != nil {
		return 0, err
	}
	before, err := g.live(ctx, func(ctx context.Context) error { return pause.For(ctx, liveBefore) })
	if err != nil {
		return 0, err
	}
	var beside float64
	during, err := g.live(ctx, func(ctx context.Context) (err error) {
		beside, err = g.once(ctx)
		return err
	})
	g.before, g.during, g.beside = append(g.before, before), append(g.during, during), append(g.beside, beside)
	return rate, err
}

// once changes the policy, in objects a second.
func (g *governing) once(ctx context.Context) (float64, error) {
	sets := [][]string{{"local", "us", "ap"}, {"local", "us"}}
	g.changes++
	began := time.Now()
	if err := g.enable(ctx, sets[g.changes%2]...); err != nil {
		return 0, err
	}
	refreshed, err := g.applied(ctx)
	took := time.Since(began)
	if err == nil && refreshed < g.l.objects {
		err = fmt.Errorf("the policy changed %d of %d objects", refreshed, g.l.objects)
	}
	return float64(g.l.objects) / took.Seconds(), err
}

// plainly gives rows a second.
func (g *governing) plainly(ctx context.Context, round int) (float64, error) {
	syncing := fmt.Sprintf(`{"owningRegion":"local","regions":["local","yardstick-%d"]}`, round)
	began := time.Now()
	for after, n := "governed", 1; n > 0; {
		next := ""
		if err := g.db.QueryRow(ctx, plainGovern, after, syncing).Scan(&n, &next); err != nil {
			return 0, err
		}
		if next >= livePrefix {
			break
		}
		after = next
	}
	return float64(g.l.objects) / time.Since(began).Seconds(), nil
}

// live is the p99 of live writes while something is done, in ms.
func (g *governing) live(ctx context.Context, do func(context.Context) error) (float64, error) {
	group, ctx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	group.Go(func() error { defer close(done); return do(ctx) })
	times := make(chan time.Duration, liveObjects)
	var all []time.Duration
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for took := range times {
			all = append(all, took)
		}
	}()
	group.Go(func() error { return g.write(ctx, done, times) })
	err := group.Wait()
	close(times)
	<-collected
	if err == nil && len(all) == 0 {
		err = errors.New("no live write was made: use more -objects")
	}
	if err != nil {
		return 0, err
	}
	return inMillis(quantile(all, 0.99)), nil
}

// write writes other objects of the project at a fixed rate until something is done.
func (g *governing) write(ctx context.Context, done <-chan struct{}, times chan<- time.Duration) error {
	group, ctx := errgroup.WithContext(ctx)
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-done:
			return group.Wait()
		case <-ctx.Done():
			return group.Wait()
		case <-tick.C:
			group.Go(func() error {
				began := time.Now()
				key := fleet.ObjectKey{Kind: fleet.KindPool, Name: fmt.Sprintf("%s%06d", livePrefix, i%liveObjects)}
				_, err := g.api.Put(ctx, key, api.PoolPut{Project: sharedProject, MaxReplicas: 1 + i%1000}, api.Mutation{})
				times <- time.Since(began)
				return err
			})
		}
	}
}
