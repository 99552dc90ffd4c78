package node

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N98
func TestSwap(t *testing.T) {
	t.Parallel()
	write := func(m *many, n int64, config string) {
		m.next()
		m.add(press, n, config)
		m.mustRun()
		require.Equal(t, config, m.file(press))
	}
	begin := func(t *testing.T) (m *many, config, spare string) {
		m = batched(t, fleet.RoleActive)
		for n, text := range []string{"one", "a longer one", "two"} {
			write(m, int64(n+1), text)
		}
		dir := m.files.dir(press)
		return m, filepath.Join(dir, "config.json"), filepath.Join(dir, spareFile)
	}

	t.Run("lets the two files of an instance take turns", func(t *testing.T) {
		t.Parallel()
		m, config, spare := begin(t)
		one, two := fileID(t, config), fileID(t, spare)
		write(m, 4, "three")
		require.True(t, os.SameFile(two, fileID(t, config)))
		require.True(t, os.SameFile(one, fileID(t, spare)))
		right, err := m.files.matches(press, m.items[0].Revision.Content, 0)
		require.NoError(t, err)
		require.True(t, right)
	})
	t.Run("never changes what somebody reads", func(t *testing.T) {
		t.Parallel()
		m, config, _ := begin(t)
		reader, err := os.Open(config)
		require.NoError(t, err)
		defer reader.Close() //nolint:errcheck // read only
		write(m, 4, "three")
		write(m, 5, "four")
		text, err := io.ReadAll(reader)
		require.NoError(t, err)
		require.Equal(t, "two", string(text))
	})
	t.Run("never changes what somebody linked to", func(t *testing.T) {
		t.Parallel()
		m, config, _ := begin(t)
		kept := filepath.Join(m.dir, "kept")
		require.NoError(t, os.Link(config, kept))
		write(m, 4, "three")
		write(m, 5, "four")
		text, err := os.ReadFile(kept)
		require.NoError(t, err)
		require.Equal(t, "two", string(text))
	})
	t.Run("does not take over a mode, or follow a link", func(t *testing.T) {
		t.Parallel()
		m, config, spare := begin(t)
		require.NoError(t, os.Chmod(spare, 0o644))
		write(m, 4, "three")
		require.EqualValues(t, 0o600, fileID(t, config).Mode().Perm())
		other := filepath.Join(m.dir, "other")
		require.NoError(t, os.WriteFile(other, []byte("other"), 0o600))
		require.NoError(t, os.Remove(spare))
		require.NoError(t, os.Symlink(other, spare))
		write(m, 5, "four")
		text, err := os.ReadFile(other)
		require.NoError(t, err)
		require.Equal(t, "other", string(text))
	})
	t.Run("leaves nothing of what is deleted, and nothing at a start", func(t *testing.T) {
		t.Parallel()
		m, config, spare := begin(t)
		m.restart()
		require.NoFileExists(t, spare)
		write(m, 4, "three")
		write(m, 5, "four")
		m.next()
		m.add(press, 6, "", isDeleted)
		m.mustRun()
		require.NoDirExists(t, filepath.Dir(config))
	})
	t.Run("writes a config again that somebody removed", func(t *testing.T) {
		t.Parallel()
		m, config, _ := begin(t)
		require.NoError(t, os.Remove(config))
		write(m, 4, "three")
	})
}

func fileID(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Lstat(path)
	require.NoError(t, err)
	return info
}
