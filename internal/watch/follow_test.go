package watch

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// counted is a store of copies that counts what is applied.
type counted struct {
	copyStore
	applied int
}

func (c *counted) ApplyCopies(context.Context, fleet.CopySet) (fleet.CopiesApplied, error) {
	c.applied++
	return fleet.CopiesApplied{}, nil
}

// M47, X3: a snapshot whose size is not the number of its lines is refused, whether a line is missing or one is too many.
func TestSnapshotSize(t *testing.T) {
	t.Parallel()
	for lines, refused := range map[int64]bool{0: true, 1: true, 2: false, 3: true, 4: true} {
		store := &counted{}
		s := &received{snapshot: lines, f: &following{Follower: &Follower{Store: store, Now: func() time.Time { return time.Unix(0, 0) }}}}
		err := s.take(t.Context(), line{WatchLine: api.WatchLine{Type: api.WatchSnapshotSize, Count: 2}})
		if !refused {
			require.NoError(t, err, lines)
			require.Equal(t, 1, store.applied)
			continue
		}
		require.Equal(t, fleet.Invalid, fleet.KindOf(err), lines)
		require.ErrorContains(t, err, "of a snapshot whose size is 2")
		require.Zero(t, store.applied, lines)
	}
}

// restored is a region that was restored: it undid events of the era of a token from a number on.
type restored struct {
	Source
	undone int64
	keeps  error
	id     string
}

func (r restored) EraID(context.Context, int64) (string, error)      { return r.id, nil }
func (r restored) UndoneFrom(context.Context, string) (int64, error) { return r.undone, nil }
func (r restored) FeedKept(context.Context, postgres.Cursor) error   { return r.keeps }

// M31, M47: a watch resumes where it was only if its place is known, kept, and no event of its era was undone: the watcher may have
// what was undone without having come so far, by a comparison. Each reset names its reason.
func TestResume(t *testing.T) {
	t.Parallel()
	collected := fleet.Errorf(fleet.Gone, "the events were collected")
	filter := Filter{Owner: "eu"}
	at := token{filter.sum(), "id-1", postgres.Cursor{Era: 1, Seq: 7}}
	for name, row := range map[string]struct {
		source restored
		token  token
		reset  *api.WatchLine
	}{
		"at its place":                      {restored{id: "id-1"}, at, nil},
		"another filter":                    {restored{id: "id-1"}, token{"other", "id-1", at.at}, &api.WatchLine{Type: api.WatchHardReset, Reason: "other_filter"}},
		"collected":                         {restored{id: "id-1", keeps: collected}, at, &api.WatchLine{Type: api.WatchHardReset, Reason: "collected"}},
		"an era that is not known any more": {restored{id: "id-2", undone: 5}, at, &api.WatchLine{Type: api.WatchHardReset, Reason: "undone", Number: 5}},
		"what was undone later in its era":  {restored{id: "id-1", undone: 9}, at, &api.WatchLine{Type: api.WatchHardReset, Reason: "undone", Number: 9}},
		"collected, and undone":             {restored{id: "id-1", keeps: collected, undone: 9}, at, &api.WatchLine{Type: api.WatchHardReset, Reason: "collected", Number: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent []api.WatchLine
			s := &Stream{Source: row.source, Filter: filter, Send: func(lines []api.WatchLine) error { sent = append(sent, lines...); return nil }}
			resumes, err := s.resume(t.Context(), row.token.String())
			require.NoError(t, err)
			require.Equal(t, row.reset == nil, resumes)
			if row.reset == nil {
				require.Equal(t, []any{at.at, "id-1"}, []any{s.at, s.era})
				require.Empty(t, sent)
				return
			}
			require.Equal(t, []api.WatchLine{*row.reset}, sent)
		})
	}
}
