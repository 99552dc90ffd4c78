package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// fetched is a delivery that goes well, in moments.
func fetched() []api.Operation {
	return []api.Operation{
		operation(op1, fleet.OperationRunning, nodeAt("plant-1-a", "notified", 0), nodeAt("plant-1-b", "waiting", 0)),
		operation(op1, fleet.OperationRunning, nodeAt("plant-1-a", "notified", 5<<20), nodeAt("plant-1-b", "waiting", 0)),
		operation(op1, fleet.OperationRunning, nodeAt("plant-1-a", "notified", 5<<20+1), nodeAt("plant-1-b", "waiting", 0)),
		operation(op1, fleet.OperationRunning, nodeAt("plant-1-a", "applied", 10<<20), nodeAt("plant-1-b", "notified", 0)),
		operation(op1, fleet.OperationSucceeded, holding(nodeAt("plant-1-a", "applied", 10<<20)), holding(nodeAt("plant-1-b", "applied", 10<<20))),
	}
}

func holding(n api.NodeProgress) api.NodeProgress {
	n.Revision, n.Generation, n.RevisionHash = 4, 2, hash1
	return n
}

func ended(state fleet.OperationState, reason string) []api.Operation {
	end := operation(op1, state, nodeAt("plant-1-a", "failed", 0))
	end.Reason, end.Message = reason, "the node said so"
	return []api.Operation{operation(op1, fleet.OperationRunning), end}
}

// N103: bytes of total, phase and deadline on the way; end state, generation and hash per
// node in the final line.
func TestProgress(t *testing.T) {
	t.Parallel()

	t.Run("in a pipe has a line for each change and no control characters", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		r.story(fetched()...)
		got := newShell(t, r).ok("deploy", "plant-1/press-7")
		require.Equal(t, []string{
			"instance/plant-1/press-7 deploy accepted, generation 1, operation " + op1,
			"deploy plant-1/press-7: plant-1-a (active) notified, 0 B of 10.0 MiB, deadline 2026-03-01T13:00:00Z",
			"deploy plant-1/press-7: plant-1-b (standby) waiting, 0 B of 10.0 MiB, deadline 2026-03-01T13:00:00Z",
			"deploy plant-1/press-7: plant-1-a (active) notified, 5.0 MiB of 10.0 MiB, deadline 2026-03-01T13:00:00Z",
			"deploy plant-1/press-7: plant-1-a (active) applied, 10.0 MiB of 10.0 MiB, deadline 2026-03-01T13:00:00Z",
			"deploy plant-1/press-7: plant-1-b (standby) notified, 0 B of 10.0 MiB, deadline 2026-03-01T13:00:00Z",
			"deploy plant-1/press-7 succeeded, revision 4; plant-1-a (active) applied, 10.0 MiB of 10.0 MiB, holds revision 4 (generation 2) aaaaaaaaaaaa; " +
				"plant-1-b (standby) applied, 10.0 MiB of 10.0 MiB, holds revision 4 (generation 2) aaaaaaaaaaaa",
		}, strings.Split(strings.TrimSpace(got.stdout), "\n"))
		require.Empty(t, got.stderr)
	})

	t.Run("on a terminal is one line per node, rewritten in place and never wrapped", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		r.story(fetched()...)
		s := newShell(t, r)
		s.width = 60
		got := s.ok("deploy", "plant-1/press-7")
		pictures := strings.Split(got.stdout, "\x1b[2A\x1b[J")
		require.Len(t, pictures, 5, "four moments, and the final line in their place")
		for _, picture := range pictures[1:4] {
			lines := strings.Split(strings.TrimSuffix(picture, "\n"), "\n")
			require.Len(t, lines, 2)
			for _, line := range lines {
				require.Less(t, len(line), 60)
			}
		}
		require.True(t, strings.HasPrefix(pictures[4], "deploy plant-1/press-7 succeeded, revision 4"), pictures[4])
	})

	t.Run("ends without asking anything more", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		r.story(fetched()...)
		var asked atomic.Int32
		r.hook = func(_ http.ResponseWriter, req *http.Request) bool {
			if req.Method == http.MethodGet && !strings.Contains(req.URL.Path, "/operations/") {
				asked.Add(1)
			}
			return false
		}
		newShell(t, r).ok("deploy", "plant-1/press-7")
		require.Zero(t, asked.Load())
	})

	t.Run("says what a failed node still holds, and a deleted one no more", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		failed := holding(nodeAt("plant-1-a", "failed", 0))
		failed.Reason = "apply_failed"
		gone := nodeAt("plant-1-b", "applied", 0)
		gone.Revision, gone.Total = 5, 0
		r.story(operation(op1, fleet.OperationFailed, failed, gone))
		got := newShell(t, r).run("deploy", "plant-1/press-7")
		require.Contains(t, got.stdout, "; plant-1-a (active) failed, 0 B of 10.0 MiB, apply_failed, holds revision 4 (generation 2) aaaaaaaaaaaa;"+
			" plant-1-b (standby) applied, holds nothing since revision 5\n")
	})

	t.Run("stays away from the stdout of programs", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		r.story(fetched()...)
		got := newShell(t, r).ok("deploy", "plant-1/press-7", "-o", "json")
		var o outcome
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &o), got.stdout)
		require.Equal(t, fleet.OperationSucceeded, o.Operation.State)
		require.Contains(t, got.stderr, "plant-1-a (active) notified")
	})
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	for state, code := range map[fleet.OperationState]int{
		fleet.OperationFailed: exitOperationFailed, fleet.OperationUnknown: exitUnknown,
		fleet.OperationCancelled: exitOperationFailed, fleet.OperationSuperseded: exitConflict,
	} {
		t.Run("ends with the code of "+string(state), func(t *testing.T) {
			t.Parallel()
			r := newRegion(t).plant1()
			r.story(ended(state, "apply_failed")...)
			got := newShell(t, r).run("deploy", "plant-1/press-7")
			require.Equal(t, code, got.code)
			require.Contains(t, got.stdout, "deploy plant-1/press-7 "+string(state)+" (apply_failed)")
			require.Contains(t, got.stderr, "error: apply_failed: deploy plant-1/press-7 ended as "+string(state)+": the node said so")
			require.Contains(t, got.stderr, "holdfast deliveries plant-1/press-7")
		})
	}

	t.Run("is left out by --wait=false", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		r.story(operation(op1, fleet.OperationRunning))
		got := newShell(t, r).ok("deploy", "plant-1/press-7", "--wait=false")
		require.Equal(t, "instance/plant-1/press-7 deploy accepted, generation 1, operation "+op1+"\n", got.stdout)
	})

	t.Run("says when nothing had to start", func(t *testing.T) {
		t.Parallel()
		got := newShell(t, newRegion(t).plant1()).ok("enable", "plant-1/press-7")
		require.Contains(t, got.stdout, "enable accepted, generation 1, nothing to deliver")
	})

	t.Run("gives up after --timeout and says how to go on", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		r.story(operation(op1, fleet.OperationRunning))
		got := newShell(t, r).run("deploy", "plant-1/press-7", "--timeout", "2s")
		require.Equal(t, exitTimeout, got.code, got.stderr)
		require.Contains(t, got.stderr, "error: timeout: timed out waiting for deploy plant-1/press-7")
		require.Contains(t, got.stderr, "holdfast wait "+op1)
	})

	t.Run("outlives a region that is away for a moment", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		r.story(fetched()...)
		var away atomic.Int32
		away.Store(7) // more than the tries of one call
		r.hook = func(w http.ResponseWriter, req *http.Request) bool {
			if !strings.Contains(req.URL.Path, "/operations/") || away.Add(-1) < 0 {
				return false
			}
			refuse(w, 503, fleet.Unavailable, "starting", "")
			return true
		}
		got := newShell(t, r).ok("deploy", "plant-1/press-7")
		require.Contains(t, got.stderr, "starting; trying again (2 of 5)")
		require.Contains(t, got.stdout, "succeeded")
	})

	t.Run("by the wait command takes operations and instances", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		r.operations[op1] = fetched()
		require.Contains(t, newShell(t, r).ok("wait", op1).stdout, "succeeded, revision 4")
		require.Contains(t, newShell(t, r).ok("wait", "plant-1/press-7").stdout, "succeeded, revision 4")
		require.Equal(t, exitNotFound, newShell(t, r).run("wait", op2).code)
		require.Equal(t, exitNotFound, newShell(t, r).run("wait", "plant-1/press-8").code)
	})
}

func TestMutations(t *testing.T) {
	t.Parallel()

	t.Run("send reason, revision and the precondition", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		s := newShell(t, r)
		s.ok("rollback", "plant-1/press-7", "--revision", "2", "--reason", "ticket 4711", "--if-match", "101")
		m := r.last()
		require.Equal(t, "sites/plant-1/instances/press-7/rollback", m.path)
		require.JSONEq(t, `{"revision":2,"reason":"ticket 4711"}`, m.body)
		require.Equal(t, `"101"`, m.ifMatch)
		require.NotEmpty(t, m.key)
	})

	t.Run("that meet a changed object end as a conflict", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		got := newShell(t, r).run("delete", "site", "plant-1", "--if-match", `"7"`)
		require.Equal(t, exitConflict, got.code)
		require.Contains(t, got.stderr, "error: precondition: site/plant-1: the object has changed")
	})

	t.Run("of several objects go on behind a refusal and end with the highest code", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		r.declare("sites/plant-1/instances/press-9", `{}`)
		got := newShell(t, r).run("disable", "press-7", "press-8", "press-9", "--site", "plant-1")
		require.Equal(t, exitNotFound, got.code)
		require.Contains(t, got.stdout, "instance/plant-1/press-7 disable accepted")
		require.Contains(t, got.stdout, "instance/plant-1/press-8 refused: not_found")
		require.Contains(t, got.stdout, "instance/plant-1/press-9 disable accepted")
	})

	t.Run("change nothing in a dry run", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		got := newShell(t, r).ok("delete", "instance", "plant-1/press-7", "--dry-run")
		require.Equal(t, "dryRun=true", r.last().query)
		require.Contains(t, got.stdout, "dry run, nothing was changed")
	})

	t.Run("are one change under one key, however often they are sent", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).plant1()
		r.story(fetched()...)
		var lost atomic.Int32
		lost.Store(2)
		r.hook = func(w http.ResponseWriter, req *http.Request) bool {
			if req.Method != http.MethodPost || lost.Add(-1) < 0 {
				return false
			}
			if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
				_ = conn.Close() // without an answer
			}
			return true
		}
		got := newShell(t, r).run("deploy", "plant-1/press-7", "--idempotency-key", "from-ci")
		require.Equal(t, exitOK, got.code, got.stderr)
		require.Equal(t, "from-ci", r.last().key)
	})
}

// N103: what an operation answers is in its final line, whatever its kind; where progress tells more, its message is not.
func TestFinalLineHasTheAnswer(t *testing.T) {
	t.Parallel()
	for want, op := range map[string]api.Operation{
		"inspect plant-1 succeeded: node plant-1-a holds the lease": {Kind: "inspect", Site: "plant-1", Message: "node plant-1-a holds the lease"},
		"inspect plant-1 succeeded":                                 {Kind: "inspect", Site: "plant-1"},
		"drain node/plant-1-a succeeded: 2 moved":                   {Kind: "drain", Site: "plant-1", Node: "plant-1-a", Message: "2 moved"},
		"restart deployment/web succeeded: 3 new":                   {Kind: "restart", Deployment: "web", Message: "3 new"},
		"execute acme.vision.Detect succeeded":                      {Kind: "execute", Module: "acme.vision.Detect", Message: "done"},
		"deploy plant-1/press-7 succeeded":                          {Kind: "deploy", Site: "plant-1", Instance: "press-7", Message: "done"},
	} {
		op.State = fleet.OperationSucceeded
		require.Equal(t, want, finalLine(op))
	}
}
