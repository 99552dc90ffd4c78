package postgres

import (
	"context"
	"embed"
	"errors"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Statements that run outside the schema that sqlc knows.
const (
	migrateLock = 7_460_001 // one migrator at a time, region-wide
	createTable = `CREATE TABLE IF NOT EXISTS schema_migrations (name text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())`
	identitySQL = `SELECT s.system_identifier::text, c.timeline_id FROM pg_control_system() s, pg_control_checkpoint() c`
)

// Migrations gives the schema's files in order, for operators who apply them by hand (N72).
func Migrations() fs.FS { return migrations }

func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return failed("list migrations", err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, migrateLock); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, createTable); err != nil {
			return err
		}
		for _, name := range names {
			if err := apply(ctx, tx, name); err != nil {
				return err
			}
		}
		return nil
	})
	return failed("migrate the database", err)
}

func apply(ctx context.Context, tx pgx.Tx, name string) error {
	tag, err := tx.Exec(ctx, `INSERT INTO schema_migrations (name) VALUES ($1) ON CONFLICT DO NOTHING`, name)
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

// lostRace says that the whole transaction may simply be run again.
func lostRace(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}
