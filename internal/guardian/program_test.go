package guardian

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// openDir is a directory that every user may search.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast-open-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// tool writes a script that says where it is.
func tool(t *testing.T, dir, interpreter string, mode os.FileMode) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	path := filepath.Join(dir, "tool")
	require.NoError(t, os.WriteFile(path, []byte("#!"+interpreter+"\necho ran "+path+"\nexec /bin/sleep 1000\n"), 0o600))
	require.NoError(t, os.Chmod(path, mode))
	return path
}

// X10: a command without a slash is looked up as the user of the project.
func TestLookUp(t *testing.T) {
	t.Parallel()
	closed := func(t *testing.T) string { return filepath.Join(t.TempDir(), "bin") } // its parent has mode 0700
	for name, c := range map[string]struct {
		passed func(t *testing.T) string // the folder of PATH before the good one
		why    string
	}{
		"a folder that the user may not search": {func(t *testing.T) string {
			return filepath.Dir(tool(t, closed(t), "/bin/sh", 0o755))
		}, "user 2000065000 may not search /"},
		"a program of another user": {func(t *testing.T) string {
			return filepath.Dir(tool(t, filepath.Join(openDir(t), "bin"), "/bin/sh", 0o700))
		}, "user 2000065000 may not execute it, which belongs to user 0, mode 0700"},
		"a script whose interpreter the user may not execute": {func(t *testing.T) string {
			return filepath.Dir(tool(t, filepath.Join(openDir(t), "bin"), tool(t, closed(t), "/bin/sh", 0o755), 0o755))
		}, "its interpreter /"},
		"a script without its interpreter": {func(t *testing.T) string {
			return filepath.Dir(tool(t, filepath.Join(openDir(t), "bin"), "/no/such", 0o755))
		}, "its interpreter /no/such is missing"},
		"a link to such a program": {func(t *testing.T) string {
			dir := openDir(t)
			require.NoError(t, os.Symlink(tool(t, closed(t), "/bin/sh", 0o755), filepath.Join(dir, "tool")))
			return dir
		}, "user 2000065000 may not search /"},
		"a file that is not executable": {func(t *testing.T) string {
			return filepath.Dir(tool(t, filepath.Join(openDir(t), "bin"), "/bin/sh", 0o644))
		}, "it is not executable, mode 0644"},
		"what is hidden": {nil, "the node's data directory is hidden from commands"},
	} {
		t.Run("passes over "+name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			spec, _ := confined(t, "")
			if c.passed == nil {
				hide := openDir(t)
				spec.Hide, spec.Dir = hide, filepath.Join(hide, "instances", "line-7")
				require.NoError(t, os.MkdirAll(spec.Dir, 0o755))
				require.NoError(t, os.Chown(spec.Dir, other, other))
				c.passed = func(t *testing.T) string { return filepath.Dir(tool(t, filepath.Join(hide, "bin"), "/bin/sh", 0o755)) }
			}
			passed, good := c.passed(t), openDir(t)
			spec.Run.Command, spec.Run.StartSeconds = []string{"tool"}, 20
			spec.Run.Env = map[string]string{"PATH": passed + "::relative:" + good}
			_, err := r.Start(t.Context(), spec)
			require.Equal(t, fleet.ApplyFailed, fleet.KindOf(err), "%v", err)
			require.ErrorContains(t, err, `program "tool" not found in `+passed+":"+good+":/usr/local/sbin:")
			require.ErrorContains(t, err, "passed over: "+passed+"/tool (")
			require.ErrorContains(t, err, c.why)
			require.ErrorContains(t, err, "install it where user 2000065000 may execute it, for example in /usr/local/bin")

			path := tool(t, good, "/bin/sh", 0o755)
			spec.Run.StartSeconds = 0.05
			start(t, r, spec)
			require.Equal(t, "ran "+path+"\n", printed(t, r, "\n"))

			require.NoError(t, r.Stop(t.Context(), "line-7"))
			spec.Run.Command = []string{filepath.Join(passed, "tool")}
			_, err = r.Start(t.Context(), spec)
			require.ErrorContains(t, err, "execute "+passed+"/tool: ")
			require.ErrorContains(t, err, c.why)
		})
	}
	t.Run("ends in the system's path", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec := shell(t, "exec /bin/sleep 1000")
		spec.Env = []string{"PATH=/no/such"}
		require.True(t, start(t, r, spec).Running)
	})
}

// X10: the agent's own program has a name, wherever it is; a program of that name in PATH comes first.
func TestOwnProgram(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.OwnName = "tool"
	spec, _ := confined(t, "")
	good := openDir(t)
	spec.Run.Command, spec.Run.Env = []string{"tool", "greet"}, map[string]string{"PATH": good}
	start(t, r, spec)
	require.Equal(t, "tool greets as 2000065000\n", printed(t, r, "\n"))
	require.NoError(t, r.Stop(t.Context(), "line-7"))
	path := tool(t, good, "/bin/sh", 0o755)
	start(t, r, spec)
	require.Equal(t, "ran "+path+"\n", printed(t, r, "ran "+path+"\n")[len("tool greets as 2000065000\n"):])
	r.OwnName = ""
	require.NoError(t, r.Stop(t.Context(), "line-7"))
	require.NoError(t, os.Remove(path))
	_, err := r.Start(t.Context(), spec)
	require.ErrorContains(t, err, `program "tool" not found in `)
}
