package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Errors of statements are fleet errors that name the query, so callers hand them on as they are: those outside a transaction by
// pooled, those in one by pipeline.

// named is an error of a statement, whose name sqlc leaves in its text.
func named(sql string, err error) error {
	if err == nil { // for each row
		return nil
	}
	first, _, _ := strings.Cut(sql, "\n")
	if query, is := strings.CutPrefix(first, "-- name: "); is {
		first, _, _ = strings.Cut(query, " ")
	}
	return failed(first, err)
}

// pooled runs each statement on a connection of the pool.
type pooled struct{ pool *pgxpool.Pool }

var _ db.DBTX = pooled{}

// Exec runs a statement that gives no rows.
func (p pooled) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := p.pool.Exec(ctx, sql, args...)
	return tag, named(sql, err)
}

// Query runs a statement that gives rows.
func (p pooled) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := p.pool.Query(ctx, sql, args...) //nolint:rowserrcheck // the caller reads them
	return pooledRows{rows, sql}, named(sql, err)
}

// QueryRow is Query for one row.
func (p pooled) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return pooledRow{p.pool.QueryRow(ctx, sql, args...), sql}
}

type pooledRows struct {
	pgx.Rows
	sql string
}

// Scan names the statement.
func (r pooledRows) Scan(into ...any) error { return named(r.sql, r.Rows.Scan(into...)) }

// Err names the statement.
func (r pooledRows) Err() error { return named(r.sql, r.Rows.Err()) }

type pooledRow struct {
	pgx.Row
	sql string
}

// Scan names the statement.
func (r pooledRow) Scan(into ...any) error { return named(r.sql, r.Row.Scan(into...)) }
