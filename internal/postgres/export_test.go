package postgres

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// MaxConns is how many connections a store has.
const MaxConns = maxConns

// HoldPlacement has nobody choose nodes until what it gives is called.
func (s *Store) HoldPlacement(ctx context.Context) (release func() error, err error) {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return func() error { return tx.Rollback(ctx) }, lock(ctx, db.New(tx), []fleet.ObjectKey{placementKey})
}

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
