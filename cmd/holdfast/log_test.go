package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X10
func TestLog(t *testing.T) {
	t.Parallel()

	t.Run("of a long-running process names causes", func(t *testing.T) {
		t.Parallel()
		var stderr bytes.Buffer
		c := &cli{process: process{stderr: &stderr}}
		err := logEnd(c.log(), &fleet.Error{Kind: fleet.Unavailable, Message: "read node", Err: errors.New("no route to host")})
		require.Equal(t, "read node", err.Error())
		require.Contains(t, stderr.String(), `"err":"read node: no route to host"`)
		stderr.Reset()
		require.NoError(t, logEnd(c.log(), nil))
		require.Empty(t, stderr.String())
	})

	t.Run("says why a server does not start", func(t *testing.T) {
		t.Parallel()
		got := newShell(t, nil).run("server", "--database-url", "postgres://%zz")
		require.Equal(t, exitOfKind[fleet.Invalid], got.code)
		require.Contains(t, got.stderr, `"msg":"ended"`)
		require.NotContains(t, got.stderr, "%zz")

		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tgi.json"), []byte(`{"stopSeconds":"x"}`), 0o600))
		got = newShell(t, nil).run("server", "--definitions", dir)
		require.Equal(t, exitOfKind[fleet.Invalid], got.code)
		require.Contains(t, got.stderr, "settings tgi.json, /stopSeconds")
	})
}
