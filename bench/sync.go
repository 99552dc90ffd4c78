package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	stored "github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/store"
)

const (
	syncDeployments = 10 // one object in so many is a deployment
	syncReplicas    = 2
	syncNodes       = 100
	syncTenfold     = 10
	syncPerShard    = 500 // deployments, as the region divides them
	syncPage        = 100
	syncDrifted     = 100 // one node in so many

	syncLimit, syncRatio, syncDrift = 0.5, 3.0, 1.3
)

// seedSync makes what a region has of replicas: to start them would take hours.
//
//go:embed seed_sync.sql
var seedSync string

// readReplicas is the yardstick: what is compared, read plainly.
const readReplicas = `SELECT id, node, revision, process_version, definition, phase, health, state, lost FROM replicas WHERE ended_at IS NULL`

// syncing is a region's database whose server stands still, so that it sweeps nothing.
type syncing struct {
	db                           *pgx.Conn
	store                        *store.Store
	deployments, nodes, replicas int
	shards                       int
}

// measureSync compares all nodes with their rows: without drift against a plain read of the rows, with one node in a
// hundred drifted against none, and ten times as many against these.
func measureSync(ctx context.Context, l *lab) (figures []figure, err error) {
	s, end, err := l.startSync(ctx, l.objects)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	equal, err := l.inTurn(ctx, s.pass(0), s.plain)
	if err != nil {
		return nil, err
	}
	drifted, err := l.inTurn(ctx, s.pass(max(s.nodes/syncDrifted, 1)), s.pass(0))
	if err != nil {
		return nil, err
	}
	l.say("seeding ten times as many …")
	more, endMore, err := l.startSync(ctx, syncTenfold*l.objects)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, endMore()) }()
	tenfold, err := l.inTurn(ctx, more.pass(0), s.pass(0))
	return []figure{
		{name: s.name() + ", a pass", unit: "s", series: equal, by: byValue, limit: syncLimit},
		{name: s.name() + ", against a plain read", unit: "s", series: equal, limit: syncRatio},
		{name: s.name() + ", with 1 % drift against none", unit: "s", series: drifted, limit: syncDrift},
		{name: more.name() + ", a pass", unit: "s", series: tenfold, by: byValue, limit: syncTenfold * syncLimit},
		{name: more.name() + ", against a tenth of them", unit: "s", series: tenfold, limit: syncTenfold},
	}, err
}

func (s *syncing) name() string {
	return fmt.Sprintf("sync: %d deployments, %d replicas, %d nodes", s.deployments, s.replicas, s.nodes)
}

// startSync starts a region, has its server stand still, and seeds it. Its end lets the server go on, and gives the disk
// space back.
func (l *lab) startSync(ctx context.Context, objects int) (s *syncing, end func() error, err error) {
	r, err := l.start(ctx, "--empty")
	if err != nil {
		return nil, nil, err
	}
	server, err := r.pid("server")
	if err == nil {
		err = send(syscall.SIGSTOP, []int{server})
	}
	if err != nil {
		r.stop()
		return nil, nil, err
	}
	s = &syncing{deployments: objects / syncDeployments, replicas: objects / syncReplicas, nodes: max(objects/syncNodes, 1)}
	s.shards = max(1, (s.deployments+syncPerShard-1)/syncPerShard)
	end = func() error {
		if s.store != nil {
			s.store.Close()
		}
		if s.db != nil {
			_ = s.db.Close(context.WithoutCancel(ctx)) // it was only read and seeded
		}
		err := send(syscall.SIGCONT, []int{server})
		r.stop()
		return err
	}
	if err := s.seed(ctx, r); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return s, end, nil
}

func (s *syncing) seed(ctx context.Context, r *region) (err error) {
	if s.db, err = r.postgres(ctx); err != nil {
		return err
	}
	sql := strings.NewReplacer("DEPLOYMENTS", strconv.Itoa(s.deployments), "NODES", strconv.Itoa(s.nodes)).Replace(seedSync)
	if _, err := s.db.Exec(ctx, sql); err != nil {
		return fmt.Errorf("seed the region: %w", err)
	}
	if _, err := s.db.Exec(ctx, "VACUUM ANALYZE"); err != nil {
		return fmt.Errorf("prepare the tables: %w", err)
	}
	at, err := r.postgresURL()
	if err != nil {
		return err
	}
	s.store, err = store.Open(ctx, at, "local")
	return err
}

// pass compares the nodes of all shards one after the other, of which so many have drifted.
func (s *syncing) pass(drifted int) turn {
	return func(ctx context.Context, _ int) (float64, error) {
		if err := s.drift(ctx, drifted); err != nil {
			return 0, err
		}
		began, asked := time.Now(), 0
		for shard := range s.shards {
			for after := ""; ; {
				out, err := s.store.CompareDigests(ctx, stored.NodeShard{Shard: shard, Shards: s.shards}, after, syncPage)
				if err != nil {
					return 0, err
				}
				asked += len(out.Asked)
				if after = out.Last; after == "" {
					break
				}
			}
		}
		took := time.Since(began)
		if asked != drifted {
			return 0, fmt.Errorf("%d nodes were asked, %d had drifted", asked, drifted)
		}
		return took.Seconds(), nil
	}
}

// drift changes a row of each of so many nodes, and corrects those of before.
func (s *syncing) drift(ctx context.Context, nodes int) error {
	for _, sql := range []string{
		`CREATE TABLE IF NOT EXISTS marks_before AS SELECT node, marks FROM node_digests`,
		`UPDATE node_digests d SET marks = b.marks FROM marks_before b WHERE b.node = d.node AND d.marks IS NULL`,
		`UPDATE replicas SET state = 'HEALTHY' WHERE site = 'bench' AND state <> 'HEALTHY'`,
		`UPDATE replicas SET state = 'UNHEALTHY' WHERE id IN (
			SELECT min(id) FROM replicas WHERE site = 'bench' GROUP BY node ORDER BY node LIMIT ` + strconv.Itoa(nodes) + `)`,
	} {
		if _, err := s.db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("make drift: %w", err)
		}
	}
	return nil
}

func (s *syncing) plain(ctx context.Context, _ int) (float64, error) {
	began := time.Now()
	rows, _ := s.db.Query(ctx, readReplicas) //nolint:rowserrcheck // ForEachRow gives its error
	var id, node, phase, health, state string
	var revision, version int64
	var definition []byte
	var lost bool
	at := []any{&id, &node, &revision, &version, &definition, &phase, &health, &state, &lost}
	if _, err := pgx.ForEachRow(rows, at, func() error { return nil }); err != nil {
		return 0, fmt.Errorf("read the replicas plainly: %w", err)
	}
	return time.Since(began).Seconds(), nil
}
