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
	syncDeployments = 10 // so many of the objects are deployments, and ten times as many nodes share them
	syncNodes       = 100
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
	db            *pgx.Conn
	store         *store.Store
	nodes, shards int
}

// measureSync compares all nodes with their rows: without drift against a plain read of the rows, and with one node in
// a hundred drifted against none.
func measureSync(ctx context.Context, l *lab) (figures []figure, err error) {
	r, err := l.start(ctx, "--empty")
	if err != nil {
		return nil, err
	}
	defer r.stop()
	server, err := r.pid("server")
	if err != nil {
		return nil, err
	}
	if err := send(syscall.SIGSTOP, []int{server}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, send(syscall.SIGCONT, []int{server})) }()
	s, err := seededSync(ctx, r, l.objects/syncDeployments, max(l.objects/syncNodes, 1))
	if err != nil {
		return nil, err
	}
	defer s.store.Close()
	defer s.db.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it was only read and seeded
	equal, err := l.inTurn(ctx, s.pass(0), s.plain)
	if err != nil {
		return nil, err
	}
	drifted, err := l.inTurn(ctx, s.pass(max(s.nodes/syncDrifted, 1)), s.pass(0))
	what := fmt.Sprintf("sync: %d deployments, %d replicas, %d nodes", l.objects/syncDeployments, l.objects/2, s.nodes)
	return []figure{
		{name: what + ", a pass", unit: "s", series: equal, by: byValue, limit: syncLimit},
		{name: what + ", against a plain read", unit: "s", series: equal, limit: syncRatio},
		{name: what + ", with 1 % drift against none", unit: "s", series: drifted, limit: syncDrift},
	}, err
}

func seededSync(ctx context.Context, r *region, all, nodes int) (*syncing, error) {
	db, err := r.postgres(ctx)
	if err != nil {
		return nil, err
	}
	s := &syncing{db: db, nodes: nodes, shards: max(1, (all+syncPerShard-1)/syncPerShard)}
	sql := strings.NewReplacer("DEPLOYMENTS", strconv.Itoa(all), "NODES", strconv.Itoa(nodes)).Replace(seedSync)
	if _, err := db.Exec(ctx, sql); err != nil {
		return nil, fmt.Errorf("seed the region: %w", err)
	}
	if _, err := db.Exec(ctx, "VACUUM ANALYZE"); err != nil {
		return nil, fmt.Errorf("prepare the tables: %w", err)
	}
	at, err := r.postgresURL()
	if err != nil {
		return nil, err
	}
	s.store, err = store.Open(ctx, at, "local")
	return s, err
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
