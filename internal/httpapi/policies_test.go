package httpapi

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func policyOf(regions ...string) *api.MultiRegionPolicy {
	return &api.MultiRegionPolicy{EnabledRegions: regions, DefaultControlRegion: regions[0]}
}

// M41 to M43, X19: holders are declared with a policy, objects name their service, and both show in what is read.
func TestPolicyHolders(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.put("/api/v1/organizations/acme", api.OrganizationPut{MultiRegionPolicy: policyOf("test", "ap")})
	require.Equal(t, "default", into[api.Object](t, r.get("/api/v1/organizations/acme")).Project)
	r.put("/api/v1/projects/red", api.ProjectPut{Organization: "acme", MultiRegionPolicy: policyOf("test", "eu")})
	r.put("/api/v1/services/web", api.ServicePut{Project: "red", MultiRegionPolicy: policyOf("test", "us")})
	r.put("/api/v1/pools/a", api.PoolPut{Project: "red", Service: "web"})
	r.put("/api/v1/pools/b", api.PoolPut{Project: "red"})
	r.put("/api/v1/sites/plant-1", api.SitePut{Project: "red", Service: "web", Nodes: []api.SiteNode{{Name: "plant-1-a", Role: fleet.RoleActive}}})
	r.put("/api/v1/sites/plant-1/instances/i", api.InstancePut{Project: "red", Service: "web", Config: []byte(`{}`)})
	r.put("/api/v1/templates/t", api.TemplatePut{Project: "red", Service: "web", Base: []byte(`{}`)})
	r.put("/api/v1/fleets/f?deploy=false", map[string]any{"project": "red", "service": "web", "change": map[string]any{"patch": map[string]any{"a": 1}}})
	r.put("/api/v1/deployments/d?deploy=false", api.DeploymentPut{
		Project: "red", Service: "web", Command: []string{"true"},
	})
	for path, want := range map[string][2]string{
		"organizations/acme": {"", `["ap","test"]`}, "projects/red": {"", `["eu","test"]`}, "services/web": {"", `["test","us"]`},
		"pools/a": {"web", `["test","us"]`}, "pools/b": {"", `["eu","test"]`}, "sites/plant-1": {"web", `["test","us"]`},
		"sites/plant-1/instances/i": {"web", `["test","us"]`}, "templates/t": {"web", `["test","us"]`}, "fleets/f": {"web", `["test","us"]`},
		"deployments/d": {"web", `["test","us"]`},
	} {
		o := into[api.Object](t, r.call(r.admin, http.MethodGet, "/api/v1/"+path, nil))
		require.Equal(t, want[0], o.Service, path)
		require.JSONEq(t, fmt.Sprintf(`{"owningRegion":"test","regions":%s}`, want[1]), string(o.Syncing), path)
	}
	require.JSONEq(t, `{"organization":"acme","multiRegionPolicy":{"enabledRegions":["test","eu"],"defaultControlRegion":"test"}}`,
		string(into[api.Object](t, r.get("/api/v1/projects/red")).Spec))

	for _, row := range []struct {
		path   string
		body   any
		status int
		field  string
	}{
		{"projects/red", `{"multiRegionPolicy":{"enabledRegions":["test"],"defaultControlRegion":"us"},"organization":"acme"}`, http.StatusBadRequest, "/multiRegionPolicy/defaultControlRegion"},
		{"projects/default", api.ProjectPut{MultiRegionPolicy: policyOf("test")}, http.StatusBadRequest, "/multiRegionPolicy"},
		{"projects/red", api.ProjectPut{}, http.StatusConflict, "/organization"},
		{"pools/a", api.PoolPut{Project: "red", Service: "db"}, http.StatusConflict, "/service"},
		{"pools/c", api.PoolPut{Project: "red", Service: "db"}, http.StatusNotFound, "/service"},
		{"services/db", api.ServicePut{MultiRegionPolicy: policyOf("test")}, http.StatusBadRequest, "/multiRegionPolicy"},
		{"organizations/other", api.OrganizationPut{MultiRegionPolicy: policyOf("us")}, http.StatusMisdirectedRequest, ""},
	} {
		p := r.call(r.admin, http.MethodPut, "/api/v1/"+row.path, row.body).problem(t)
		require.Equal(t, []any{row.status, row.field}, []any{p.Status, p.Field}, "%s: %s", row.path, p.Detail)
	}
	require.Equal(t, http.StatusForbidden, r.call(r.operator, http.MethodPut, "/api/v1/organizations/acme", api.OrganizationPut{}).status)
}

// M27, M39, X19: a write of what another region owns is refused with the name of its owner.
func TestNotOwner(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.put("/api/v1/pools/a", api.PoolPut{})
	r.sql(`UPDATE objects SET syncing = '{"owningRegion":"us","regions":["test","us"]}'`)
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		p := r.call(r.admin, method, "/api/v1/pools/a", api.PoolPut{}).problem(t)
		require.Equal(t, []any{http.StatusMisdirectedRequest, "us", api.ProblemPrefix + "not_owner"}, []any{p.Status, p.Owner, p.Type})
	}
	client, err := api.NewClient(r.url, r.admin)
	require.NoError(t, err)
	_, err = client.Delete(t.Context(), fleet.PoolKey("a"), api.Mutation{})
	var e *api.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, []any{api.NotOwner, "us"}, []any{e.Kind, e.Owner})
}

// M5, X2: a changed policy, or a request, wakes the entity that applies it.
func TestApplyPolicy(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.put("/api/v1/projects/red", api.ProjectPut{})
	require.Empty(t, r.wakes())
	r.put("/api/v1/projects/red", api.ProjectPut{MultiRegionPolicy: policyOf("test", "us")})
	subject := fleet.PolicySubject(fleet.ProjectKey("red"))
	require.Equal(t, []string{subject}, r.wakes())

	const path = "/api/v1/projects/red/apply-policy"
	require.Equal(t, http.StatusForbidden, r.call(r.viewer, http.MethodPost, path, nil).status)
	require.Equal(t, http.StatusNotFound, r.call(r.operator, http.MethodPost, "/api/v1/projects/blue/apply-policy", nil).status)
	require.Equal(t, http.StatusNotFound, r.call(r.operator, http.MethodPost, "/api/v1/pools/a/apply-policy", nil).status)
	client, err := api.NewClient(r.url, r.operator)
	require.NoError(t, err)
	dry, err := client.ApplyPolicy(t.Context(), fleet.ProjectKey("red"), api.Mutation{DryRun: true})
	require.NoError(t, err)
	require.Empty(t, dry.Operation.ID)
	out, err := client.ApplyPolicy(t.Context(), fleet.ProjectKey("red"), api.Mutation{IdempotencyKey: "k"})
	require.NoError(t, err)
	require.Equal(t, []any{"apply-policy", "project/red"}, []any{out.Operation.Kind, out.Operation.Holder})
	require.Equal(t, []string{subject, subject}, r.wakes())
	again, err := client.ApplyPolicy(t.Context(), fleet.ProjectKey("red"), api.Mutation{IdempotencyKey: "k"})
	require.NoError(t, err)
	require.Equal(t, out.Operation.ID, again.Operation.ID)
	op := into[api.Operation](t, r.get("/api/v1/operations/"+out.Operation.ID))
	require.Equal(t, []any{"applying", fleet.OperationRunning}, []any{op.Reason, op.State})
	require.Contains(t, op.Message, subject)
}

// N107, M41: plan and apply take holders, and objects of a service; and refuse them where they have no place.
func TestApplyUnderAPolicy(t *testing.T) {
	t.Parallel()
	r := setup(t)
	objects := []map[string]any{
		{"kind": "Pool", "name": "a", "project": "red", "service": "web", "spec": map[string]any{}},
		{"kind": "Service", "name": "web", "project": "red", "spec": map[string]any{"multiRegionPolicy": policyOf("test", "us")}},
		{"kind": "Project", "name": "red", "spec": map[string]any{"organization": "acme"}},
		{"kind": "Organization", "name": "acme", "spec": map[string]any{"multiRegionPolicy": policyOf("test", "eu")}},
	}
	a := r.call(r.admin, http.MethodPost, "/api/v1/apply", map[string]any{"objects": objects})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Zero(t, into[api.Applied](t, a).Failed, string(a.body))
	o := into[api.Object](t, r.get("/api/v1/pools/a"))
	require.Equal(t, "web", o.Service)
	require.JSONEq(t, `{"owningRegion":"test","regions":["test","us"]}`, string(o.Syncing))
	for _, row := range []struct {
		object map[string]any
		field  string
	}{
		{map[string]any{"kind": "Organization", "name": "x", "project": "red"}, "/objects/0/project"},
		{map[string]any{"kind": "Service", "name": "x", "service": "web"}, "/objects/0/service"},
		{map[string]any{"kind": "Pool", "name": "x", "spec": map[string]any{"service": "web"}}, "/objects/0/spec"},
		{map[string]any{"kind": "Pool", "name": "x", "service": "-"}, "/objects/0/service"},
		{map[string]any{"kind": "Project", "name": "x", "spec": map[string]any{"multiRegionPolicy": map[string]any{"enabledRegions": []string{}}}}, "/objects/0/spec/multiRegionPolicy/enabledRegions"},
	} {
		a := r.call(r.admin, http.MethodPost, "/api/v1/plan", map[string]any{"objects": []any{row.object}})
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		require.Equal(t, row.field, into[api.Plan](t, a).Objects[0].Problem.Field, string(a.body))
	}
}

// M27, M39: a plan refuses to change, and to prune, what another region owns by now.
func TestPlanElsewhere(t *testing.T) {
	t.Parallel()
	r := setup(t)
	object := map[string]any{"kind": "Project", "name": "red", "spec": map[string]any{"multiRegionPolicy": policyOf("test", "us")}}
	request := map[string]any{"applySet": "shop", "objects": []any{object}}
	a := r.call(r.admin, http.MethodPost, "/api/v1/apply", request)
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	_, err := r.store.Pool.Exec(t.Context(), `UPDATE objects SET syncing = jsonb_set(syncing, '{owningRegion}', '"us"') WHERE kind = 'project' AND name = 'red'`)
	require.NoError(t, err)
	refused := func(request map[string]any) {
		t.Helper()
		plan := into[api.Plan](t, r.call(r.admin, http.MethodPost, "/api/v1/plan", request))
		require.False(t, plan.Valid)
		require.Equal(t, []any{http.StatusMisdirectedRequest, "us"}, []any{plan.Objects[0].Problem.Status, plan.Objects[0].Problem.Owner})
		require.Equal(t, http.StatusMisdirectedRequest, r.call(r.admin, http.MethodPost, "/api/v1/apply", request).status)
	}
	refused(request)
	refused(map[string]any{"applySet": "shop", "prune": true, "objects": []any{}})
	hidden := r.call(r.token("operator", "blue"), http.MethodPost, "/api/v1/plan", map[string]any{"objects": []any{object}})
	require.NotContains(t, string(hidden.body), `"owner"`)
}
