package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestControl(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (string, *supervisor) {
		t.Helper()
		dir := filepath.Join(t.TempDir(), strings.Repeat("a-long-name-", 12), strings.Repeat("b", 100))
		require.NoError(t, os.MkdirAll(dir, 0o700))
		s, _ := newTestSupervisor(t)
		s.add(shellSpec(t, "plant-1-a", sleeper))
		c, err := serveControl(dir, s, nil)
		require.NoError(t, err)
		t.Cleanup(c.close)
		return dir, s
	}
	steerIt := func(args ...string) (int, string) {
		var out bytes.Buffer
		code := run(args, &out, &out)
		return code, out.String()
	}
	t.Run("lists, stops and starts by name, also under a very long path", func(t *testing.T) {
		t.Parallel()
		dir, s := setup(t)
		code, out := steerIt("start", "plant-1-a", "--data", dir)
		require.Equal(t, exitOK, code, out)
		require.Regexp(t, `plant-1-a +running +\d+ +1 +\d+s`, out)
		pid := s.views()[0].PID
		code, out = steerIt("stop", "plant-1-a", "--data", dir)
		require.Equal(t, exitOK, code, out)
		require.False(t, alive(pid))
		code, out = steerIt("--data", dir, "ps")
		require.Equal(t, exitOK, code, out)
		require.Regexp(t, `plant-1-a +stopped +0 +1`, out)
	})
	t.Run("names what there is when the name is wrong", func(t *testing.T) {
		t.Parallel()
		dir, _ := setup(t)
		code, out := steerIt("stop", "plant-9-z", "--data", dir)
		require.Equal(t, exitFailed, code)
		require.Contains(t, out, `process "plant-9-z" not found (use one of plant-1-a)`)
	})
	t.Run("is for the owner only", func(t *testing.T) {
		t.Parallel()
		dir, _ := setup(t)
		info, err := os.Stat(filepath.Join(dir, controlSocket))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(socketMode), info.Mode().Perm())
	})
	t.Run("a region that ends at once leaves its neighbour's socket alone", func(t *testing.T) {
		t.Parallel()
		for range 200 {
			ended, err := serveControl(t.TempDir(), nil, nil)
			require.NoError(t, err)
			ended.close()
			dir, err := os.MkdirTemp(t.TempDir(), "")
			require.NoError(t, err)
			next, err := serveControl(dir, nil, nil)
			require.NoError(t, err)
			runtime.Gosched()
			require.FileExists(t, filepath.Join(dir, controlSocket))
			next.close()
			require.NoFileExists(t, filepath.Join(dir, controlSocket))
		}
	})
	t.Run("says that no region runs", func(t *testing.T) {
		t.Parallel()
		for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "missing")} {
			code, out := steerIt("ps", "--data", dir)
			require.Equal(t, exitFailed, code)
			require.Contains(t, out, "no region runs on "+dir)
		}
	})
}
