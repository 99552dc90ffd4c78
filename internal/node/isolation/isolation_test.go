package isolation_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/node/isolation"
)

const first = 2_000_060_000

// begun is the isolation of a node, as its agent has it after a start.
func begun(t *testing.T, dir string, uids int) *isolation.Isolation {
	t.Helper()
	i := isolation.New(isolation.Options{Dir: dir, Range: isolation.Range{First: first, Last: first + uids - 1}})
	require.NoError(t, i.Begin())
	require.Empty(t, i.Why())
	require.Equal(t, fleet.SeparationUID, i.Separation())
	return i
}

func rootOnly(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
}

// uidOf is the user of a project's commands.
func uidOf(t *testing.T, i *isolation.Isolation, project fleet.ProjectName) int {
	t.Helper()
	c, err := i.User(project)
	require.NoError(t, err)
	return c.UID
}

func owner(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Lstat(path)
	require.NoError(t, err)
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

// X10: each project has one uid for ever, and no other project gets it.
func TestUIDs(t *testing.T) {
	t.Parallel()
	rootOnly(t)
	t.Run("stay over restarts, and none is given twice", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		i := begun(t, dir, 3)
		require.Equal(t, first, uidOf(t, i, "red"))
		require.Equal(t, first+1, uidOf(t, i, "blue"))
		again := begun(t, dir, 3)
		require.Equal(t, first+1, uidOf(t, again, "blue"))
		require.Equal(t, first, uidOf(t, again, "red"))
		require.Equal(t, first+2, uidOf(t, again, "green"))
		_, err := again.User("grey")
		require.Equal(t, fleet.IsolationMissing, fleet.KindOf(err))
		require.ErrorContains(t, err, "--uid-range")
	})
	t.Run("one that owns something is not given to another, also when the record is lost", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		work := filepath.Join(dir, "instances", "line-7")
		require.NoError(t, os.MkdirAll(work, 0o700))
		require.NoError(t, isolation.Give(work, uidOf(t, begun(t, dir, 3), "red")))
		require.NoError(t, os.Remove(filepath.Join(dir, isolation.File)))
		require.Equal(t, first+1, uidOf(t, begun(t, dir, 3), "blue"))
	})
	t.Run("a damaged record is not guessed", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{`{"uids":{"red":7`, `{"uids":{"red":7,"blue":7}}`, `{"uids":{"red":0}}`} {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, isolation.File), []byte(text), 0o600))
			err := isolation.New(isolation.Options{Dir: dir}).Begin()
			require.Equal(t, fleet.IllegalState, fleet.KindOf(err), text)
		}
	})
}

// X10: without uids a node runs the commands of its site's project alone.
func TestNoIsolation(t *testing.T) {
	t.Parallel()
	i := isolation.New(isolation.Options{Dir: t.TempDir(), Off: true})
	require.NoError(t, i.Begin())
	require.Contains(t, i.Why(), "--isolation=none")
	require.Equal(t, fleet.SeparationNone, i.Separation())
	i.Site = func() fleet.ProjectName { return fleet.DefaultProject }
	require.Zero(t, uidOf(t, i, fleet.DefaultProject))
	_, err := i.User("red")
	require.Equal(t, fleet.IsolationMissing, fleet.KindOf(err))
}

// X10: what has another name may be somebody else's, and stays.
func TestGive(t *testing.T) {
	t.Parallel()
	rootOnly(t)
	dir := t.TempDir()
	work, secret := filepath.Join(dir, "work"), filepath.Join(dir, "node.key")
	require.NoError(t, os.MkdirAll(filepath.Join(work, "sub"), 0o755))
	for _, path := range []string{secret, filepath.Join(work, "sub", "file")} {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	require.NoError(t, os.Link(secret, filepath.Join(work, "hard")))
	require.NoError(t, os.Symlink(secret, filepath.Join(work, "soft")))
	require.NoError(t, isolation.Give(work, first))
	for _, path := range []string{work, filepath.Join(work, "sub"), filepath.Join(work, "sub", "file"), filepath.Join(work, "soft")} {
		require.Equal(t, first, owner(t, path), path)
	}
	require.Zero(t, owner(t, secret))
	info, err := os.Stat(work)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	require.NoError(t, os.WriteFile(filepath.Join(work, "sub", "new"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(work, "left"), nil, 0o600))
	require.NoError(t, isolation.Give(work, first, "sub/new", "hard"))
	require.Equal(t, first, owner(t, filepath.Join(work, "sub", "new")))
	require.Zero(t, owner(t, filepath.Join(work, "left")), "only what is named, where the directory is its own")
	require.Zero(t, owner(t, secret))
	require.NoError(t, isolation.Give(work, 0))
	require.Zero(t, owner(t, filepath.Join(work, "sub", "new")), "back to the agent")
}

func TestRange(t *testing.T) {
	t.Parallel()
	r := isolation.DefaultRange()
	require.NoError(t, r.Set("7-9"))
	require.Equal(t, "7-9", r.String())
	for _, bad := range []string{"", "7", "0-9", "9-7", "a-b", "1-2147483648", "-1-5"} {
		require.Equal(t, fleet.Invalid, fleet.KindOf(r.Set(bad)), bad)
	}
}
