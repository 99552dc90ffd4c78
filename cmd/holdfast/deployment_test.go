package main

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	replica1     = "0123456789ab"
	replica2     = "1123456789ab"
	replicaEnded = "2123456789ab"
)

func until() *time.Time { t := testNow.Add(time.Minute); return &t }

func webStatus(state fleet.DeploymentState, healthy int) api.DeploymentStatus {
	return api.DeploymentStatus{
		State: state, Reason: "starting", Message: "its replicas start", Since: until(), Available: healthy > 0, Target: 3,
		Replicas: api.ReplicaTotals{Desired: 3, Healthy: healthy, Starting: 3 - healthy}, Revision: 2, DeployingRevision: 2, ObservedGeneration: 1, ProcessVersion: 4,
		Awaited: "replica " + replica1 + " to be healthy", Until: until(), Workflow: &api.WorkflowRef{ID: "deployment.web", RunID: "r", URL: "http://web/deployment.web"},
		Synced:     &api.Condition{Type: "synced", Status: fleet.ConditionFalse, Reason: "rolled_back", Revision: 3, Message: "it failed", Hint: "holdfast rollout retry web", Since: testNow},
		Conditions: []fleet.Condition{{Type: "available", Status: fleet.ConditionTrue, Reason: "enough"}},
	}
}

func webReplicas() []api.Replica {
	return []api.Replica{
		{ID: replica1, Deployment: "web", Node: "plant-1-a", Site: "plant-1", State: fleet.ReplicaStarting, Health: fleet.HealthNotChecked, Revision: 2, Reason: "exited", Message: "it exited with 3", StartupDeadline: until(), Restarts: 2, CreatedAt: testNow, Since: testNow},
		{ID: replica2, Deployment: "web", Node: "plant-1-b", Site: "plant-1", State: fleet.ReplicaHealthy, Health: fleet.HealthHealthy, Endpoint: "10.0.0.2:31000", CreatedAt: testNow, Since: testNow},
	}
}

// deploymentRegion has the deployment web, of which one replica does not start.
func deploymentRegion(t *testing.T) *fakeRegion {
	t.Helper()
	r := newRegion(t).plant1()
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.declare("deployments/web", `{"type":"process","process":{"command":["/bin/x"],"env":{"KEY":"swordfish"}},"secretEnv":["KEY"]}`)
	o.Status, _ = json.Marshal(webStatus(fleet.DeploymentProvisioning, 1))
	r.objects["deployments/web"] = o
	r.declare("pools/gpu", `{"nodes":["plant-1-a"],"labels":{"gpu":"a100"},"maxReplicas":2}`)
	r.hook = func(w http.ResponseWriter, req *http.Request) bool {
		q := req.URL.Query()
		switch req.Method + " " + strings.TrimPrefix(req.URL.Path, "/api/v1/") {
		case "GET replicas":
			if q.Get("deployment") == "quiet" {
				reply(w, 200, api.List[api.Replica]{})
				return true
			}
			if q.Get("cursor") == "" {
				reply(w, 200, api.List[api.Replica]{Items: webReplicas()[:1], Next: "2"})
			} else {
				reply(w, 200, api.List[api.Replica]{Items: webReplicas()[1:]})
			}
		case "GET replicas/" + replica1:
			reply(w, 200, webReplicas()[0])
		case "DELETE deployments/web/replicas/" + replica1:
			reply(w, 200, webReplicas()[0])
		case "DELETE deployments/web/replicas/" + replicaEnded:
			reply(w, 200, api.Replica{ID: replicaEnded, Deployment: "web", State: fleet.ReplicaTerminated})
		case "DELETE deployments/web/replicas/" + replica2, "GET deployments/ghost/logs":
			refuse(w, 404, fleet.NotFound, "it does not exist", "")
		case "GET deployments/web/decisions":
			reply(w, 200, api.List[api.Decision]{Items: []api.Decision{{LastAt: testNow, Times: 7, Replica: replica1, Node: "plant-1-a", From: "STARTING", To: "UNHEALTHY", Reason: "exited", Message: "it exited with 3"}}})
		case "GET deployments/web/explain":
			reply(w, 200, webExplanation())
		case "GET deployments/web/top":
			reply(w, 200, api.DeploymentTop{Deployment: "web", CPU: 0.251, Memory: 3 << 20, Requested: api.ResourceTotal{CPU: 1, Memory: 64 << 20}, Replicas: []api.ReplicaTop{
				{ID: replica1, Node: "plant-1-a", State: fleet.ReplicaStarting}, {ID: replica2, Node: "plant-1-b", State: fleet.ReplicaHealthy, CPU: 0.251, Memory: 3 << 20, At: &testNow},
			}})
		case "GET deployments/web/logs":
			list := api.List[api.ReplicaLogChunk]{Items: []api.ReplicaLogChunk{}}
			if id := fleet.ReplicaID(q.Get("replica")); q.Get("after") == "" {
				list.Items = append(list.Items, api.ReplicaLogChunk{Replica: id, Node: "plant-1-a", Data: base64.StdEncoding.EncodeToString([]byte("of " + id + "\n"))})
			}
			reply(w, 200, list)
		default:
			return false
		}
		return true
	}
	return r
}

func webExplanation() api.Explanation {
	return api.Explanation{
		Name: "web", Project: "default", Status: webStatus(fleet.DeploymentProvisioning, 1),
		Spec: &api.ExplainedSpec{
			Type: "process", Driver: "process", Command: []string{"/bin/x", "--port"}, Ports: []fleet.ProcessPort{{Name: "http"}, {Name: "admin", Port: 81}},
			Health: &fleet.HealthCheck{Path: "/health", Method: "GET"}, StartupSeconds: 30, Resources: api.ResourceTotal{CPU: 0.5, Memory: 64 << 20, GPUs: 1},
			Replicas: fleet.ReplicaBounds{Min: 1, Max: 5, Initial: 3}, Placement: api.DeploymentPlacement{Pools: []fleet.PoolName{"gpu"}, Spread: "sites"}, State: "started",
		},
		Uncounted: []api.Uncounted{{ID: replica1, Node: "plant-1-b", Reason: "never_known", Hint: "holdfast orphans approve plant-1-b replica/" + replica1}},
		Causes:    []api.Cause{{Code: "program", Reason: "exited", Message: "it exited with 3", Hint: "look at its output"}},
		Replicas:  webReplicas(),
		Decisions: []api.Decision{{LastAt: testNow, Times: 7, Reason: "exited"}},
		Output:    &api.FailedOutput{Replica: replica1, Node: "plant-1-a", Message: "it exited with 3", At: testNow, Text: "fatal: \x1b[31mno database\n"},
		Nodes:     []api.NodeFree{{Node: "plant-1-b", Site: "plant-1", Total: api.ResourceTotal{CPU: 4, Memory: 1 << 30}, Free: api.ResourceTotal{CPU: 1.5, Memory: 1 << 29}, Why: "no_room", Message: "less than 2 cores"}},
	}
}

// webMoment is one moment of an operation of web.
func webMoment(state fleet.OperationState, healthy int, awaited string) api.Operation {
	op := api.Operation{
		ID: op1, Kind: "converge", Deployment: "web", State: state, Revision: 2, Deadline: testNow.Add(time.Hour), CreatedAt: testNow,
		Workflow: &api.WorkflowRef{ID: "deployment.web", RunID: "r", URL: "http://web/deployment.web"},
	}
	if !state.Ended() {
		op.Replicas = &api.DeploymentProgress{
			State: fleet.DeploymentProvisioning, Target: 3, Awaited: awaited, Until: until(),
			Replicas: api.ReplicaTotals{Desired: 3, Healthy: healthy, Routable: max(healthy-1, 0), Starting: 3 - healthy},
		}
	}
	return op
}

// S94, N103: the wait says how many of how many are healthy, what is awaited, and until when.
func TestDeploymentVerbs(t *testing.T) {
	t.Parallel()

	t.Run("tell how far it is, and how it ended", func(t *testing.T) {
		t.Parallel()
		r := deploymentRegion(t)
		end := webMoment(fleet.OperationSucceeded, 3, "")
		end.Message = "3 of 3 replicas are healthy"
		r.story(webMoment(fleet.OperationRunning, 0, "3 replicas to be healthy"), webMoment(fleet.OperationRunning, 2, "replica "+replica1+" to be healthy"), end)
		got := newShell(t, r).ok("scale", "web", "--replicas", "3", "--reason", "sale")
		require.Equal(t, []string{
			"deployment/web scale accepted, generation 1, operation " + op1,
			"converge deployment/web: PROVISIONING, 0 of 3 healthy, 3 starting, waiting for 3 replicas to be healthy until 2026-03-01T12:01:00Z, deadline 2026-03-01T13:00:00Z",
			"converge deployment/web: PROVISIONING, 2 of 3 healthy, 1 starting, 1 not ready, waiting for replica " + replica1 + " to be healthy until 2026-03-01T12:01:00Z, deadline 2026-03-01T13:00:00Z",
			"converge deployment/web succeeded, revision 2: 3 of 3 replicas are healthy",
		}, strings.Split(strings.TrimSpace(got.stdout), "\n"))
		m := r.last()
		require.Equal(t, "POST deployments/web/scale", m.method+" "+m.path)
		require.JSONEq(t, `{"replicas":3,"reason":"sale"}`, m.body)
	})

	t.Run("end with a code that says how, and where to look", func(t *testing.T) {
		t.Parallel()
		r := deploymentRegion(t)
		end := webMoment(fleet.OperationFailed, 0, "")
		end.Reason, end.Message = "given_up", "3 attempts failed: it exited with 3"
		r.story(webMoment(fleet.OperationRunning, 0, "x"), end)
		got := newShell(t, r).run("restart", "deployment", "web")
		require.Equal(t, exitOperationFailed, got.code)
		require.Contains(t, got.stderr, "error: given_up: converge deployment/web ended as failed: 3 attempts failed: it exited with 3")
		require.Contains(t, got.stderr, "holdfast explain deployment web; http://web/deployment.web")
		require.Equal(t, "POST deployments/web/restart", r.changes()[0])
	})

	t.Run("need not be waited for, and can be waited for later", func(t *testing.T) {
		t.Parallel()
		r := deploymentRegion(t)
		r.story(webMoment(fleet.OperationRunning, 0, "x"))
		s := newShell(t, r)
		require.Equal(t, "deployment/web deploy accepted, generation 1, operation "+op1+"\n", s.ok("deploy", "deployment/web", "--wait=false").stdout)
		require.Equal(t, exitTimeout, s.run("wait", "deployment/web", "--timeout", "50ms").code)
		require.Contains(t, s.ok("operations", "list", "--deployment", "web").stdout, "deployment/web")
	})

	t.Run("refuse what makes no sense", func(t *testing.T) {
		t.Parallel()
		r := deploymentRegion(t)
		s := newShell(t, r)
		for _, args := range [][]string{
			{"scale", "web"},
			{"scale", "web", "--replicas", "-1"},
			{"scale", "Web", "--replicas", "1"},
			{"scale", "--replicas", "1"},
			{"restart", "web"},
			{"restart", "instance", "web"},
			{"restart"},
			{"explain", "web"},
			{"explain", "deployment", "a", "b"},
			{"delete", "replica", "web"},
			{"delete", "replica", "web/x"},
			{"delete", "replica", "web/" + replica1, "--if-match", "1"},
			{"logs", "deployment/web", "--node", "a"},
			{"logs", "deployment/web", "--after", "3"},
			{"logs", "deployment/web", "--replica", "x"},
			{"logs", "plant-1/press-7", "--replica", replica1},
			{"top", "deployments", "Web"},
			{"top", "nothing"},
			{"get", "replica", "web/x"},
		} {
			require.Equal(t, exitUsage, s.run(args...).code, args)
		}
		require.Empty(t, r.changes())
		require.Equal(t, exitNotFound, s.run("scale", "ghost", "--replicas", "1").code)
		require.Equal(t, exitNotFound, s.run("explain", "deployment", "ghost").code)
		require.Equal(t, exitNotFound, s.run("get", "replica", "other/"+replica1).code)
	})

	t.Run("are completed", func(t *testing.T) {
		t.Parallel()
		s := newShell(t, deploymentRegion(t))
		for _, args := range [][]string{
			{"scale", ""}, {"restart", "deployment", ""}, {"explain", "deployment", ""}, {"top", "deployments", ""}, {"describe", "deployment", ""}, {"delete", "deployment", ""},
		} {
			words := strings.Fields(s.ok(append([]string{"__complete"}, args...)...).stdout)
			require.Equal(t, []string{"web", ":4"}, words[len(words)-2:], args)
		}
		require.Contains(t, s.ok("__complete", "logs", "deployment/").stdout, "deployment/web\n")
		require.Contains(t, s.ok("__complete", "delete", "").stdout, "replica\n")
		require.Contains(t, s.ok("__complete", "delete", "replica", "").stdout, "web/"+replica1)
		require.Contains(t, s.ok("__complete", "explain", "").stdout, "deployment\n")
	})
}

func TestDeploymentTables(t *testing.T) {
	t.Parallel()
	s := newShell(t, deploymentRegion(t))

	t.Run("get", func(t *testing.T) {
		lines := strings.Split(s.ok("get", "deployments").stdout, "\n")
		require.Equal(t, []string{"web", "default", "process", "PROVISIONING", "rolled_back", "yes", "1/3", "2", "starting"}, strings.Fields(lines[1])[:9])
		require.Equal(t, "deployment/web\n", s.ok("get", "deployment", "web", "-o", "name").stdout)
		require.Contains(t, s.ok("get", "deployment", "web", "-o", "yaml").stdout, "state: PROVISIONING")
		require.Equal(t, []string{"gpu", "default", "-", "plant-1-a", "gpu=a100", "2"}, strings.Fields(strings.Split(s.ok("get", "pools").stdout, "\n")[1])[:6])
		lines = strings.Split(strings.TrimSpace(s.ok("get", "replicas", "--deployment", "web").stdout), "\n")
		require.Len(t, lines, 3, "both pages")
		require.Equal(t, []string{"web/" + replica1, "plant-1-a", "STARTING", "NOT_CHECKED", "2", "-", "2", "exited"}, strings.Fields(lines[1])[:8])
		require.Contains(t, lines[2], "HEALTHY, not ready", "F72: it is healthy, and not routable")
		var one api.Replica
		require.NoError(t, json.Unmarshal([]byte(s.ok("get", "replica", "web/"+replica1, "-o", "json").stdout), &one))
		require.EqualValues(t, replica1, one.ID)
	})

	t.Run("describe hides what is secret, and says what is awaited", func(t *testing.T) {
		got := s.ok("describe", "deployment", "web").stdout
		for _, text := range []string{
			"State:          PROVISIONING", "Synced:         rolled_back, revision 3, since 2026-03-01T12:00:00Z: it failed", "What helps:     holdfast rollout retry web", "Replicas:       1 of 3 healthy, 2 starting, 1 not ready", "Waits for:      replica " + replica1 + " to be healthy, until 2026-03-01T12:01:00Z",
			"Workflow:       http://web/deployment.web", "available", "The first 50 replicas (all: holdfast get replicas --deployment web)", "it exited with 3, it must be healthy by 2026-03-01T12:01:00Z", "Last decisions", "moving to 2",
		} {
			require.Contains(t, got, text)
		}
		require.NotContains(t, got, "swordfish")
		require.NotContains(t, s.ok("describe", "deployment", "web", "-o", "yaml").stdout, "swordfish")
		one := s.ok("describe", "replica", replica1).stdout
		require.Contains(t, one, "reason: exited")
		require.Contains(t, one, "startupDeadline: ") // X8
		require.Contains(t, one, "2026-03-01T12:01:00Z")
	})

	t.Run("explain", func(t *testing.T) { // S94, S95, X8
		got := s.ok("explain", "deployment", "web").stdout
		for _, text := range []string{
			"program (exited): it exited with 3", "-> look at its output", "Command:   /bin/x --port", "http, admin:81", "0.5 cores, 64.0 MiB, 1 GPUs", "1 to 5, at first 3",
			"pools gpu; spread over sites", "Last output of replica " + replica1, "  | fatal: ?[31mno database", "less than 2 cores", "Waits for:      replica",
			"it must be healthy by 2026-03-01T12:01:00Z", "May still run, not counted", "holdfast orphans approve plant-1-b replica/" + replica1,
		} {
			require.Contains(t, got, text)
		}
		require.Equal(t, got, s.ok("explain", "deployment/web").stdout)
		var e api.Explanation
		require.NoError(t, json.Unmarshal([]byte(s.ok("explain", "deployment", "web", "-o", "json").stdout), &e))
		require.Equal(t, "program", e.Causes[0].Code)
		require.Contains(t, s.ok("explain", "deployment", "web", "-o", "yaml").stdout, "code: program")
	})

	t.Run("top", func(t *testing.T) {
		require.Equal(t, []string{"web", "2", "0.25", "1", "3.0", "MiB", "64.0", "MiB"}, strings.Fields(strings.Split(s.ok("top", "deployments").stdout, "\n")[1]))
		lines := strings.Split(s.ok("top", "replicas", "web").stdout, "\n")
		require.Equal(t, []string{"web/" + replica1, "plant-1-a", "STARTING", "-", "-", "-"}, strings.Fields(lines[1]))
		require.Equal(t, []string{"web/" + replica2, "plant-1-b", "HEALTHY", "0.25", "3.0", "MiB"}, strings.Fields(lines[2])[:6])
		require.Contains(t, s.ok("top", "replicas", "web", "-o", "json").stdout, `"deployment": "web"`)
		r := deploymentRegion(t)
		r.mu.Lock()
		r.declare("deployments/gone", `{}`) // its top is answered 404, as if it were deleted now
		r.mu.Unlock()
		s := newShell(t, r)
		require.Contains(t, s.ok("top", "deployments").stdout, "web ")
		require.Equal(t, exitNotFound, s.run("top", "deployments", "gone").code)
	})

	t.Run("delete", func(t *testing.T) { // S115
		r := deploymentRegion(t)
		s := newShell(t, r)
		require.Equal(t, "replica/web/"+replica1+" delete accepted, a new one replaces it\n", s.ok("delete", "replica", "web/"+replica1).stdout)
		require.Equal(t, "replica/web/"+replicaEnded+" delete accepted, it has ended\n", s.ok("delete", "replica", "web/"+replicaEnded).stdout)
		require.Equal(t, exitNotFound, s.run("delete", "replica", "web/"+replica2, "-o", "json").code)
		require.Contains(t, s.ok("delete", "replica", "web/"+replica1, "-o", "yaml").stdout, "node: plant-1-a")
		s.ok("delete", "deployment", "web")
		s.ok("delete", "pool", "gpu")
		require.Equal(t, []string{"DELETE deployments/web", "DELETE pools/gpu"}, r.changes()[len(r.changes())-2:])
	})
}

func TestDeploymentLogs(t *testing.T) {
	t.Parallel()
	r := deploymentRegion(t)
	s := newShell(t, r)
	require.Equal(t, "==> replica "+replica1+" on plant-1-a <==\nof "+replica1+"\n\n==> replica "+replica2+" on plant-1-a <==\nof "+replica2+"\n", s.ok("logs", "deployment/web").stdout)
	require.Equal(t, "of "+replica2+"\n", s.ok("logs", "deployment/web", "--replica", replica2).stdout)
	require.Contains(t, s.ok("logs", "deployment/web", "--replica", replica2, "-o", "json").stdout, `"replica":"`+replica2+`"`)
	silent := s.ok("logs", "deployment/web", "--replica", replica2, "--after", "100")
	require.Empty(t, silent.stdout)
	require.Equal(t, "replica "+replica2+" of deployment web wrote nothing after offset 100\n", silent.stderr)
	require.Equal(t, exitNotFound, s.run("logs", "deployment/ghost").code)
	out, stop := s.follow("logs", "deployment/web", "--follow")
	out.await(t, "of "+replica2)
	require.Equal(t, exitOK, stop())
	require.Equal(t, 1, strings.Count(out.String(), "of "+replica1), "what was written once is not written again")
}

// S94, X8: the last words of one that crashed come after the word that it is gone.
func TestLastWords(t *testing.T) {
	t.Parallel()
	r := deploymentRegion(t)
	lists, reads := 0, 0
	r.mu.Lock()
	hook := r.hook
	r.hook = func(w http.ResponseWriter, req *http.Request) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		switch req.URL.Path {
		case "/api/v1/replicas":
			lists++
			list := api.List[api.Replica]{Items: []api.Replica{}}
			if lists == 1 {
				list.Items = webReplicas()[:1]
			}
			reply(w, 200, list)
			return true
		case "/api/v1/deployments/web/logs":
			list := api.List[api.ReplicaLogChunk]{Items: []api.ReplicaLogChunk{}}
			if reads++; reads == 9 && lists > 2 {
				list.Items = append(list.Items, api.ReplicaLogChunk{Replica: replica1, Node: "plant-1-a", Data: base64.StdEncoding.EncodeToString([]byte("fatal\n"))})
			}
			reply(w, 200, list)
			return true
		}
		return hook(w, req)
	}
	r.mu.Unlock()
	out, stop := newShell(t, r).follow("logs", "deployment/web", "--follow")
	out.await(t, "fatal")
	require.Equal(t, exitOK, stop())
}

// S94: what begins and ends between two looks is shown too, what ended before is not.
func TestLogsOfTheShortLived(t *testing.T) {
	t.Parallel()
	const before, brief = fleet.ReplicaID("00000000000a"), fleet.ReplicaID("00000000000b")
	r := deploymentRegion(t)
	lists := 0
	r.mu.Lock()
	hook := r.hook
	r.hook = func(w http.ResponseWriter, req *http.Request) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		switch req.URL.Path {
		case "/api/v1/replicas":
			lists++
			now := time.Now()
			list := api.List[api.Replica]{Items: []api.Replica{webReplicas()[0], {ID: before, EndedAt: &now}}}
			if lists > 2 {
				list.Items = append(list.Items, api.Replica{ID: brief, EndedAt: &now})
			}
			reply(w, 200, list)
			return true
		case "/api/v1/deployments/web/logs":
			list := api.List[api.ReplicaLogChunk]{Items: []api.ReplicaLogChunk{}}
			if id := req.URL.Query().Get("replica"); id != "" {
				list.Items = append(list.Items, api.ReplicaLogChunk{Replica: fleet.ReplicaID(id), Node: "plant-1-a", Data: base64.StdEncoding.EncodeToString([]byte("of " + id + "\n"))})
			}
			reply(w, 200, list)
			return true
		}
		return hook(w, req)
	}
	r.mu.Unlock()
	out, stop := newShell(t, r).follow("logs", "deployment/web", "--follow")
	out.await(t, "of "+string(brief))
	require.Equal(t, exitOK, stop())
	require.NotContains(t, out.String(), "of "+string(before))
	require.Equal(t, 1, strings.Count(out.String(), "of "+string(brief)))
}

// S121: files of a manifest's directory, and forms of counts and memory.
func TestDeploymentManifests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte("listen ${PORT};\n"), 0o600))
	path := filepath.Join(dir, "web.yaml")
	manifest := `kind: Deployment
name: web
labels: {team: shop}
spec:
  command: [nginx, -c, conf/nginx.conf]
  files: [{path: conf/nginx.conf, contentFile: nginx.conf}]
  ports: [{name: http}]
  resources: {memory: 64Mi}
  replicas: 2
---
kind: Pool
name: gpu
spec: {nodes: [plant-1-a], nodeLabels: {gpu: a100}}
`
	require.NoError(t, os.WriteFile(path, []byte(manifest), 0o600))

	t.Run("are applied, what others refer to first", func(t *testing.T) {
		r := deploymentRegion(t)
		r.story(webMoment(fleet.OperationSucceeded, 2, ""))
		newShell(t, r).ok("apply", "-f", path, "--reason", "ticket 1")
		require.Equal(t, []string{"PUT pools/gpu", "PUT deployments/web"}, r.changes())
		var put api.DeploymentPut
		require.NoError(t, json.Unmarshal([]byte(r.last().body), &put))
		require.Equal(t, "listen ${PORT};\n", put.Files[0].Content)
		require.EqualValues(t, 64<<20, put.Resources.Memory)
		require.Equal(t, api.Exactly(2), put.Replicas)
		require.Equal(t, "ticket 1", put.Reason)
		require.Equal(t, map[string]string{"team": "shop"}, put.Labels)
		newShell(t, r).ok("apply", "-f", path, "--deploy=false")
		require.Contains(t, r.last().query, "deploy=false")
	})

	t.Run("are refused as a whole with their place", func(t *testing.T) {
		for text, says := range map[string]string{
			"kind: Deployment\nname: web\nspec: {comand: [x]}":                                                         "comand",
			"kind: Deployment\nname: web\nspec: {command: [x], resources: {memory: lots}}":                             "512Mi",
			"kind: Deployment\nname: web\nspec: {command: [x], replicas: many}":                                        "count of replicas",
			"kind: Deployment\nname: web\nspec: {command: [x], files: [{path: a, content: b, contentFile: web.yaml}]}": "give either content or contentFile",
			"kind: Deployment\nname: web\nspec: {command: [x], files: [{path: a, contentFile: nothing}]}":              "contentFile",
			"kind: Deployment\nname: web\nspec: {command: [x], labels: {a: b}}":                                        "out of spec",
			"kind: Pool\nname: gpu\nspec: {node: [a]}":                                                                 "node",
		} {
			r := deploymentRegion(t)
			got := newShell(t, r).run("apply", "-f", write(t, "x.yaml", text))
			require.Equal(t, exitUsage, got.code, text)
			require.Contains(t, got.stderr, says)
			require.Empty(t, r.changes())
		}
	})
}
