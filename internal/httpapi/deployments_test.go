package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/definition"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

const (
	webPath = "/api/v1/deployments/web"
	// web is a deployment with everything that must not be seen.
	web = `{
		"command":["python3","-m","http.server","${PORT}"], "env":{"KEY":"swordfish","MODE":"fast"}, "secretEnv":["KEY"],
		"files":[{"path":"conf/app.conf","content":"password=hunter2"}], "ports":[{"name":"http"}],
		"health":{"path":"/healthz"}, "startup":{"deadline":30}, "resources":{"cpu":0.5,"memory":"64Mi"},
		"replicas":{"min":1,"max":5,"initial":2}
	}`
)

func deploymentStatusOf(t *testing.T, o api.Object) api.DeploymentStatus {
	t.Helper()
	var s api.DeploymentStatus
	require.NoError(t, json.Unmarshal(o.Status, &s))
	return s
}

func deploymentSpecOfObject(t *testing.T, o api.Object) fleet.DeploymentSpec {
	t.Helper()
	var s fleet.DeploymentSpec
	require.NoError(t, json.Unmarshal(o.Spec, &s))
	return s
}

func (r *region) deployment(path string) api.Object {
	r.t.Helper()
	a := r.get(path)
	require.Equal(r.t, http.StatusOK, a.status, string(a.body))
	return into[api.Object](r.t, a)
}

// S5, S85, S98, S108
func TestDeployments(t *testing.T) {
	t.Parallel()

	t.Run("are declared, released and woken", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		a := r.put(webPath, web)
		require.Equal(t, http.StatusAccepted, a.status)
		put := into[api.Accepted](t, a)
		require.Equal(t, "converge", put.Operation.Kind)
		require.Equal(t, "web", put.Operation.Deployment)
		require.Equal(t, "/api/v1/operations/"+put.Operation.ID, a.header.Get("Location"))
		require.Equal(t, []string{"deployment.web"}, r.wakes())
		spec := deploymentSpecOfObject(t, *put.Object)
		require.Equal(t, fleet.ReplicaBounds{Min: 1, Max: 5, Initial: 2}, spec.Replicas)
		require.EqualValues(t, 64<<20, spec.Resources.Memory)
		require.Equal(t, "conf/app.conf", spec.Process.Files[0].Path)

		o := r.deployment(webPath)
		status := deploymentStatusOf(t, o)
		require.Equal(t, fleet.DeploymentPending, status.State)
		require.EqualValues(t, 2, status.Target)
		require.EqualValues(t, 1, status.Revision)
		require.Equal(t, o.Generation, status.ObservedGeneration)
		require.False(t, status.Available)
		list := into[api.List[api.Object]](t, r.get("/api/v1/deployments"))
		require.Len(t, list.Items, 1)

		op := into[api.Operation](t, r.get("/api/v1/operations/"+put.Operation.ID))
		require.NotNil(t, op.Replicas)
		require.Equal(t, 2, op.Replicas.Replicas.Desired)
		require.Equal(t, "queued", op.Reason, "X8: it says what it waits for")
		require.Len(t, into[api.List[api.Operation]](t, r.get("/api/v1/operations?deployment=web")).Items, 1)
		require.Empty(t, into[api.List[api.Operation]](t, r.get("/api/v1/operations?deployment=other")).Items)
	})

	t.Run("run what the region's own settings say", func(t *testing.T) { // S12, S120
		t.Parallel()
		own, err := definition.NewRegistry(fstest.MapFS{"nim.json": {Data: []byte(`{"image":"registry.example/nim:2"}`)}})
		require.NoError(t, err)
		r := setup(t, func(d *Deps) { d.Definitions = own })
		a := r.put(webPath, `{"type":"nim","replicas":1}`)
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		require.Equal(t, "registry.example/nim:2", into[api.Explanation](t, r.get(webPath+"/explain")).Spec.Image)
		plan := `{"objects":[{"kind":"Deployment","name":"other","spec":{"type":"nim"}}]}`
		require.True(t, into[api.Plan](t, r.call(r.operator, http.MethodPost, planPath, plan)).Valid)
		r = setup(t)
		require.Equal(t, "/image", r.call(r.operator, http.MethodPut, webPath, `{"type":"nim","replicas":1}`).problem(t).Field)
	})

	t.Run("have no more than a node fetches", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		escaped := strings.Repeat(`\u0001`, definition.MaxBytes/6)
		refused := r.call(r.operator, http.MethodPut, webPath, `{"command":["x"],"files":[{"path":"a","content":"`+escaped+`"}]}`).problem(t)
		require.Equal(t, "/files", refused.Field, refused.Detail)
	})

	t.Run("start nothing when they are declared as they stand", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		one := into[api.Accepted](t, r.put(webPath, web))
		rows := r.rows()
		a := r.put(webPath, web)
		require.Equal(t, http.StatusOK, a.status)
		two := into[api.Accepted](t, a)
		require.Nil(t, two.Operation)
		require.Equal(t, one.Object.ResourceVersion, two.Object.ResourceVersion)
		require.Equal(t, rows, r.rows())
	})

	t.Run("are synced while what is declared is what runs", func(t *testing.T) { // X18
		t.Parallel()
		r := setup(t)
		synced := func() (fleet.ConditionStatus, string) {
			o := r.deployment(webPath)
			status := deploymentStatusOf(t, o)
			require.Equal(t, status.Synced.Status == fleet.ConditionTrue, status.ObservedGeneration == o.Generation && status.State == fleet.DeploymentRunning)
			return status.Synced.Status, status.Synced.Reason
		}
		r.put(webPath, web)
		_, why := synced()
		require.Equal(t, "rolling_out", why, "its first release")
		r.sql(`UPDATE deployments SET state = 'RUNNING'`)
		is, why := synced()
		require.Equal(t, []any{fleet.ConditionTrue, "as_declared"}, []any{is, why})
		r.put(webPath+"?deploy=false", strings.Replace(web, "fast", "slow", 1))
		_, why = synced()
		require.Equal(t, "not_released", why, "the spec is newer than any release")
		r.call(r.operator, http.MethodPost, webPath+"/deploy", nil)
		_, why = synced()
		require.Equal(t, "rolling_out", why)
		r.sql(`UPDATE rollouts SET state = 'FAILED', reason = 'progress_deadline', message = 'it failed', ended_at = now()`)
		_, why = synced()
		require.Equal(t, "rolled_back", why)
		require.Equal(t, "it failed", into[api.Explanation](t, r.get(webPath+"/explain")).Status.Synced.Message)
		a := r.call(r.operator, http.MethodPost, webPath+"/rollback", `{}`)
		require.Equal(t, api.ProblemPrefix+string(fleet.IllegalState), a.problem(t).Type, "F63: it would release what runs")
		require.Contains(t, a.problem(t).Hint, "holdfast rollout retry web")
		require.Contains(t, a.problem(t).Hint, "--revision")
		a = r.call(r.operator, http.MethodPost, webPath+"/rollback", `{"revision":1}`)
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		is, why = synced()
		require.Equal(t, []any{fleet.ConditionTrue, "as_declared"}, []any{is, why}, "it is declared as it runs")
	})

	t.Run("are only written with deploy=false, and released by deploy", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		a := r.put(webPath+"?deploy=false", web)
		require.Equal(t, http.StatusOK, a.status)
		require.Empty(t, r.wakes())
		status := deploymentStatusOf(t, r.deployment(webPath))
		require.EqualValues(t, 0, status.Revision)
		require.Equal(t, "not_released", status.Reason)
		require.Contains(t, status.Message, "deploy it")
		require.Len(t, status.Conditions, 3)
		require.False(t, status.Available)
		require.Equal(t, fleet.Condition{ // X8, X18
			Type: "synced", Status: fleet.ConditionFalse, Reason: "not_released", Since: r.deployment(webPath).UpdatedAt,
			Message: "generation 1 was written without being released", Hint: "holdfast deploy deployment/web",
		}, *status.Synced)
		a = r.call(r.operator, http.MethodPost, webPath+"/deploy", `{"reason":"now"}`)
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		require.Equal(t, "converge", into[api.Accepted](t, a).Operation.Kind)
		require.Equal(t, webPath, into[api.Accepted](t, a).Operation.Object, "whose status says what is synced")
		require.Equal(t, "rolling_out", deploymentStatusOf(t, r.deployment(webPath)).Synced.Reason, "its first release")
		require.Equal(t, "rolling_out", into[api.Explanation](t, r.get(webPath+"/explain")).Status.Synced.Reason)
		require.EqualValues(t, 1, deploymentStatusOf(t, r.deployment(webPath)).Revision)

		r.put(webPath+"?deploy=false", strings.Replace(web, "fast", "slow", 1))
		require.EqualValues(t, 1, deploymentStatusOf(t, r.deployment(webPath)).Revision, "what runs is not touched")
		r.call(r.operator, http.MethodPost, webPath+"/deploy", nil)
		require.EqualValues(t, 2, deploymentStatusOf(t, r.deployment(webPath)).Revision)
		a = r.call(r.operator, http.MethodPost, webPath+"/deploy", nil)
		require.Equal(t, http.StatusAccepted, a.status, "again, to begin anew what was given up: S44")
		revisions := into[api.List[api.DeploymentRevision]](t, r.get(webPath+"/revisions?limit=1"))
		require.EqualValues(t, 2, revisions.Items[0].Revision)
		revisions = into[api.List[api.DeploymentRevision]](t, r.get(webPath+"/revisions?cursor="+revisions.Next))
		require.EqualValues(t, 1, revisions.Items[0].Revision)
		require.Equal(t, "now", revisions.Items[0].Reason)
		require.NotEmpty(t, revisions.Items[0].Definition)
	})

	t.Run("have one operation of two deploys at once", func(t *testing.T) { // X7, X20
		t.Parallel()
		var before raced
		r := setup(t, func(d *Deps) { before.Store, d.Store = d.Store, &before })
		r.put(webPath+"?deploy=false", web)
		deploy := func(key string) *api.Operation {
			a := r.call(r.operator, http.MethodPost, webPath+"/deploy", nil, "Idempotency-Key", key)
			require.Equal(t, http.StatusAccepted, a.status, string(a.body))
			return into[api.Accepted](t, a).Operation
		}
		var first *api.Operation
		before.once = func() { first = deploy("one") }
		second := deploy("two")
		require.NotNil(t, first)
		require.Equal(t, first.ID, second.ID, "it is under way")
		require.Equal(t, first.ID, deploy("two").ID, "the key is that of the same operation")
		require.Len(t, into[api.List[api.Operation]](t, r.get("/api/v1/operations?deployment=web")).Items, 1)
	})

	t.Run("release what is there by then when another write comes between", func(t *testing.T) {
		t.Parallel()
		var before raced
		r := setup(t, func(d *Deps) { before.Store, d.Store = d.Store, &before })
		read := r.put(webPath+"?deploy=false", web)
		write := func() { r.put(webPath+"?deploy=false", strings.Replace(web, "fast", "slow", 1)) }
		before.once = write
		a := r.call(r.operator, http.MethodPost, webPath+"/deploy", nil, "If-Match", read.header.Get("ETag"))
		require.Equal(t, http.StatusPreconditionFailed, a.status, "it named what it read: %s", a.body)
		before.once = func() { r.put(webPath+"?deploy=false", web); write() }
		a = r.call(r.operator, http.MethodPost, webPath+"/deploy", nil)
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		status := deploymentStatusOf(t, r.deployment(webPath))
		require.EqualValues(t, 4, status.ObservedGeneration, "the newest")

		before.first = func() { r.put(webPath+"?deploy=false", web) }
		a = r.call(r.operator, http.MethodPost, webPath+"/rollback", `{"revision":1}`)
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
	})

	t.Run("stay as they are when what was only written cannot be generated any more", func(t *testing.T) { // S35, X19
		t.Parallel()
		r := setup(t)
		r.put(webPath+"?deploy=false", web)
		r.sql(`UPDATE objects SET spec = jsonb_set(spec::jsonb, '{type}', '"nim"') WHERE kind = 'deployment'`)
		a := r.call(r.operator, http.MethodPost, webPath+"/deploy", nil)
		require.Equal(t, http.StatusBadRequest, a.status, string(a.body))
		require.Equal(t, "/image", a.problem(t).Field)
		require.NotEmpty(t, a.problem(t).Detail)
		status := deploymentStatusOf(t, r.deployment(webPath))
		require.Equal(t, []any{fleet.DeploymentPending, "not_released", int64(0)}, []any{status.State, status.Reason, status.Revision})
		require.Empty(t, r.wakes())
	})

	t.Run("change nothing in a dry run", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		a := r.put(webPath+"?dryRun=true", web)
		require.Equal(t, http.StatusOK, a.status)
		require.True(t, into[api.Accepted](t, a).DryRun)
		require.Equal(t, http.StatusNotFound, r.get(webPath).status)
		require.Empty(t, r.wakes())
	})
}

// raced has something happen once after a look at deployments, or before a change.
type raced struct {
	Store
	once, first func()
}

func (r *raced) PutDeployment(ctx context.Context, p deployments.DeploymentPut) (postgres.Started, error) {
	if do := r.first; do != nil {
		r.first = nil
		do()
	}
	return r.Store.PutDeployment(ctx, p)
}

func (r *raced) ViewDeployments(ctx context.Context, names ...string) (map[string]deployments.DeploymentView, error) {
	views, err := r.Store.ViewDeployments(ctx, names...)
	if do := r.once; do != nil {
		r.once = nil
		do()
	}
	return views, err
}

// S42, S104, S113: and X18, a restart and a scale are their own operations.
func TestDeploymentTurns(t *testing.T) {
	t.Parallel()

	t.Run("scale within the bounds, and no PUT resets it", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.put(webPath, web)
		a := r.call(r.operator, http.MethodPost, webPath+"/scale", `{"replicas":4,"reason":"sale"}`)
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		require.Equal(t, "scale", into[api.Accepted](t, a).Operation.Kind)
		require.Equal(t, 4, deploymentStatusOf(t, r.deployment(webPath)).Target)
		r.put(webPath, strings.Replace(web, "fast", "slow", 1))
		require.Equal(t, 4, deploymentStatusOf(t, r.deployment(webPath)).Target)
		r.put(webPath, strings.Replace(web, `"max":5`, `"max":3`, 1))
		require.Equal(t, 3, deploymentStatusOf(t, r.deployment(webPath)).Target, "it is clamped")
		r.put(webPath, strings.Replace(web, `{"min":1,"max":5,"initial":2}`, "2", 1))
		require.Equal(t, 2, deploymentStatusOf(t, r.deployment(webPath)).Target, "one number is exactly so many")

		rows := r.rows()
		for body, field := range map[string]string{
			`{"replicas":9}`: "/replicas", `{"replicas":-1}`: "/replicas", `{}`: "/replicas", `{"replicas":"x"}`: "/replicas", `{"replica":1}`: "/replica",
		} {
			a := r.call(r.operator, http.MethodPost, webPath+"/scale", body)
			require.Equal(t, http.StatusBadRequest, a.status, body)
			p := a.problem(t)
			require.Equal(t, field, p.Field, body)
			require.NotEmpty(t, p.Detail)
		}
		require.Equal(t, rows, r.rows())
	})

	t.Run("restart raises the process version", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.put(webPath, web)
		before := deploymentStatusOf(t, r.deployment(webPath)).ProcessVersion
		a := r.call(r.operator, http.MethodPost, webPath+"/restart", nil)
		require.Equal(t, "restart", into[api.Accepted](t, a).Operation.Kind)
		require.Equal(t, before+1, deploymentStatusOf(t, r.deployment(webPath)).ProcessVersion)
	})

	t.Run("delete ends what was never released at once, and what was by its replicas", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.put(webPath+"?deploy=false", web)
		a := r.call(r.operator, http.MethodDelete, webPath, nil)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		require.Equal(t, http.StatusNotFound, r.get(webPath).status)

		r.put(webPath, web)
		a = r.call(r.operator, http.MethodDelete, webPath, nil, "Idempotency-Key", "k")
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		require.Equal(t, "destroy", into[api.Accepted](t, a).Operation.Kind)
		require.NotNil(t, r.deployment(webPath).DeletingSince)
		for _, verb := range []string{"scale", "restart", "deploy"} {
			body := `{}`
			if verb == "scale" {
				body = `{"replicas":3}`
			}
			a := r.call(r.operator, http.MethodPost, webPath+"/"+verb, body)
			require.Equal(t, api.ProblemPrefix+string(fleet.IllegalState), a.problem(t).Type, verb)
		}
	})

	t.Run("read the same when they are only written again, after their end", func(t *testing.T) { // X18
		t.Parallel()
		r := setup(t)
		written := func() api.DeploymentStatus {
			r.put(webPath+"?deploy=false", web)
			s := deploymentStatusOf(t, r.deployment(webPath))
			require.NotNil(t, s.Since)
			for i := range s.Conditions {
				require.WithinDuration(t, *s.Since, s.Conditions[i].Since, 0)
				s.Conditions[i].Since = time.Time{}
			}
			s.Since, s.Synced.Since = nil, time.Time{}
			return s
		}
		first := written()
		require.Equal(t, []any{fleet.DeploymentPending, "not_released", 3}, []any{first.State, first.Reason, len(first.Conditions)})
		r.call(r.operator, http.MethodDelete, webPath, nil)
		require.Equal(t, http.StatusNotFound, r.get(webPath).status)
		require.Equal(t, first, written())
	})

	t.Run("keep a name with its project, and to whom it is new", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.put("/api/v1/projects/red", `{}`)
		r.put("/api/v1/projects/blue", `{}`)
		red, blue := r.token("operator", "red"), r.token("operator", "blue")
		a := r.call(red, http.MethodPut, webPath, web, "If-None-Match", "*")
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		a = r.call(red, http.MethodPut, webPath, web, "If-None-Match", "*")
		require.Equal(t, api.ProblemPrefix+string(fleet.Precondition), a.problem(t).Type)
		require.Equal(t, http.StatusConflict, r.call(blue, http.MethodPut, webPath, web).status)
		require.Equal(t, http.StatusConflict, r.call(r.admin, http.MethodPut, webPath, web).status)
		for _, path := range []string{webPath, webPath + "/explain", webPath + "/replicas", webPath + "/decisions", webPath + "/logs", webPath + "/top", webPath + "/revisions"} {
			require.Equal(t, http.StatusNotFound, r.call(blue, http.MethodGet, path, nil).status, path)
			require.Equal(t, http.StatusOK, r.call(red, http.MethodGet, path, nil).status, path)
		}
		for _, verb := range []string{"deploy", "restart"} {
			require.Equal(t, http.StatusNotFound, r.call(blue, http.MethodPost, webPath+"/"+verb, nil).status)
		}
		for _, headers := range [][]string{nil, {"Idempotency-Key", "k"}} {
			a := r.call(blue, http.MethodDelete, webPath, nil, headers...)
			require.Equal(t, http.StatusNotFound, a.status)
			require.Equal(t, "holdfast get deployments", a.problem(t).Hint)
		}
		for header, value := range map[string]string{"If-None-Match": `"7"`, "If-Match": `x`} {
			require.Equal(t, header, r.call(red, http.MethodPut, webPath, web, header, value).problem(t).Field)
		}
		require.Equal(t, http.StatusBadRequest, r.call(red, http.MethodPut, webPath, web, "If-None-Match", "*", "If-Match", "*").status)
	})

	t.Run("delete again, with its key, is answered as before", func(t *testing.T) { // X13
		t.Parallel()
		r := setup(t)
		r.put("/api/v1/projects/red", `{}`)
		for key, token := range map[string]string{"of all": r.operator, "of red": r.token("operator", "red")} {
			a := r.call(token, http.MethodPut, webPath+"?deploy=false", web)
			require.Equal(t, http.StatusOK, a.status, string(a.body))
			first := r.call(token, http.MethodDelete, webPath, nil, "Idempotency-Key", key)
			require.Equal(t, http.StatusOK, first.status, string(first.body))
			again := r.call(token, http.MethodDelete, webPath, nil, "Idempotency-Key", key)
			require.Equal(t, http.StatusOK, again.status, string(again.body))
			require.Equal(t, http.StatusNotFound, r.call(token, http.MethodDelete, webPath, nil, "Idempotency-Key", "other "+key).status)

			r.put(webPath, web) // by another, in project default
			again = r.call(token, http.MethodDelete, webPath, nil, "Idempotency-Key", key)
			require.Equal(t, http.StatusOK, again.status, string(again.body))
			if token != r.operator {
				require.Nil(t, into[api.Accepted](t, again).Object, "another project's")
			}
			r.sql(`DELETE FROM objects WHERE kind = 'deployment'`)
			r.sql(`DELETE FROM operations`)
			r.sql(`DELETE FROM deployment_revisions`)
			r.sql(`DELETE FROM deployments`)
		}
	})

	t.Run("are not for viewers", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.put(webPath, web)
		for _, c := range [][2]string{{"PUT", webPath}, {"DELETE", webPath}, {"POST", webPath + "/scale"}, {"POST", webPath + "/restart"}, {"POST", webPath + "/deploy"}, {"DELETE", webPath + "/replicas/0123456789ab"}} {
			require.Equal(t, http.StatusForbidden, r.call(r.viewer, c[0], c[1], `{}`).status, c)
		}
		require.Equal(t, http.StatusForbidden, r.call(r.operator, http.MethodPut, "/api/v1/pools/p", `{}`).status)
	})
}

// X10: declared secrets are shown to nobody who may not change them, and contents of files to nobody.
func TestDeploymentSecrets(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.put(webPath, web)
	r.put(webPath, strings.Replace(web, `"KEY":"swordfish"`, `"KEY":"trout"`, 1))
	r.put(webPath, strings.Replace(web, `"secretEnv":["KEY"],`, "", 1)) // what was marked before stays hidden in events

	for _, path := range []string{webPath, "/api/v1/deployments", "/api/v1/events?limit=1000", webPath + "/explain", webPath + "/revisions", webPath + "/decisions"} {
		text := string(r.get(path).body)
		require.NotContains(t, text, "hunter2", path)
		require.NotContains(t, text, "trout", path)
	}
	r.put(webPath, web)
	require.NotContains(t, string(r.get(webPath).body), "swordfish")
	require.Contains(t, string(r.get(webPath).body), api.Redacted)
	require.Contains(t, string(r.call(r.operator, http.MethodGet, webPath, nil).body), "swordfish", "who may change it may see it")
	require.NotContains(t, string(r.call(r.operator, http.MethodGet, webPath, nil).body), "hunter2")

	planned := `{"objects":[{"kind":"Deployment","name":"web","spec":` + strings.Replace(web, "swordfish", "salmon", 1) + `}]}`
	a := r.call(r.operator, http.MethodPost, planPath, planned)
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Contains(t, string(a.body), api.Redacted)
	for _, secret := range []string{"swordfish", "salmon", "hunter2"} {
		require.NotContains(t, string(a.body), secret)
	}
	require.NotContains(t, r.log.String(), "hunter2")
	require.NotContains(t, r.log.String(), "swordfish")
}

// fieldPaths are changed fields with their paths.
func fieldPaths(changes []api.SpecChange) (all []string) {
	for _, c := range changes {
		all = append(all, c.Field+" "+string(c.Path))
	}
	return all
}

// F51: a write, a deploy, a plan and an apply say of each field that differs from what runs how it gets there.
func TestDeploymentChanges(t *testing.T) {
	t.Parallel()
	r := setup(t)
	spec := func(more string) string { return `{"command":["x"],"health":{"type":"none"},"replicas":2` + more + `}` }
	put := func(query, body string) []string {
		return fieldPaths(into[api.Accepted](t, r.put(webPath+query, body)).Changes)
	}
	require.Empty(t, put("", spec("")), "nothing runs of it")
	require.Empty(t, put("", spec("")))
	both := spec(`,"stopSeconds":7,"env":{"X":"swordfish"},"secretEnv":["X"]`)
	want := []string{"/process/env/X new_runtime_object", "/process/stopSeconds in_place", "/secretEnv in_place"}
	deferred := []string{"/process/env/X deferred", "/process/stopSeconds deferred", "/secretEnv deferred"}
	require.Equal(t, want, put("?dryRun=true", both))

	manifests := `{"objects":[{"kind":"Deployment","name":"web","spec":` + both + `},{"kind":"Deployment","name":"new","spec":` + both + `}]}`
	a := r.call(r.admin, http.MethodPost, planPath, manifests)
	require.NotContains(t, string(a.body), "swordfish")
	plan := into[api.Plan](t, a)
	require.Equal(t, want, fieldPaths(planOf(t, plan, "web").Changes))
	require.Empty(t, planOf(t, plan, "new").Changes)
	require.Nil(t, planOf(t, plan, "new").Rollout)
	rollout := planOf(t, plan, "web").Rollout
	require.NotNil(t, rollout)
	require.Equal(t, []any{fleet.StrategyRolling, 2, 3, 1, 0}, []any{rollout.Strategy, rollout.Replicas, rollout.Most, rollout.Surge, *rollout.Room})
	require.NotEmpty(t, rollout.Why, "no node has room")
	staged := into[api.Plan](t, r.call(r.admin, http.MethodPost, planPath+"?deploy=false", manifests))
	require.Equal(t, deferred, fieldPaths(planOf(t, staged, "web").Changes))
	require.Nil(t, planOf(t, staged, "web").Rollout, "nothing is replaced")
	require.NotEqual(t, plan.Digest, staged.Digest)

	require.Equal(t, deferred, put("?deploy=false", both))
	deploy := into[api.Accepted](t, r.call(r.operator, http.MethodPost, webPath+"/deploy", `{}`))
	require.Equal(t, want, fieldPaths(deploy.Changes), "what was only written is released")
	require.Equal(t, append(deferred, "/state deferred"), put("", spec(`,"state":"stopped"`)))
	applied := into[api.Applied](t, r.call(r.admin, http.MethodPost, applyPath, `{"objects":[{"kind":"Deployment","name":"web","spec":`+both+`}]}`))
	require.Equal(t, append(want, "/state in_place"), fieldPaths(applied.Objects[0].Changes), "what was released last is what would run")
}

// S87, S98, S108, S111, S121: what is wrong is told with its place and what is allowed, and nothing
// is stored.
func TestDeploymentRefusals(t *testing.T) {
	t.Parallel()
	r := setup(t)
	before := r.rows()
	for body, field := range map[string]string{
		``:                                "/",
		`{}`:                              "/command",
		`{"comand":["x"]}`:                "/comand",
		`{"command":"x"}`:                 "/command",
		`{"command":[""]}`:                "/command/0",
		`{"type":"vlm"}`:                  "/type",
		`{"type":"vllm"}`:                 "/model",
		`{"command":["x"],"image":"a b"}`: "/image",
		`{"command":["x"],"health":{"type":"none"},"state":"off"}`:                            "/state",
		`{"command":["x"],"health":{"type":"none"},"replicas":0}`:                             "/replicas/max",
		`{"command":["x"],"health":{"type":"none"},"replicas":"many"}`:                        "/replicas",
		`{"command":["x"],"health":{"type":"none"},"replicas":{"most":1}}`:                    "/replicas/most",
		`{"command":["x"],"health":{"type":"none"},"replicas":{"min":3,"max":2}}`:             "/replicas/min",
		`{"command":["x"],"health":{"type":"none"},"replicas":{"min":1,"max":5,"initial":9}}`: "/replicas/initial",
		`{"command":["x"],"health":{"type":"none"},"replicas":{"min":2,"initial":0}}`:         "/replicas/initial",
		`{"command":["x"],"health":{"type":"none"},"replicas":{"initial":0}}`:                 "/replicas/initial",
		`{"command":["x"],"health":{"type":"none"},"resources":{"memory":"lots"}}`:            "/resources/memory",
		`{"command":["x"],"health":{"type":"none"},"resources":{"cpu":-1}}`:                   "/resources/cpu",
		`{"command":["x"],"health":{"type":"none"},"env":{"A=B":"x"}}`:                        "/env",
		`{"command":["x"],"health":{"type":"none"},"files":[{"path":"../x","content":"y"}]}`:  "/files/0/path",
		`{"command":["x"],"health":{"type":"none"},"placement":{"spread":"wide"}}`:            "/placement/spread",
		`{"command":["x"],"health":{"type":"none"},"startup":{"deadline":-1}}`:                "/startup/deadline",
		`{"command":["x"],"health":{"type":"none"},"recovery":{"restarts":-1}}`:               "/recovery/restarts",
		`{"command":["x"],"health":{"type":"none"},"secretEnv":[""]}`:                         "/secretEnv/0",
		`{"command":["x"],"health":{"type":"none"},"labels":{"":"x"}}`:                        "/labels",
		`{"command":["x"],"ports":[{"name":"http"}],"health":{"timeout":10,"interval":5}}`:    "/health/timeout",
		`{"command":["x"],"ports":[{"name":"http"}],"health":{"method":"DELETE"}}`:            "/health/method",
		`{"command":["x"],"ports":[{"name":"http"}],"health":{"unhealthy_threshold":-1}}`:     "/health/unhealthy_threshold",
		`{"type":"custom"}`: "/modelDefinition",
		`{"command":["x"],"health":{"type":"none"},"project":"Red"}`:                                                       "/project",
		`{"command":["x"],"health":{"type":"none"},"files":[{"path":"x","content":"` + strings.Repeat("a", 3<<19) + `"}]}`: "/files",
	} {
		shown := body[:min(len(body), 100)]
		a := r.call(r.operator, http.MethodPut, webPath, body)
		require.Equal(t, http.StatusBadRequest, a.status, shown)
		p := a.problem(t)
		require.Equal(t, field, p.Field, shown)
		require.NotEmpty(t, p.Detail, shown)
		planned := r.call(r.operator, http.MethodPost, planPath, `{"objects":[{"kind":"Deployment","name":"web","spec":`+body+`}]}`)
		if body == "" || field == "/labels" || field == "/project" { // which stand beside the spec there
			continue
		}
		require.Equal(t, http.StatusOK, planned.status, shown)
		require.Equal(t, "/objects/0/spec"+field, into[api.Plan](t, planned).Objects[0].Problem.Field, shown)
	}
	require.Equal(t, http.StatusBadRequest, r.call(r.operator, http.MethodPut, "/api/v1/deployments/No", web).status)
	require.Equal(t, http.StatusRequestEntityTooLarge, r.call(r.operator, http.MethodPut, webPath, strings.Repeat(" ", declare.MaxDeployment+1)).status)
	require.Equal(t, before, r.rows())
}

// N107: plan and apply know the kinds, and prune them within their set.
func TestDeploymentApply(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	object := func(kind, name, spec string) string {
		return `{"kind":"` + kind + `","name":"` + name + `","spec":` + spec + `}`
	}
	pool := object("Pool", "gpu", `{"nodes":["plant-1-a"]}`)
	pooled := `{"command":["x"],"health":{"type":"none"},"placement":{"pools":["gpu"]}}`
	request := func(objects ...string) string {
		return `{"applySet":"shop","prune":true,"objects":[` + strings.Join(objects, ",") + `]}`
	}
	all := request(object("Deployment", "web", pooled), pool, object("deployment", "api", `{"command":["y"],"health":{"type":"none"},"replicas":2}`))

	plan := into[api.Plan](t, r.call(r.admin, http.MethodPost, planPath, all))
	require.True(t, plan.Valid, plan)
	require.Equal(t, 3, plan.Summary.Create)
	require.Equal(t, "pool", plan.Objects[0].Kind, "what others refer to comes first")
	require.True(t, plan.Objects[1].Releases)
	require.NotEmpty(t, plan.Objects[1].Hash, "of its definition")
	a := r.call(r.admin, http.MethodPost, applyPath, all)
	require.Equal(t, http.StatusAccepted, a.status, string(a.body))
	applied := into[api.Applied](t, a)
	require.Zero(t, applied.Failed, string(a.body))
	require.Equal(t, "converge", applied.Objects[1].Operation.Kind)
	require.ElementsMatch(t, []string{"deployment.api", "deployment.web"}, r.wakes())

	plan = into[api.Plan](t, r.call(r.admin, http.MethodPost, planPath, all))
	require.False(t, plan.Changes, "it stands")
	changed := strings.Replace(all, `"replicas":2`, `"replicas":3`, 1)
	plan = into[api.Plan](t, r.call(r.admin, http.MethodPost, planPath, changed))
	require.Equal(t, 1, plan.Summary.Change)
	require.Contains(t, string(mustJSON(t, plan.Objects)), "/spec/replicas/max")
	bound := strings.Replace(changed, `{"applySet"`, `{"plan":`+string(mustJSON(t, plan.Binding()))+`,"applySet"`, 1)
	require.Equal(t, http.StatusAccepted, r.call(r.admin, http.MethodPost, applyPath, bound).status)
	require.Equal(t, http.StatusPreconditionFailed, r.call(r.admin, http.MethodPost, applyPath, bound).status, "once")

	rest := request(object("Deployment", "web", `{"command":["x"],"health":{"type":"none"}}`))
	a = r.call(r.admin, http.MethodPost, applyPath, rest)
	applied = into[api.Applied](t, a)
	require.Zero(t, applied.Failed, string(a.body))
	kinds := map[string]string{}
	for _, o := range applied.Objects {
		kinds[o.Kind+"/"+o.Name] = o.Action
	}
	require.Equal(t, map[string]string{"deployment/web": api.PlanChange, "deployment/api": api.PlanDelete, "pool/gpu": api.PlanDelete}, kinds)
	require.NotNil(t, r.deployment("/api/v1/deployments/api").DeletingSince)
	require.Equal(t, http.StatusNotFound, r.get("/api/v1/pools/gpu").status)

	staged := `{"objects":[` + object("Deployment", "later", `{"command":["x"],"health":{"type":"none"}}`) + `]}`
	require.Equal(t, http.StatusOK, r.call(r.admin, http.MethodPost, applyPath+"?deploy=false", staged).status)
	plan = into[api.Plan](t, r.call(r.admin, http.MethodPost, planPath, staged))
	require.True(t, plan.Objects[0].Unreleased, "that it was never released is the change")
	require.Equal(t, http.StatusAccepted, r.call(r.admin, http.MethodPost, applyPath, staged).status)
	require.Equal(t, http.StatusForbidden, r.call(r.viewer, http.MethodPost, applyPath, staged).status)
	denied := into[api.Plan](t, r.call(r.operator, http.MethodPost, planPath, `{"objects":[`+object("Pool", "other", `{}`)+`]}`))
	require.Equal(t, http.StatusForbidden, denied.Objects[0].Problem.Status)
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return text
}

// S95, S113
func TestDeploymentPlaces(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	for body, field := range map[string]string{
		`{"command":["x"],"health":{"type":"none"},"placement":{"sites":["plant-1","plant-9"]}}`: "/placement/sites/1",
		`{"command":["x"],"health":{"type":"none"},"placement":{"pools":["gpu"]}}`:               "/placement/pools/0",
	} {
		a := r.call(r.operator, http.MethodPut, webPath, body)
		require.Equal(t, http.StatusNotFound, a.status)
		p := a.problem(t)
		require.Equal(t, field, p.Field)
		require.Contains(t, p.Hint, "declare it first")
	}
	require.Equal(t, http.StatusNotFound, r.get(webPath).status)

	put := into[api.Accepted](t, r.put("/api/v1/pools/gpu", `{"sites":["plant-1"],"nodes":["plant-1-a"],"nodeLabels":{"gpu":"a100"},"maxReplicas":4,"labels":{"team":"ml"}}`))
	require.JSONEq(t, `{"sites":["plant-1"],"nodes":["plant-1-a"],"labels":{"gpu":"a100"},"maxReplicas":4}`, string(put.Object.Spec))
	require.Equal(t, "gpu", into[api.List[api.Object]](t, r.get("/api/v1/pools")).Items[0].Name)
	require.Equal(t, map[string]string{"team": "ml"}, into[api.Object](t, r.get("/api/v1/pools/gpu")).Labels)
	r.put(webPath, `{"command":["x"],"health":{"type":"none"},"placement":{"pools":["gpu"],"sites":["plant-1"]}}`)
	a := r.call(r.admin, http.MethodDelete, "/api/v1/pools/gpu", nil)
	require.Equal(t, api.ProblemPrefix+string(fleet.IllegalState), a.problem(t).Type, "a deployment names it")
	r.put(webPath, `{"command":["x"],"health":{"type":"none"}}`)
	require.Equal(t, http.StatusOK, r.call(r.admin, http.MethodDelete, "/api/v1/pools/gpu", nil).status)
	require.Equal(t, http.StatusBadRequest, r.call(r.admin, http.MethodPut, "/api/v1/pools/gpu", `{"node":["x"]}`).status)
}

// X20: a door of any Temporal client deploys what was only written, as the API does, and once.
func TestDeploymentDoors(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.put(webPath+"?deploy=false", web)
	turn := func(kind fleet.OperationKind, run string) (postgres.Started, error) {
		return r.server.turns.TurnDeployment(t.Context(), deployments.DeploymentTurn{
			Write: postgres.Write{Request: postgres.Request{Actor: "ann", Door: postgres.Door{Workflow: "w", Run: run}}, Key: fleet.DeploymentKey("web")}, Kind: kind,
		})
	}
	one, err := turn(fleet.OperationConverge, "1")
	require.NoError(t, err)
	require.NotNil(t, one.Operation)
	require.EqualValues(t, 1, one.Operation.Revision)
	require.Equal(t, postgres.Door{Workflow: "w", Run: "1"}, one.Operation.Door)
	again, err := turn(fleet.OperationConverge, "1")
	require.NoError(t, err)
	require.Equal(t, one.Operation.ID, again.Operation.ID)
	two, err := turn(fleet.OperationConverge, "2")
	require.NoError(t, err)
	require.EqualValues(t, 1, two.Operation.Revision, "nothing new was written")

	_, err = turn(fleet.OperationDestroy, "3")
	require.NoError(t, err)
	_, err = turn(fleet.OperationConverge, "4")
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
	_, err = r.server.turns.TurnDeployment(t.Context(), deployments.DeploymentTurn{
		Write: postgres.Write{Request: postgres.Request{Actor: "ann"}, Key: fleet.DeploymentKey("nobody")}, Kind: fleet.OperationConverge,
	})
	require.Equal(t, fleet.NotFound, fleet.KindOf(err))
}
