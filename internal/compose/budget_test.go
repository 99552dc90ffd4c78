package compose_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// hold takes a share until the returned func is called; started says that it has it.
func hold(ctx context.Context, b *compose.Budget, bytes int64) (started <-chan struct{}, release func()) {
	begun, end := make(chan struct{}), make(chan struct{})
	go func() {
		_ = b.Do(ctx, bytes, func() error {
			close(begun)
			<-end
			return nil
		})
	}()
	return begun, func() { close(end) }
}

func runs(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	t.Run("lets in what fits and makes the rest wait in order", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := compose.NewBudget(100)
			first, releaseFirst := hold(t.Context(), b, 60)
			require.True(t, runs(first))
			second, releaseSecond := hold(t.Context(), b, 40)
			require.True(t, runs(second))
			large, releaseLarge := hold(t.Context(), b, 90)
			require.False(t, runs(large))
			small, releaseSmall := hold(t.Context(), b, 1)
			require.False(t, runs(small), "it must not starve the large one")
			releaseFirst()
			require.False(t, runs(large))
			releaseSecond()
			require.True(t, runs(large))
			require.True(t, runs(small))
			releaseLarge()
			releaseSmall()
		})
	})
	t.Run("runs what is larger than itself alone", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := compose.NewBudget(100)
			huge, releaseHuge := hold(t.Context(), b, 1<<40)
			require.True(t, runs(huge))
			other, releaseOther := hold(t.Context(), b, 1)
			require.False(t, runs(other))
			releaseHuge()
			require.True(t, runs(other))
			releaseOther()
		})
	})
	t.Run("gives up with its context and does not call", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := compose.NewBudget(1)
			first, release := hold(t.Context(), b, 1)
			require.True(t, runs(first))
			ctx, cancel := context.WithCancel(t.Context())
			answer := make(chan error, 1)
			go func() {
				answer <- b.Do(ctx, 1, func() error { return errors.New("called") })
			}()
			synctest.Wait()
			cancel()
			err := <-answer
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, fleet.Unavailable, fleet.KindOf(err))
			release()
		})
	})
	t.Run("gives back its share and the error when the work fails", func(t *testing.T) {
		t.Parallel()
		b := compose.NewBudget(10)
		bad := errors.New("bad")
		for range 3 {
			require.ErrorIs(t, b.Do(t.Context(), 10, func() error { return bad }), bad)
		}
	})
}
