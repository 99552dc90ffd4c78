package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/postgres/plans"
	"github.com/holdfast-io/holdfast/internal/testkit/sized"
)

// declaring is one history of declarations, each of which goes through every door. Objects of the same specs have a name per door.
type declaring struct {
	*region
	t      *rapid.T
	number int64
	query  string // of all requests: a fleet change of no instance is refused once it is to run
	tokens map[fleet.ProjectName]string
}

// doorNames are the objects of a history by the door that declares them.
const (
	byPut   = "put"
	byApply = "apply"
	byDoor  = "door"
)

// outcome is what became of a declaration.
type outcome struct{ kind, detail, field, spec, content, runHash string }

func (d *declaring) name(of, door string) string { return fmt.Sprintf("%s-%s-%d", of, door, d.number) }

// said is an error without what differs between doors: the name of the object, and where its spec lies in the request.
func (d *declaring) said(p api.Problem, of, door string) outcome {
	field := strings.TrimPrefix(strings.TrimPrefix(p.Field, "/objects/0"), "/spec")
	return outcome{kind: p.Type, detail: strings.ReplaceAll(p.Detail, d.name(of, door), "it"), field: strings.TrimPrefix(field, "/")}
}

// declares declares a spec through PUT and through apply, after a plan, and wants the same of all three.
func (d *declaring) declares(kind, of, path, site, project, spec string) (outcome, bool) {
	token := d.tokens[fleet.ProjectName(project)]
	body := spec
	if project != "" {
		body = `{"project":"` + project + `",` + strings.TrimPrefix(spec, "{")
		body = strings.Replace(body, ",}", "}", 1)
	}
	put := d.call(token, http.MethodPut, path+d.name(of, byPut)+d.query, body)
	manifest := fmt.Sprintf(`{"objects":[{"kind":%q,"name":%q,"spec":%s`, kind, d.name(of, byApply), spec)
	if site != "" {
		manifest += `,"site":"` + site + `"`
	}
	if project != "" {
		manifest += `,"project":"` + project + `"`
	}
	manifest += `}]}`
	planned := into[api.Plan](d.region.t, d.call(token, http.MethodPost, planPath+d.query, manifest)).Objects[0]
	applied := d.call(token, http.MethodPost, applyPath+d.query, manifest)
	if put.status >= 300 {
		want := d.said(put.problem(d.region.t), of, byPut)
		require.NotNil(d.t, planned.Problem, "PUT refuses %s: %v", spec, want)
		require.Equal(d.t, want, d.said(*planned.Problem, of, byApply), "%s", spec)
		require.GreaterOrEqual(d.t, applied.status, 400)
		return want, false
	}
	require.Nil(d.t, planned.Problem, "PUT takes %s: %s", spec, put.body)
	one := into[api.Applied](d.region.t, applied).Objects[0]
	require.Nil(d.t, one.Problem, "PUT takes %s: %s", spec, applied.body)
	is := outcome{spec: d.specOf(path + d.name(of, byPut))}
	require.JSONEq(d.t, is.spec, d.specOf(path+d.name(of, byApply)))
	is.content = string(planned.Hash)
	return is, true
}

func (d *declaring) specOf(path string) string {
	a := d.call(d.admin, http.MethodGet, path, nil)
	require.Equal(d.t, http.StatusOK, a.status, string(a.body))
	return string(into[api.Object](d.region.t, a).Spec)
}

// desired is what was released of an instance.
func (d *declaring) desired(name string) outcome {
	_, r, err := d.store.Deployed(d.region.t.Context(), fleet.InstanceKey("plant-1", fleet.InstanceName(name)))
	require.NoError(d.t, err)
	return outcome{content: string(r.Content.Hash), runHash: string(r.RunHash)}
}

// instance declares one, and has it released by a door and composed by a fleet change.
func (d *declaring) instance() {
	const path = "/api/v1/sites/plant-1/instances/"
	template := rapid.SampledFrom([]string{d.name("a", "t"), d.name("b", "t"), "blue", "missing"}).Draw(d.t, "template")
	source := rapid.SampledFrom([]string{
		`"template":"` + template + `"`, `"template":"` + template + `","templateGeneration":1`, `"template":"` + template + `","templateGeneration":7`,
		`"template":"` + template + `","overrides":{"n":` + fmt.Sprint(rapid.IntRange(0, 3).Draw(d.t, "n")) + `,"x":null}`,
		`"config":{"n":1.0,"a":{"b":[1,2]}}`, `"config":{"n":1e400}`, `"config":[1]`, `"artifact":"` + strings.Repeat("ab", 32) + `"`, `"config":{},"template":"` + template + `"`,
	}).Draw(d.t, "source")
	more := rapid.SampledFrom([]string{
		"", `,"enabled":false`, `,"durability":"async"`, `,"run":{"command":["/bin/press"],"env":{"A":"1"}},"secretEnv":["A"]`, `,"run":{"command":[]}`, `,"colour":"red"`,
	}).Draw(d.t, "more")
	project := rapid.SampledFrom([]string{"", "", "red"}).Draw(d.t, "project")
	spec := "{" + source + more + "}"
	is, ok := d.declares("Instance", "i", path, "plant-1", project, spec)
	if !ok {
		return
	}
	put := d.desired(d.name("i", byPut))
	require.Equal(d.t, put, d.desired(d.name("i", byApply)))
	if is.content != "" { // a plan merges what changes
		require.Equal(d.t, put.content, is.content)
	}
	target := d.target(d.name("i", byPut))
	change := fleet.FleetChange{Template: target.Spec.Template, TemplateGeneration: target.Spec.TemplateGeneration}
	if target.Spec.Artifact == nil {
		made := d.changes(change, target)[0]
		require.NoError(d.t, made.Refused)
		require.Equal(d.t, target.Spec, made.Spec)
		require.Equal(d.t, put, outcome{content: string(made.Content.Hash), runHash: string(made.RunHash)}, "a fleet change makes the same")
	}
	body := spec
	if project != "" {
		body = `{"project":"` + project + `",` + strings.TrimPrefix(spec, "{")
	}
	name := d.name("i", byDoor)
	wrote := d.call(d.tokens[fleet.ProjectName(project)], http.MethodPut, path+name+"?deploy=false", body)
	require.Less(d.t, wrote.status, 300, string(wrote.body))
	w := postgres.Write{Key: fleet.InstanceKey("plant-1", fleet.InstanceName(name)), Request: postgres.Request{Actor: "door", Limit: d.server.limit}}
	unreleased, err := d.server.turns.UnreleasedInstance(d.region.t.Context(), w)
	require.NoError(d.t, err)
	_, err = d.store.TurnInstance(d.region.t.Context(), deliveries.InstanceTurn{Write: w, Kind: fleet.OperationDeploy, Unreleased: unreleased})
	require.NoError(d.t, err)
	require.Equal(d.t, put, d.desired(name), "a door releases the same")
}

// deployment declares one, and has it released by a door.
func (d *declaring) deployment() {
	const path = "/api/v1/deployments/"
	place := rapid.SampledFrom([]string{
		"", `,"placement":{"sites":["plant-1"]}`, `,"placement":{"pools":["gpu"]}`, `,"placement":{"pools":["blue"]}`, `,"placement":{"sites":["plant-1","nowhere"]}`, `,"placement":{"sites":["Plant 1"]}`,
	}).Draw(d.t, "placement")
	more := rapid.SampledFrom([]string{
		"", `,"replicas":{"min":2}`, `,"replicas":{"min":3,"max":2}`, `,"files":[{"path":"a.txt","content":"ä"}]`, `,"env":{"A":"1"},"secretEnv":["A"]`, `,"ports":[{"name":"http"}]`, `,"type":"nothing"`, `,"health":{"type":"none"}`,
	}).Draw(d.t, "more")
	project := rapid.SampledFrom([]string{"", "", "red"}).Draw(d.t, "project")
	spec := `{"command":["sleep","1000"]` + place + more + `}`
	is, ok := d.declares("Deployment", "d", path, "", project, spec)
	if !ok {
		return
	}
	body := spec
	if project != "" {
		body = `{"project":"` + project + `",` + strings.TrimPrefix(spec, "{")
	}
	name := d.name("d", byDoor)
	wrote := d.call(d.tokens[fleet.ProjectName(project)], http.MethodPut, path+name+"?deploy=false", body)
	require.Less(d.t, wrote.status, 300, string(wrote.body))
	_, err := d.server.turns.TurnDeployment(d.region.t.Context(), deployments.DeploymentTurn{
		Write: postgres.Write{Key: fleet.DeploymentKey(fleet.DeploymentName(name)), Request: postgres.Request{Actor: "door", Limit: d.server.limit}}, Kind: fleet.OperationConverge,
	})
	require.NoError(d.t, err)
	views, err := d.store.ViewDeployments(d.region.t.Context(), d.name("d", byPut), d.name("d", byApply), name)
	require.NoError(d.t, err)
	for _, v := range views {
		require.Equal(d.t, views[name].Definition, v.Definition)
		require.Equal(d.t, views[name].Revision > 0, v.Revision > 0)
	}
	require.Equal(d.t, is.content, string(views[name].Definition))
}

// template changes one of the two that instances use, and declares another one composed of them.
func (d *declaring) template() {
	of := d.name(rapid.SampledFrom([]string{"a", "b"}).Draw(d.t, "of"), "t")
	d.put("/api/v1/templates/"+of, fmt.Sprintf(`{"base":{"n":%d,"of":%q}}`, rapid.IntRange(0, 3).Draw(d.t, "base"), of))
	parts := rapid.SampledFrom([]string{`[]`, `["` + of + `"]`, `["` + of + `","` + d.name("b", "t") + `"]`, `["missing"]`, `["blue"]`, `["Not A Name"]`}).Draw(d.t, "compositions")
	project := rapid.SampledFrom([]string{"", "red"}).Draw(d.t, "project")
	base := rapid.SampledFrom([]string{`"base":{"x":1}`, `"base":[]`, `"base":{"x":1},"secrets":["/x"]`, `"secrets":["x"],"base":{}`}).Draw(d.t, "document")
	d.declares("Template", "t", "/api/v1/templates/", "", project, `{`+base+`,"compositions":`+parts+`}`)
}

func (d *declaring) pool() {
	sites := rapid.SampledFrom([]string{`["plant-1"]`, `["nowhere"]`, `["A b"]`, `[]`}).Draw(d.t, "sites")
	d.declares("Pool", "p", "/api/v1/pools/", "", "", `{"sites":`+sites+`,"maxReplicas":`+fmt.Sprint(rapid.IntRange(-1, 2).Draw(d.t, "max"))+`}`)
}

func (d *declaring) fleetChange() {
	template := rapid.SampledFrom([]string{d.name("a", "t"), "blue", "missing"}).Draw(d.t, "template")
	change := rapid.SampledFrom([]string{`{"template":"` + template + `"}`, `{"template":"` + template + `","templateGeneration":9}`, `{"patch":{"x":1e0}}`, `{"patch":[]}`, `{}`}).Draw(d.t, "change")
	project := rapid.SampledFrom([]string{"", "red"}).Draw(d.t, "project")
	d.query = "?deploy=false"
	defer func() { d.query = "" }()
	d.declares("Fleet", "f", "/api/v1/fleets/", "", project, `{"change":`+change+`,"selector":{"labels":{"of":"none"}}}`)
}

// N106, X2, X20: a PUT, an apply, a plan, a fleet change and the door of any Temporal client that declare the same make the same
// revision, with the same pins and bodies, or the same error.
func TestAllDoorsDeclareTheSame(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	tokens := map[fleet.ProjectName]string{"": r.admin, "red": r.token("operator", "red"), "blue": r.token("operator", "blue")}
	r.put("/api/v1/templates/blue", `{"project":"blue","base":{}}`)
	r.put("/api/v1/pools/gpu", `{"sites":["plant-1"]}`)
	r.put("/api/v1/pools/blue", `{"project":"blue"}`)
	var number atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		d := &declaring{region: r, t: rt, number: number.Add(1), tokens: tokens}
		for _, name := range []string{"a", "b"} {
			d.put("/api/v1/templates/"+d.name(name, "t"), `{"base":{"n":1,"of":"`+name+`"}}`)
		}
		for range sized.Many(10) {
			rapid.SampledFrom([]func(*declaring){
				(*declaring).instance, (*declaring).instance, (*declaring).deployment, (*declaring).template, (*declaring).pool, (*declaring).fleetChange,
			}).Draw(rt, "declares")(d)
		}
	})
}

// meanwhile does something while an apply still plans.
type meanwhile struct {
	Store
	do func()
}

func (m *meanwhile) HeldRevisions(ctx context.Context, keys []fleet.ObjectKey) (map[fleet.ObjectKey][]plans.HeldRevision, error) {
	m.do()
	return m.Store.HeldRevisions(ctx, keys)
}

// N106, N107: an apply writes nothing that uses a template which went after it was planned.
func TestApplyLooksAtTemplatesAgain(t *testing.T) {
	t.Parallel()
	w := &meanwhile{do: func() {}}
	r := setup(t, func(d *Deps) { w.Store, d.Store = d.Store, w })
	r.site()
	r.put("/api/v1/templates/press", `{"base":{"a":1}}`)
	w.do = func() { r.call(r.admin, http.MethodDelete, "/api/v1/templates/press", nil) }
	a := r.apply(many("", instanceManifest("i", `{"template":"press"}`), instanceManifest("j", `{"config":{}}`)))
	require.Equal(t, 1, a.Failed)
	require.Equal(t, api.ProblemPrefix+string(fleet.NotFound), a.Objects[0].Problem.Type)
	require.Equal(t, "template press not found", a.Objects[0].Problem.Detail)
	require.Equal(t, http.StatusNotFound, r.get("/api/v1/sites/plant-1/instances/i").status)
	require.Equal(t, http.StatusOK, r.get("/api/v1/sites/plant-1/instances/j").status)
}
