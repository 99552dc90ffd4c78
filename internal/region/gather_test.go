package region

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// crowdFake counts what is woken.
type crowdFake struct {
	mu      sync.Mutex
	waiting int
	single  []string
	sites   chan fleet.SiteName
}

func (c *crowdFake) Waiting(context.Context, fleet.SiteName, int) (int, error) { return c.waiting, nil }

func (c *crowdFake) Wake(_ context.Context, subject string) error {
	if kind, names, _ := fleet.ParseSubject(subject); kind == fleet.EntityDeliver {
		c.sites <- fleet.SiteName(names[0])
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.single = append(c.single, subject)
	return nil
}

// N98, X2
func TestCrowdWaker(t *testing.T) {
	t.Parallel()
	setup := func(waiting int) (*crowdWaker, *crowdFake) {
		f := &crowdFake{waiting: waiting, sites: make(chan fleet.SiteName, 10)}
		return &crowdWaker{store: f, flows: f, log: slog.New(slog.DiscardHandler)}, f
	}
	wake := func(t *testing.T, w *crowdWaker, n int) {
		t.Helper()
		for range n {
			require.NoError(t, w.Wake(t.Context(), "instance.plant-1.press-7"))
		}
	}
	t.Run("wakes each entity while few wait", func(t *testing.T) {
		t.Parallel()
		w, f := setup(decide.Crowd - 1)
		wake(t, w, 20)
		require.Len(t, f.single, 20)
		require.Empty(t, f.sites)
	})
	t.Run("asks once for all that come together where many wait", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { // its clock moves only while everybody waits
			w, f := setup(decide.Crowd)
			wake(t, w, 20)
			require.EqualValues(t, "plant-1", <-f.sites)
			wake(t, w, 1)
			require.EqualValues(t, "plant-1", <-f.sites, "who comes later is asked for again, however much later")
			require.Empty(t, f.single)
			require.Empty(t, f.sites)
		})
	})
	t.Run("leaves others than instances alone", func(t *testing.T) {
		t.Parallel()
		w, f := setup(decide.Crowd)
		for range 20 {
			require.NoError(t, w.Wake(t.Context(), "fleet.press-v7"))
		}
		require.Len(t, f.single, 20)
	})
}
