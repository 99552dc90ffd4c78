package postgres

import (
	"context"
	"errors"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Together runs functions that only read, and do not depend on each other, in one transaction: what each asks next travels with what
// the others ask, and with what was kept back before. They run one at a time, in their order; the first error ends them all.
func Together(ctx context.Context, q *db.Queries, all ...func(*db.Queries) error) error {
	p, is := q.Connection().(*pipeline)
	if !is { // no transaction: one after the other
		for _, f := range all {
			if err := f(q); err != nil {
				return err
			}
		}
		return nil
	}
	running := make([]*asker, len(all))
	for i, f := range all {
		running[i] = p.start(f)
	}
	defer func() {
		for _, a := range running {
			a.stop()
		}
	}()
	var asking []*asker
	for _, a := range running {
		asks, err := a.goOn()
		if err != nil {
			return err
		}
		if asks {
			asking = append(asking, a)
		}
	}
	for len(asking) > 0 {
		var err error
		if asking, err = p.answer(ctx, asking); err != nil {
			return err
		}
	}
	return nil
}

// asker is the connection of one of the functions that run together.
type asker struct {
	*pipeline
	yield  func(struct{}) bool
	next   func() (struct{}, bool)
	stop   func()
	failed error

	sql  string // what it asks
	args []any
	rows pgx.Rows // the answer
	err  error
}

func (p *pipeline) start(f func(*db.Queries) error) *asker {
	a := &asker{pipeline: p}
	a.next, a.stop = iter.Pull(func(yield func(struct{}) bool) {
		a.yield = yield
		a.failed = f(db.New(a))
	})
	return a
}

// goOn runs the function until it asks, or ends.
func (a *asker) goOn() (asks bool, err error) {
	_, asks = a.next()
	return asks, a.failed
}

var errEnded = errors.New("another that runs together failed")

// Query waits until what the others ask is known too.
func (a *asker) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	a.sql, a.args = sql, args
	if !a.yield(struct{}{}) {
		return nil, errEnded
	}
	return a.rows, a.err
}

// QueryRow is Query for one row.
func (a *asker) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := a.Query(ctx, sql, args...) //nolint:rowserrcheck // Scan does
	return sentRow{rows, sql, err}
}

// answer sends what some functions ask, and gives those that ask again.
func (p *pipeline) answer(ctx context.Context, asking []*asker) (again []*asker, err error) {
	before := p.kept
	p.kept = &pgx.Batch{}
	kept := before.Len()
	for _, a := range asking {
		before.Queue(a.sql, a.args...)
	}
	results := p.conn.SendBatch(ctx, before)
	defer func() {
		if closed := results.Close(); err == nil {
			err = named("batch", closed)
		}
	}()
	for _, q := range before.QueuedQueries[:kept] {
		if _, err := results.Exec(); err != nil {
			return nil, named(q.SQL, err)
		}
	}
	for _, a := range asking {
		rows, err := results.Query() //nolint:rowserrcheck // the function reads them
		a.rows, a.err = &sentRows{Rows: rows, sql: a.sql, closed: true}, named(a.sql, err)
		asks, err := a.goOn()
		rows.Close()
		if err != nil {
			return nil, err
		}
		if asks {
			again = append(again, a)
		}
	}
	return again, nil
}
