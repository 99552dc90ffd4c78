package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite/db"
)

// collectChunks bounds one step of Collect, and with it how long other writers wait.
const collectChunks = 8

// Collect removes a bounded part of what nothing refers to, gives the space back to the
// file system, and says whether there is more to do.
func (s *Store) Collect(ctx context.Context) (more bool, err error) {
	var removed int64
	err = s.write(ctx, "collect contents", func(q *db.Queries) error {
		if _, err := q.CondemnUnreferenced(ctx); err != nil {
			return err
		}
		n, err := q.DeleteCondemnedChunks(ctx, collectChunks)
		if err != nil {
			return err
		}
		removed = n
		_, err = q.DeleteCondemned(ctx)
		return err
	})
	if err != nil {
		return false, err
	}
	return removed == collectChunks, s.vacuum(ctx)
}

// vacuum gives back at most what one step freed. Each row that the pragma yields is one
// page, so it must be read to its end.
func (s *Store) vacuum(ctx context.Context) error {
	rows, err := s.db.QueryContext(ctx, "PRAGMA incremental_vacuum(4096)")
	if err != nil {
		return fail("give back space", err)
	}
	for rows.Next() {
	}
	return fail("give back space", errors.Join(rows.Err(), rows.Close()))
}

// LogOffset is how far an instance's output was shipped; 0 when never.
func (s *Store) LogOffset(ctx context.Context, name fleet.InstanceName) (int64, error) {
	at, err := s.q.GetLogOffset(ctx, string(name))
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return at, fail("read log offset", err)
}

// SetLogOffset records how far an instance's output was shipped.
func (s *Store) SetLogOffset(ctx context.Context, name fleet.InstanceName, at int64) error {
	return fail("record log offset", s.q.SetLogOffset(ctx, db.SetLogOffsetParams{
		Instance: string(name), Position: at,
	}))
}
