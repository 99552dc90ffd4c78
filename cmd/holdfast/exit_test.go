package main

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()

	t.Run("exist for every kind of error and every state of an operation", func(t *testing.T) {
		t.Parallel()
		documented := map[int]bool{}
		for _, e := range exitMeanings {
			documented[e.code] = true
		}
		for _, k := range fleet.Kinds() {
			code, known := exitOfKind[k]
			require.True(t, known, "kind %s", k)
			require.NotEqual(t, exitOK, code, "kind %s", k)
			require.True(t, documented[code], "kind %s", k)
		}
		require.Len(t, exitOfKind, len(fleet.Kinds()))
		for _, s := range fleet.OperationStates() {
			code, known := exitOfState[s]
			require.True(t, known, "state %s", s)
			require.True(t, documented[code], "state %s", s)
		}
		require.Len(t, exitOfState, len(fleet.OperationStates()))
	})

	t.Run("are not 0 for kinds and states of a newer region", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, exitError, exitCodeOf(fleet.Errorf("from_the_future", "x")))
		require.Equal(t, exitError, exitCodeOf(endOf(api.Operation{State: "from_the_future"})))
	})

	t.Run("are documented by help", func(t *testing.T) {
		t.Parallel()
		got := newShell(t, nil).ok("help", "exit-codes")
		for _, e := range exitMeanings {
			require.Contains(t, got.stdout, e.meaning)
		}
	})

	t.Run("follow the problem that the region answers", func(t *testing.T) {
		t.Parallel()
		for kind, status := range map[fleet.Kind]int{
			fleet.NotFound: 404, fleet.Denied: 403, fleet.Conflict: 409, fleet.Invalid: 400, fleet.Internal: 500,
		} {
			r := newRegion(t).plant1()
			r.hook = func(w http.ResponseWriter, _ *http.Request) bool {
				refuse(w, status, kind, "so it is", "/spec/x")
				return true
			}
			got := newShell(t, r).run("get", "instance", "plant-1/press-7")
			require.Equal(t, exitOfKind[kind], got.code)
			require.Equal(t, "error: "+string(kind)+": so it is\n  at: /spec/x\n  hint: as the region says\n", got.stderr)
		}
	})
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"bogus"},
		{"token", "bogus"},
		{"get"},
		{"get", "gadgets"},
		{"get", "sites", "-o", "xml"},
		{"get", "sites", "--bogus"},
		{"deploy"},
		{"deploy", "press-7"},
		{"apply"},
		{"join-token", "create"},
		{"delete", "node", "plant-1-a"},
		{"rollback", "plant-1/press-7", "--revision", "0"},
		{"deploy", "plant-1/a", "plant-1/b", "--if-match", "1"},
		{"apply", "-f", "does-not-exist.yaml"},
		{"get", "instance", "plant-1/UPPER"},
		{"logs", "plant-1/press-7", "--after", "3"},
		{"reconcile", "plant-1-b"},
		{"reconcile", "node"},
		{"reconcile", "node", "Plant_1"},
		{"reconcile", "node", "a", "b", "--idempotency-key", "k"},
		{"reconcile", "site"},
		{"reconcile", "site", "-"},
		{"reconcile", "node", "a", "--if-match", "1"},
		{"orphans", "list"},
		{"orphans", "list", "Plant_1"},
		{"orphans", "approve", "plant-1-b"},
		{"orphans", "approve", "plant-1-b", "press-3", "--all"},
	} {
		got := newShell(t, newRegion(t)).run(args...)
		require.Equal(t, exitUsage, got.code, "%v: %s", args, got.stderr)
		require.Contains(t, got.stderr, "error: invalid: ", "%v", args)
		require.Empty(t, got.stdout, "%v", args)
	}
}

func TestErrorsSayWhatToDoNext(t *testing.T) {
	t.Parallel()

	t.Run("without a region it says how to name one", func(t *testing.T) {
		t.Parallel()
		got := newShell(t, nil).run("get", "sites")
		require.Equal(t, exitUsage, got.code)
		require.Contains(t, got.stderr, "set HOLDFAST_ADDRESS and HOLDFAST_TOKEN, or run: holdfast context set")
	})

	t.Run("json gives the problem as the region sent it, on stderr", func(t *testing.T) {
		t.Parallel()
		got := newShell(t, newRegion(t)).run("get", "instance", "plant-1/press-7", "-o", "json")
		require.Equal(t, exitNotFound, got.code)
		require.Empty(t, got.stdout)
		var p api.Problem
		require.NoError(t, json.Unmarshal([]byte(got.stderr), &p))
		require.Equal(t, "https://holdfast.example/problems/not_found", p.Type)
		require.Equal(t, 404, p.Status)
		require.Equal(t, "as the region says", p.Hint)
	})

	t.Run("a region that does not answer has a code of its own", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.server.Close()
		got := newShell(t, r).run("get", "sites")
		require.Equal(t, exitUnreachable, got.code)
		require.Contains(t, got.stderr, "trying again (2 of 5)")
		require.Contains(t, got.stderr, "error: unavailable: no answer from the region at "+r.server.URL)
		require.Contains(t, got.stderr, "hint: check the address, and that the region runs")
	})

	t.Run("a bad token is told from a missing object", func(t *testing.T) {
		t.Parallel()
		s := newShell(t, newRegion(t))
		s.env[envToken] = "wrong"
		require.Equal(t, exitDenied, s.run("get", "sites").code)
	})

	t.Run("control characters of others do not reach the terminal", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.hook = func(w http.ResponseWriter, _ *http.Request) bool {
			refuse(w, 404, fleet.NotFound, "gone \x1b[2J", "")
			return true
		}
		require.NotContains(t, newShell(t, r).run("get", "sites").stderr, "\x1b")
	})
}
