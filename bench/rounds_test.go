package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInTurn(t *testing.T) {
	t.Parallel()
	l := &lab{}
	t.Run("begins with the other side in every second round", func(t *testing.T) {
		t.Parallel()
		order := ""
		side := func(name string, times float64) turn {
			return func(_ context.Context, round int) (float64, error) {
				order += name
				return times * float64(round+1), nil
			}
		}
		s, err := l.inTurn(t.Context(), side("A", 2), side("B", 1))
		require.NoError(t, err)
		require.Equal(t, "ABBAABBAAB", order)
		require.Equal(t, series{ours: []float64{2, 4, 6, 8, 10}, plain: []float64{1, 2, 3, 4, 5}}, s)
		require.Equal(t, []float64{2, 2, 2, 2, 2}, s.ratios(), "each of its own round")
		require.Equal(t, []float64{1, 2, 3, 4, 5}, s.differences())
	})
	t.Run("ends with what failed", func(t *testing.T) {
		t.Parallel()
		lost, calls := errors.New("lost"), 0
		fail := func(context.Context, int) (float64, error) { calls++; return 0, lost }
		_, err := l.inTurn(t.Context(), fail, fail)
		require.ErrorIs(t, err, lost)
		require.Equal(t, 1, calls)
	})
}

func TestMedian(t *testing.T) {
	t.Parallel()
	require.Zero(t, median(nil))
	require.InDelta(t, 3, median([]float64{9, 3, 1}), 0)
	require.InDelta(t, 2.5, median([]float64{4, 1, 3, 2}), 0)
	given := []float64{2, 1}
	require.InDelta(t, 1.5, median(given), 0)
	require.Equal(t, []float64{2, 1}, given, "the rounds keep their order")
}

func TestFixedConfigIsTheSameInEachRun(t *testing.T) {
	t.Parallel()
	require.Equal(t, "5d8817e46b703f18", string(hashOf(fixedConfig(configSize, loopText)))[:16])
}
