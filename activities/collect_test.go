package activities

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// fakeCollector has so many pages of each kind, of ten rows; -1 is a kind that fails.
type fakeCollector struct {
	pages map[fleet.CollectedKind]int
	order []fleet.CollectedKind
}

var _ collector = (*fakeCollector)(nil)

func (f *fakeCollector) CollectPage(_ context.Context, kind fleet.CollectedKind, _ fleet.Retention) (int64, bool, error) {
	f.order = append(f.order, kind)
	if f.pages[kind] < 0 {
		return 0, false, fleet.Errorf(fleet.Internal, "broken")
	}
	if f.pages[kind] == 0 {
		return 0, false, nil
	}
	f.pages[kind]--
	return 10, f.pages[kind] > 0, nil
}

// now is the clock that the deadline of a context is of.
var now = time.Now //nolint:forbidigo // see above

func collected(t *testing.T, c *fakeCollector, limit time.Duration) (Collected, map[fleet.CollectedKind]int64, error) {
	t.Helper()
	counted := map[fleet.CollectedKind]int64{}
	s := &Sweeps{Collector: c, Now: now, Collected: func(kind fleet.CollectedKind, n int64) { counted[kind] += n }}
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	env.SetWorkerOptions(worker.Options{BackgroundActivityContext: ctx})
	env.RegisterActivity(s)
	value, err := env.ExecuteActivity(s.CollectGarbage)
	var out Collected
	if err == nil {
		require.NoError(t, value.Get(&out))
	}
	return out, counted, err
}

func TestCollectGarbage(t *testing.T) {
	t.Parallel()

	t.Run("takes a page of each kind in turn until there is no more", func(t *testing.T) {
		t.Parallel()
		c := &fakeCollector{pages: map[fleet.CollectedKind]int{fleet.CollectEvents: 3, fleet.CollectBodies: 2}}
		out, counted, err := collected(t, c, time.Hour)
		require.NoError(t, err)
		require.False(t, out.More)
		require.EqualValues(t, 30, out.Removed[fleet.CollectEvents])
		require.EqualValues(t, 20, out.Removed[fleet.CollectBodies])
		require.Equal(t, out.Removed, counted)
		require.Equal(t, append(fleet.CollectedKinds(), fleet.CollectEvents, fleet.CollectBodies, fleet.CollectEvents), c.order)
	})

	t.Run("goes on with the rest when one kind fails, and says so", func(t *testing.T) {
		t.Parallel()
		c := &fakeCollector{pages: map[fleet.CollectedKind]int{fleet.CollectDeliveries: -1, fleet.CollectChunks: 2}}
		_, counted, err := collected(t, c, time.Hour)
		require.ErrorContains(t, err, "broken")
		require.EqualValues(t, 20, counted[fleet.CollectChunks])
	})

	t.Run("ends in time and says that there is more", func(t *testing.T) {
		t.Parallel()
		c := &fakeCollector{pages: map[fleet.CollectedKind]int{fleet.CollectEvents: 3}}
		out, _, err := collected(t, c, collectSpare-time.Second)
		require.NoError(t, err)
		require.True(t, out.More)
		require.Empty(t, c.order)
	})

	t.Run("is bounded however much there is", func(t *testing.T) {
		t.Parallel()
		c := &fakeCollector{pages: map[fleet.CollectedKind]int{fleet.CollectEvents: 2 * collectTurns}}
		out, _, err := collected(t, c, time.Hour)
		require.NoError(t, err)
		require.True(t, out.More)
		require.EqualValues(t, 10*collectTurns, out.Removed[fleet.CollectEvents])
	})
}
