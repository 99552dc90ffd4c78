package link

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// crowded is a crowd whose batches wait until they are let through.
type crowded struct {
	*crowd[string, string]
	t       *testing.T
	begun   chan []string // the batches, as they begin
	through chan error    // how each ends
}

func newCrowded(t *testing.T, most int, key func(string) string) *crowded {
	t.Helper()
	c := &crowded{t: t, begun: make(chan []string, 100), through: make(chan error, 100)}
	c.crowd = newCrowd(most, key, func(ctx context.Context, all []string) ([]string, error) {
		c.begun <- all
		select {
		case err := <-c.through:
			return all, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	c.sizes = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "sizes"})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return c
}

// busy has all workers at work with one call each; what comes then waits.
func (c *crowded) busy() {
	c.t.Helper()
	for i := range crowdWorkers {
		c.asks(c.t.Context(), fmt.Sprint("busy-", i), "busy")
		require.Equal(c.t, []string{"busy"}, c.batch())
	}
}

// asks joins at once and gives what the call is answered with.
func (c *crowded) asks(ctx context.Context, who, in string) <-chan error {
	c.t.Helper()
	before := c.count()
	idle := len(c.begun)
	out := make(chan error, 1)
	go func() {
		got, err := c.ask(ctx, who, in)
		if err == nil && got != in {
			err = errors.New("the answer is another one's")
		}
		out <- err
	}()
	require.Eventually(c.t, func() bool { return c.count() > before || len(c.begun) > idle }, time.Minute, time.Millisecond)
	return out
}

func (c *crowded) batch() []string {
	c.t.Helper()
	select {
	case all := <-c.begun:
		return all
	case <-time.After(time.Minute):
		require.FailNow(c.t, "no batch began")
		return nil
	}
}

func (c *crowded) answered(out <-chan error) error {
	c.t.Helper()
	select {
	case err := <-out:
		return err
	case <-time.After(time.Minute):
		require.FailNow(c.t, "no answer came")
		return nil
	}
}

func TestCrowd(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	t.Run("serves what came meanwhile together, in turns by who calls", func(t *testing.T) {
		t.Parallel()
		c := newCrowded(t, 4, nil)
		c.busy()
		var all []<-chan error
		for i := range 6 {
			all = append(all, c.asks(ctx, "many", fmt.Sprint("many-", i)))
		}
		all = append(all, c.asks(ctx, "one", "one-0"), c.asks(ctx, "two", "two-0"))
		c.through <- nil
		require.Equal(t, []string{"many-0", "one-0", "two-0", "many-1"}, c.batch())
		c.through <- nil
		c.through <- nil
		require.Equal(t, []string{"many-2", "many-3", "many-4", "many-5"}, c.batch())
		c.through <- nil
		for _, out := range all {
			require.NoError(t, c.answered(out))
		}
		require.Zero(t, c.count())
	})
	t.Run("has one of a kind in a batch, and the next in the next", func(t *testing.T) {
		t.Parallel()
		c := newCrowded(t, 10, func(in string) string { return in })
		c.busy()
		first, second := c.asks(ctx, "a", "x"), c.asks(ctx, "a", "x")
		other := c.asks(ctx, "b", "y")
		c.through <- nil
		require.Equal(t, []string{"x", "y"}, c.batch())
		c.through <- nil
		require.Equal(t, []string{"x"}, c.batch())
		c.through <- nil
		c.through <- nil
		for _, out := range []<-chan error{first, second, other} {
			require.NoError(t, c.answered(out))
		}
	})
	t.Run("serves nobody who has gone", func(t *testing.T) {
		t.Parallel()
		c := newCrowded(t, 10, nil)
		c.busy()
		impatient, cancel := context.WithCancel(ctx)
		gone, stays := c.asks(impatient, "a", "gone"), c.asks(ctx, "b", "stays")
		cancel()
		require.Equal(t, fleet.Unavailable, fleet.KindOf(c.answered(gone)))
		c.through <- nil
		require.Equal(t, []string{"stays"}, c.batch())
		c.through <- nil
		c.through <- nil
		require.NoError(t, c.answered(stays))
	})
	t.Run("serves each by itself when one spoils the batch", func(t *testing.T) {
		t.Parallel()
		c := newCrowded(t, 10, nil)
		c.busy()
		good, bad := c.asks(ctx, "a", "good"), c.asks(ctx, "b", "bad")
		c.through <- nil
		require.Equal(t, []string{"good", "bad"}, c.batch())
		c.through <- nil
		spoilt := fleet.Errorf(fleet.Internal, "one of them")
		c.through <- spoilt
		alone := [][]string{c.batch()}
		c.through <- nil
		alone = append(alone, c.batch())
		c.through <- spoilt
		require.Equal(t, [][]string{{"good"}, {"bad"}}, alone)
		require.NoError(t, c.answered(good))
		require.ErrorIs(t, c.answered(bad), spoilt)
	})
	t.Run("serves nobody by itself who has gone while the batch was spoilt", func(t *testing.T) {
		t.Parallel()
		c := newCrowded(t, 10, nil)
		c.busy()
		impatient, cancel := context.WithCancel(ctx)
		gone, stays := c.asks(impatient, "a", "gone"), c.asks(ctx, "b", "stays")
		c.through <- nil
		require.Equal(t, []string{"gone", "stays"}, c.batch())
		cancel()
		require.Equal(t, fleet.Unavailable, fleet.KindOf(c.answered(gone)))
		c.through <- nil
		c.through <- fleet.Errorf(fleet.Internal, "one of them")
		require.Equal(t, []string{"stays"}, c.batch())
		c.through <- nil
		require.NoError(t, c.answered(stays))
	})
	t.Run("asks an absent database once for all", func(t *testing.T) {
		t.Parallel()
		c := newCrowded(t, 10, nil)
		c.busy()
		one, two := c.asks(ctx, "a", "1"), c.asks(ctx, "b", "2")
		c.through <- nil
		require.Equal(t, []string{"1", "2"}, c.batch())
		c.through <- nil
		c.through <- fleet.Errorf(fleet.Unavailable, "away")
		require.Equal(t, fleet.Unavailable, fleet.KindOf(c.answered(one)))
		require.Equal(t, fleet.Unavailable, fleet.KindOf(c.answered(two)))
		require.Empty(t, c.begun)
	})
	t.Run("turns away what is too much", func(t *testing.T) {
		t.Parallel()
		c := newCrowd(1, nil, func(context.Context, []string) ([]string, error) { return nil, nil })
		c.waiting = crowdRoom
		_, err := c.ask(ctx, "a", "1")
		require.Equal(t, fleet.Unavailable, fleet.KindOf(err))
		require.Empty(t, c.turns)
	})
}

// Whatever comes, all are answered, each with its own, and none before it came.
func TestCrowdUnderLoad(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	came := map[int]bool{}
	c := newCrowd(7, nil, func(_ context.Context, all []int) ([]int, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, n := range all {
			if !came[n] {
				return nil, errors.New("served before it came")
			}
		}
		return slices.Clone(all), nil
	})
	c.sizes = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "sizes"})
	ctx, cancel := context.WithCancel(t.Context())
	var run, wg sync.WaitGroup
	run.Go(func() { _ = c.run(ctx) })
	for n := range 2000 {
		wg.Go(func() {
			mu.Lock()
			came[n] = true
			mu.Unlock()
			got, err := c.ask(ctx, fmt.Sprint(n%13), n)
			if err != nil || got != n {
				t.Errorf("call %d was answered %d, %v", n, got, err)
			}
		})
	}
	wg.Wait()
	cancel()
	run.Wait()
	require.Empty(t, c.turns)
	require.Empty(t, c.queues)
}
