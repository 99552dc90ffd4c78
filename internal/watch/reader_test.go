package watch

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/postgres"
)

// oneByOne is a feed that has one more event at each reading.
type oneByOne struct{ last int64 }

func (f *oneByOne) ReadFeed(_ context.Context, after postgres.Cursor, _ int32) ([]postgres.Event, error) {
	f.last = after.Seq + 1
	return []postgres.Event{{Cursor: postgres.Cursor{Seq: f.last}}}, nil
}

func (*oneByOne) FeedEnd(context.Context) (postgres.Cursor, error) { return postgres.Cursor{}, nil }

func (*oneByOne) FeedHeldBack(context.Context) (time.Duration, error) { return 0, nil }

// M3, X24: what a reader keeps is bounded, and one more event does not cost what all of them do. Not parallel: it counts what the process
// allocates.
func TestReaderKeepsTheNewest(t *testing.T) {
	const events = 20 * keptEvents
	feed := &oneByOne{}
	r := NewReader(feed, time.Hour)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range events {
		require.False(t, r.read(t.Context()))
		require.LessOrEqual(t, len(r.kept), 2*keptEvents)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)/events, uint64(8<<10), "bytes for each event")

	rows, _, err := r.after(t.Context(), postgres.Cursor{Seq: events - keptEvents}, false)
	require.NoError(t, err)
	require.Len(t, rows, readAtOnce)
	require.EqualValues(t, events-keptEvents+1, rows[0].Cursor.Seq)

	rows, _, err = r.after(t.Context(), postgres.Cursor{Seq: 1}, false)
	require.NoError(t, err)
	require.EqualValues(t, 2, rows[0].Cursor.Seq, "what is kept no more is read again")

	rows, _, err = r.after(t.Context(), postgres.Cursor{Seq: events}, false)
	require.NoError(t, err)
	require.Empty(t, rows)
	rows, _, err = r.after(t.Context(), postgres.Cursor{Seq: events}, true)
	require.NoError(t, err)
	require.Len(t, rows, 1, "what is to be fresh is read now")
}
