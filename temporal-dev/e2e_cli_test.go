//go:build slow

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// The exit codes of holdfast that scripts rely on.
const (
	cliOK       = 0
	cliUsage    = 2
	cliMissing  = 4
	cliDenied   = 5
	cliConflict = 6
	cliFailed   = 7
	cliAway     = 10
)

// cliProgram is the holdfast binary, built once.
var cliProgram = sync.OnceValues(func() (string, error) { return build("github.com/holdfast-io/holdfast/cmd/holdfast") })

// cli is the holdfast binary, as an operator of the region calls it.
type cli struct {
	path string
	env  []string
}

func newCLI(t *testing.T, s *stack) cli {
	t.Helper()
	path, err := cliProgram()
	require.NoError(t, err)
	dir := t.TempDir()
	return cli{path, append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "HOLDFAST_ADDRESS="+s.doc.API, "HOLDFAST_TOKEN="+s.doc.Token)}
}

// call runs it, and gives what it printed for programs and for people.
func (c cli) call(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), c.path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.env, &out, &said
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	require.Equal(t, code, cmd.ProcessState.ExitCode(), "holdfast %v\n%s%s", args, out.String(), said.String())
	return out.String(), said.String()
}

// json calls it with -o json, and reads what it printed.
func (c cli) json(t *testing.T, into any, code int, args ...string) {
	t.Helper()
	out, said := c.call(t, code, append(args, "-o", "json")...)
	require.NoError(t, json.Unmarshal([]byte(out), into), "holdfast %v\n%s%s", args, out, said)
}

// servesAnotherModule runs the client of examples/client, a module outside the workspace.
func (s *stack) servesAnotherModule(t *testing.T) {
	path := filepath.Join(t.TempDir(), "client")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".")
	build.Dir, build.Env = filepath.Join("..", "examples", "client"), append(os.Environ(), "GOWORK=off")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	run := func(name string) (string, error) {
		client := exec.CommandContext(t.Context(), path, "-region", s.doc.API, "-site", "plant-1", "-name", name)
		client.Env = append(os.Environ(), "HOLDFAST_TOKEN="+s.doc.Token)
		out, err := client.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	said, err := run("elsewhere")
	require.NoError(t, err, said)
	require.Equal(t, "elsewhere succeeded", said)
	said, err = run("Elsewhere")
	require.Error(t, err)
	require.Contains(t, said, "name")
}
