package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const line = `kind: Site
name: plant-1
spec: {nodes: [{name: plant-1-a, role: active}]}
---
kind: Instance
name: press-7
site: plant-1
spec: {config: {speed: 40}}
---
kind: Instance
name: press-8
site: plant-1
spec: {config: {speed: 40}}
`

func planIn(t *testing.T, got result) api.Plan {
	t.Helper()
	var p api.Plan
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &p), got.stdout+got.stderr)
	return p
}

// N107: the command line against the region's own handlers and a real database.
func TestPlan(t *testing.T) {
	t.Parallel()
	s := newRealShell(t)
	path := write(t, "line.yaml", line)

	got := s.run("plan", "-f", path)
	require.Equal(t, exitChanges, got.code, got.stderr)
	require.Empty(t, got.stderr)
	require.Contains(t, got.stdout, "+ site/plant-1 create\n")
	require.Contains(t, got.stdout, "+ instance/plant-1/press-7 create, config ")
	require.True(t, strings.HasSuffix(got.stdout, "3 to create, 0 to change, 0 to delete, 0 unchanged\n"), got.stdout)
	require.NotContains(t, got.stdout, "\x1b", "no colours in a pipe")
	require.Equal(t, "nothing found\n", s.ok("get", "sites").stderr)

	s.ok("apply", "-f", path, "--wait=false")
	got = s.ok("plan", "-f", path)
	require.Equal(t, "0 to create, 0 to change, 0 to delete, 3 unchanged\n", got.stdout)

	t.Run("shows what changes, in every form", func(t *testing.T) {
		changed := write(t, "line.yaml", strings.Replace(line, "{config: {speed: 40}}", "{config: {speed: 41}, enabled: false}", 1))
		got := s.run("plan", "-f", changed)
		require.Equal(t, exitChanges, got.code)
		require.Contains(t, got.stdout, "~ instance/plant-1/press-7 change, generation 1, config ")
		require.Contains(t, got.stdout, "    ~ /spec/enabled: true -> false\n")
		require.Contains(t, got.stdout, "    on plant-1-a: holds nothing\n")
		require.NotContains(t, got.stdout, "not released")
		staged := write(t, "staged.yaml", "kind: Instance\nname: staged\nsite: plant-1\nspec: {config: {}}\n")
		s.ok("apply", "-f", staged, "--deploy=false")
		require.Contains(t, s.run("plan", "-f", staged).stdout, ", declared but not released yet\n")
		s.ok("plan", "-f", staged, "--deploy=false")
		got = s.run("plan", "-f", changed, "-o", "json")
		require.Equal(t, exitChanges, got.code)
		require.Equal(t, api.PlanSummary{Change: 1, Unchanged: 2}, planIn(t, got).Summary)
		require.Contains(t, s.run("plan", "-f", changed, "-o", "yaml").stdout, "path: /spec/enabled\n")
		require.Equal(t, "instance/plant-1/press-7\n", s.run("plan", "-f", changed, "-o", "name").stdout)
		wide := *s
		wide.width = 80
		require.Contains(t, wide.run("plan", "-f", changed).stdout, "\x1b[33m~ instance/plant-1/press-7 change")
		require.Equal(t, exitChanges, s.run("apply", "-f", changed, "--apply-set", "x", "--dry-run").code)
	})

	t.Run("ends with the code of what is refused, and says where it was declared", func(t *testing.T) {
		bad := write(t, "bad.yaml", "kind: Project\nname: p\n---\nkind: Instance\nname: a\nsite: plant-9\nspec: {config: {}}\n")
		got := s.run("plan", "-f", bad, "--out", filepath.Join(t.TempDir(), "x.plan"))
		require.Equal(t, exitNotFound, got.code)
		require.Contains(t, got.stdout, "! instance/plant-9/a refused: not_found\n")
		require.Contains(t, got.stderr, bad+":4: instance/plant-9/a: site plant-9 not found")
		got = s.run("apply", "-f", bad, "--apply-set", "x")
		require.Equal(t, exitNotFound, got.code)
		require.Contains(t, got.stderr, "nothing was applied: 1 objects are refused")
		require.Equal(t, exitNotFound, s.run("get", "project", "p").code)
	})

	t.Run("says of what cannot be read that nothing was planned", func(t *testing.T) {
		for _, args := range [][]string{{"plan", "-f"}, {"apply", "--apply-set", "x", "-f"}} {
			got := s.run(append(args, write(t, "bad.yaml", "kind: ["))...)
			require.Equal(t, exitUsage, got.code)
			require.Contains(t, got.stderr, "nothing was "+map[string]string{"plan": "planned", "apply": "applied"}[args[0]]+", because of:")
		}
	})

	t.Run("is asked for in words that fit", func(t *testing.T) {
		for _, args := range [][]string{
			{"plan"},
			{"plan", "-f", path, "--prune"},
			{"apply", "--prune", "-f", path},
			{"apply", "--plan", "x", "-f", path},
			{"apply", "--plan", "no-such-file"},
			{"apply", "--plan", path},
			{"apply", "-f", path, "--apply-set", "x", "--if-match", "3"},
			{"plan", "-f", path, "--apply-set", "Not-a-Name"},
		} {
			require.Equal(t, exitUsage, s.run(args...).code, args)
		}
	})
}

// N107
func TestApplyPlan(t *testing.T) {
	t.Parallel()
	s := newRealShell(t)
	dir := t.TempDir()
	saved := filepath.Join(dir, "line.plan")
	artifact := filepath.Join(dir, "firmware.bin")
	require.NoError(t, os.WriteFile(artifact, []byte("program"), 0o600))
	path := filepath.Join(dir, "line.yaml")
	require.NoError(t, os.WriteFile(path, []byte(line+"---\nkind: Instance\nname: firmware\nsite: plant-1\nspec: {artifactFile: firmware.bin}\n"), 0o600))

	require.Equal(t, exitChanges, s.run("plan", "-f", path, "--apply-set", "line", "--out", saved).code)
	info, err := os.Stat(saved)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "it holds configs")

	require.NoError(t, os.WriteFile(artifact, []byte("another"), 0o600))
	got := s.run("apply", "--plan", saved, "--wait=false")
	require.Equal(t, exitConflict, got.code)
	require.Contains(t, got.stderr, "has changed since it was planned")
	require.NoError(t, os.WriteFile(artifact, []byte("program"), 0o600))
	require.NoError(t, os.Remove(path), "the plan needs the manifests no more")

	got = s.ok("apply", "--plan", saved, "--wait=false")
	require.Contains(t, got.stdout, "site/plant-1 created, generation 1\n")
	require.Contains(t, got.stdout, "instance/plant-1/firmware created, generation 1, operation ")
	got = s.run("apply", "--plan", saved, "--wait=false")
	require.Equal(t, exitConflict, got.code, "a plan is applied once")
	require.Contains(t, got.stderr, "nothing was applied: 4 objects are not as they were planned: site/plant-1: it was planned from generation 0")
	require.Equal(t, exitConflict, s.run("apply", "--plan", saved, "-o", "json").code)

	t.Run("prunes what left the files, and nothing else", func(t *testing.T) {
		s.ok("apply", "-f", write(t, "other.yaml", "kind: Project\nname: other"))
		less := write(t, "less.yaml", strings.Join(strings.Split(line, "---\n")[:2], "---\n"))
		got := s.ok("plan", "-f", less, "--apply-set", "line")
		require.Contains(t, got.stdout, "  instance/plant-1/press-8 belongs to the set and is not in the files; --prune would delete it\n")
		require.Equal(t, exitChanges, s.run("plan", "-f", less, "--apply-set", "line", "--prune", "--out", saved).code)
		got = s.ok("apply", "--plan", saved, "--wait=false", "-o", "json")
		var list struct{ Items []outcome }
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &list))
		require.Len(t, list.Items, 4)
		require.Equal(t, api.PlanDelete, list.Items[2].Action)
		require.Equal(t, string(fleet.OperationDelete), list.Items[2].Operation.Kind)
		s.ok("get", "project", "other")
		got = s.ok("apply", "-f", less, "--apply-set", "line", "--prune", "--wait=false")
		require.Equal(t, "site/plant-1 unchanged, generation 1\ninstance/plant-1/press-7 unchanged, generation 1, nothing to deliver\n", got.stdout)
	})
}

// F51: plan and apply show how each changed field reaches what runs.
func TestShownChanges(t *testing.T) {
	t.Parallel()
	s := newRealShell(t)
	manifest := func(more string) string {
		return write(t, "web.yaml", "kind: Deployment\nname: web\nspec: {command: [x], health: {type: none}, replicas: 1"+more+"}\n")
	}
	require.NotContains(t, s.ok("apply", "-f", manifest(""), "--wait=false").stdout, "in place")
	const fields = ", stopSeconds: 7, recovery: {restarts: 5}, env: {A: secret}"
	shown := "  in place: process.stopSeconds, recovery.restarts\n"
	planned := s.run("plan", "-f", manifest(fields)).stdout
	require.Contains(t, planned, "    in place: process.stopSeconds, recovery.restarts\n    rolls out: process.env.A\n")
	require.Contains(t, s.ok("apply", "-f", manifest(fields), "--dry-run").stdout, "(dry run, nothing was changed)\n"+shown+"  rolls out: process.env.A\n")
	require.Contains(t, s.ok("apply", "-f", manifest(", state: stopped, stopSeconds: 7"), "--wait=false").stdout, "  deferred: process.stopSeconds, state\n")
	many := s.ok("apply", "-f", manifest(fields), "--apply-set", "shop", "--wait=false").stdout
	require.Contains(t, many, "  in place: recovery.restarts, state\n  rolls out: process.env.A\n")
	require.Contains(t, s.ok("apply", "-f", manifest(", stopSeconds: 9"), "--dry-run", "-o", "json").stdout, `"path": "in_place"`)
}

// F51, F52: what waits for a restart is shown where it is written, planned and read.
func TestShownPendingRestart(t *testing.T) {
	t.Parallel()
	s := newRealShell(t)
	manifest := func(more string) string {
		return write(t, "web.yaml", "kind: Deployment\nname: web\nspec: {command: [x], health: {type: none}, replicas: 1, update: versioned"+more+"}\n")
	}
	s.ok("apply", "-f", manifest(""), "--wait=false")
	require.NotContains(t, s.ok("describe", "deployment", "web").stdout, "Needs restart")
	const fields = ", env: {A: secret}, resources: {cpu: 2}, stopSeconds: 7"
	shown := "  in place: process.stopSeconds\n"
	require.Contains(t, s.run("plan", "-f", manifest(fields)).stdout, "    needs restart: process.env.A, resources.cpu\n")
	require.Contains(t, s.ok("apply", "-f", manifest(fields), "--wait=false").stdout, shown+"  needs restart: process.env.A, resources.cpu\n")
	require.Contains(t, s.ok("describe", "deployment", "web").stdout, "Needs restart:  process.env.A, resources.cpu (revision 3)\n")
	require.Contains(t, s.ok("plan", "-f", manifest(fields), "-o", "json").stdout, `"path": "needs_restart"`, "it still differs from what runs")
	var got struct{ Status api.DeploymentStatus }
	require.NoError(t, json.Unmarshal([]byte(s.ok("get", "deployment", "web", "-o", "json").stdout), &got))
	require.Equal(t, &api.PendingRestart{Revision: 3, Fields: []api.SpecChange{
		{Field: "/process/env/A", Path: api.PathNeedsRestart}, {Field: "/resources/cpu", Path: api.PathNeedsRestart},
	}}, got.Status.PendingRestart)
	require.EqualValues(t, 2, got.Status.ObservedGeneration)

	require.Contains(t, s.run("plan", "-f", manifest(fields+", memoryKeepsVersion: true")).stdout, "in place: memoryKeepsVersion\n")
	s.ok("restart", "deployment", "web", "--wait=false")
	require.NotContains(t, s.ok("describe", "deployment", "web").stdout, "Needs restart")
}
