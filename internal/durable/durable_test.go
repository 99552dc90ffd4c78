package durable

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// X21: content is synced before anybody hears that it is there. A pipe takes what is written, and cannot be synced.
func TestWriteFileSyncs(t *testing.T) {
	t.Parallel()
	out, in, err := os.Pipe()
	require.NoError(t, err)
	require.ErrorIs(t, writeSynced(in, []byte("x")), unix.EINVAL)
	require.NoError(t, errors.Join(in.Close(), out.Close()))
}

func TestWriteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "votes.json")
	for _, content := range []string{"one", "two"} {
		require.NoError(t, WriteFile(path, []byte(content)))
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, content, string(raw))
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	require.NoError(t, os.MkdirAll(filepath.Join(dir, "taken", "x"), 0o700))
	require.ErrorContains(t, WriteFile(filepath.Join(dir, "taken"), nil), "put taken in place")
	require.Error(t, WriteFile(filepath.Join(dir, "missing", "votes.json"), nil))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 2, "no temporary file stays")
}
