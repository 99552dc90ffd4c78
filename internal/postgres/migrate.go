package postgres

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"path"
	"slices"
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
	createTable = `CREATE TABLE IF NOT EXISTS schema_migrations (name text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())`
	appliedSQL  = `SELECT name FROM schema_migrations ORDER BY name COLLATE "C"`
	recordSQL   = `INSERT INTO schema_migrations (name) VALUES ($1) ON CONFLICT DO NOTHING`
	identitySQL = `SELECT s.system_identifier::text, c.timeline_id FROM pg_control_system() s, pg_control_checkpoint() c`
)

// Migrations gives the schema's files in order.
func Migrations() fs.FS { return migrations }

// version says how far a database has been migrated: the last of its migrations ("" of an empty
// database), and those that it lacks.
type version struct {
	last    string
	missing []string
}

// newest is the version that this binary knows.
func newest() (version, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	return version{missing: names}, failed("list migrations", err)
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

// versionOf changes nothing, so that whoever may only read and write rows can ask too.
func versionOf(ctx context.Context, db reader) (version, error) {
	v, err := newest()
	if err != nil {
		return v, err
	}
	var exists bool
	if err := db.QueryRow(ctx, tableExists).Scan(&exists); err != nil || !exists {
		return v, failed("read the version of the database", err)
	}
	rows, err := db.Query(ctx, appliedSQL)
	if err != nil {
		return v, failed("read the version of the database", err)
	}
	applied, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if len(applied) > 0 {
		v.last = applied[len(applied)-1]
	}
	v.missing = slices.DeleteFunc(v.missing, func(name string) bool { return slices.Contains(applied, name) })
	return v, failed("read the version of the database", err)
}

// migrate brings a database to this binary's version, in one transaction.
func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	v, err := versionOf(ctx, pool)
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
		for _, name := range v.missing {
			if err := apply(ctx, tx, name); err != nil {
				return err
			}
		}
		return nil
	})
	return failed("migrate the database", err)
}

// apply passes over what another migrator has applied since.
func apply(ctx context.Context, tx pgx.Tx, name string) error {
	tag, err := tx.Exec(ctx, recordSQL, name)
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	sql, err := migrations.ReadFile(name)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, string(sql))
	return err
}

// checkMigrated is for databases that an operator migrates (N72).
func checkMigrated(ctx context.Context, pool *pgxpool.Pool) error {
	v, err := versionOf(ctx, pool)
	if err != nil || len(v.missing) == 0 {
		return err
	}
	needs := v.missing[len(v.missing)-1]
	return fleet.Errorf(fleet.Precondition, "the database is %s, this version needs %s", v, label(needs)).
		WithHint("run holdfast admin migrate, or with psql what holdfast admin migrate --print prints")
}

// lostRace says that the whole transaction may simply be run again.
func lostRace(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}
