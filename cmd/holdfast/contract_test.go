package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// wakeNobody stands for the workflows: what the command line starts stays running.
type wakeNobody struct{}

func (wakeNobody) Wake(context.Context, string) error { return nil }

// newRealShell speaks to the region's own handlers on a real database.
func newRealShell(t *testing.T) *shell {
	t.Helper()
	s, _ := newRealRegion(t)
	return s
}

func newRealRegion(t *testing.T) (*shell, *store.Store) {
	t.Helper()
	store := testkit.Store(t)
	return shellOn(t, store, nil), store
}

// shellOn speaks to the region's own handlers over a store.
func shellOn(t *testing.T, store *store.Store, executor httpapi.Executor) *shell {
	t.Helper()
	hash := identity.HashToken(regionToken)
	_, err := store.AddAPIToken(t.Context(), keyring.APIToken{Hash: hash[:], Role: "admin", Note: "test", CreatedBy: "test"})
	require.NoError(t, err)
	limits := compose.DefaultLimits()
	handler, err := httpapi.New(httpapi.Deps{
		Store: store, Waker: wakeNobody{}, NodeStarted: func(context.Context, fleet.NodeName) error { return nil },
		Flatten: compose.NewBudget(2 * int64(limits.MaxBytes)), Limits: limits, Region: testkit.Region,
		PendingTTL: time.Minute, OperationLimit: time.Minute, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Executor: executor,
	})
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	s := newShell(t, nil)
	s.env[envAddress], s.env[envToken] = server.URL, regionToken
	return s
}

// realPlant writes manifests with every kind and every source of a config.
func realPlant(t *testing.T, artifact []byte) string {
	t.Helper()
	dir := t.TempDir()
	_, others, _ := strings.Cut(plant, "---\n")
	for name, text := range map[string]string{
		"press.json": `{"kind":"Instance","name":"press-7","site":"plant-1","project":"line-a","spec":{"config":{"big":1e400}}}`,
		"plant.yaml": others + `---
kind: Instance
name: furnace-2
site: plant-1
spec: {template: oven, overrides: {temp: 950}, enabled: false}
`,
		"firmware.json": `{"kind":"Instance","name":"firmware","site":"plant-1","spec":{"artifactFile":"firmware.bin","durability":"async"}}`,
		"firmware.bin":  string(artifact),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// X19: the command line against the region's own handlers and a real database: that both mean
// the same by the contract, refusals too.
func TestContract(t *testing.T) {
	t.Parallel()
	s := newRealShell(t)
	artifact := bytes.Repeat([]byte("0123456789abcdef"), 9<<20/16+1) // more than a piece, no multiple of one
	dir := realPlant(t, artifact)

	// A number that no double holds is the region's to refuse, with its place.
	got := s.run("apply", "-f", dir, "--wait=false")
	require.Equal(t, exitUsage, got.code, got.stdout+got.stderr)
	require.Contains(t, got.stdout, "instance/plant-1/press-7 refused: invalid")
	require.Contains(t, got.stderr, "/config/big")
	for _, want := range []string{
		"project/line-a applied, generation 1", "site/plant-1 applied, generation 1", "template/furnace applied, generation 1",
		"template/oven applied, generation 1", "instance/plant-1/furnace-2 applied, generation 1, operation ",
		"instance/plant-1/firmware applied, generation 1, operation ",
	} {
		require.Contains(t, got.stdout, want)
	}

	t.Run("lists and reads what was applied", func(t *testing.T) {
		require.Equal(t, "instance/plant-1/firmware\ninstance/plant-1/furnace-2\n", s.ok("get", "instances", "-o", "name").stdout)
		require.Contains(t, s.ok("get", "sites").stdout, "plant-1-a(active),plant-1-b(standby)")
		require.Contains(t, s.ok("get", "instance", "plant-1/firmware", "-o", "json").stdout, sha256Of(string(artifact)))
		require.Contains(t, s.ok("describe", "instance", "plant-1/furnace-2").stdout, "template: oven")
		require.Contains(t, s.ok("describe", "site", "plant-1").stdout, "Status:")
		require.Contains(t, s.ok("get", "nodes", "--site", "plant-1").stdout, "plant-1-b")
		require.Contains(t, s.ok("describe", "node", "plant-1-a").stdout, "name: plant-1-a")
		require.Empty(t, s.ok("deliveries", "plant-1/firmware").stdout)
		silent := s.ok("logs", "plant-1/firmware")
		require.Empty(t, silent.stdout)
		require.Equal(t, "plant-1/firmware wrote nothing: it has no run section, so its nodes hold its config and run no command\n", silent.stderr)
		require.Equal(t, exitNotFound, s.run("get", "config", "plant-1/firmware").code, "nothing is deployed yet")
		require.Equal(t, exitNotFound, s.run("get", "instances", "--site", "plant-9").code)
	})

	t.Run("guards changes by the ETag that describe shows", func(t *testing.T) {
		var o api.Object
		require.NoError(t, json.Unmarshal([]byte(s.ok("get", "template", "furnace", "-o", "json").stdout), &o))
		path := write(t, "t.yaml", "kind: Template\nname: furnace\nspec: {base: {temp: 901}}")
		require.Equal(t, exitConflict, s.run("apply", "-f", path, "--if-match", "999999").code)
		require.Contains(t, s.ok("apply", "-f", path, "--if-match", o.ResourceVersion, "--dry-run").stdout, "nothing was changed")
		require.Contains(t, s.ok("apply", "-f", path, "--if-match", o.ResourceVersion).stdout, "generation 2")
		require.Equal(t, exitConflict, s.run("apply", "-f", path, "--if-match", o.ResourceVersion).code)
	})

	t.Run("follows operations", func(t *testing.T) {
		got := s.run("deploy", "plant-1/firmware", "--timeout", "3s", "--reason", "again")
		require.Equal(t, exitTimeout, got.code, got.stdout+got.stderr)
		var list api.List[api.Operation]
		require.NoError(t, json.Unmarshal([]byte(s.ok("operations", "list", "--instance", "plant-1/firmware", "--state", "running", "-o", "json").stdout), &list))
		require.NotEmpty(t, list.Items)
		for _, op := range list.Items {
			require.Contains(t, s.ok("operations", "get", op.ID).stdout, "plant-1/firmware")
			s.ok("operations", "cancel", op.ID)
		}
		require.Contains(t, s.ok("disable", "plant-1/firmware", "--dry-run").stdout, "would disable (dry run")
		require.Equal(t, exitNotFound, s.run("enable", "plant-1/nothing").code)
		require.Equal(t, exitTimeout, s.run("wait", "plant-1/furnace-2", "--timeout", "100ms").code)
	})

	t.Run("repeats a change under its key as one", func(t *testing.T) {
		args := []string{"disable", "plant-1/firmware", "--wait=false", "--idempotency-key", "once", "-o", "json"}
		var first, second outcome
		require.NoError(t, json.Unmarshal([]byte(s.ok(args...).stdout), &first))
		require.NoError(t, json.Unmarshal([]byte(s.ok(args...).stdout), &second))
		require.NotNil(t, first.Operation)
		require.Equal(t, first.Operation.ID, second.Operation.ID)
	})

	t.Run("keeps tokens to their role and shows secrets once", func(t *testing.T) {
		var token api.Token
		require.NoError(t, json.Unmarshal([]byte(s.ok("token", "create", "--role", "viewer", "--note", "n", "-o", "json").stdout), &token))
		require.NotContains(t, s.ok("token", "list", "-o", "json").stdout, token.Token)
		viewer := newShell(t, nil)
		viewer.env[envAddress], viewer.env[envToken] = s.env[envAddress], token.Token
		viewer.ok("get", "sites")
		require.Equal(t, exitDenied, viewer.run("deploy", "plant-1/firmware").code)
		s.ok("token", "revoke", token.ID)
		require.Equal(t, exitDenied, viewer.run("get", "sites").code)
		require.Contains(t, s.ok("join-token", "create", "--site", "plant-1", "--node", "plant-1-a").stdout, "plant-1-a")
		require.Contains(t, s.ok("join-token", "list").stdout, "valid")
	})

	t.Run("shows changes as they come", func(t *testing.T) {
		out, stop := s.follow("events", "--watch")
		events := s.ok("events", "--limit", "500", "-o", "json").stdout
		require.Contains(t, events, `"name": "furnace-2"`)
		limit, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for n := 0; out.String() == "" && limit.Err() == nil; n++ { // the watch begins at some time from now
			s.ok("apply", "-f", write(t, "p.yaml", "kind: Project\nname: line-b\nlabels: {n: '"+number(int64(n))+"'}"))
		}
		out.await(t, "line-b")
		require.Equal(t, exitOK, stop())
	})
}

// X19, S5, S42, S94, S115: the command line against the region's own handlers, for deployments.
func TestDeploymentContract(t *testing.T) {
	t.Parallel()
	s := newRealShell(t)
	got := s.ok("apply", "-f", "../../examples/deployments", "--wait=false")
	for _, name := range []string{"web", "nginx", "redis"} {
		require.Contains(t, got.stdout, "deployment/"+name+" applied, generation 1, operation ")
	}
	require.Contains(t, s.ok("apply", "-f", "../../examples/deployments", "--wait=false").stdout, "deployment/web applied, generation 1, nothing to do")
	require.Contains(t, s.ok("plan", "-f", "../../examples/deployments").stdout, "3 unchanged")
	require.Equal(t, "deployment/nginx\ndeployment/redis\ndeployment/web\n", s.ok("get", "deployments", "-o", "name").stdout)
	require.Contains(t, s.ok("get", "deployments").stdout, "PENDING")
	require.Contains(t, s.ok("describe", "deployment", "web").stdout, "0 of 2 healthy")
	require.Contains(t, s.ok("explain", "deployment", "web").stdout, "holdfast demo")
	require.Contains(t, s.ok("explain", "deployment", "nginx", "-o", "json").stdout, `"state": "PENDING"`)

	require.Contains(t, s.ok("scale", "web", "--replicas", "4", "--wait=false").stdout, "deployment/web scale accepted")
	require.Contains(t, s.ok("get", "deployments").stdout, "0/4")
	refused := s.run("scale", "web", "--replicas", "40", "--wait=false")
	require.Equal(t, exitUsage, refused.code)
	require.Contains(t, refused.stderr, "the bounds are 1 to 6")
	require.Contains(t, s.ok("restart", "deployment", "web", "--wait=false").stdout, "restart accepted")
	require.Equal(t, exitTimeout, s.run("wait", "deployment/web", "--timeout", "50ms").code)
	require.Empty(t, s.ok("get", "replicas", "--deployment", "web").stdout)
	silent := s.ok("logs", "deployment/web")
	require.Empty(t, silent.stdout)
	require.Equal(t, "deployment web has no replicas; see \"holdfast explain deployment web\"\n", silent.stderr)
	require.Contains(t, s.ok("top", "deployments").stdout, "redis")
	require.Contains(t, s.ok("operations", "list", "--deployment", "web").stdout, "restart")
	require.Equal(t, exitNotFound, s.run("delete", "replica", "web/0123456789ab").code)

	require.Contains(t, s.ok("delete", "deployment", "redis", "--wait=false").stdout, "deployment/redis ")
	require.Equal(t, exitConflict, s.run("scale", "redis", "--replicas", "1", "--wait=false").code, "S42")
	later := write(t, "later.yaml", "kind: Deployment\nname: later\nspec: {command: [x], health: {type: none}}")
	s.ok("apply", "-f", later, "--deploy=false")
	s.ok("delete", "deployment", "later")
	require.Equal(t, "deployment/later\n", s.ok("get", "deployments", "--ended", "-o", "name").stdout, "S118")
	require.Contains(t, s.ok("explain", "deployment", "later").stdout, "TERMINATED")
	for _, args := range [][]string{{"explain", "deployment", "ghost"}, {"scale", "ghost", "--replicas", "1"}, {"restart", "deployment", "ghost"}, {"logs", "deployment/ghost"}, {"top", "replicas", "ghost"}, {"wait", "deployment/ghost"}} {
		require.Equal(t, exitNotFound, s.run(args...).code, args)
	}
	bad := s.run("apply", "-f", write(t, "x.yaml", "kind: Deployment\nname: x\nspec: {command: [x], health: {timeout: 9, interval: 3}, ports: [{name: http}]}"))
	require.Equal(t, exitUsage, bad.code)
	require.Contains(t, bad.stderr, "/health/timeout")

	require.Contains(t, s.ok("rollout", "history", "web").stderr, "nothing found")
	require.Contains(t, s.ok("rollout", "status", "web", "-o", "json").stdout, `"items": []`)
	for _, word := range []string{"pause", "resume", "promote", "cancel"} {
		refused := s.run("rollout", word, "web", "--rollout", "3")
		require.Equal(t, exitConflict, refused.code)
		require.Contains(t, refused.stderr, "holdfast rollout history web")
		require.Equal(t, exitNotFound, s.run("rollout", word, "ghost").code)
	}
	require.Equal(t, exitUsage, s.run("rollout", "cancel", "web", "--rollout", "-1").code)
	require.Equal(t, exitUsage, s.run("rollout", "resume", "web", "--step", "-1").code)
	require.Contains(t, s.run("rollout", "rollback", "web").stderr, "no earlier revision")
	require.Equal(t, exitNotFound, s.run("rollout", "rollback", "web", "--revision", "99").code)
	require.Equal(t, exitUsage, s.run("rollout", "rollback", "web", "--revision", "0").code)
	require.Equal(t, exitNotFound, s.run("rollout", "retry", "ghost").code)
	require.Equal(t, exitNotFound, s.run("rollout", "history", "ghost").code)
	for of, says := range map[string]string{"{max_surge: many}": `"25%"`, "{max_surge: 0}": "/strategy/max_surge", "{when_full: never}": "old_first"} {
		bad := s.run("apply", "-f", write(t, "bad.yaml", "kind: Deployment\nname: bad\nspec: {command: [x], strategy: "+of+"}"))
		require.Equal(t, exitUsage, bad.code, bad.stderr)
		require.Contains(t, bad.stderr, says)
	}
	s.ok("apply", "-f", write(t, "good.yaml", "kind: Deployment\nname: good\nspec: {command: [x], strategy: {max_surge: 25%, max_unavailable: 1}}"), "--wait=false")
	require.Contains(t, s.ok("get", "deployment", "good", "-o", "yaml").stdout, "max_surge: 25%")
}

// X19: the region's hint is on stderr, as text and as JSON, of one object and of each of many.
func TestHintsReachTheCommandLine(t *testing.T) {
	t.Parallel()
	s := newRealShell(t)
	got := s.run("explain", "deployment", "ghost")
	require.Equal(t, exitNotFound, got.code)
	require.Equal(t, "error: not_found: deployment ghost not found\n  at: deployment\n  hint: holdfast get deployments\n", got.stderr)

	var p api.Problem
	got = s.run("explain", "deployment", "ghost", "-o", "json")
	require.Equal(t, exitNotFound, got.code)
	require.NoError(t, json.Unmarshal([]byte(got.stderr), &p))
	require.Equal(t, []string{"deployment", "holdfast get deployments"}, []string{p.Field, p.Hint})

	got = s.run("deploy", "plant-1/ghost")
	require.Equal(t, exitNotFound, got.code)
	require.Contains(t, got.stderr, "\n  hint: ")

	many := write(t, "many.yaml", "kind: Project\nname: red\n---\nkind: Instance\nname: a\nsite: nowhere\nspec: {config: {}}\n")
	for _, verb := range []string{"plan", "apply"} {
		got = s.run(verb, "-f", many)
		require.Equal(t, exitNotFound, got.code, verb)
		require.Contains(t, got.stderr, "error: not_found: ", verb)
		require.Contains(t, got.stderr, "\n  hint: ", verb)
	}
}
