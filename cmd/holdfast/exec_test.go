package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// moduleAnswers stands for the providers.
type moduleAnswers struct{ err error }

func (m *moduleAnswers) Execute(_ context.Context, e fleet.Execution) (fleet.ExecutionAnswer, error) {
	return fleet.ExecutionAnswer{Output: append([]byte(`{"echo":`), append(e.Input, '}')...)}, m.err
}

func (m *moduleAnswers) Check(_ context.Context, _ fleet.ModuleRef, _ []byte) error { return m.err }

// X19, X20
func TestExec(t *testing.T) {
	t.Parallel()
	url := testkit.DatabaseURL(t)
	store, err := store.Open(t.Context(), url, testkit.Region)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	db, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer db.Close(t.Context()) //nolint:errcheck // it was only written to
	modules := &moduleAnswers{}
	s := shellOn(t, store, modules)

	require.Equal(t, exitOK, s.run("get", "modules").code)
	_, err = db.Exec(t.Context(), `INSERT INTO connections (id, state, identity, provider, module_namespace, executor, protocol, server, active_at)
		VALUES (repeat('1', 32), 'Active', 'token:1', 'cam', 'acme.vision', '127.0.0.1:1', 1, 's', now())`)
	require.NoError(t, err)
	_, err = db.Exec(t.Context(), `INSERT INTO modules (connection, module_namespace, name) VALUES (repeat('1', 32), 'acme.vision', 'Detect')`)
	require.NoError(t, err)

	require.Contains(t, s.ok("get", "modules").stdout, "cam(active)")
	require.Equal(t, "module/acme.vision.Detect\n", s.ok("get", "module", "acme.vision.Detect", "-o", "name").stdout)
	require.Equal(t, exitNotFound, s.run("get", "module", "acme.vision.Nothing").code)
	require.Contains(t, s.ok("__complete", "exec", "acme").stdout, "acme.vision.Detect")

	require.Equal(t, "{\"echo\":{}}\n", s.ok("exec", "acme.vision.Detect").stdout)
	require.Equal(t, "{\"echo\":{\"a\":1}}\n", s.ok("exec", "acme.vision.Detect", "--input", `{"a":1}`).stdout)
	require.Equal(t, "{\"echo\":[2]}\n", s.ok("exec", "acme.vision.Detect", "-f", write(t, "in.json", `[2]`)).stdout)
	require.JSONEq(t, `{"echo":3}`, s.ok("exec", "acme.vision.Detect", "--input", "3", "-o", "json").stdout)
	require.Contains(t, s.ok("exec", "acme.vision.Detect", "--dry-run").stderr, "nothing was changed")

	for name, args := range map[string][]string{
		"no JSON":     {"exec", "acme.vision.Detect", "--input", "{"},
		"no module":   {"exec", "nothing"},
		"two inputs":  {"exec", "acme.vision.Detect", "--input", "1", "-f", "x"},
		"no file":     {"exec", "acme.vision.Detect", "-f", "/nowhere"},
		"a long time": {"exec", "acme.vision.Detect", "--deadline", "2m"},
	} {
		require.Equal(t, exitUsage, s.run(args...).code, name)
	}

	large := `"` + strings.Repeat("x", fleet.MaxDirectInput) + `"`
	for name, args := range map[string][]string{"from stdin": {"-f", "-"}, "from a file": {"-f", write(t, "large.json", large)}} {
		s.stdin = large
		out := s.run(append([]string{"exec", "acme.vision.Detect"}, args...)...)
		require.Equal(t, exitUsage, out.code, name)
		require.Contains(t, out.stderr, "the input is too long; the limit is 1048576 bytes", name)
	}
	s.stdin = `"` + large[2:fleet.MaxDirectInput] + `"`
	require.Equal(t, exitOK, s.run("exec", "acme.vision.Detect", "-f", "-").code, "as much as is allowed")
	s.stdin = ""

	var op api.Operation
	require.NoError(t, json.Unmarshal([]byte(s.ok("exec", "acme.vision.Detect", "--durable", "--wait=false", "-o", "json").stdout), &op))
	require.Equal(t, "acme.vision.Detect", op.Module)
	require.Contains(t, s.ok("operations", "get", op.ID).stdout, "module/acme.vision.Detect")
	require.Equal(t, exitTimeout, s.run("exec", "acme.vision.Detect", "--durable", "--timeout", "300ms").code)

	for kind, code := range map[fleet.Kind]int{
		fleet.Invalid: exitUsage, fleet.NotFound: exitNotFound, fleet.ApplyFailed: exitOperationFailed,
	} {
		modules.err = fleet.Errorf(kind, "no")
		require.Equal(t, code, s.run("exec", "acme.vision.Detect").code, kind)
	}
}
