package main

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// trialRegion has a trial print something, and tells its story.
func trialRegion(t *testing.T, story ...api.Operation) (*fakeRegion, string) {
	t.Helper()
	r := newRegion(t).plant1()
	r.story(story...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hook = func(w http.ResponseWriter, req *http.Request) bool {
		switch {
		case req.URL.Path == "/api/v1/replicas":
			reply(w, 200, api.List[api.Replica]{Items: []api.Replica{triedReplica()}})
		case strings.HasSuffix(req.URL.Path, "/logs"):
			list := api.List[api.ReplicaLogChunk]{Items: []api.ReplicaLogChunk{}}
			if req.URL.Query().Get("after") == "" {
				list.Items = append(list.Items, api.ReplicaLogChunk{Replica: replica2, Node: "plant-1-b", Data: base64.StdEncoding.EncodeToString([]byte("loading\n"))})
			}
			reply(w, 200, list)
		case strings.HasSuffix(req.URL.Path, "/explain"):
			e := webExplanation()
			e.Replicas = webReplicas()[1:]
			if story[len(story)-1].State == fleet.OperationSucceeded {
				e.Causes, e.Output = []api.Cause{}, nil
			}
			reply(w, 200, e)
		default:
			return false
		}
		return true
	}
	path := filepath.Join(t.TempDir(), "web.yaml")
	require.NoError(t, os.WriteFile(path, []byte("kind: Deployment\nname: web\nlabels: {team: shop}\nspec:\n  command: [serve]\n  replicas: {min: 2, max: 9}\n  state: stopped\n"), 0o600))
	return r, path
}

// triedReplica is healthy, ready and proven.
func triedReplica() api.Replica {
	r := webReplicas()[1]
	r.Routable = true
	return r
}

// S134: a trial is one replica beside the deployment; it is followed, and deleted whatever became of it.
func TestTry(t *testing.T) {
	t.Parallel()
	running := webMoment(fleet.OperationRunning, 0, "1 replica to be healthy")
	failed := webMoment(fleet.OperationFailed, 0, "")
	failed.Reason, failed.Message = "given_up", "3 attempts failed: it exited with 3; release another revision, or restart the deployment"
	deleted := func(t *testing.T, r *fakeRegion) string {
		t.Helper()
		changes := r.changes()
		require.Len(t, changes, 2)
		require.Equal(t, strings.Replace(changes[0], "PUT", "DELETE", 1), changes[1])
		return strings.TrimPrefix(changes[0], "PUT deployments/")
	}

	t.Run("healthy", func(t *testing.T) {
		t.Parallel()
		r, path := trialRegion(t, running, running, webMoment(fleet.OperationSucceeded, 1, ""))
		got := newShell(t, r).ok("try", "-f", path)
		name := deleted(t, r)
		require.Regexp(t, regexp.MustCompile(`^web-trial-[0-9a-f]{4}$`), name)
		for _, text := range []string{"PROVISIONING", "loading\n", "replica " + replica2 + " on plant-1-b at 10.0.0.2:31000", "trial " + name + " is proven after "} {
			require.Contains(t, got.stdout, text)
		}
		var put api.DeploymentPut
		require.NoError(t, json.Unmarshal([]byte(r.arrived()[0].body), &put))
		require.Equal(t, api.Exactly(1), put.Replicas)
		require.Equal(t, fleet.StateStarted, put.State)
		require.Equal(t, map[string]string{"team": "shop", trialLabel: "web"}, put.Labels)
	})

	t.Run("given up, or late", func(t *testing.T) {
		t.Parallel()
		r, path := trialRegion(t, running, failed)
		got := newShell(t, r).run("try", "-f", path)
		require.Equal(t, exitOperationFailed, got.code)
		require.Contains(t, got.stderr, "given_up")
		require.NotContains(t, got.stderr, "restart the deployment", "it is gone")
		require.Contains(t, got.stdout, "program (exited): it exited with 3")
		require.Contains(t, got.stdout, "  | fatal: ?[31mno database")
		deleted(t, r)
	})

	t.Run("healthy, but not for long", func(t *testing.T) {
		t.Parallel()
		for name, became := range map[string]func(*api.Replica){
			"unhealthy": func(r *api.Replica) { r.State, r.Routable = fleet.ReplicaUnhealthy, false },
			"restarted": func(r *api.Replica) { r.Restarts++ },
			"replaced":  func(r *api.Replica) { r.ID = replica1 },
		} {
			r, path := trialRegion(t, running, webMoment(fleet.OperationSucceeded, 1, ""))
			r.mu.Lock()
			hook, looked := r.hook, 0
			r.hook = func(w http.ResponseWriter, req *http.Request) bool {
				if req.URL.Path != "/api/v1/replicas" {
					return hook(w, req)
				}
				x := triedReplica()
				x.ProvenAt = until()
				if looked++; looked > 3 {
					became(&x)
				}
				reply(w, 200, api.List[api.Replica]{Items: []api.Replica{x}})
				return true
			}
			r.mu.Unlock()
			got := newShell(t, r).run("try", "-f", path)
			require.Equal(t, exitOperationFailed, got.code, name)
			require.Contains(t, got.stderr, "failed before it was proven", name)
			require.NotContains(t, got.stdout, "is proven", name)
			deleted(t, r)
		}
	})

	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		r, path := trialRegion(t, running)
		out, stop := newShell(t, r).follow("try", "-f", path)
		out.await(t, "loading")
		require.Equal(t, exitError, stop())
		deleted(t, r)
	})

	t.Run("out of time", func(t *testing.T) {
		t.Parallel()
		r, path := trialRegion(t, running)
		require.Equal(t, exitTimeout, newShell(t, r).run("try", "-f", path, "--timeout", "3s").code)
		deleted(t, r)
	})

	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		r, path := trialRegion(t, running)
		r.mu.Lock()
		hook := r.hook
		r.hook = func(w http.ResponseWriter, req *http.Request) bool {
			if req.Method == http.MethodPut {
				refuse(w, 400, fleet.Invalid, "no such site", "/placement/sites/0")
				return true
			}
			return hook(w, req)
		}
		r.mu.Unlock()
		require.Equal(t, exitUsage, newShell(t, r).run("try", "-f", path).code)
	})

	t.Run("as one object", func(t *testing.T) {
		t.Parallel()
		r, path := trialRegion(t, running, failed)
		got := newShell(t, r).run("try", "-f", path, "-o", "json")
		require.Equal(t, exitOperationFailed, got.code)
		var result trialResult
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &result), got.stdout)
		require.Equal(t, deleted(t, r), result.Name)
		require.Equal(t, []any{"web", false, "given_up", true, "fatal: \x1b[31mno database\n"}, []any{result.Deployment, result.Healthy, result.Reason, result.Deleted, result.Output})

		r, path = trialRegion(t, running, running, webMoment(fleet.OperationSucceeded, 1, ""))
		require.NoError(t, json.Unmarshal([]byte(newShell(t, r).ok("try", "-f", path, "-o", "json").stdout), &result))
		require.True(t, result.Healthy)
		require.Contains(t, result.Output, "loading\n")
	})

	t.Run("of what is no deployment", func(t *testing.T) {
		t.Parallel()
		r, _ := trialRegion(t, running)
		path := filepath.Join(t.TempDir(), "pool.yaml")
		require.NoError(t, os.WriteFile(path, []byte("kind: Pool\nname: gpu\nspec: {nodes: [plant-1-a]}\n"), 0o600))
		s := newShell(t, r)
		require.Equal(t, exitUsage, s.run("try", "-f", path).code)
		require.Equal(t, exitUsage, s.run("try").code)
		require.Empty(t, r.changes())
	})
}

// S134, against the region's own handlers: what is tried is taken, and deleted when time is up.
func TestTryForReal(t *testing.T) {
	t.Parallel()
	s := newRealShell(t)
	path := filepath.Join(t.TempDir(), "web.yaml")
	require.NoError(t, os.WriteFile(path, []byte("kind: Deployment\nname: web\nspec:\n  command: [serve]\n  ports: [{name: http}]\n"), 0o600))
	var result trialResult
	got := s.run("try", "-f", path, "--timeout", "5s", "-o", "json")
	require.Equal(t, exitTimeout, got.code, got.stderr)
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &result), got.stdout)
	require.True(t, result.Deleted)
	ops := s.ok("operations", "list", "--deployment", result.Name).stdout
	require.Contains(t, ops, "destroy", "it is being deleted")
	require.Contains(t, ops, "converge")
}
