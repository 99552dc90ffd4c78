package postgres_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// X13: an error says which statement it was of, and what people may do about it, wherever that was sent; what the code itself gives up
// does not blame the database.
func TestStatementsNameThemselves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	none := db.GetObjectParams{Kind: "pool", Name: "none"}
	inTx := func(f func(q *db.Queries) error) error { return b.Tx(t.Context(), f) }
	ended, end := context.WithCancel(t.Context())
	end()
	for name, row := range map[string]struct {
		err  error
		kind fleet.Kind
		says string
	}{
		"no row, of the pool":      {func() error { _, err := b.Q.GetObject(t.Context(), none); return err }(), fleet.NotFound, "the database has no such row (GetObject)"},
		"no row, of a transaction": {inTx(func(q *db.Queries) error { _, err := q.GetObject(t.Context(), none); return err }), fleet.NotFound, "the database has no such row (GetObject)"},
		"refused, of the pool":     {func() error { _, err := b.Q.GetObject(t.Context(), db.GetObjectParams{Kind: "a\x00b"}); return err }(), fleet.Invalid, "a text with a zero byte (no text may have one)"},
		"ended":                    {func() error { _, err := b.Q.GetObject(ended, none); return err }(), fleet.Unavailable, "the database does not answer now (GetObject)"},
		"before it began":          {b.Tx(ended, func(*db.Queries) error { return nil }), fleet.Unavailable, "the database does not answer now (begin)"},
		"the context of the code":  {inTx(func(*db.Queries) error { return context.Canceled }), fleet.Unavailable, "the database does not answer now (transaction)"},
		"the code":                 {inTx(func(*db.Queries) error { return json.Unmarshal([]byte(`"secret`), &struct{}{}) }), fleet.Internal, "a transaction was given up"},
		"known":                    {inTx(func(*db.Queries) error { return fleet.Errorf(fleet.Denied, "no") }), fleet.Denied, "no"},
		"stored":                   {postgres.Unreadable("a thing", json.Unmarshal([]byte(`"secret`), &struct{}{})), fleet.Internal, "cannot read a thing as it is stored"},
	} {
		require.Equal(t, row.kind, fleet.KindOf(row.err), name)
		require.EqualError(t, row.err, row.says, name)
	}
	_, err := b.Q.GetObject(t.Context(), none)
	require.True(t, postgres.NoRows(err))
	require.ErrorIs(t, postgres.NoRow("X"), pgx.ErrNoRows)
	stores.Refused(t, fleet.NotFound, postgres.NoRow("X"))
	require.NoError(t, postgres.Unreadable("a thing", nil))
}
