package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// copied makes a copy of what eu created, which a region owns.
func (r *region) copied(key fleet.ObjectKey, project, owner, spec string) {
	r.t.Helper()
	r.sql(`INSERT INTO copies (region, kind, scope, name, owner, owner_epoch, number, uid, project, service, labels, generation, spec, syncing, created_by, created_at, updated_at, event)
		VALUES ('eu', $1, '', $2, $4, 2, 1, gen_random_uuid(), $3, '', '{}', 3, $5::jsonb, $6::jsonb, 'test', now(), now(), 1)`,
		string(key.Kind), key.Name, project, owner, spec, fmt.Sprintf(`{"owningRegion":%q,"regions":["eu","test"]}`, owner))
}

const euPolicy = `{"multiRegionPolicy":{"enabledRegions":["eu","test"],"defaultControlRegion":%q}}`

// twoOfAName is a region that has a project and a template, and owns those of the same names that eu created.
func twoOfAName(t *testing.T) *region {
	t.Helper()
	r := setup(t)
	r.meets("eu")
	r.put("/api/v1/projects/line", api.ProjectPut{})
	r.put("/api/v1/templates/press", api.TemplatePut{Project: "line", Base: []byte(`{"of":"test"}`)})
	r.copied(fleet.ProjectKey("line"), "line", "test", fmt.Sprintf(euPolicy, "test"))
	r.copied(fleet.TemplateKey("press"), "line", "test", `{}`)
	return r
}

func (r *region) view(path string) api.Object {
	r.t.Helper()
	a := r.call(r.admin, http.MethodGet, path, nil)
	require.Equal(r.t, http.StatusOK, a.status, string(a.body))
	return into[api.Object](r.t, a)
}

// M27, M39: the region that created an object is part of its name, also in a write: of two of a name, only the named one changes.
func TestWriteByRegion(t *testing.T) {
	t.Parallel()
	r := twoOfAName(t)
	const own, copied = "/api/v1/templates/press", "/api/v1/templates/press?region=eu"
	before := r.view(own)
	put := api.TemplatePut{Project: "line", Labels: map[string]string{"v": "2"}, Base: []byte(`{"of":"eu"}`)}
	out := into[api.Accepted](t, r.put(copied, put))
	require.Equal(t, []any{"eu", int64(4)}, []any{out.Object.Region, out.Object.Generation})
	require.Equal(t, before, r.view(own))
	require.Equal(t, put.Labels, r.view(copied).Labels)

	etag := r.call(r.admin, http.MethodGet, copied, nil).header.Get("ETag")
	require.Equal(t, http.StatusPreconditionFailed, r.call(r.admin, http.MethodPut, copied, put, "If-Match", `"1"`).status)
	put.Compositions = []string{"base"}
	require.Equal(t, http.StatusNotFound, r.call(r.admin, http.MethodPut, copied, put).status, "a base of eu")
	r.copied(fleet.TemplateKey("base"), "line", "eu", `{}`)
	r.sql(`INSERT INTO template_generations (name, generation, spec) VALUES ('eu/base', 3, '{}')`)
	r.put(copied, put, "If-Match", etag)
	require.Contains(t, string(r.view(copied).Spec), `"compositions":[{"name":"base","generation":3}]`, "as eu names it")

	r.put("/api/v1/templates/press?region=test", api.TemplatePut{Project: "line", Base: []byte(`{"of":"test","v":2}`)})
	require.Equal(t, before.Generation+1, r.view(own).Generation)
	require.Equal(t, http.StatusNotFound, r.call(r.admin, http.MethodDelete, "/api/v1/templates/base?region=test", nil).status)

	require.Equal(t, http.StatusUnprocessableEntity, r.call(r.admin, http.MethodDelete, "/api/v1/projects/line?region=eu", nil).status, "what eu created is in it")
	for range 2 {
		require.Equal(t, http.StatusOK, r.call(r.admin, http.MethodDelete, copied, nil, "Idempotency-Key", "k").status)
	}
	require.Equal(t, http.StatusNotFound, r.call(r.admin, http.MethodGet, copied, nil).status)
	r.view(own)
	r.sql(`DELETE FROM copies WHERE name = 'base'`)
	require.Equal(t, http.StatusOK, r.call(r.admin, http.MethodDelete, "/api/v1/projects/line?region=eu", nil).status, "what is here belongs to the project of this region")
	r.view("/api/v1/projects/line")
}

// M34: a hand-over, and a request to apply a policy, are of the holder that the region names.
func TestAskByRegion(t *testing.T) {
	t.Parallel()
	r := twoOfAName(t)
	require.Equal(t, http.StatusUnprocessableEntity, r.call(r.admin, http.MethodPost, "/api/v1/projects/line/hand-over", api.HandOverRequest{To: "eu"}).status, "it has no policy")
	require.Equal(t, http.StatusAccepted, r.call(r.admin, http.MethodPost, "/api/v1/projects/line/apply-policy?region=eu", nil).status)
	require.Equal(t, http.StatusAccepted, r.call(r.admin, http.MethodPost, "/api/v1/projects/line/hand-over?region=eu", api.HandOverRequest{To: "eu"}).status)
	require.Contains(t, string(r.view("/api/v1/projects/line?region=eu").Syncing), `"fence":{"to":"eu"`)
	require.NotContains(t, string(r.view("/api/v1/projects/line").Syncing), "fence")
	p := r.call(r.admin, http.MethodPut, "/api/v1/templates/press?region=eu", api.TemplatePut{Project: "line", Base: []byte(`{}`)}).problem(t)
	require.Equal(t, []any{http.StatusMisdirectedRequest, "eu", "eu"}, []any{p.Status, p.Owner, p.Region})
}

// M39, M46: what another region owns is refused with that region, the name that the object has there, and where its API is.
func TestOwnedElsewhere(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.meets("eu")
	r.put("/api/v1/projects/line", api.ProjectPut{})
	r.copied(fleet.TemplateKey("press"), "line", "us", `{}`)
	template := api.TemplatePut{Project: "line", Base: []byte(`{}`)}
	refused := func(method, path string, body any) *api.Problem {
		t.Helper()
		p := r.call(r.admin, method, path, body).problem(t)
		return &p
	}
	for _, row := range []struct {
		method, path string
		body         any
		owner        string
	}{
		{http.MethodPut, "templates/press?region=eu", template, "us"},
		{http.MethodPut, "templates/press", template, "us"},
		{http.MethodDelete, "templates/press?region=eu", nil, "us"},
		{http.MethodDelete, "templates/press", nil, "us"},
		{http.MethodPut, "templates/other?region=eu", template, "eu"},
		{http.MethodDelete, "templates/other?region=eu", nil, "eu"},
		{http.MethodDelete, "pools/north?region=eu", nil, "eu"},
		{http.MethodPut, "pools/north?region=eu", api.PoolPut{}, "eu"},
		{http.MethodPut, "projects/p?region=eu", api.ProjectPut{}, "eu"},
		{http.MethodPut, "sites/plant-9/instances/i?region=eu", api.InstancePut{Config: []byte(`{}`)}, "eu"},
		{http.MethodDelete, "sites/plant-9/instances/i?region=eu", nil, "eu"},
		{http.MethodPut, "deployments/d?region=eu", api.DeploymentPut{Command: []string{"true"}}, "eu"},
		{http.MethodPut, "fleets/f?region=eu", map[string]any{"change": map[string]any{"patch": map[string]any{"a": 1}}}, "eu"},
		{http.MethodPost, "projects/p/hand-over?region=eu", api.HandOverRequest{To: "test"}, "eu"},
	} {
		p := refused(row.method, "/api/v1/"+row.path, row.body)
		require.Equal(t, []any{http.StatusMisdirectedRequest, row.owner, "eu", ""}, []any{p.Status, p.Owner, p.Region, p.OwnerAddress}, "%s %s: %s", row.method, row.path, p.Detail)
		require.Contains(t, p.Hint, "send the request to region "+row.owner)
	}
	p := refused(http.MethodPut, "/api/v1/templates/press", template)
	require.Contains(t, p.Hint, "name region test to declare another template of this name here")
	require.NotContains(t, refused(http.MethodDelete, "/api/v1/templates/press", nil).Hint, "declare another")
	r.copied(fleet.ProjectKey("far"), "far", "us", fmt.Sprintf(euPolicy, "us"))
	r.copied(fleet.TemplateKey("cell"), "far", "us", `{}`)
	require.NotContains(t, refused(http.MethodPut, "/api/v1/templates/cell", api.TemplatePut{Project: "far", Base: []byte(`{}`)}).Hint, "declare another", "its project says where")
	require.Contains(t, refused(http.MethodPut, "/api/v1/projects/far", api.ProjectPut{}).Hint, "name region test to declare another project")
	r.sql(`INSERT INTO copies SELECT 'ap', kind, scope, name, 'ap', owner_epoch, number, gen_random_uuid(), project, service, labels, generation, spec,
		'{"owningRegion":"ap","regions":["ap","test"]}', created_by, created_at, updated_at, deleting_since, event FROM copies WHERE name = 'press'`)
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		p = refused(method, "/api/v1/templates/press", template)
		require.Equal(t, []any{http.StatusConflict, "name one: ap/press or eu/press"}, []any{p.Status, p.Hint}, method)
	}
	r.put("/api/v1/templates/press?region=test", template)
	r.put("/api/v1/templates/press", template)
	require.Equal(t, http.StatusOK, r.call(r.admin, http.MethodDelete, "/api/v1/templates/press", nil).status, "the region's own")
	p = refused(http.MethodPut, "/api/v1/templates/press?region=nowhere", template)
	require.Equal(t, []any{http.StatusNotFound, "region", "use test or eu"}, []any{p.Status, p.Field, p.Hint})
	require.Equal(t, http.StatusNotFound, refused(http.MethodDelete, "/api/v1/pools/north?region=nowhere", nil).Status)
	require.Equal(t, "region", refused(http.MethodPost, "/api/v1/nodes/a/revoke?region=eu", nil).Field)

	require.NoError(t, r.store.TellsOf(t.Context(), "eu", fleet.RegionAbout{Spec: fleet.RegionSpec{APIURL: "https://eu.example.com"}}))
	p = refused(http.MethodDelete, "/api/v1/pools/north?region=eu", nil)
	require.Equal(t, "https://eu.example.com", p.OwnerAddress)
	require.Equal(t, "send the request to region eu; its API: https://eu.example.com", p.Hint)
}

// M39: a plan and an apply of many refuse what a write of its name would.
func TestPlanOfCopies(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.copied(fleet.ProjectKey("line"), "line", "us", fmt.Sprintf(euPolicy, "us"))
	r.copied(fleet.TemplateKey("press"), "line", "us", `{}`)
	body := many("", `{"kind":"Project","name":"line","spec":{}}`, `{"kind":"Template","name":"press","project":"line","spec":{"base":{}}}`,
		`{"kind":"Pool","name":"other","project":"line","spec":{}}`)
	p := r.plan(body)
	require.Equal(t, "line refused, other create, press refused", actions(p))
	require.Equal(t, []string{"not owner", "us", "eu"}, []string{planOf(t, p, "line").Problem.Title, planOf(t, p, "line").Problem.Owner, planOf(t, p, "line").Problem.Region})
	require.Equal(t, http.StatusMisdirectedRequest, r.call(r.admin, http.MethodPost, applyPath, body).status)
	require.Equal(t, http.StatusNotFound, r.call(r.admin, http.MethodGet, "/api/v1/pools/other", nil).status, "nothing was written")
}

// M34, M39, N107: what eu created and this region owns by now is planned and applied like its own, and never pruned. The names of
// templates are as eu has them.
func TestPlanOfOwnedCopies(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.meets("eu")
	r.copied(fleet.ProjectKey("line"), "line", "test", fmt.Sprintf(euPolicy, "test"))
	for _, name := range []string{"press", "base"} {
		r.copied(fleet.TemplateKey(name), "line", "test", `{}`)
		r.sql(`INSERT INTO template_generations (name, generation, spec) VALUES ('eu/' || $1, 3, '{}')`, name)
	}
	r.put("/api/v1/sites/plant-1", api.SitePut{Project: "line", Nodes: []api.SiteNode{{Name: "plant-1-a", Role: fleet.RoleActive}}})
	objects := []string{
		`{"kind":"Project","name":"line","labels":{"v":"2"},"spec":` + fmt.Sprintf(euPolicy, "test") + `}`,
		`{"kind":"Template","name":"press","project":"line","spec":{"base":{"of":"press"},"compositions":["base"]}}`,
		`{"kind":"Template","name":"base","project":"line","spec":{"base":{"of":"base"}}}`,
		`{"kind":"Instance","site":"plant-1","name":"i","project":"line","spec":{"template":"press"}}`,
	}
	body := many(`"applySet":"shop"`, objects...)
	p := r.plan(body)
	require.Equal(t, "line change, base change, press change, i create", actions(p))
	require.Equal(t, "eu", planOf(t, p, "press").Region)
	require.Zero(t, r.apply(body).Failed)
	require.Contains(t, string(r.view("/api/v1/templates/press?region=eu").Spec), `"compositions":[{"name":"base","generation":4}]`)
	require.Equal(t, "2", r.view("/api/v1/projects/line?region=eu").Labels["v"])
	require.Contains(t, string(r.view("/api/v1/sites/plant-1/instances/i").Spec), `"template":"eu/press","durability":"async","templateGeneration":4`)
	require.Equal(t, "line unchanged, base unchanged, press unchanged, i unchanged", actions(r.plan(body)))

	rest := many(`"applySet":"shop","prune":true`, objects[0], `{"kind":"Instance","site":"plant-1","name":"i","project":"line","spec":{"config":{}}}`)
	require.Equal(t, "line unchanged, i change", actions(r.plan(rest)), "its set is that of eu")
}

// M6, M41, M43: what the policies do not have declared in this region, as they are and as the request makes them, is refused before anything
// is written.
func TestPlanUnderPolicies(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.meets("eu")
	r.copied(fleet.ProjectKey("line"), "line", "eu", `{"multiRegionPolicy":{"enabledRegions":["eu","us"],"defaultControlRegion":"eu"}}`)
	r.put("/api/v1/projects/own", api.ProjectPut{MultiRegionPolicy: policyOf("test", "eu")})
	r.put("/api/v1/projects/other", api.ProjectPut{})
	r.put("/api/v1/services/of-other", api.ServicePut{Project: "other", MultiRegionPolicy: policyOf("test", "us")})
	body := many("", `{"kind":"Pool","name":"a","project":"line","spec":{}}`, `{"kind":"Template","name":"b","project":"line","spec":{"base":{}}}`,
		`{"kind":"Pool","name":"c","project":"own","spec":{}}`, `{"kind":"Template","name":"d","project":"own","spec":{"base":{}}}`,
		`{"kind":"Service","name":"e","project":"own","spec":{"multiRegionPolicy":{"enabledRegions":["eu"],"defaultControlRegion":"eu"}}}`,
		`{"kind":"Pool","name":"f","project":"own","service":"e","spec":{}}`,
		`{"kind":"Organization","name":"g","spec":{"multiRegionPolicy":{"enabledRegions":["eu","test"],"defaultControlRegion":"eu"}}}`,
		`{"kind":"Project","name":"h","spec":{"organization":"g"}}`, `{"kind":"Pool","name":"i","project":"own","service":"of-other","spec":{}}`)
	p := r.plan(body)
	require.Equal(t, "g refused, h refused, e refused, a refused, c create, f refused, i refused, b refused, d create", actions(p))
	require.Contains(t, planOf(t, p, "a").Problem.Detail, "does not enable region test; enabled: eu, us")
	require.Equal(t, "eu", planOf(t, p, "b").Problem.Owner)
	require.Equal(t, "service of-other not found in project own", planOf(t, p, "i").Problem.Detail)
	require.GreaterOrEqual(t, r.call(r.admin, http.MethodPost, applyPath, body).status, 400)
	require.Equal(t, http.StatusNotFound, r.call(r.admin, http.MethodGet, "/api/v1/pools/c", nil).status, "nothing was written")
}

// X8, X18: a copy says whether it is what its owner declares, and where to look if it is not.
func TestCopyIsSynced(t *testing.T) {
	t.Parallel()
	r := twoOfAName(t)
	r.copied(fleet.PoolKey("north"), "line", "eu", `{}`)
	synced := func(path string) string {
		var status api.CopyStatus
		require.NoError(t, json.Unmarshal(r.view(path).Status, &status))
		listed := into[api.List[api.Object]](t, r.call(r.admin, http.MethodGet, strings.Replace(path, "/north", "", 1), nil))
		if strings.Contains(path, "pools") {
			require.JSONEq(t, string(r.view(path).Status), string(listed.Items[0].Status))
		}
		return status.Synced.Reason + " " + status.Synced.Hint
	}
	const pool = "/api/v1/pools/north?region=eu"
	require.Equal(t, "as_declared ", synced("/api/v1/templates/press?region=eu"), "this region owns it")
	require.Equal(t, "behind holdfast sync status", synced(pool), "it was never up to date")
	r.sql(`INSERT INTO region_streams (peer, run, current_at) VALUES ('eu', 'run', now()) ON CONFLICT (peer) DO UPDATE SET current_at = now(), seen_at = now(), lag_ms = 0`)
	require.Equal(t, "as_declared ", synced(pool))
	r.sql(`INSERT INTO copies_waiting (region, kind, scope, name, owner, owner_epoch, number, change) VALUES ('eu', 'pool', '', 'north', 'eu', 2, 5, '{}')`)
	require.Equal(t, "behind holdfast sync status", synced(pool), "a newer state waits")
	r.sql(`INSERT INTO quarantine (peer, region, kind, scope, name, reason, owner_epoch, number) VALUES ('eu', 'eu', 'pool', '', 'north', 'not_shared', 2, 6)`)
	require.Equal(t, "set_aside holdfast sync quarantine eu", synced(pool))
	r.sql(`UPDATE copies SET number = 7`)
	require.Equal(t, "as_declared ", synced(pool), "what was set aside is older")
}
