package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/bodycache"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Store is the region's database. It is safe for concurrent use and keeps no state but bodies
// that it has just written, which never change.
//
// The exported fields are for the areas: statements outside a transaction, the region's name, and the bodies of the moment.
type Store struct {
	Pool   *pgxpool.Pool
	Q      *db.Queries
	Region string
	Recent *bodycache.Cache[fleet.Hash]
	areas  Parts
	// refused hears of what is not recorded, after the transaction.
	refused func(audit.Refusal)
	// recovering: the region was restored, and may have to compare with its peers first.
	recovering atomic.Bool
	// committed hears of each transaction that was committed.
	committed func(outbox []string)
}

// OnCommit has f called after each transaction of this store, with the subjects that it put into the outbox. It is set before the
// store is used, and may not wait.
func (s *Store) OnCommit(f func(outbox []string)) { s.committed = f }

// Connect connects, migrates, and checks that this is the database that the region knows: a
// changed system identifier or timeline means a restored backup, which is refused until
// `holdfast admin raise-era`.
func Connect(ctx context.Context, url, region string, areas Parts) (*Store, error) {
	return open(ctx, url, region, areas, current.migrate)
}

// ConnectMigrated connects to a database that an operator migrates: Precondition unless it has the schema
// of this version.
func ConnectMigrated(ctx context.Context, url, region string, areas Parts) (*Store, error) {
	return open(ctx, url, region, areas, current.checkMigrated)
}

func open(
	ctx context.Context, url, region string, areas Parts, prepare func(context.Context, *pgxpool.Pool) error,
) (*Store, error) {
	s, err := connect(ctx, url, region, prepare)
	if err != nil {
		return nil, err
	}
	s.areas = areas
	if err := s.checkIdentity(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

const maxConns = 24

// Small bodies that were written a moment ago are kept: both nodes of a site ask for those of a batch at once. They say
// nothing about what the database has; who hands one out has looked there for who refers to it.
const (
	recentEach = 64 << 10
	recentAll  = 20 << 20
)

func badURL() error {
	return fleet.Errorf(fleet.Invalid, "invalid database URL").At("database-url")
}

func connect(ctx context.Context, url, region string, prepare func(context.Context, *pgxpool.Pool) error) (*Store, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, badURL()
	}
	cfg.MaxConns = max(cfg.MaxConns, maxConns)
	cfg.ConnConfig.RuntimeParams["application_name"] = "holdfast"
	// The queries are few, each has its index, and their plans do not depend on the values. A
	// plan is made while the tables are small, and must still be right when they have grown.
	cfg.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	cfg.ConnConfig.RuntimeParams["enable_seqscan"] = "off"
	cfg.ConnConfig.RuntimeParams["enable_memoize"] = "off" // of lookups by whole keys, no two of which are the same
	cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "30s"
	cfg.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		codec := &pgtype.JSONBCodec{Marshal: json.Marshal, Unmarshal: unmarshal}
		conn.TypeMap().RegisterType(&pgtype.Type{Name: "jsonb", OID: pgtype.JSONBOID, Codec: codec})
		return nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, failed("connect to postgres", err)
	}
	if err := prepare(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return &Store{Pool: pool, Q: db.New(pooled{pool}), Region: region, Recent: bodycache.New[fleet.Hash](recentEach, recentAll)}, nil
}

// unmarshal takes JSON that is read as such as it is: Postgres has checked it.
func unmarshal(data []byte, v any) error {
	if raw, is := v.(*json.RawMessage); is {
		*raw = bytes.Clone(data)
		return nil
	}
	return json.Unmarshal(data, v)
}

// Close waits for queries under way.
func (s *Store) Close() { s.Pool.Close() }

// Ping says whether the database answers.
func (s *Store) Ping(ctx context.Context) error { return failed("ping postgres", s.Pool.Ping(ctx)) }

// ErrRollback ends a transaction that was only tried.
var ErrRollback = errors.New("dry run")

// deadlockTries bounds how often a transaction that lost a race is run again.
const deadlockTries = 5

// Tx runs f in one transaction; a serialization failure or a deadlock runs it again.
func (s *Store) Tx(ctx context.Context, f func(q *db.Queries) error) error {
	var outbox []string
	var err error
	for range deadlockTries {
		outbox, err = inTransaction(ctx, s.Pool, f)
		if kind := kindOf(err); err == nil || kind != fleet.Conflict || !lostRace(err) {
			break
		}
	}
	if errors.Is(err, ErrRollback) {
		return nil
	}
	if err == nil && s.committed != nil {
		s.committed(outbox)
	}
	return inCode(err)
}

// Region is the region's own row.
type Region struct {
	Name             string
	Era              int64
	EraID            string // random, unlike the number
	SystemIdentifier string
	Timeline         int32
	RaisedAt         time.Time
}

func regionOf(r db.Region) Region {
	return Region{r.Name, r.Era, r.EraID, r.SystemIdentifier, r.Timeline, r.RaisedAt}
}

// GetRegion reads the region's row.
func (s *Store) GetRegion(ctx context.Context) (Region, error) {
	r, err := s.Q.GetRegion(ctx)
	return regionOf(r), err
}

func (s *Store) checkIdentity(ctx context.Context) error {
	id, timeline, err := s.identity(ctx)
	if err != nil {
		return err
	}
	r, err := s.Q.FoundRegion(ctx, db.FoundRegionParams{Name: s.Region, SystemIdentifier: id, Timeline: timeline})
	if err != nil {
		return err
	}
	if r.Name != s.Region {
		return fleet.Errorf(fleet.Precondition, "this database belongs to region %s, not %s", r.Name, s.Region).
			WithHint("point the server at its own database")
	}
	if r.SystemIdentifier != id || r.Timeline != timeline {
		return fleet.Errorf(fleet.Precondition, "this database was restored or moved since era %d", r.Era).
			WithHint("to continue with it: holdfast admin raise-era")
	}
	s.recovering.Store(r.Recovering)
	return nil
}

// identity reads what tells one database cluster, and one history of it, from another.
func (s *Store) identity(ctx context.Context) (string, int32, error) {
	var id string
	var timeline int32
	row := s.Pool.QueryRow(ctx, identitySQL)
	if err := row.Scan(&id, &timeline); err != nil {
		return "", 0, failed("read the identity of the database", err)
	}
	return id, timeline, nil
}

// RaiseEra starts a new era: what nodes hold of an older one counts as older.
func RaiseEra(ctx context.Context, url, region string) (Region, error) {
	s, err := connect(ctx, url, region, current.migrate)
	if err != nil {
		return Region{}, err
	}
	defer s.Close()
	id, timeline, err := s.identity(ctx)
	if err != nil {
		return Region{}, err
	}
	var r db.Region
	err = s.Tx(ctx, func(q *db.Queries) error {
		if err := q.StopEvents(ctx); err != nil { // else one of the old era could be committed below a reader of the new
			return err
		}
		if err := q.EndEra(ctx); err != nil {
			return err
		}
		r, err = q.RaiseEra(ctx, db.RaiseEraParams{SystemIdentifier: id, Timeline: timeline, Name: region})
		if NoRows(err) {
			return fleet.Errorf(fleet.Precondition, "this database does not belong to region %s", region).
				WithHint("point the command at the region's own database")
		}
		if err != nil {
			return err
		}
		if err := q.RaiseEventNumbers(ctx, fleet.FirstNumber(r.Era)); err != nil {
			return err
		}
		if err := q.ForgetSyncs(ctx); err != nil {
			return err
		}
		return q.LoseVotes(ctx) // it may have granted otherwise since the backup
	})
	return regionOf(r), err
}
