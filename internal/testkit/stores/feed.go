package stores

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// RaiseEra raises the era, as after a restored backup.
func (b *Bench) RaiseEra() postgres.Region {
	b.T.Helper()
	r, err := postgres.RaiseEra(b.Ctx(), b.URL, testkit.Region)
	require.NoError(b.T, err)
	return r
}

// Operation reads an operation.
func (b *Bench) Operation(id fleet.OperationID) postgres.Operation {
	b.T.Helper()
	o, err := b.GetOperation(b.Ctx(), id)
	require.NoError(b.T, err)
	return o
}

// Feed reads all that is committed after a cursor. Transactions of other tests hold the end
// back too, for their ids are of the whole cluster.
func (b *Bench) Feed(after postgres.Cursor) []postgres.Event {
	b.T.Helper()
	newest := Scan[int64](b, "SELECT coalesce(max(xid::text::bigint), 0) FROM events")
	Eventually(b.T, "the feed has passed all that is committed", func() bool {
		end, err := b.FeedEnd(b.Ctx())
		return err == nil && end.Xid >= newest
	})
	events, err := b.ReadFeed(b.Ctx(), after, 10_000)
	require.NoError(b.T, err)
	return events
}
