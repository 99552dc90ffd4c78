package votefile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
)

var (
	me    = State{Site: "plant-1", Node: "plant-1-a"}
	voted = State{
		Site: "plant-1", Node: "plant-1-a",
		Record: lease.Record{
			Promised: 7, PromisedTo: "plant-1-b", Holder: "plant-1-a", Epoch: 6, Counter: 12, TTL: 3e9, Target: "plant-1-b",
		},
		Claim: lease.Claim{Epoch: 6, Counter: 12, Deadline: 1 << 60, Boot: "b"},
	}
)

// X21: what was promised is there after a restart, whole.
func TestSave(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), Name)
	require.NoError(t, Save(path, me))
	got, err := Load(path, me, Enrolled)
	require.NoError(t, err)
	require.Equal(t, me, got, "one that never voted")
	require.NoError(t, Save(path, voted))
	got, err = Load(path, me, Enrolled)
	require.NoError(t, err)
	require.Equal(t, voted, got)

	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary file stays")
}

// X21: a vote that cannot be read grants nothing.
func TestLoadLost(t *testing.T) {
	t.Parallel()
	whole := func(t *testing.T) []byte {
		path := filepath.Join(t.TempDir(), Name)
		require.NoError(t, Save(path, voted))
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		return raw
	}(t)
	load := func(t *testing.T, raw []byte, of State) (State, error) {
		path := filepath.Join(t.TempDir(), Name)
		require.NoError(t, os.WriteFile(path, raw, 0o600))
		return Load(path, of, Enrolled)
	}
	lost := func(t *testing.T, s State, err error) {
		require.Equal(t, fleet.Gone, fleet.KindOf(err), "%v", err)
		require.True(t, s.Record.Lost)
		require.Zero(t, s.Claim)
	}

	t.Run("missing, of a name that was enrolled before", func(t *testing.T) {
		s, err := Load(filepath.Join(t.TempDir(), Name), me, Enrolled)
		lost(t, s, err)
	})
	t.Run("missing at the first start is no loss", func(t *testing.T) {
		s, err := Load(filepath.Join(t.TempDir(), Name), me, First)
		require.NoError(t, err)
		require.Equal(t, me, s)
	})
	t.Run("cut off anywhere", func(t *testing.T) {
		for n := range whole {
			s, err := load(t, whole[:n], me)
			lost(t, s, err)
		}
	})
	t.Run("any byte changed", func(t *testing.T) {
		for i := range whole {
			raw := append([]byte(nil), whole...)
			raw[i] ^= 1
			s, err := load(t, raw, me)
			if err == nil { // only a change that JSON does not see may pass
				require.Equal(t, voted, s)
				continue
			}
			lost(t, s, err)
		}
	})
	t.Run("of another node", func(t *testing.T) {
		s, err := load(t, whole, State{Site: "plant-1", Node: "plant-1-b"})
		lost(t, s, err)
	})
	t.Run("whole, and impossible", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), Name)
		bad := voted
		bad.Record.Promised = 1 // below the epoch that it granted
		require.NoError(t, Save(path, bad))
		s, err := Load(path, me, Enrolled)
		lost(t, s, err)
	})
	t.Run("unreadable is an error and no loss", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), Name)
		require.NoError(t, os.Mkdir(path, 0o700))
		s, err := Load(path, me, Enrolled)
		require.Error(t, err)
		require.NotEqual(t, fleet.Gone, fleet.KindOf(err))
		require.Zero(t, s)
	})
}

// A save that fails leaves what was there.
func TestSaveFails(t *testing.T) {
	t.Parallel()
	require.Error(t, Save(filepath.Join(t.TempDir(), "gone", Name), voted))
	path := filepath.Join(t.TempDir(), Name)
	require.NoError(t, os.Mkdir(path, 0o700))
	require.Error(t, Save(path, voted), "cannot be put over a directory")
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary file stays")
}
