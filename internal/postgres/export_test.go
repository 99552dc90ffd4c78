package postgres

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// CountQueries has a store's reads counted from here on.
func (s *Store) CountQueries() *atomic.Int64 {
	c := &counted{DBTX: s.pool}
	s.q = db.New(c)
	return &c.n
}

type counted struct {
	db.DBTX
	n atomic.Int64
}

func (c *counted) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c.n.Add(1)
	return c.DBTX.Query(ctx, sql, args...) //nolint:rowserrcheck // the caller's to check
}

func (c *counted) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	c.n.Add(1)
	return c.DBTX.QueryRow(ctx, sql, args...)
}
