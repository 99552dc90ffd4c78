package postgres

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Statements that run outside the schema that sqlc knows.
const (
	migrateLock = 7_460_001 // one migrator at a time, region-wide
	tableExists = `SELECT to_regclass('schema_migrations') IS NOT NULL`
	createTable = `CREATE TABLE IF NOT EXISTS schema_migrations (name text PRIMARY KEY, sha256 text NOT NULL, at timestamptz NOT NULL DEFAULT now())`
	appliedSQL  = `SELECT name, sha256 FROM schema_migrations ORDER BY name COLLATE "C"`
	recordSQL   = `INSERT INTO schema_migrations (name, sha256) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	identitySQL = `SELECT s.system_identifier::text, c.timeline_id FROM pg_control_system() s, pg_control_checkpoint() c`
)

// current is the schema of this version.
var current = schema{migrations}

// schema is what numbered files make of an empty database.
type schema struct{ files fs.FS }

// SchemaVersion names the schema of this version.
func SchemaVersion() string {
	all, err := current.all()
	if err != nil || len(all) == 0 { // the files are part of the program
		return ""
	}
	return label(all[len(all)-1].name)
}

// migration is one file of it: its path, and the SHA-256 of its text in hex.
type migration struct{ name, sum, sql string }

// all gives the migrations in their order.
func (s schema) all() ([]migration, error) {
	names, err := fs.Glob(s.files, "migrations/*.sql")
	if err != nil {
		return nil, failed("list migrations", err)
	}
	out := make([]migration, len(names))
	for i, name := range names {
		sql, err := fs.ReadFile(s.files, name)
		if err != nil {
			return nil, failed("read migration "+name, err)
		}
		sum := sha256.Sum256(sql)
		out[i] = migration{name: name, sum: hex.EncodeToString(sum[:]), sql: string(sql)}
	}
	return out, nil
}

// version says how far a database has been migrated: the last of its migrations ("" of an empty
// database), and those that it lacks.
type version struct {
	last    string
	missing []migration
}

func (v version) String() string {
	if v.last == "" {
		return "empty"
	}
	return "at " + label(v.last)
}

// label is a migration as people read it.
func label(name string) string { return strings.TrimSuffix(path.Base(name), ".sql") }

// reader is a pool or one connection.
type reader interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// version changes nothing, so that whoever may only read and write rows can ask too. A database that the
// migrations of this version did not make is refused: theirs were recorded without a checksum, or with another.
func (s schema) version(ctx context.Context, db reader) (version, error) {
	all, err := s.all()
	v := version{missing: all}
	if err != nil {
		return v, err
	}
	var exists bool
	if err := db.QueryRow(ctx, tableExists).Scan(&exists); err != nil || !exists {
		return v, failed("read the version of the database", err)
	}
	applied := map[string]string{}
	var name, sum string
	rows, _ := db.Query(ctx, appliedSQL) //nolint:rowserrcheck // ForEachRow gives its error
	_, err = pgx.ForEachRow(rows, []any{&name, &sum}, func() error {
		applied[name], v.last = sum, name
		return nil
	})
	if noColumn(err) {
		return v, errForeignSchema
	}
	if err != nil {
		return v, failed("read the version of the database", err)
	}
	v.missing = nil
	for _, m := range all {
		switch sum, is := applied[m.name]; {
		case !is:
			v.missing = append(v.missing, m)
		case sum != m.sum:
			return v, errForeignSchema
		}
	}
	return v, nil
}

var errForeignSchema = fleet.Errorf(fleet.Precondition, "the database has the schema of an unreleased build of Holdfast; nothing was changed").
	WithHint("use an empty database, or the build that made this one")

// noColumn says that a table is there and lacks what was asked for.
func noColumn(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "42703"
}

// migrate brings a database to this version, in one transaction.
func (s schema) migrate(ctx context.Context, pool *pgxpool.Pool) error {
	v, err := s.version(ctx, pool)
	if err != nil || len(v.missing) == 0 {
		return err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, migrateLock); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, createTable); err != nil {
			return err
		}
		for _, m := range v.missing {
			if err := m.apply(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	return failed("migrate the database", err)
}

// apply passes over what another migrator has applied since.
func (m migration) apply(ctx context.Context, tx pgx.Tx) error {
	tag, err := tx.Exec(ctx, recordSQL, m.name, m.sum)
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	_, err = tx.Exec(ctx, m.sql)
	return err
}

// checkMigrated is for databases that an operator migrates (N72).
func (s schema) checkMigrated(ctx context.Context, pool *pgxpool.Pool) error {
	v, err := s.version(ctx, pool)
	if err != nil || len(v.missing) == 0 {
		return err
	}
	needs := v.missing[len(v.missing)-1].name
	return fleet.Errorf(fleet.Precondition, "the database is %s, this version needs %s", v, label(needs)).
		WithHint("run holdfast admin migrate, or with psql what holdfast admin migrate --print prints")
}

// lostRace says that the whole transaction may simply be run again.
func lostRace(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01" || pg.ConstraintName == "idempotency_pkey")
}
