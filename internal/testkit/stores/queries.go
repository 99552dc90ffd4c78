package stores

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// CountQueries counts the store's reads from here on.
func (b *Bench) CountQueries() *atomic.Int64 {
	c := &counted{DBTX: b.Pool}
	b.Q = db.New(c)
	return &c.n
}

// counted counts the reads of a connection.
type counted struct {
	db.DBTX
	n atomic.Int64
}

// Query counts a read of rows.
func (c *counted) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c.n.Add(1)
	return c.DBTX.Query(ctx, sql, args...) //nolint:rowserrcheck // the caller's to check
}

// QueryRow counts a read of a row.
func (c *counted) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	c.n.Add(1)
	return c.DBTX.QueryRow(ctx, sql, args...)
}
