package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

const (
	sharedProject = "shared"
	owningRegion  = "eu"
	leastObjects  = 100
	seedPage      = 5000
	regionsMemory = 100.0 // MB above idle
	regionsWait   = 10 * time.Minute
	// logicalSettings let the regions' own Postgres servers replicate too.
	logicalSettings = "HOLDFAST_POSTGRES_SETTINGS=wal_level=logical,max_logical_replication_workers=4"
)

//go:embed seed_regions.sql
var seedRegionsSQL string

// sharing is three regions that share a project, and a connection to the database of each.
type sharing struct {
	*region // the program
	l       *lab
	owner   *member
	others  []*member
}

// member is one of the regions.
type member struct {
	*region
	name string
	db   *pgxpool.Pool
}

// startSharing starts the regions, lets them come to rest, and has them share a project.
func (l *lab) startSharing(ctx context.Context) (*sharing, error) {
	r, err := l.launch(ctx, []string{logicalSettings}, "--empty", "--regions", "3", "--sites", "1")
	if err != nil {
		return nil, err
	}
	s := &sharing{region: r, l: l}
	for _, name := range []string{owningRegion, "us", "ap"} {
		m, err := l.member(ctx, r, name)
		if err != nil {
			s.stop()
			return nil, err
		}
		if s.owner == nil {
			s.owner = m
		} else {
			s.others = append(s.others, m)
		}
	}
	if err := s.share(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (l *lab) member(ctx context.Context, program *region, name string) (*member, error) {
	m := &member{region: &region{keep: true, dir: filepath.Join(program.dir, name), cmd: program.cmd}, name: name}
	if err := m.connect(); err != nil {
		return nil, err
	}
	at, err := m.postgresURL()
	if err != nil {
		return nil, err
	}
	m.db, err = pgxpool.New(ctx, at)
	return m, err
}

func (s *sharing) all() []*member {
	if s.owner == nil {
		return nil
	}
	return append([]*member{s.owner}, s.others...)
}

func (s *sharing) stop() {
	for _, m := range s.all() {
		m.temporal.Close()
		m.db.Close()
	}
	s.region.stop()
}

func (s *sharing) share(ctx context.Context) error {
	names := []string{}
	for _, m := range s.all() {
		names = append(names, m.name)
	}
	if err := s.owner.enable(ctx, names...); err != nil {
		return err
	}
	for _, m := range s.others {
		if err := awaited(ctx, m.name+" has the project", func(ctx context.Context) (bool, error) {
			n, err := m.count(ctx, `SELECT count(*) FROM copies WHERE kind = 'project' AND name = $1`, sharedProject)
			return n == 1, err
		}); err != nil {
			return err
		}
	}
	return pause.For(ctx, settle)
}

// enable has a policy name the regions that get what is in the project.
func (r *region) enable(ctx context.Context, regions ...string) error {
	return enable(ctx, r.api, regions...)
}

func enable(ctx context.Context, client *api.Client, regions ...string) error {
	_, err := client.PutProject(ctx, sharedProject, api.ProjectPut{
		MultiRegionPolicy: &api.MultiRegionPolicy{EnabledRegions: regions, DefaultControlRegion: regions[0]},
	}, api.Mutation{})
	return err
}

func (m *member) count(ctx context.Context, query string, args ...any) (n int, err error) {
	err = m.db.QueryRow(ctx, query, args...).Scan(&n)
	return n, err
}

// seed makes pools, some thousand in a transaction.
func seed(ctx context.Context, db *pgxpool.Pool, prefix string, count int, regions ...string) error {
	syncing, err := json.Marshal(fleet.Syncing{OwningRegion: regions[0], Regions: slices.Sorted(slices.Values(regions))})
	if err != nil {
		return fmt.Errorf("seed pools: %w", err)
	}
	for first := 0; first < count; first += seedPage {
		sql := strings.NewReplacer("PROJECT", sharedProject, "PREFIX", prefix, "FIRST", strconv.Itoa(first),
			"LAST", strconv.Itoa(min(first+seedPage, count)-1), "REGIONS", string(syncing)).Replace(seedRegionsSQL)
		if _, err := db.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("seed pools: %w", err)
		}
	}
	return nil
}

// copied waits until all other regions have so many pools.
func (s *sharing) copied(ctx context.Context, prefix string, count int) error {
	for _, m := range s.others {
		if err := awaited(ctx, m.name+" has "+prefix, func(ctx context.Context) (bool, error) {
			n, err := m.count(ctx, `SELECT count(*) FROM copies WHERE kind = 'pool' AND name LIKE $1`, prefix+"%")
			return n == count, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// awaited asks every now and then until something is so.
func awaited(ctx context.Context, what string, is func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, regionsWait)
	defer cancel()
	for {
		so, err := is(ctx)
		if err != nil || so {
			return err
		}
		if err := pause.For(ctx, 100*time.Millisecond); err != nil {
			return errors.Join(errors.New("wait until "+what), err)
		}
	}
}

// servers are the idle servers of members; their memory is compared with this later.
func servers(all []*member) ([]peak, error) {
	var peaks []peak
	for _, m := range all {
		pid, err := m.pid(m.name + "/server")
		if err != nil {
			return nil, err
		}
		p, err := rest(pid)
		if err != nil {
			return nil, fmt.Errorf("read the memory of the server of %s: %w", m.name, err)
		}
		peaks = append(peaks, p)
	}
	return peaks, nil
}

// highest is how far above idle the largest server went while something was done, in MB.
func highest(peaks []peak, do func() error) (float64, error) {
	above, err := peaked(peaks, do)
	if err != nil {
		return 0, err
	}
	return float64(slices.Max(above)) / megabyte, nil
}

func memoryFigure(group, what string, megabytes float64) figure {
	return figure{
		name: group + ": memory of a server, " + what + ", above idle", unit: "MB", series: series{ours: []float64{megabytes}}, by: byValue, limit: regionsMemory,
	}
}

// measureRegions measures how fast changes reach other regions, and how fast a policy is applied.
func measureRegions(ctx context.Context, l *lab) ([]figure, error) {
	lag, err := measureLag(ctx, l)
	if err != nil {
		return nil, err
	}
	policy, err := measurePolicy(ctx, l)
	return append(lag, policy...), err
}
