package postgres_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// X2: what is asked together sees what was written before, and stands or falls together.
func TestTogether(t *testing.T) {
	t.Parallel()

	object := func(q *db.Queries, t *testing.T, key fleet.ObjectKey) *fleet.Object {
		t.Helper()
		o, err := postgres.Find(t.Context(), q, key)
		require.NoError(t, err)
		return o
	}

	t.Run("each asks before any is answered, as often as it wants", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		var did []string
		require.NoError(t, b.Tx(t.Context(), func(q *db.Queries) error {
			if err := postgres.PutOutbox(t.Context(), q, "asked.together"); err != nil {
				return err
			}
			return postgres.Together(t.Context(), q,
				func(q *db.Queries) error {
					did = append(did, "a asks")
					require.NotNil(t, object(q, t, pressKey))
					did = append(did, "a asks again")
					require.Nil(t, object(q, t, fleet.PoolKey("other")))
					did = append(did, "a ends")
					return nil
				},
				func(*db.Queries) error { did = append(did, "b ends"); return nil },
				func(q *db.Queries) error {
					did = append(did, "c asks")
					waiting, err := q.WaitingOutbox(t.Context(), db.WaitingOutboxParams{OlderSeconds: -60, MaxRows: 10})
					require.NoError(t, err)
					require.Contains(t, waiting, "asked.together", "it was written before")
					did = append(did, "c ends")
					return nil
				})
		}))
		require.Equal(t, []string{"a asks", "b ends", "c asks", "a asks again", "c ends", "a ends"}, did)
		b.Put(`{"a":2}`)
	})

	t.Run("the first error ends all, and undoes what was written", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		stop := errors.New("no further")
		for range 30 { // more than there are connections: none was left in a transaction
			ended := false
			err := b.Tx(t.Context(), func(q *db.Queries) error {
				if err := postgres.PutOutbox(t.Context(), q, "asked.together"); err != nil {
					return err
				}
				return postgres.Together(t.Context(), q,
					func(q *db.Queries) error { object(q, t, pressKey); return stop },
					func(q *db.Queries) error {
						_, err := postgres.Find(t.Context(), q, pressKey)
						ended = err != nil
						return err
					})
			})
			require.ErrorIs(t, err, stop)
			require.True(t, ended, "the other is not left waiting")
		}
		require.Zero(t, stores.Scan[int](b, "SELECT count(*) FROM outbox WHERE subject = 'asked.together'"))
	})

	t.Run("a question that Postgres refuses is the asker's error", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		err := b.Tx(t.Context(), func(q *db.Queries) error {
			return postgres.Together(t.Context(), q,
				func(q *db.Queries) error { object(q, t, pressKey); return nil },
				func(q *db.Queries) error {
					_, err := q.GetObject(t.Context(), db.GetObjectParams{Kind: "a\x00b"})
					return err
				})
		})
		require.Equal(t, fleet.Invalid, fleet.KindOf(err), "%v", err)
		b.Put(`{"a":1}`)
	})
}
