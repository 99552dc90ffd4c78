package guardian

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	t.Run("counts fields after a name that looks like some", func(t *testing.T) {
		t.Parallel()
		e, err := parseStat(7, []byte("7 (a) Z 1 2 (x)) S 3 4 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99 0"))
		require.NoError(t, err)
		require.Equal(t, entry{process: process{PID: 7, Start: 99}, Parent: 3, Group: 4, Session: 5}, e)
	})
	t.Run("takes a process for dead only when all of its threads are", func(t *testing.T) {
		t.Parallel()
		for threads, zombie := range map[string]bool{"1": true, "2": false} {
			e, err := parseStat(7, []byte("7 (a) Z 3 4 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 "+threads+" 0 99 0"))
			require.NoError(t, err)
			require.Equal(t, zombie, e.Zombie)
		}
	})
	t.Run("refuses a line that is cut off", func(t *testing.T) {
		t.Parallel()
		_, err := parseStat(7, []byte("7 (a) S 1 2"))
		require.Error(t, err)
	})
}
