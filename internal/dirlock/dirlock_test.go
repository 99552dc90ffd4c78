package dirlock

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestTake(t *testing.T) {
	t.Parallel()
	t.Run("is had by one at a time, and says by whom", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		first, err := Take(dir)
		require.NoError(t, err)
		_, err = Take(dir)
		var held *HeldError
		require.ErrorAs(t, err, &held)
		require.Equal(t, strconv.Itoa(os.Getpid()), held.Process)
		require.NoError(t, first.Close())
		second, err := Take(dir)
		require.NoError(t, err)
		require.NoError(t, second.Close())
	})
	t.Run("waits for a child that is being started, which has a copy for a moment", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		first, err := Take(dir)
		require.NoError(t, err)
		child, err := unix.Dup(int(first.Fd()))
		require.NoError(t, err)
		require.NoError(t, first.Close())
		taken := make(chan error, 1)
		go func() {
			second, err := Take(dir)
			if err == nil {
				err = second.Close()
			}
			taken <- err
		}()
		require.NoError(t, unix.Close(child))
		require.NoError(t, <-taken)
	})
	t.Run("needs the directory", func(t *testing.T) {
		t.Parallel()
		_, err := Take(t.TempDir() + "/missing")
		require.ErrorIs(t, err, os.ErrNotExist)
	})
}
