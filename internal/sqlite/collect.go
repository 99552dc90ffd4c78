package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite/db"
)

// The limits of one step of Collect, and so of how long other writers wait.
const (
	collectChunks = 256
	collectBytes  = 8 << 20
)

// slackPages are free pages that stay in the file for the next body (1 MiB).
const slackPages = 256

// Collect removes a limited part of what is unreferenced, frees the space in the file system, and tells whether
// there is more to do.
func (s *Store) Collect(ctx context.Context) (more bool, err error) {
	err = s.write(ctx, "collect contents", func(ctx context.Context, q *db.Queries) error {
		if err := q.ForgetSetAside(ctx); err != nil {
			return err
		}
		if err := q.CondemnUnreferenced(ctx); err != nil {
			return err
		}
		if err := q.DeleteCondemnedChunks(ctx, db.DeleteCondemnedChunksParams{
			Most: collectChunks, Bytes: collectBytes,
		}); err != nil {
			return err
		}
		if err := q.DeleteCondemned(ctx); err != nil {
			return err
		}
		left, err := q.CountCondemned(ctx)
		more = left > 0
		return err
	})
	if err != nil {
		return false, err
	}
	return more, s.vacuum(ctx)
}

// vacuum frees at most what one step removed. Each row of the pragma is one page, so vacuum reads to the end.
func (s *Store) vacuum(ctx context.Context) error {
	var free int
	if err := s.db.QueryRowContext(ctx, "PRAGMA freelist_count").Scan(&free); err != nil {
		return fail("look for free space", err)
	}
	if free <= slackPages {
		return nil
	}
	rows, err := s.db.QueryContext(ctx, "PRAGMA incremental_vacuum(4096)")
	if err != nil {
		return fail("give back space", err)
	}
	for rows.Next() {
	}
	return fail("give back space", errors.Join(rows.Err(), rows.Close()))
}

// LogOffset is the offset up to which an instance's output was sent; 0 before the first.
func (s *Store) LogOffset(ctx context.Context, name fleet.InstanceName) (int64, error) {
	at, err := s.q.GetLogOffset(ctx, string(name))
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return at, fail("read log offset", err)
}

// SetLogOffset records the offset up to which an instance's output was sent.
func (s *Store) SetLogOffset(ctx context.Context, name fleet.InstanceName, at int64) error {
	return fail("record log offset", s.q.SetLogOffset(ctx, db.SetLogOffsetParams{
		Instance: string(name), Position: at,
	}))
}
