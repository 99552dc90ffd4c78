package node

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// N96
func TestStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // its clock moves only while everybody waits
		ctx, s := newStall(t.Context(), 10*time.Second)
		defer s.stop()
		moved := 0
		pause := 9 * time.Second
		body := s.watch(readFunc(func(p []byte) (int, error) {
			select {
			case <-time.After(pause):
				return copy(p, "x"), nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}), func() { moved++ })
		for range 10 { // a slow body that moves is not cut, however long it takes
			_, err := io.ReadFull(body, make([]byte, 1))
			require.NoError(t, err)
		}
		require.Equal(t, 10, moved)
		pause = time.Minute
		begun := time.Now()
		_, err := io.ReadFull(body, make([]byte, 1))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 10*time.Second, time.Since(begun))
		require.ErrorIs(t, s.explain(err), errStalled)
		require.NoError(t, s.explain(nil))
	})
}
