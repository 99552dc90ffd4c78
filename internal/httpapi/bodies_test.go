package httpapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X19: each field of each body is refused with its place and what is allowed there, and so is one that the
// body does not have.
func TestBodiesSayWhatIsAllowed(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	r.put(press7Path, `{"config":{}}`)
	r.put("/api/v1/sites/plant-1/instances/some", `{"config":{}}`)
	r.put("/api/v1/templates/some", `{"base":{}}`)
	before := r.rows()
	schemas := r.server.Document().Components.Schemas
	bodies, fields := 0, 0
	for _, op := range r.documented() {
		if op.RequestBody == nil || op.RequestBody.Content["application/json"] == nil {
			continue
		}
		schema := op.RequestBody.Content["application/json"].Schema
		if schema.Ref != "" {
			schema = schemas.SchemaFromRef(schema.Ref)
		}
		if len(schema.Properties) == 0 {
			continue // a module's input
		}
		bodies++
		refused := func(name string, value any) api.Problem {
			text, err := json.Marshal(map[string]any{name: value})
			require.NoError(t, err)
			a := r.call(r.admin, op.Method, op.path, text)
			require.Equal(t, http.StatusBadRequest, a.status, op.OperationID+" "+string(text)+": "+string(a.body))
			p := a.problem(t)
			require.Equal(t, api.ProblemPrefix+string(fleet.Invalid), p.Type, op.OperationID)
			require.Equal(t, "/"+name, p.Field, op.OperationID)
			return p
		}
		unknown := refused("nonsense", 1)
		require.Contains(t, unknown.Detail, "unknown field; ", op.OperationID)
		for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
			require.Contains(t, unknown.Detail, name, op.OperationID)
			wrong, value := schema.Properties[name], any(true)
			if wrong.Type == "" && wrong.Ref == "" {
				continue // any JSON
			}
			fields++
			if wrong.Type == huma.TypeBoolean {
				value = "perhaps"
			}
			p := refused(name, value)
			require.Regexp(t, `must be (an?|true|one) |allowed are |want `, p.Detail+" "+p.Hint, op.OperationID+" "+name)
		}
	}
	require.Equal(t, before, r.rows(), "something was stored or started")
	require.Greater(t, bodies, 20)
	require.Greater(t, fields, 100)
}

// X19: in the words that people read.
func TestBodyMistakes(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	const source = "give one of config, template, artifact"
	for _, c := range []struct{ method, path, body, field, detail string }{
		{"PUT", press7Path, `{"config":null}`, "/", "config is required: " + source},
		{"PUT", press7Path, `{}`, "/", "config is required: " + source},
		{"PUT", press7Path, `{"config":{},"template":"press"}`, "/", "config, template are given together: " + source},
		{"PUT", press7Path, `{"config":{},"overrides":{}}`, "/overrides", "overrides need a template: give template, or change the config itself"},
		{"PUT", press7Path, `{"config":{},"templateGeneration":1}`, "/templateGeneration", "templateGeneration 1 needs a template: give template, or omit templateGeneration"},
		{"PUT", press7Path, `{"template":"press","templateGeneration":-1}`, "/templateGeneration", "invalid templateGeneration -1: want 1 or more, or omit it for the newest"},
		{"PUT", press7Path, `{"config":{},"config":{}}`, "/config", "duplicate key"},
		{"PUT", "/api/v1/templates/press", `{"bsae":{}}`, "/bsae", "unknown field; use base, project, service, labels, compositions or secrets"},
		{"PUT", "/api/v1/sites/plant-2", `{"nodes":[{"name":"a","role":"boss"}]}`, "/nodes/0/role", `unknown role "boss"; use active, standby or worker`},
		{"PUT", "/api/v1/sites/plant-2", `{"nodes":[],"onIsolation":"wait"}`, "/onIsolation", `unknown onIsolation "wait"; use stop or run`},
		{"PUT", webPath, `{"image":"a b"}`, "/image", `invalid image "a b": want [HOST[:PORT]/]NAME[:TAG][@DIGEST], up to 512 bytes`},
		{"PUT", webPath, `{"command":["x"],"resources":{"memory":"9Pi"}}`, "/resources/memory", `invalid amount of memory "9Pi": want bytes, or a text with Ki, Mi, Gi, Ti, k, M, G or T`},
		{"PUT", webPath, `{"command":["x"],"resources":{"memory":"9000T"}}`, "/resources/memory", "9000000000000000 bytes of memory requested; the limit is 1125899906842624"},
		{"PUT", webPath, `{"command":["x"],"replicas":"many"}`, "/replicas", `invalid count of replicas "many": want a whole number, or an object with min, max and initial`},
		{"PUT", webPath, `{"health":{"port":18125}}`, "/health/port", "invalid value: must be the name of one of ports"},
		{"PUT", webPath, `{"health":{"interval":"10s"}}`, "/health/interval", "invalid value: must be a number of seconds"},
		{"PUT", webPath, `{"resources":{"cpu":"100m"}}`, "/resources/cpu", "invalid value: must be a number of cores"},
		{"POST", webPath + "/scale", `{}`, "/replicas", "replicas is required: give a whole number, 0 or more"},
		{"POST", webPath + "/scale", `{"replicas":-1}`, "/replicas", "-1 replicas requested; the least is 0"},
		{"POST", "/api/v1/tokens", `{"role":"king"}`, "/role", `unknown role "king"; use admin, operator, viewer or provider`},
		{"POST", "/api/v1/plan", `{"objects":[],"prnue":true}`, "/prnue", "unknown field; use objects, plan, applySet, prune, reason or artifacts"},
	} {
		t.Run(c.path+" "+c.body, func(t *testing.T) {
			p := r.call(r.admin, c.method, c.path, c.body).problem(t)
			require.Equal(t, []string{c.field, c.detail}, []string{p.Field, p.Detail})
		})
	}
}
