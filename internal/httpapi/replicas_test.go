package httpapi

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	one = "0123456789ab" // healthy on plant-1-a
	two = "1123456789ab" // starting on plant-1-b
	old = "2123456789ab" // failed and ended on plant-1-a
)

// running is a region with web on two nodes, one replica healthy, one starting, and one that
// failed and has ended.
func running(t *testing.T) *region {
	t.Helper()
	r := setup(t)
	r.site()
	r.put(webPath, web)
	insert := `INSERT INTO replicas (id, deployment, uid, node, site, revision, process_version, definition, cpu, memory, stop_seconds, state, health, phase, endpoint, pid, reason, message, listed, failed_at, ended_at)
		SELECT $1, 'web', d.uid, $2, 'plant-1', 1, d.process_version, v.definition, 0.5, 67108864, 10, $3, $4, $5, $6, 4711, $7, $8, 1, CASE WHEN $7 <> '' THEN now() END, CASE WHEN $3 = 'TERMINATED' THEN now() END
		FROM deployments d JOIN deployment_revisions v ON v.deployment = d.name`
	r.sql(insert, one, "plant-1-a", "HEALTHY", "HEALTHY", "running", "10.0.0.1:31000", "", "")
	r.sql(insert, two, "plant-1-b", "STARTING", "NOT_CHECKED", "running", "", "", "")
	r.sql(`UPDATE replicas SET running_since = '2026-03-01T12:00:00Z'`)
	r.sql(insert, old, "plant-1-a", "TERMINATED", "UNHEALTHY", "failed", "", "startup_deadline", "it was not healthy within 30 s")
	r.sql(`INSERT INTO node_sets (node, version) VALUES ('plant-1-a', 7), ('plant-1-b', 8)`)
	r.sql(`UPDATE deployments SET state = 'PROVISIONING', reason = 'starting', awaited = 'replica ` + two + ` to be healthy', wake_at = now() + interval '20 seconds', entity_run = 'run-1',
		conditions = '[{"type":"available","status":"true","reason":"enough"},{"type":"progressing","status":"true","reason":"starting"}]'`)
	return r
}

// linked has both nodes live on the link.
func (r *region) linked() {
	r.t.Helper()
	for _, n := range []fleet.NodeName{"plant-1-a", "plant-1-b"} {
		r.enrolled(n)
		r.onLink(n, 0)
	}
}

// F72, S94, S115, S118, S130
func TestReplicas(t *testing.T) {
	t.Parallel()

	t.Run("are listed, with those that have ended when asked for", func(t *testing.T) {
		t.Parallel()
		r := running(t)
		list := into[api.List[api.Replica]](t, r.get("/api/v1/replicas?deployment=web&limit=1"))
		require.Len(t, list.Items, 1)
		first := list.Items[0]
		require.EqualValues(t, one, first.ID)
		require.Equal(t, "10.0.0.1:31000", first.Endpoint)
		require.Equal(t, 4711, first.PID)
		require.Equal(t, fleet.HealthDegraded, first.Health, "its node is not connected: what it said last may be old")
		list = into[api.List[api.Replica]](t, r.get("/api/v1/replicas?deployment=web&cursor="+list.Next))
		require.EqualValues(t, two, list.Items[0].ID)
		require.Nil(t, first.StartupDeadline, "it is healthy")
		require.Equal(t, "2026-03-01T12:00:30Z", list.Items[0].StartupDeadline.UTC().Format(time.RFC3339), "X8: its node gives it up then")
		require.Contains(t, string(r.get("/api/v1/replicas/"+two).body), `"startupDeadline":"2026-03-01T12:00:30Z"`)
		require.Len(t, into[api.List[api.Replica]](t, r.get(webPath+"/replicas?ended=true")).Items, 3)
		require.Len(t, into[api.List[api.Replica]](t, r.get("/api/v1/replicas?node=plant-1-b")).Items, 1)
		require.Equal(t, "startup_deadline", into[api.Replica](t, r.get("/api/v1/replicas/"+old)).Reason)
		for _, path := range []string{"/api/v1/replicas/nothing", "/api/v1/replicas/ffffffffffff", "/api/v1/deployments/other/replicas"} {
			require.Equal(t, http.StatusNotFound, r.get(path).status, path)
		}
		require.Equal(t, "deployment", r.get("/api/v1/replicas?deployment=No").problem(t).Field)

		status := deploymentStatusOf(t, r.deployment(webPath))
		require.Equal(t, api.ReplicaTotals{Desired: 2, Degraded: 2}, status.Replicas, "X8: as the replicas say")
		require.False(t, status.Available)
		require.Equal(t, fleet.ConditionUnknown, status.Conditions[0].Status)
		require.Contains(t, status.Awaited, two)
		require.NotNil(t, status.Until)
		require.Contains(t, status.Workflow.URL, "deployment.web")
		degraded := status.Conditions[len(status.Conditions)-1]
		require.Equal(t, "degraded", degraded.Type)
		r.linked()
		status = deploymentStatusOf(t, r.deployment(webPath))
		require.Equal(t, api.ReplicaTotals{Desired: 2, Healthy: 1, Routable: 1, Starting: 1}, status.Replicas)
		require.True(t, status.Available)
		require.True(t, into[api.Replica](t, r.get("/api/v1/replicas/"+one)).Routable)
		require.False(t, into[api.Replica](t, r.get("/api/v1/replicas/"+two)).Routable)
		r.sql(`UPDATE replicas SET unready = true WHERE id = $1`, one)
		status = deploymentStatusOf(t, r.deployment(webPath))
		require.Equal(t, api.ReplicaTotals{Desired: 2, Healthy: 1, Starting: 1}, status.Replicas, "F72: it is healthy, and not ready")
		require.True(t, status.Available)
		require.False(t, into[api.Replica](t, r.get("/api/v1/replicas/"+one)).Routable)
	})

	t.Run("are removed by hand, and nothing else is", func(t *testing.T) {
		t.Parallel()
		r := running(t)
		path := webPath + "/replicas/" + one
		a := r.call(r.operator, http.MethodDelete, path+"?dryRun=true", nil)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		require.Equal(t, fleet.ReplicaHealthy, into[api.Replica](t, r.get("/api/v1/replicas/"+one)).State)
		wakes := len(r.wakes())
		a = r.call(r.operator, http.MethodDelete, path, nil)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		require.Equal(t, fleet.ReplicaTerminating, into[api.Replica](t, a).State)
		require.Equal(t, "deployment.web", r.wakes()[wakes])
		require.Equal(t, 2, deploymentStatusOf(t, r.deployment(webPath)).Target, "S115: another takes its place")
		for _, path := range []string{webPath + "/replicas/ffffffffffff", "/api/v1/deployments/other/replicas/" + one} {
			require.Equal(t, http.StatusNotFound, r.call(r.operator, http.MethodDelete, path, nil).status, path)
		}
		r.sql(`UPDATE replicas SET state = 'TERMINATED', ended_at = now() WHERE id = '` + one + `'`) // its answer was lost
		for _, ended := range []string{one, old} {
			a = r.call(r.operator, http.MethodDelete, webPath+"/replicas/"+ended, nil)
			require.Equal(t, http.StatusOK, a.status, "X13: %s", a.body)
			require.Equal(t, fleet.ReplicaTerminated, into[api.Replica](t, a).State)
		}
		decisions := into[api.List[api.Decision]](t, r.get(webPath+"/decisions"))
		require.Equal(t, "removed", decisions.Items[0].Reason)
		require.Contains(t, decisions.Items[0].Actor, "operator")
	})
}

// X19, X27: what nodes fetch and bring, signed by their keys and by nothing else.
func TestNodesOfReplicas(t *testing.T) {
	t.Parallel()
	r := running(t)
	a, b := r.enrolled("plant-1-a"), r.enrolled("plant-1-b")
	set := r.fromNode(a, "replicas")
	require.Equal(t, http.StatusOK, set.status, string(set.body))
	require.Equal(t, `"1.7"`, set.header.Get("ETag"))
	list := into[fleet.NodeReplicas](t, set)
	require.Len(t, list.Replicas, 1)
	require.EqualValues(t, one, list.Replicas[0].ID)
	require.True(t, list.Replicas[0].Run)
	require.Equal(t, http.StatusNotModified, r.fromNode(a, "replicas", "If-None-Match", `"1.7"`).status)
	require.Equal(t, http.StatusOK, r.fromNode(a, "replicas", "If-None-Match", `"1.6"`).status)

	hash := list.Replicas[0].Definition
	body := r.fromNode(a, "definitions/"+string(hash))
	require.Equal(t, http.StatusOK, body.status)
	require.Equal(t, hash, compose.HashOf(body.body), "exactly the bytes that have this hash")
	require.Contains(t, string(body.body), "hunter2", "the node needs what nobody else sees")
	require.Equal(t, http.StatusNotFound, r.fromNode(a, "definitions/"+strings.Repeat("0", 64)).status)
	require.Equal(t, http.StatusBadRequest, r.fromNode(a, "definitions/x").status)
	r.sql(`UPDATE replicas SET state = 'TERMINATED', ended_at = now() WHERE node = 'plant-1-b'`)
	require.Equal(t, http.StatusNotFound, r.fromNode(b, "definitions/"+string(hash)).status, "it is to run none of it")

	t.Run("bring output, which is read by replica and offset", func(t *testing.T) {
		for i, text := range []string{"listening\n", "ready\n"} {
			got := r.asNode(a, "replica-logs", map[string]any{"replica": one, "offset": i * 10, "data": []byte(text), "skipped": 0})
			require.Equal(t, http.StatusNoContent, got.status, string(got.body))
		}
		logs := into[api.List[api.ReplicaLogChunk]](t, r.get(webPath+"/logs"))
		require.Len(t, logs.Items, 2)
		logs = into[api.List[api.ReplicaLogChunk]](t, r.get(webPath+"/logs?replica="+one+"&after=10"))
		require.Len(t, logs.Items, 1)
		require.Equal(t, base64.StdEncoding.EncodeToString([]byte("ready\n")), logs.Items[0].Data)
		require.Equal(t, "plant-1-a", logs.Items[0].Node)
		require.Equal(t, "after", r.get(webPath+"/logs?after=3").problem(t).Field)
		for _, path := range []string{webPath + "/logs?replica=ffffffffffff", "/api/v1/deployments/other/logs"} {
			require.Equal(t, http.StatusNotFound, r.get(path).status, path)
		}
	})

	t.Run("bring samples", func(t *testing.T) {
		got := r.asNode(a, "replica-samples", map[string]any{"samples": []any{map[string]any{"id": one, "cpu": 0.25, "memory": 1 << 20}}})
		require.Equal(t, http.StatusNoContent, got.status, string(got.body))
		top := into[api.DeploymentTop](t, r.get(webPath+"/top"))
		require.InDelta(t, 0.25, top.CPU, 1e-9)
		require.EqualValues(t, 1<<20, top.Memory)
		require.EqualValues(t, 64<<20, top.Requested.Memory, "of the one replica that lives")
		require.NotNil(t, top.Replicas[0].At)
	})

	t.Run("are refused when they make no sense, or are somebody else", func(t *testing.T) {
		before := r.counted("replica_logs", "replica_samples")
		for tail, bodies := range map[string][]string{
			"replica-logs": {
				`{"replica":"x","data":"eA=="}`, `{"replica":"` + one + `","offset":-1}`, `{"replica":"` + one + `","skipped":-1}`, `{"replica":1}`, ``,
			},
			"replica-samples": {`{"samples":[{"id":"x"}]}`, `{"samples":[{"id":"` + one + `","cpu":-1}]}`, `{"samples":[{"id":"` + one + `","memory":-1}]}`},
		} {
			for _, body := range bodies {
				require.Equal(t, http.StatusBadRequest, r.asNode(a, tail, []byte(body)).status, tail+" "+body)
			}
			for _, token := range []string{"", r.admin, "wrong"} {
				require.Equal(t, http.StatusUnauthorized, r.call(token, http.MethodPost, "/api/internal/nodes/plant-1-a/"+tail, bodies[0]).status)
			}
		}
		for _, tail := range []string{"replicas", "definitions/" + string(hash)} {
			for _, token := range []string{"", r.admin, r.signed(b)} {
				require.Equal(t, http.StatusUnauthorized, r.call(token, http.MethodGet, "/api/internal/nodes/plant-1-a/"+tail, nil).status, tail)
			}
		}
		r.asNode(b, "replica-logs", map[string]any{"replica": one, "offset": 1000, "data": []byte("forged")})
		r.asNode(b, "replica-samples", map[string]any{"samples": []any{map[string]any{"id": one, "cpu": 99, "memory": 1}}})
		require.Equal(t, before, r.counted("replica_logs", "replica_samples"), "a node speaks of its own replicas only")
		require.InDelta(t, 0.25, into[api.DeploymentTop](t, r.get(webPath+"/top")).CPU, 1e-9)
	})
}

func (r *region) counted(tables ...string) map[string]int {
	r.t.Helper()
	out := map[string]int{}
	for _, table := range tables {
		var n int
		require.NoError(r.t, r.pool.QueryRow(r.t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
		out[table] = n
	}
	return out
}

func causesOf(e api.Explanation) []string { return causeCodes(e.Causes) }

func causeCodes(causes []api.Cause) []string {
	out := []string{}
	for _, c := range causes {
		out = append(out, c.Code)
	}
	return out
}

// S94, S95: what was only written keeps nothing from running, nor does what is to end.
func TestExplainReleased(t *testing.T) {
	t.Parallel()
	r := running(t)
	r.linked()
	r.sql(`UPDATE nodes SET facts = '{"resources":{"cpu":4,"memory":1073741824},"drivers":["process"]}'`)
	r.sql(`UPDATE replicas SET state = 'TERMINATED', ended_at = now() WHERE id <> '` + old + `'`) // all are missing
	explained := func() api.Explanation {
		t.Helper()
		a := r.get(webPath + "/explain")
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		return into[api.Explanation](t, a)
	}
	released := explained()
	require.Equal(t, []string{CauseProgram}, causesOf(released))
	for _, written := range []string{
		strings.Replace(web, `"cpu":0.5`, `"cpu":64`, 1),
		strings.Replace(web, `"replicas"`, `"placement":{"labels":{"disk":"ssd"}}, "replicas"`, 1),
		strings.Replace(web, `"replicas"`, `"state":"stopped", "replicas"`, 1),
	} {
		r.put(webPath+"?deploy=false", written)
		e := explained()
		require.Equal(t, released.Causes, e.Causes, written)
		require.Equal(t, released.Spec, e.Spec)
		require.Equal(t, released.Nodes, e.Nodes)
	}

	r.put(webPath, strings.Replace(web, `"cpu":0.5`, `"cpu":64`, 1))
	r.sql(`UPDATE deployments SET conditions = '[]'`)
	require.Equal(t, []string{CauseNoResources}, causesOf(explained()))
	require.InDelta(t, 64, explained().Spec.Resources.CPU, 1e-9)
	r.call(r.operator, http.MethodDelete, webPath, nil)
	require.Empty(t, causesOf(explained()), "nothing is to run")
}

// S94, S95, X8
func TestExplain(t *testing.T) {
	t.Parallel()
	r := running(t)
	node := r.enrolled("plant-1-a")
	r.enrolled("plant-1-b")
	long := strings.Repeat("a line that is not the last\n", 400) + "fatal: no such database\n"
	r.asNode(node, "replica-logs", map[string]any{"replica": old, "offset": 0, "data": []byte(long)})
	r.sql(`UPDATE nodes SET facts = '{"resources":{"cpu":4,"memory":1073741824},"drivers":["process"],"labels":{"disk":"ssd"}}' WHERE name = 'plant-1-a'`)

	a := r.get(webPath + "/explain")
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	e := into[api.Explanation](t, a)
	require.Equal(t, "python3 -m http.server ${PORT}", strings.Join(e.Spec.Command, " "))
	require.Equal(t, fleet.ReplicaBounds{Min: 1, Max: 5, Initial: 2}, e.Spec.Replicas)
	require.InDelta(t, 30, e.Spec.StartupSeconds, 1e-9)
	require.Equal(t, fleet.DeploymentProvisioning, e.Status.State)
	require.Contains(t, e.Status.Awaited, two)
	require.NotNil(t, e.Status.Until)
	require.NotEmpty(t, e.Status.Workflow.URL)
	require.Len(t, e.Replicas, 2)
	require.Len(t, e.Ended, 1)
	require.EqualValues(t, old, e.Output.Replica)
	require.Equal(t, "startup_deadline", e.Output.Reason)
	require.LessOrEqual(t, len(e.Output.Text), 4<<10)
	require.True(t, strings.HasPrefix(e.Output.Text, "a line"), "it begins with a line")
	require.True(t, strings.HasSuffix(e.Output.Text, "fatal: no such database\n"))
	require.Equal(t, CauseProgram, e.Causes[0].Code)
	require.Contains(t, e.Causes[0].Message, "30 s")
	require.Len(t, e.Nodes, 2)
	for _, n := range e.Nodes {
		require.NotEmpty(t, n.Why, "no node is connected: "+fmt.Sprint(n))
		require.NotEmpty(t, n.Message)
		if n.Node == "plant-1-a" {
			require.InDelta(t, 3.5, n.Free.CPU, 1e-9)
			require.Equal(t, 1, n.Own)
		}
	}

	t.Run("says that nothing is wrong when nothing is", func(t *testing.T) {
		r.sql(`UPDATE replicas SET state = 'HEALTHY', health = 'HEALTHY' WHERE id = '` + two + `'`)
		r.sql(`UPDATE deployments SET state = 'RUNNING', reason = 'converged', awaited = '', wake_at = NULL,
			conditions = '[{"type":"progressing","status":"false","reason":"converged"},{"type":"degraded","status":"false","reason":"all_healthy"}]'`)
		e := into[api.Explanation](t, r.get(webPath+"/explain"))
		require.Equal(t, api.Cause{
			Code: CauseNode, Reason: "nodes_not_heard", Message: "2 replicas are on nodes that are not connected", Hint: "holdfast get nodes",
		}, e.Causes[len(e.Causes)-1])
		require.Equal(t, "nodes_not_heard", e.Status.Reason)
		r.onLink("plant-1-a", 0)
		r.onLink("plant-1-b", 0)
		e = into[api.Explanation](t, r.get(webPath+"/explain"))
		require.Empty(t, e.Causes)
		require.Equal(t, "converged", e.Status.Reason)
		require.NotNil(t, e.Output, "what failed before is told nevertheless")
	})

	t.Run("says what holds an update up though all that runs is healthy", func(t *testing.T) {
		r.sql(`UPDATE deployments SET process_version = process_version + 1, from_version = process_version + 1, crashes = 4, next_attempt = now() + interval '30 seconds'`)
		r.sql(`UPDATE replicas SET process_version = process_version + 1 WHERE id = '` + old + `'`) // it is of the new release
		e := into[api.Explanation](t, r.get(webPath+"/explain"))
		require.Equal(t, []string{CauseProgram}, causesOf(e))
		r.sql(`UPDATE replicas SET reason = 'not_prepared', message = 'it could not be prepared in time: no such host' WHERE id = '` + old + `'`)
		e = into[api.Explanation](t, r.get(webPath+"/explain"))
		require.Equal(t, []string{CausePreparation}, causesOf(e))
		require.Contains(t, e.Causes[0].Message, "no such host")
		r.sql(`UPDATE replicas SET failed_at = NULL, phase = 'stopped', reason = 'replaced' WHERE id = '` + old + `'`)
		require.Empty(t, causesOf(into[api.Explanation](t, r.get(webPath+"/explain"))))
		r.sql(`UPDATE deployments SET reason = 'no_room', message = '2 of 2 nodes match, and none has room'`)
		require.Equal(t, []string{CauseNoResources}, causesOf(into[api.Explanation](t, r.get(webPath+"/explain"))))
		r.sql(`UPDATE replicas SET process_version = (SELECT process_version FROM deployments)`) // a drain finds no room
		r.sql(`UPDATE deployments SET conditions = '[{"type":"degraded","status":"true","reason":"no_room","message":"1 with less than 2 cores free"}]'`)
		require.Equal(t, []string{CauseNoResources}, causesOf(into[api.Explanation](t, r.get(webPath+"/explain"))))
	})

	t.Run("shows all that live and the last that ended, among however many", func(t *testing.T) {
		r.sql(`INSERT INTO replicas (id, deployment, uid, node, site, revision, process_version, definition, state, health, phase, reason, stop_seconds, listed, created_at, ended_at)
			SELECT lpad(to_hex(n), 12, '0'), 'web', uid, node, site, revision, process_version, definition, 'TERMINATED', 'UNHEALTHY', 'stopped', 'scaled_down', 10, 1,
				now() - interval '2 hours', now() - interval '1 hour' FROM replicas, generate_series(1, 1100) n WHERE id = '` + old + `'`)
		e := into[api.Explanation](t, r.get(webPath+"/explain"))
		require.Len(t, e.Replicas, 2)
		require.Len(t, e.Ended, explainedEnded)
		require.EqualValues(t, old, e.Ended[0].ID)
	})

	t.Run("says what may run and counts no more", func(t *testing.T) { // X3, X8
		require.Empty(t, into[api.Explanation](t, r.get(webPath+"/explain")).Uncounted)
		r.sql(`INSERT INTO replica_tombstones VALUES ('plant-1-a', 'aaaaaaaaaaaa', 'web', 5, 1, now() - interval '1 hour')`)
		r.sql(`INSERT INTO orphan_replicas (node, replica, deployment, revision, phase, reason) VALUES
			('plant-1-b', 'bbbbbbbbbbbb', 'web', 1, 'running', 'never_known'), ('plant-1-b', 'cccccccccccc', 'other', 1, 'running', 'never_known'),
			('plant-1-b', 'dddddddddddd', 'web', 1, 'exited', 'never_known')`)
		left := into[api.Explanation](t, r.get(webPath+"/explain")).Uncounted
		require.Len(t, left, 2)
		require.Equal(t, []any{"plant-1-b", "never_known", "holdfast orphans approve plant-1-b replica/bbbbbbbbbbbb"}, []any{left[0].Node, left[0].Reason, left[0].Hint})
		require.Equal(t, []any{fleet.ReplicaID("aaaaaaaaaaaa"), "told_to_end", ""}, []any{left[1].ID, left[1].Reason, left[1].Hint})
	})

	t.Run("says what is missing where there is no room", func(t *testing.T) {
		r.put(webPath, strings.Replace(web, `"cpu":0.5`, `"cpu":64`, 1))
		r.sql(`UPDATE replicas SET state = 'TERMINATED', ended_at = coalesce(ended_at, now())`)
		e := into[api.Explanation](t, r.get(webPath+"/explain"))
		require.Equal(t, CauseNoResources, e.Causes[0].Code)
		require.NotEmpty(t, e.Causes[0].Message)
	})

	t.Run("is told of what has ended, as long as it is kept", func(t *testing.T) { // S118
		r.sql(`UPDATE deployments SET state = 'TERMINATED'`)
		r.sql(`DELETE FROM objects WHERE kind = 'deployment'`)
		require.Equal(t, http.StatusNotFound, r.get(webPath).status)
		ended := into[api.List[api.Object]](t, r.get("/api/v1/deployments?ended=true"))
		require.Len(t, ended.Items, 1)
		require.Equal(t, fleet.DeploymentTerminated, deploymentStatusOf(t, ended.Items[0]).State)
		require.Empty(t, into[api.List[api.Object]](t, r.get("/api/v1/deployments")).Items)
		e := into[api.Explanation](t, r.get(webPath+"/explain"))
		require.Nil(t, e.Spec)
		require.Equal(t, fleet.DeploymentTerminated, e.Status.State)
		require.NotEmpty(t, e.Ended)
		require.Equal(t, http.StatusOK, r.get(webPath+"/decisions").status)
		require.Equal(t, http.StatusNotFound, r.get("/api/v1/deployments/other/explain").status)
	})
}

// S95: a pool that selects no node is told from one that is full, each with what helps.
func TestExplainPools(t *testing.T) {
	t.Parallel()
	r := running(t)
	r.linked()
	r.sql(`UPDATE nodes SET facts = '{"resources":{"cpu":4,"memory":1073741824},"drivers":["process"]}'`)
	r.put("/api/v1/pools/gpu", `{"nodeLabels":{"gpu":"h100"}}`)
	r.put(webPath, strings.Replace(web, `"replicas"`, `"placement":{"pools":["gpu"]}, "replicas"`, 1))
	r.sql(`UPDATE replicas SET state = 'TERMINATED', ended_at = coalesce(ended_at, now())`)
	causes := func() []api.Cause { return into[api.Explanation](t, r.get(webPath+"/explain")).Causes }
	require.Contains(t, causes(), api.Cause{
		Code: "pool_misconfigured", Reason: "pool_misconfigured", Message: "no node is in the pools gpu",
		Hint: "none of the pools in placement.pools selects a node: holdfast get pools; name another one, or change its sites, nodes or nodeLabels",
	})

	r.put("/api/v1/pools/gpu", `{"sites":["plant-1"],"maxReplicas":1}`)
	require.NotContains(t, causeCodes(causes()), CausePoolMisconfigured)
	require.NotContains(t, causeCodes(causes()), CauseNoResources, "there is room for two")
	r.put("/api/v1/pools/gpu", `{"nodes":["plant-1-a"],"maxReplicas":1}`)
	r.sql(`UPDATE replicas SET state = 'HEALTHY', ended_at = NULL WHERE id = '` + one + `'`)
	full := causes()
	require.NotContains(t, causeCodes(full), CausePoolMisconfigured, "a bound that is reached is no misconfiguration")
	at := slices.IndexFunc(full, func(c api.Cause) bool { return c.Code == "no_resources" })
	require.GreaterOrEqual(t, at, 0)
	require.Equal(t, "no_room", full[at].Reason)
	require.Contains(t, full[at].Message, "at the limit of their pool")
	require.Contains(t, full[at].Hint, "raise maxReplicas of a pool that is full")
}

// S95: what a node could not make sense of.
func TestExplainBadDefinition(t *testing.T) {
	t.Parallel()
	r := running(t)
	r.linked()
	require.NotContains(t, causesOf(into[api.Explanation](t, r.get(webPath+"/explain"))), CauseBadDefinition)
	r.sql(`UPDATE replicas SET reason = 'no_definition', message = 'unknown field "drvier"', process_version = (SELECT process_version FROM deployments) WHERE id = '` + old + `'`)
	require.Contains(t, into[api.Explanation](t, r.get(webPath+"/explain")).Causes, api.Cause{
		Code: "bad_definition", Reason: "no_definition", Message: `unknown field "drvier"`, Hint: "correct the declaration and apply it again",
	})
}

// S94: of nodes only those are shown that the caller may see, and another project's are never placed on.
func TestExplainOfProjects(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	r.put("/api/v1/projects/red", `{}`)
	r.put("/api/v1/projects/blue", `{}`)
	r.put("/api/v1/sites/plant-2", `{"project":"blue","nodes":[{"name":"plant-2-a","role":"active"}]}`)
	r.put("/api/v1/sites/plant-3", `{"project":"red","nodes":[{"name":"plant-3-a","role":"active"}]}`)
	r.sql(`UPDATE nodes SET enrolled_at = now()`)
	red := r.token("operator", "red")
	require.Equal(t, http.StatusAccepted, r.call(red, http.MethodPut, webPath, web).status)
	seen := func(token string) ([]string, api.Explanation) {
		e := into[api.Explanation](t, r.call(token, http.MethodGet, webPath+"/explain", nil))
		var nodes []string
		for _, n := range e.Nodes {
			nodes = append(nodes, n.Node+" "+n.Why)
		}
		return nodes, e
	}
	nodes, e := seen(red)
	require.Equal(t, []string{"plant-3-a no_driver"}, nodes)
	require.Equal(t, 2, e.MoreNodes, "those that are shared")
	nodes, _ = seen(r.admin)
	require.Contains(t, nodes, "plant-2-a other_project")
	require.Len(t, nodes, 4)

	r.sql(`UPDATE deployments SET last_revision = 9`) // X28: whose revision 5 was nobody can say any more
	r.sql(`INSERT INTO orphan_replicas (node, replica, deployment, revision, phase, reason) VALUES
		('plant-3-a', 'bbbbbbbbbbbb', 'web', 5, 'running', 'never_known')`)
	_, e = seen(red)
	require.Empty(t, e.Uncounted)
	_, e = seen(r.admin)
	require.Len(t, e.Uncounted, 1)

	placed := func(site string) string {
		return strings.Replace(web, "{", `{"placement":{"sites":["`+site+`"]},`, 1)
	}
	const shop = "/api/v1/deployments/shop"
	require.Equal(t, http.StatusNotFound, r.call(red, http.MethodPut, shop, placed("plant-2")).status)
	a := r.call(r.admin, http.MethodPut, shop, placed("plant-2"))
	require.Equal(t, http.StatusBadRequest, a.status, "it would find no place")
	require.Equal(t, "/placement/sites/0", a.problem(t).Field)
	a = r.call(r.admin, http.MethodPost, planPath, `{"objects":[{"kind":"Deployment","name":"shop","spec":`+placed("plant-2")+`}]}`)
	require.Contains(t, string(a.body), "not available to deployments of project default")
	require.Equal(t, http.StatusAccepted, r.call(red, http.MethodPut, shop, placed("plant-3")).status)
}
