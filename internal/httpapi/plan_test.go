package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	planPath  = "/api/v1/plan"
	applyPath = "/api/v1/apply"
)

// many is a request of manifests, and what goes with them.
func many(with string, manifests ...string) string {
	if with != "" {
		with += ","
	}
	return "{" + with + `"objects":[` + strings.Join(manifests, ",") + "]}"
}

func siteManifest(name string) string {
	return fmt.Sprintf(`{"kind":"Site","name":%q,"spec":{"nodes":[{"name":"%s-a","role":"active"},{"name":"%s-b","role":"standby"}]}}`, name, name, name)
}

func instanceManifest(name, spec string) string {
	return fmt.Sprintf(`{"kind":"Instance","name":%q,"site":"plant-1","spec":%s}`, name, spec)
}

func (r *region) plan(body string) api.Plan {
	r.t.Helper()
	a := r.call(r.admin, http.MethodPost, planPath, body)
	require.Equal(r.t, http.StatusOK, a.status, string(a.body))
	return into[api.Plan](r.t, a)
}

func (r *region) apply(body string) api.Applied {
	r.t.Helper()
	a := r.call(r.admin, http.MethodPost, applyPath, body)
	require.Less(r.t, a.status, 300, string(a.body))
	return into[api.Applied](r.t, a)
}

func planOf(t *testing.T, p api.Plan, name string) api.PlanObject {
	t.Helper()
	for _, o := range p.Objects {
		if o.Name == name {
			return o
		}
	}
	require.Fail(t, "no "+name+" in the plan")
	return api.PlanObject{}
}

func actions(p api.Plan) string {
	var all []string
	for _, o := range p.Objects {
		action := o.Action
		if o.Problem != nil {
			action = "refused"
		}
		all = append(all, o.Name+" "+action)
	}
	return strings.Join(all, ", ")
}

func changesOf(d api.Difference) string {
	var all []string
	for _, c := range d.Changes {
		all = append(all, strings.TrimSpace(c.Op+" "+c.Path+" "+string(c.From)+">"+string(c.To)))
	}
	return strings.Join(all, "; ")
}

// holds has a node report that it runs the desired revision of an instance.
func (r *region) holds(node, instance string) {
	r.t.Helper()
	r.sql(`INSERT INTO node_held (site, name, node, era, revision, hash, enabled, deleted, running, high_era, high_revision)
		SELECT s.site, s.name, $1, v.era, v.revision, v.body_hash, v.enabled, false, true, v.era, v.revision
		FROM subjects s JOIN revisions v ON v.site = s.site AND v.name = s.name AND v.revision = s.desired_revision WHERE s.name = $2
		ON CONFLICT (site, name, node) DO UPDATE SET revision = excluded.revision, hash = excluded.hash`, node, instance)
}

// bound puts a plan into a request.
func bound(t *testing.T, p api.Plan) string {
	t.Helper()
	for i := range p.Objects {
		p.Objects[i].Declared, p.Objects[i].Nodes = nil, nil
	}
	text, err := readable(p)
	require.NoError(t, err)
	return `"plan":` + string(text)
}

// N107
func TestPlan(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	first := many("", instanceManifest("press-7", `{"config":{"a":1,"b":{"c":[1,2]}}}`), instanceManifest("press-8", `{"config":{"x":1}}`))
	require.Zero(t, r.apply(first).Failed)
	r.holds("plant-1-a", "press-7")
	r.holds("plant-1-b", "press-7")
	second := many("", instanceManifest("press-7", `{"config":{"b":{"c":[1,3]},"a":1,"d":true},"enabled":false}`),
		instanceManifest("press-8", `{"config":{"x":1.0}}`), instanceManifest("press-9", `{"config":{}}`))

	t.Run("says what an apply would do, and does nothing", func(t *testing.T) {
		before := r.rows()
		p := r.plan(second)
		require.True(t, p.Valid)
		require.True(t, p.Changes)
		require.Equal(t, "press-7 change, press-8 unchanged, press-9 create", actions(p))
		require.Equal(t, api.PlanSummary{Create: 1, Change: 1, Unchanged: 1}, p.Summary)
		o := planOf(t, p, "press-7")
		require.EqualValues(t, 1, o.Generation)
		require.NotEmpty(t, o.ResourceVersion)
		require.True(t, o.Releases)
		require.False(t, o.Unreleased)
		require.Equal(t, "replace /spec/enabled true>false", changesOf(*o.Declared))
		require.Len(t, o.Nodes, 1, "nodes with the same content share an entry")
		require.Equal(t, "replace /b/c/1 2>3; add /d >true", changesOf(o.Nodes[0].Difference))
		require.Equal(t, compose.HashOf([]byte(`{"a":1,"b":{"c":[1,3]},"d":true}`)), o.Hash)
		require.Zero(t, planOf(t, p, "press-9").Generation)
		require.Equal(t, before, r.rows())
		require.Equal(t, p, r.plan(second), "the same plan again")
		require.Equal(t, p, into[api.Plan](t, r.call(r.admin, http.MethodPost, applyPath+"?dryRun=true", second)))
		require.Equal(t, before, r.rows())
	})

	t.Run("tells nodes that hold different things apart", func(t *testing.T) {
		r.put(press7Path, `{"config":{"a":2,"b":{"c":[1,2]}}}`)
		r.holds("plant-1-a", "press-7")
		o := planOf(t, r.plan(second), "press-7")
		require.Len(t, o.Nodes, 2)
		require.Equal(t, "replace /a 2>1; replace /b/c/1 2>3; add /d >true", changesOf(o.Nodes[0].Difference))
		require.EqualValues(t, 2, o.Nodes[0].Nodes[0].Revision)
		require.Equal(t, "replace /b/c/1 2>3; add /d >true", changesOf(o.Nodes[1].Difference))
		require.Equal(t, api.PlanNode{Node: "plant-1-b", Role: fleet.RoleStandby, Revision: 1, Enabled: true, Running: true}, o.Nodes[1].Nodes[0])
	})

	t.Run("is empty for what stands", func(t *testing.T) {
		p := r.plan(many("", instanceManifest("press-8", `{"config":{"x":1}}`)))
		require.False(t, p.Changes)
		events := r.rows()["events"]
		applied := r.apply(many(bound(t, p), instanceManifest("press-8", `{"config":{"x":1}}`)))
		require.Equal(t, api.PlanUnchanged, applied.Objects[0].Action)
		require.Equal(t, events, r.rows()["events"])
	})

	t.Run("sees what was declared and not delivered", func(t *testing.T) {
		body := many("", instanceManifest("staged", `{"config":{"x":1}}`))
		a := r.call(r.operator, http.MethodPost, applyPath+"?deploy=false", body)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		o := planOf(t, r.plan(body), "staged")
		require.Equal(t, api.PlanChange, o.Action)
		require.True(t, o.Releases)
		require.True(t, o.Unreleased)
		require.Nil(t, o.Declared)
		p := into[api.Plan](t, r.call(r.operator, http.MethodPost, planPath+"?deploy=false", body))
		require.False(t, p.Changes)
	})

	t.Run("lists what is refused, and plans the rest", func(t *testing.T) {
		p := r.plan(many("",
			`{"kind":"Gadget","name":"a"}`, `7`, `{"kind":"Site","name":"a","sepc":{}}`, `{"kind":"Site","name":"Plant"}`,
			instanceManifest("press-7", `{"config":{"big":1e400}}`), instanceManifest("press-7", `{"config":{}}`),
			instanceManifest("a", `{}`), instanceManifest("b", `{"template":"none"}`),
			instanceManifest("c", `{"artifact":"`+strings.Repeat("0", 64)+`"}`), instanceManifest("d", `{"config":{},"labels":{"a":"b"}}`),
			`{"kind":"Instance","name":"e","site":"nowhere","spec":{"config":{}}}`, instanceManifest("good", `{"config":{}}`),
			`{"kind":"Site","name":"thief","spec":{"nodes":[{"name":"plant-1-a","role":"active"}]}}`,
			`{"kind":"Project","name":"p","project":"q"}`, instanceManifest("f", `{"config":{"a":1,"a":2}}`),
			`{"kind":"Instance","name":"g","site":"plant-1","project":"none","spec":{"config":{}}}`,
		))
		require.False(t, p.Valid)
		require.Equal(t, 1, p.Summary.Create)
		require.Equal(t, api.PlanCreate, planOf(t, p, "good").Action)
		var fields []string
		for _, o := range p.Objects {
			if o.Problem != nil {
				fields = append(fields, strings.TrimPrefix(o.Problem.Field, "/objects/"))
			}
		}
		require.ElementsMatch(t, []string{
			"0/kind", "1", "2/sepc", "3/name", "4/spec/config/big", "5/name", "6/spec", "7/spec/template", "8/spec/artifact",
			"9/spec", "10/site", "12/spec/nodes/0", "13/project", "14/spec/config/a", "15/project",
		}, fields)
	})

	t.Run("refuses what is no request", func(t *testing.T) {
		for body, field := range map[string]string{
			"": "/", `{}`: "/objects", `{"objects":{}}`: "/objects", `{"objects":[}`: "", `{"objects":[],"prune":true}`: "/prune",
			`{"objects":[],"applySet":"No"}`: "/applySet", `{"objects":[],"what":1}`: "/what", `{"objects":[],"plan":{}}`: "/plan",
		} {
			a := r.call(r.operator, http.MethodPost, planPath, body)
			require.Equal(t, http.StatusBadRequest, a.status, body+string(a.body))
			if field != "" {
				require.Equal(t, field, a.problem(t).Field, body)
			}
		}
		require.Equal(t, http.StatusForbidden, r.call(r.viewer, http.MethodPost, planPath, first).status)
		require.Equal(t, http.StatusForbidden, r.call(r.viewer, http.MethodPost, applyPath, first).status)
	})
}

// N106, N107: a request may declare what others of it refer to.
func TestPlanOfWhatBelongsTogether(t *testing.T) {
	t.Parallel()
	r := setup(t)
	body := many("",
		instanceManifest("oven-1", `{"template":"oven","overrides":{"temp":950}}`),
		`{"kind":"Template","name":"oven","spec":{"base":{"temp":1,"fan":true},"compositions":["furnace"]}}`,
		`{"kind":"Template","name":"furnace","spec":{"base":{"temp":900}}}`,
		siteManifest("plant-1"), `{"kind":"Project","name":"line-a"}`,
		`{"kind":"Instance","name":"press-7","site":"plant-1","project":"line-a","spec":{"config":{"a":1}}}`,
	)
	p := r.plan(body)
	require.Equal(t, "line-a create, plant-1 create, furnace create, oven create, oven-1 create, press-7 create", actions(p))
	require.Equal(t, compose.HashOf([]byte(`{"fan":true,"temp":950}`)), planOf(t, p, "oven-1").Hash)
	applied := r.apply(strings.Replace(body, "{", "{"+bound(t, p)+",", 1))
	require.Zero(t, applied.Failed)
	require.NotNil(t, applied.Objects[4].Operation)
	require.False(t, r.plan(body).Changes)
	require.Contains(t, r.wakes(), fleet.InstanceSubject("plant-1", "oven-1"))
	r.holds("plant-1-a", "oven-1")

	t.Run("follows a template through what is composed of it", func(t *testing.T) {
		changed := strings.Replace(body, `"base":{"temp":900}`, `"base":{"temp":900,"door":"shut"}`, 1)
		p := r.plan(changed)
		require.Equal(t, "line-a unchanged, plant-1 unchanged, furnace change, oven change, oven-1 change, press-7 unchanged", actions(p))
		o := planOf(t, p, "oven-1")
		require.Equal(t, "replace /spec/templateGeneration 1>2", changesOf(*o.Declared))
		require.Equal(t, `add /door >"shut"`, changesOf(o.Nodes[0].Difference))
		require.Equal(t, "replace /spec/compositions/0/generation 1>2", changesOf(*planOf(t, p, "oven").Declared))
		require.Zero(t, r.apply(strings.Replace(changed, "{", "{"+bound(t, p)+",", 1)).Failed)
		a := r.get("/api/v1/sites/plant-1/instances/oven-1/config?revision=desired")
		require.Equal(t, `{"door":"shut","fan":true,"temp":950}`, string(a.body))
		require.Equal(t, string(o.Hash), strings.Trim(a.header.Get("ETag"), `"`))
		require.False(t, r.plan(changed).Changes)
	})

	t.Run("refuses circles and what depends on a refusal", func(t *testing.T) {
		p := r.plan(many("",
			`{"kind":"Template","name":"a","spec":{"base":{},"compositions":["b"]}}`, `{"kind":"Template","name":"b","spec":{"base":{},"compositions":["a"]}}`,
			instanceManifest("c", `{"template":"a"}`), `{"kind":"Site","name":"plant-2","spec":{"nodes":3}}`,
			`{"kind":"Instance","name":"d","site":"plant-2","spec":{"config":{}}}`,
		))
		require.Equal(t, 5, p.Summary.Refused, actions(p))
	})

	t.Run("pins a template as it is, or as it says", func(t *testing.T) {
		p := r.plan(many("", instanceManifest("x", `{"template":"oven","templateGeneration":1}`), instanceManifest("y", `{"template":"oven"}`),
			instanceManifest("z", `{"template":"oven","templateGeneration":9}`)))
		require.Equal(t, compose.HashOf([]byte(`{"fan":true,"temp":900}`)), planOf(t, p, "x").Hash)
		require.Equal(t, compose.HashOf([]byte(`{"door":"shut","fan":true,"temp":900}`)), planOf(t, p, "y").Hash)
		require.Equal(t, "/objects/2/spec/templateGeneration", planOf(t, p, "z").Problem.Field)
	})
}

// X10, N107: plans show nobody what is marked secret, by whichever spec or template.
func TestPlanHidesSecrets(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	r.put("/api/v1/templates/db", `{"base":{"db":{"password":"hunter2","user":"u"}},"secrets":["/db/password"]}`)
	run := `"run":{"command":["/bin/x"],"env":{"TOKEN":"hunter2","A":"1"}}`
	require.Zero(t, r.apply(many("",
		instanceManifest("own", `{"config":`+openConfig+`,"secrets":["/db/password"],`+run+`,"secretEnv":["TOKEN"]}`),
		instanceManifest("by-template", `{"template":"db"}`),
	)).Failed)
	for _, name := range []string{"own", "by-template"} {
		r.holds("plant-1-a", name)
	}
	for name, spec := range map[string]string{
		"a new value":       `{"config":{"db":{"password":"hunter3","user":"v"}},"secrets":["/db/password"],"run":{"command":["/bin/x"],"env":{"TOKEN":"hunter3","A":"2"}},"secretEnv":["TOKEN"]}`,
		"no mark any more":  `{"config":{"db":{"password":"hunter3","user":"v"}},"run":{"command":["/bin/x"],"env":{"TOKEN":"hunter3"}}}`,
		"another shape":     `{"config":{"db":[1],"n":2}}`,
		"gone":              `{"config":{}}`,
		"by a template now": `{"template":"db","overrides":{"db":{"password":"hunter3"}}}`,
	} {
		for _, instance := range []string{"own", "by-template"} {
			a := r.call(r.admin, http.MethodPost, planPath, many("", instanceManifest(instance, spec)))
			require.Equal(t, http.StatusOK, a.status, string(a.body))
			if instance == "own" || !strings.Contains(spec, "env") { // the other never marked an environment
				require.NotContains(t, string(a.body), "hunter", name)
			}
			require.Equal(t, api.PlanChange, into[api.Plan](t, a).Objects[0].Action)
		}
	}
	o := r.plan(many("", instanceManifest("own", `{"config":{"db":{"password":"hunter3","user":"v"},"n":1},"secrets":["/db/password"],`+run+`,"secretEnv":["TOKEN"]}`))).Objects[0]
	require.Equal(t, `replace /db/password "<redacted>">"<redacted>"; replace /db/user "u">"v"`, changesOf(o.Nodes[0].Difference))
	// A mark that comes with the template of the same request holds at once.
	a := r.call(r.admin, http.MethodPost, planPath, many("",
		`{"kind":"Template","name":"db","spec":{"base":{"db":{"password":"x","user":"hunter9"}},"secrets":["/db"]}}`, instanceManifest("by-template", `{"template":"db"}`)))
	require.NotContains(t, string(a.body), "hunter")
	require.NotContains(t, r.log.String(), "hunter")
}

// N107: a plan is bounded, whatever changes.
func TestPlanIsBounded(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	config := func(v int) string {
		var b strings.Builder
		for i := range 2000 {
			fmt.Fprintf(&b, `"k%d":"%d%s",`, i, v, strings.Repeat("x", 1000))
		}
		return `{"config":{` + strings.TrimSuffix(b.String(), ",") + `}}`
	}
	require.Zero(t, r.apply(many("", instanceManifest("press-7", config(1)))).Failed)
	r.holds("plant-1-a", "press-7")
	a := r.call(r.operator, http.MethodPost, planPath, many("", instanceManifest("press-7", config(2))))
	require.Equal(t, http.StatusOK, a.status)
	require.Less(t, len(a.body), 80<<10)
	d := into[api.Plan](t, a).Objects[0].Nodes[0]
	require.Equal(t, 2000, len(d.Changes)+d.More)

	small := setup(t, func(d *Deps) { d.Limits = compose.Limits{MaxBytes: 1 << 10} })
	a = small.call(small.operator, http.MethodPost, planPath, many("", instanceManifest("press-7", config(1))+strings.Repeat(" ", 3<<20)))
	require.Equal(t, http.StatusRequestEntityTooLarge, a.status)
	require.Contains(t, a.problem(t).Hint, "in parts")
	a = r.call(r.operator, http.MethodPost, planPath, many("", strings.Repeat("1,", 50_000)+"1"))
	require.Equal(t, http.StatusRequestEntityTooLarge, a.status)
	require.Equal(t, "/objects", a.problem(t).Field)
}
