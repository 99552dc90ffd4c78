package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// fleetRegion has the fleet change speed-up, whose run failed on two instances.
func fleetRegion(t *testing.T) *fakeRegion {
	t.Helper()
	r := newRegion(t).plant1()
	deadline := testNow.Add(time.Hour)
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.declare("fleets/speed-up", `{"change":{"template":"press","templateGeneration":2},"errorThreshold":5}`)
	o.Status, _ = json.Marshal(api.FleetStatus{
		Phase: "Stopped", Run: 2, ObservedGeneration: 1, Wave: 1, Waves: 2, Reason: "error_threshold", Message: "2 of 4 instances failed",
		Deadline: &deadline, Counts: fleet.FleetCounts{Total: 10, Waiting: 6, Succeeded: 2, Failed: 2},
		PerWave:    []fleet.FleetCounts{{Total: 4, Succeeded: 2, Failed: 2}, {Total: 6, Waiting: 6}},
		Conditions: []api.Condition{{Type: "synced", Status: fleet.ConditionFalse, Reason: "given_up", Message: "error_threshold", Hint: "holdfast fleet targets speed-up --state failed", Since: testNow}},
	})
	r.objects["fleets/speed-up"] = o
	targets := []api.FleetTarget{
		{Site: "plant-1", Instance: "press-1", Wave: 1, State: fleet.FleetTargetFailed, Revision: 5, Before: 4, Tries: 2, Reason: "hash_mismatch", Message: "the body was another"},
		{Site: "plant-1", Instance: "press-2", Wave: 1, State: fleet.FleetTargetFailed, Tries: 1, Reason: "apply_failed"},
	}
	r.hook = func(w http.ResponseWriter, req *http.Request) bool {
		switch req.URL.Path {
		case "/api/v1/fleets/speed-up/targets":
			if q := req.URL.Query(); q.Get("cursor") == "" && q.Get("state") != "waiting" {
				reply(w, 200, api.List[api.FleetTarget]{Items: targets[:1], Next: "2"})
			} else {
				reply(w, 200, api.List[api.FleetTarget]{Items: targets[1:]})
			}
		case "/api/v1/fleets/speed-up/runs":
			reply(w, 200, api.List[api.FleetRun]{Items: []api.FleetRun{
				{Run: 2, Generation: 1, RollbackOf: 1, State: fleet.FleetStopped, Reason: "error_threshold", Wave: 1, Waves: 2, RequestedBy: "ann", CreatedAt: testNow},
			}})
		default:
			return false
		}
		return true
	}
	return r
}

// fleetMoment is one moment of an operation of speed-up.
func fleetMoment(state fleet.OperationState, run fleet.FleetState, wave int, counts fleet.FleetCounts) api.Operation {
	counts.Total = 10
	reason, message := "", ""
	if !state.Ended() {
		reason, message = "delivering", "the region says the counts once more"
	}
	return api.Operation{
		ID: op1, Kind: "fleet", Fleet: "speed-up", State: state, Deadline: testNow.Add(time.Hour), CreatedAt: testNow, Reason: reason, Message: message,
		FleetRun: &api.FleetProgress{Run: 2, State: run, Wave: wave, Waves: 2, Counts: counts},
		Workflow: &api.WorkflowRef{ID: "fleet.speed-up", RunID: "r", URL: "http://web/fleet.speed-up"},
	}
}

// N103: counts on the way, and in the final line.
func TestFleetVerbs(t *testing.T) {
	t.Parallel()
	run := func(end api.Operation) []api.Operation {
		waiting := api.Operation{ID: op1, Kind: "fleet", Fleet: "speed-up", State: fleet.OperationRunning, Deadline: testNow.Add(time.Hour), Reason: "queued", Message: "waiting for its workflow"}
		window := fleetMoment(fleet.OperationRunning, fleet.FleetRunning, 2, fleet.FleetCounts{Succeeded: 5, Staged: 5})
		return []api.Operation{
			waiting,
			fleetMoment(fleet.OperationRunning, fleet.FleetRunning, 1, fleet.FleetCounts{Waiting: 6, Delivering: 4}),
			fleetMoment(fleet.OperationRunning, fleet.FleetRunning, 1, fleet.FleetCounts{Waiting: 6, Delivering: 4}),
			window, end,
		}
	}

	t.Run("tell counts in a pipe, a line for each change worth one", func(t *testing.T) {
		t.Parallel()
		r := fleetRegion(t)
		r.story(run(fleetMoment(fleet.OperationSucceeded, fleet.FleetSucceeded, 2, fleet.FleetCounts{Succeeded: 9, Superseded: 1}))...)
		got := newShell(t, r).ok("fleet", "run", "speed-up", "--reason", "ticket 1")
		require.Equal(t, []string{
			"fleet/speed-up run accepted, generation 1, operation " + op1,
			"fleet speed-up: running, waiting for its workflow, deadline 2026-03-01T13:00:00Z",
			"fleet speed-up: running, wave 1 of 2, 0 of 10 instances done, 4 under way, deadline 2026-03-01T13:00:00Z",
			"fleet speed-up: running, wave 2 of 2, 5 of 10 instances done, 5 waiting for their window, deadline 2026-03-01T13:00:00Z",
			"fleet speed-up succeeded: wave 2 of 2, 10 of 10 instances done",
		}, strings.Split(strings.TrimSpace(got.stdout), "\n"))
		m := r.last()
		require.Equal(t, "POST fleets/speed-up/run", m.method+" "+m.path)
		require.JSONEq(t, `{"reason":"ticket 1"}`, m.body)
	})

	t.Run("end with a code that says how, and where to look", func(t *testing.T) {
		t.Parallel()
		r := fleetRegion(t)
		end := fleetMoment(fleet.OperationFailed, fleet.FleetStopped, 1, fleet.FleetCounts{Succeeded: 2, Failed: 2, Waiting: 6})
		end.Reason, end.Message = "error_threshold", "2 of 4 instances failed"
		r.story(run(end)...)
		got := newShell(t, r).run("fleet", "retry", "speed-up")
		require.Equal(t, exitOperationFailed, got.code)
		require.Contains(t, got.stdout, "fleet speed-up failed (error_threshold): wave 1 of 2, 4 of 10 instances done, 2 failed\n")
		require.Contains(t, got.stderr, "error: error_threshold: fleet speed-up ended as failed: 2 of 4 instances failed")
		require.Contains(t, got.stderr, "holdfast fleet targets speed-up --state failed; http://web/fleet.speed-up")
	})

	t.Run("pause does not wait for a run that rests", func(t *testing.T) {
		t.Parallel()
		r := fleetRegion(t)
		r.story(fleetMoment(fleet.OperationRunning, fleet.FleetPaused, 1, fleet.FleetCounts{Waiting: 10}))
		require.Equal(t, "fleet/speed-up pause accepted, generation 1, operation "+op1+"\n", newShell(t, r).ok("fleet", "pause", "speed-up").stdout)
	})

	t.Run("cancel is done when it is cancelled", func(t *testing.T) {
		t.Parallel()
		r := fleetRegion(t)
		r.story(run(fleetMoment(fleet.OperationCancelled, fleet.FleetCancelled, 1, fleet.FleetCounts{Succeeded: 4, Waiting: 6}))...)
		got := newShell(t, r).ok("fleet", "cancel", "speed-up")
		require.Contains(t, got.stdout, "fleet speed-up cancelled: wave 1 of 2, 4 of 10 instances done\n")
		require.Empty(t, got.stderr)
	})

	t.Run("are drawn in one line on a terminal", func(t *testing.T) {
		t.Parallel()
		r := fleetRegion(t)
		r.story(run(fleetMoment(fleet.OperationSucceeded, fleet.FleetSucceeded, 2, fleet.FleetCounts{Succeeded: 10}))...)
		s := newShell(t, r)
		s.width = 60
		got := s.ok("fleet", "run", "speed-up")
		require.Len(t, strings.Split(got.stdout, "\x1b[1A\x1b[J"), 5)
	})

	for _, verb := range api.FleetVerbs() {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			r := fleetRegion(t)
			s := newShell(t, r)
			got := s.ok("fleet", verb, "speed-up", "--if-match", "101", "--idempotency-key", "k", "--dry-run")
			require.Equal(t, "fleet/speed-up "+verb+" accepted, generation 1 (dry run, nothing was changed)\n", got.stdout)
			require.Equal(t, mutation{"POST", "fleets/speed-up/" + verb, "dryRun=true", "k", `"101"`, "{}"}, r.last())
			require.Equal(t, exitNotFound, s.run("fleet", verb, "ghost").code)
			require.Equal(t, exitUsage, s.run("fleet", verb, "Ghost").code)
			require.Equal(t, exitUsage, s.run("fleet", verb).code)
			require.Equal(t, "fleet/speed-up\n", s.ok("fleet", verb, "speed-up", "-o", "name").stdout)
			require.Equal(t, []string{"speed-up", ":4"}, strings.Fields(s.ok("__complete", "fleet", verb, "").stdout))
		})
	}

	t.Run("are completed", func(t *testing.T) {
		t.Parallel()
		words := newShell(t, fleetRegion(t)).ok("__complete", "fleet", "r").stdout
		for _, verb := range []string{"resume", "retry", "rollback", "run", "runs"} {
			require.Contains(t, words, verb)
		}
	})
}

func TestFleetTables(t *testing.T) {
	t.Parallel()
	s := newShell(t, fleetRegion(t))

	t.Run("get", func(t *testing.T) {
		got := s.ok("get", "fleets")
		require.Equal(t, []string{"speed-up", "default", "Stopped", "given_up", "2", "1/2", "4/10", "2", "error_threshold", "1"},
			strings.Fields(strings.Split(got.stdout, "\n")[1])[:10])
		require.Equal(t, "fleet/speed-up\n", s.ok("get", "fleet", "-o", "name").stdout)
		var o api.Object
		require.NoError(t, json.Unmarshal([]byte(s.ok("get", "fleet", "speed-up", "-o", "json").stdout), &o))
		require.Equal(t, "fleet", o.Kind)
		require.Contains(t, s.ok("get", "fleet", "speed-up", "-o", "yaml").stdout, "phase: Stopped")
	})

	t.Run("targets and runs", func(t *testing.T) {
		lines := strings.Split(strings.TrimSpace(s.ok("fleet", "targets", "speed-up", "--state", "failed").stdout), "\n")
		require.Len(t, lines, 3, "both pages")
		require.Equal(t, []string{"plant-1/press-1", "1", "failed", "5", "4", "2", "hash_mismatch"}, strings.Fields(lines[1])[:7])
		require.Equal(t, "instance/plant-1/press-1\ninstance/plant-1/press-2\n", s.ok("fleet", "targets", "speed-up", "--run", "2", "-o", "name").stdout)
		require.Equal(t, exitUsage, s.run("fleet", "targets", "Speed").code)
		require.Contains(t, s.ok("fleet", "runs", "speed-up").stdout, "run 1")
		require.Contains(t, s.ok("__complete", "fleet", "targets", "speed-up", "--state", "").stdout, "staged")
	})

	t.Run("describe says what failed, why, and where to look", func(t *testing.T) {
		r := fleetRegion(t)
		r.mu.Lock()
		r.operations[op1] = []api.Operation{fleetMoment(fleet.OperationFailed, fleet.FleetStopped, 1, fleet.FleetCounts{})}
		r.mu.Unlock()
		got := newShell(t, r).ok("describe", "fleet", "speed-up").stdout
		for _, text := range []string{
			"Phase:          Stopped (of generation 1)", "Synced:         given_up, since 2026-03-01T12:00:00Z: error_threshold", "What helps:     holdfast fleet targets speed-up --state failed", "Progress:       wave 1 of 2, 4 of 10 instances done, 2 failed",
			"Why:            2 of 4 instances failed", "Deadline:       2026-03-01T13:00:00Z", "WAITING", "hash_mismatch", "the body was another",
			"holdfast fleet targets speed-up --state failed", "run 1", "Workflow:       http://web/fleet.speed-up",
		} {
			require.Contains(t, got, text)
		}
	})

	t.Run("delete", func(t *testing.T) {
		r := fleetRegion(t)
		newShell(t, r).ok("delete", "fleet", "speed-up")
		require.Equal(t, []string{"DELETE fleets/speed-up"}, r.changes())
	})

	t.Run("operations are listed by their fleet change", func(t *testing.T) {
		r := fleetRegion(t)
		r.operations[op1] = []api.Operation{fleetMoment(fleet.OperationRunning, fleet.FleetRunning, 1, fleet.FleetCounts{})}
		var query string
		r.hook = func(_ http.ResponseWriter, req *http.Request) bool { query = req.URL.RawQuery; return false }
		require.Contains(t, newShell(t, r).ok("operations", "list", "--fleet", "speed-up").stdout, "fleet/speed-up")
		require.Contains(t, query, "fleet=speed-up")
	})
}

func TestApplyFleet(t *testing.T) {
	t.Parallel()
	example := filepath.Join("..", "..", "examples", "fleet.yaml")

	t.Run("declares it behind what it refers to", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		template := write(t, "press.yaml", "kind: Template\nname: press\nspec: {base: {speed: 40}}\n")
		r.story(fleetMoment(fleet.OperationSucceeded, fleet.FleetSucceeded, 2, fleet.FleetCounts{Succeeded: 10}))
		got := newShell(t, r).ok("apply", "-f", example, "-f", template, "--reason", "ticket 1", "--project", "default")
		require.Equal(t, []string{"PUT templates/press", "PUT fleets/speed-up"}, r.changes())
		require.Contains(t, got.stdout, "fleet/speed-up applied, generation 1, operation "+op1)
		var put api.FleetPut
		require.NoError(t, json.Unmarshal([]byte(r.last().body), &put))
		require.Equal(t, "ticket 1", put.Reason)
		require.Equal(t, map[string]string{"line": "a"}, put.Labels)
		require.JSONEq(t, `{"speed":45,"limits":{"pressure":180}}`, string(put.Change.Patch))
		require.NoError(t, declare.CheckFleet(put))

		newShell(t, r).ok("apply", "-f", example, "--deploy=false")
		require.Equal(t, "deploy=false", r.last().query)
	})

	for name, c := range map[string]struct{ spec, says string }{
		"nothing to change":   {`{}`, `spec/change: change is required`},
		"a list for a patch":  {`{change: {patch: [1]}}`, `spec/change/patch: invalid patch: must be an object`},
		"a zone that is none": {`{change: {patch: {}}, windows: [{from: "01:00", to: "02:00", zone: Mars}]}`, `spec/windows/0/zone: unknown time zone "Mars"`},
		"a misspelt member":   {`{change: {patch: {}}, wave: []}`, `spec/wave: unknown field; use `},
	} {
		t.Run("refuses "+name+" before it asks", func(t *testing.T) {
			t.Parallel()
			r := newRegion(t)
			got := newShell(t, r).run("apply", "-f", write(t, "f.yaml", "kind: Fleet\nname: x\nspec: "+c.spec+"\n"))
			require.Equal(t, exitUsage, got.code)
			require.Contains(t, got.stderr, c.says)
			require.Empty(t, r.changes())
		})
	}

	t.Run("is part of a request of many", func(t *testing.T) {
		t.Parallel()
		data, err := os.ReadFile(example)
		require.NoError(t, err)
		s := newRealShell(t)
		got := s.run("plan", "-f", write(t, "all.yaml", string(data)+"---\nkind: Template\nname: press\nspec: {base: {speed: 40}}\n"))
		require.Equal(t, exitChanges, got.code, got.stderr)
		require.Contains(t, got.stdout, "fleet/speed-up create")
	})
}
