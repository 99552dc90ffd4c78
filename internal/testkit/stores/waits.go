package stores

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// StopAt holds back every write to a table until the returned function is called.
func (b *Bench) StopAt(table string) (goOn func()) {
	b.T.Helper()
	tx, err := b.Raw.Begin(b.Ctx())
	require.NoError(b.T, err)
	_, err = tx.Exec(b.Ctx(), "LOCK TABLE "+pgx.Identifier{table}.Sanitize()+" IN SHARE MODE")
	require.NoError(b.T, err)
	b.T.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // none after goOn
	return func() { require.NoError(b.T, tx.Rollback(context.WithoutCancel(b.Ctx()))) }
}

// Background starts f beside the test; the returned function waits for its result.
func Background[T any](f func() (T, error)) (end func() (T, error)) {
	var v T
	var err error
	done := make(chan struct{})
	go func() { defer close(done); v, err = f() }()
	return func() (T, error) { <-done; return v, err }
}

// Eventually polls until a condition is true; the database has nothing to wait on.
func Eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	require.Eventually(t, so, Deadline, 2*time.Millisecond, what)
}

// WaitsForLock waits until n backends of this database wait for a lock.
func (b *Bench) WaitsForLock(n int) {
	b.T.Helper()
	Eventually(b.T, fmt.Sprintf("%d backends wait for a lock", n), func() bool {
		var waiting int
		err := b.Raw.QueryRow(context.Background(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		return err == nil && waiting >= n
	})
}

// ContextWithDeadline is the context of the test, bounded by Deadline.
func ContextWithDeadline(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), Deadline)
}

// AtOnce runs f in n goroutines and returns their errors.
func AtOnce(n int, f func(i int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	var all error
	for range n {
		all = errors.Join(all, <-errs)
	}
	return all
}
