package postgres

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// pipeline is one transaction that holds back statements whose result is not read and
// sends them with the next one whose result is read. A step of many small writes costs a
// few round trips. The order stays. The error of one that was kept back comes with the statement that it travelled with,
// and names its own.
type pipeline struct {
	conn   *pgxpool.Conn
	kept   *pgx.Batch
	outbox []string // the subjects that were put into it
}

var _ db.DBTX = (*pipeline)(nil)

// inTransaction runs f and commits, or undoes all of it. It gives the subjects that were put into the outbox.
func inTransaction(ctx context.Context, pool *pgxpool.Pool, f func(q *db.Queries) error) ([]string, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, named("begin", err)
	}
	defer conn.Release()
	p := &pipeline{conn: conn, kept: &pgx.Batch{}}
	p.keep("begin")
	if err := f(db.New(p)); err != nil {
		if errors.Is(err, ErrRollback) { // a dry run finds what a real one would
			err = cmp.Or(p.flush(ctx), err)
		}
		return nil, p.undo(ctx, err)
	}
	p.keep("commit")
	if err := p.flush(ctx); err != nil {
		return nil, p.undo(ctx, err)
	}
	return p.outbox, nil
}

// undo gives why the transaction came to nothing.
func (p *pipeline) undo(ctx context.Context, why error) error {
	if err := p.rollback(ctx); err != nil {
		return errors.Join(why, err)
	}
	return why
}

// rollback needs no word when nothing was sent; a connection that does not answer is
// closed by the pool, which ends its transaction.
func (p *pipeline) rollback(ctx context.Context) error {
	if p.conn.Conn().PgConn().TxStatus() == 'I' || p.conn.Conn().IsClosed() {
		return nil
	}
	if _, err := p.conn.Exec(ctx, "rollback"); err != nil && !p.conn.Conn().IsClosed() {
		return p.conn.Conn().Close(ctx)
	}
	return nil
}

func (p *pipeline) keep(sql string, args ...any) {
	p.kept.Queue(sql, args...)
}

// Exec keeps a statement back, unless the number of its rows is asked for.
func (p *pipeline) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if strings.HasPrefix(sql, "-- name: PutOutbox ") {
		p.outbox = append(p.outbox, args[0].([]string)...) //nolint:forcetypeassert // sqlc generates it
	}
	if !countsRows(sql) {
		p.keep(sql, args...)
		return pgconn.CommandTag{}, nil
	}
	results, err := p.send(ctx, sql, args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := results.Exec()
	return tag, named(sql, errors.Join(err, results.Close()))
}

// countsRows reads the annotation that sqlc leaves in the text of a query.
func countsRows(sql string) bool {
	first, _, _ := strings.Cut(sql, "\n")
	return strings.HasSuffix(first, ":execrows")
}

// Query sends what was kept back, and the query.
func (p *pipeline) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	results, err := p.send(ctx, sql, args)
	if err != nil {
		return nil, err
	}
	rows, err := results.Query() //nolint:rowserrcheck // the caller reads them
	if err != nil {
		return nil, named(sql, errors.Join(err, results.Close()))
	}
	return &sentRows{Rows: rows, sql: sql, results: results}, nil
}

// QueryRow is Query for one row.
func (p *pipeline) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := p.Query(ctx, sql, args...) //nolint:rowserrcheck // Scan does
	return sentRow{rows, sql, err}
}

// send begins a batch of all that was kept back and one more, and reads up to the last.
func (p *pipeline) send(ctx context.Context, sql string, args []any) (pgx.BatchResults, error) {
	before := p.kept
	p.kept = &pgx.Batch{}
	before.Queue(sql, args...)
	results := p.conn.SendBatch(ctx, before)
	for _, q := range before.QueuedQueries[:before.Len()-1] {
		if _, err := results.Exec(); err != nil {
			_ = results.Close() // says the same
			return nil, named(q.SQL, err)
		}
	}
	return results, nil
}

// flush sends what was kept back.
func (p *pipeline) flush(ctx context.Context) error {
	kept := p.kept
	p.kept = &pgx.Batch{}
	if kept.Len() == 0 {
		return nil
	}
	results := p.conn.SendBatch(ctx, kept)
	for _, q := range kept.QueuedQueries {
		if _, err := results.Exec(); err != nil {
			_ = results.Close() // says the same
			return named(q.SQL, err)
		}
	}
	return named("commit", results.Close())
}

// sentRows are the rows of the last statement of a batch, which ends with them.
type sentRows struct {
	pgx.Rows
	sql     string
	results pgx.BatchResults
	err     error
	closed  bool
}

// Close ends the rows and their batch.
func (r *sentRows) Close() {
	r.Rows.Close()
	if !r.closed {
		r.closed, r.err = true, r.results.Close()
	}
}

// Next closes after the last row, as rows do.
func (r *sentRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Err is the error of the statement, or of its batch.
func (r *sentRows) Err() error { return named(r.sql, cmp.Or(r.Rows.Err(), r.err)) }

// Scan names the statement too.
func (r *sentRows) Scan(into ...any) error { return named(r.sql, r.Rows.Scan(into...)) }

type sentRow struct {
	rows pgx.Rows
	sql  string
	err  error
}

// Scan reads the one row.
func (r sentRow) Scan(into ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		return cmp.Or(r.rows.Err(), named(r.sql, pgx.ErrNoRows))
	}
	if err := r.rows.Scan(into...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
