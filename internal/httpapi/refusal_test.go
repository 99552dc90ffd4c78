package httpapi

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

const press7Path = "/api/v1/sites/plant-1/instances/press-7"

// unannounced hides the length of a body.
type unannounced struct{ io.Reader }

// X19
func TestRefusals(t *testing.T) {
	t.Parallel()
	r := setup(t, func(d *Deps) { d.Limits = compose.Limits{MaxBytes: 4096} })
	r.site()
	r.put("/api/v1/templates/press", `{"base":{"a":1}}`)
	long := `{"config":{"a":"` + strings.Repeat("x", 5000) + `"}}`
	huge := `{"config":{"a":"` + strings.Repeat("x", 2<<20) + `"}}`
	before := r.rows()

	for _, c := range []struct {
		name   string
		method string
		path   string
		body   any
		kind   fleet.Kind
		field  string
	}{
		{"no body", "PUT", press7Path, nil, fleet.Invalid, "/"},
		{"malformed JSON", "PUT", press7Path, `{"config":{"a":}}`, fleet.Invalid, "/config/a"},
		{"JSON that ends early", "PUT", press7Path, `{"config":{"a":1}`, fleet.Invalid, ""},
		{"more after the document", "PUT", press7Path, `{"config":{}} {}`, fleet.Invalid, "/"},
		{"an array", "PUT", press7Path, `[1]`, fleet.Invalid, "/"},
		{"a number beyond all doubles", "PUT", press7Path, `{"config":{"a":1e400}}`, fleet.Invalid, "/config/a"},
		{"a duplicate key of the request", "PUT", press7Path, `{"config":{},"config":{}}`, fleet.Invalid, "/config"},
		{"a duplicate key of a small member", "PUT", press7Path, `{"config":{},"enabled":true,"enabled":true}`, fleet.Invalid, "/enabled"},
		{"a duplicate key of the config", "PUT", press7Path, `{"config":{"a":{"b":1,"b":2}}}`, fleet.Invalid, "/config/a/b"},
		{"a duplicate key of the run section", "PUT", press7Path, `{"config":{},"run":{"command":["a"],"env":{"A":"1","A":"2"}}}`, fleet.Invalid, "/run/env/A"},
		{"a member that is not known", "PUT", press7Path, `{"config":{},"confgi":{}}`, fleet.Invalid, "/confgi"},
		{"a member of another case", "PUT", press7Path, `{"Config":{}}`, fleet.Invalid, "/Config"},
		{"a nested member that is not known", "PUT", press7Path, `{"config":{},"run":{"command":["a"],"cmd":1}}`, fleet.Invalid, "/run/cmd"},
		{"a wrong type", "PUT", press7Path, `{"config":{},"enabled":"yes"}`, fleet.Invalid, "/enabled"},
		{"a site that is not there", "PUT", "/api/v1/sites/nowhere/instances/press-7", `{"config":{}}`, fleet.NotFound, "site"},
		{"a name that is no DNS label", "PUT", "/api/v1/sites/plant-1/instances/Press_7", `{"config":{}}`, fleet.Invalid, "name"},
		{"a site that is no DNS label", "PUT", "/api/v1/sites/-/instances/press-7", `{"config":{}}`, fleet.Invalid, "site"},
		{"a config over the limit", "PUT", press7Path, long, fleet.TooLarge, "/config"},
		{"a request over the limit", "PUT", press7Path, huge, fleet.TooLarge, ""},
		{"a request over the limit that is not announced", "PUT", press7Path, unannounced{strings.NewReader(huge)}, fleet.TooLarge, ""},
		{"no source", "PUT", press7Path, `{}`, fleet.Invalid, "/"},
		{"two sources", "PUT", press7Path, `{"config":{},"template":"press"}`, fleet.Invalid, "/"},
		{"a config that is null", "PUT", press7Path, `{"config":null}`, fleet.Invalid, "/"},
		{"overrides without a template", "PUT", press7Path, `{"config":{},"overrides":{}}`, fleet.Invalid, "/overrides"},
		{"a durability that is none", "PUT", press7Path, `{"config":{},"durability":"maybe"}`, fleet.Invalid, "/durability"},
		{"a run section without a command", "PUT", press7Path, `{"config":{},"run":{"command":[]}}`, fleet.Invalid, "/run/command"},
		{"a template that is missing", "PUT", press7Path, `{"template":"ghost"}`, fleet.NotFound, "/template"},
		{"a missing template with overrides", "PUT", press7Path, `{"template":"ghost","overrides":{}}`, fleet.NotFound, "/template"},
		{"a generation that is missing", "PUT", press7Path, `{"template":"press","templateGeneration":9}`, fleet.NotFound, "/templateGeneration"},
		{"a generation without a template", "PUT", press7Path, `{"config":{},"templateGeneration":1}`, fleet.Invalid, "/templateGeneration"},
		{"an artifact that is missing", "PUT", press7Path, `{"artifact":"` + strings.Repeat("a", 64) + `"}`, fleet.NotFound, "artifact"},
		{"an artifact that is no hash", "PUT", press7Path, `{"artifact":"abc"}`, fleet.Invalid, "/artifact"},
		{"a project that is missing", "PUT", press7Path, `{"config":{},"project":"ghost"}`, fleet.NotFound, "/project"},
		{"a misspelt query", "PUT", press7Path + "?dryrun=true", `{"config":{}}`, fleet.Invalid, "dryrun"},
		{"a query that is no boolean", "PUT", press7Path + "?dryRun=perhaps", `{"config":{}}`, fleet.Invalid, "dryRun"},
		{"a limit that is no number", "GET", "/api/v1/sites?limit=abc", nil, fleet.Invalid, "limit"},
		{"a limit of nothing", "GET", "/api/v1/sites?limit=0", nil, fleet.Invalid, "limit"},
		{"a limit above the most", "GET", "/api/v1/operations?limit=1001", nil, fleet.Invalid, "limit"},
		{"a cursor of our own making", "GET", "/api/v1/sites?cursor=%21", nil, fleet.Invalid, "cursor"},
		{"a cursor of another list", "GET", "/api/v1/operations?cursor=cHJlc3M", nil, fleet.Invalid, "cursor"},
		{"a limit of events that is no number", "GET", "/api/v1/events?limit=abc", nil, fleet.Invalid, "limit"},
		{"a state that is none", "GET", "/api/v1/operations?state=done", nil, fleet.Invalid, "state"},
		{"a wait that is none", "GET", "/api/v1/operations/" + strings.Repeat("0", 32) + "?wait=soon", nil, fleet.Invalid, "wait"},
		{"a wait that is too long", "GET", "/api/v1/operations/" + strings.Repeat("0", 32) + "?wait=61s", nil, fleet.Invalid, "wait"},
		{"an operation that is missing", "GET", "/api/v1/operations/" + strings.Repeat("0", 32), nil, fleet.NotFound, "operation"},
		{"a template that refers to itself", "PUT", "/api/v1/templates/loop", `{"base":{},"compositions":["loop"]}`, fleet.Invalid, "/compositions/0"},
		{"a composition that is missing", "PUT", "/api/v1/templates/loop", `{"base":{},"compositions":["press","ghost"]}`, fleet.NotFound, "/compositions/1"},
		{"a template without a base", "PUT", "/api/v1/templates/loop", `{}`, fleet.Invalid, "/base"},
		{"a base with a duplicate key", "PUT", "/api/v1/templates/loop", `{"base":{"a":1,"a":1}}`, fleet.Invalid, "/base/a"},
		{"a site with two active nodes", "PUT", "/api/v1/sites/plant-2", `{"nodes":[{"name":"a","role":"active"},{"name":"b","role":"active"}]}`, fleet.Invalid, "/nodes"},
		{"a node of another site", "PUT", "/api/v1/sites/plant-2", `{"nodes":[{"name":"plant-1-a","role":"active"}]}`, fleet.Conflict, "/nodes"},
		{"a role that is none", "PUT", "/api/v1/sites/plant-2", `{"nodes":[{"name":"a","role":"boss"}]}`, fleet.Invalid, "/nodes/0/role"},
		{"a rollback to the future", "POST", press7Path + "/rollback", `{"revision":-1}`, fleet.Invalid, "/revision"},
		{"an action on what is missing", "POST", press7Path + "/enable", nil, fleet.NotFound, "instance"},
		{"a deletion of what is missing", "DELETE", press7Path, nil, fleet.NotFound, "instance"},
		{"a deletion of a template that is missing", "DELETE", "/api/v1/templates/ghost", nil, fleet.NotFound, "template"},
		{"a token of no role", "POST", "/api/v1/tokens", `{"role":"king"}`, fleet.Invalid, "/role"},
		{"a join token for no node", "POST", "/api/v1/join-tokens", `{"site":"plant-1","node":"plant-1-z"}`, fleet.NotFound, "node"},
		{"a hash that is none", "POST", "/api/v1/artifacts?sha256=abc", "x", fleet.Invalid, "sha256"},
		{"an upload that is missing", "PATCH", "/api/v1/artifacts/uploads/" + strings.Repeat("0", 32), "x", fleet.NotFound, "upload"},
		{"a path that is none", "GET", "/api/v1/secrets", nil, fleet.NotFound, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := r.call(r.admin, c.method, c.path, c.body)
			p := a.problem(t)
			require.Equal(t, api.ProblemPrefix+string(c.kind), p.Type, string(a.body))
			require.Equal(t, serve.ProblemFor(fleet.Errorf(c.kind, "what")).Status, a.status)
			require.Equal(t, c.field, p.Field, string(a.body))
			require.NotEmpty(t, p.Detail)
			require.Equal(t, before, r.rows(), "something was stored or started")
		})
	}

	t.Run("a method that is none", func(t *testing.T) {
		a := r.call(r.admin, http.MethodPatch, press7Path, nil)
		require.Equal(t, http.StatusMethodNotAllowed, a.status)
		require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	})
}

// X19
func TestPreconditions(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	first := r.put(press7Path, `{"config":{"a":1}}`)
	r.put(press7Path, `{"config":{"a":2}}`)
	stale := first.header.Get("ETag")
	current := r.get(press7Path).header.Get("ETag")
	before := r.rows()
	delete(before, "bodies") // one that nothing refers to is collected later

	for _, c := range []struct {
		name, method, path, match string
		kind                      fleet.Kind
	}{
		{"a stale ETag", "PUT", press7Path, stale, fleet.Precondition},
		{"a stale ETag without quotes", "PUT", press7Path, strings.Trim(stale, `"`), fleet.Precondition},
		{"an action with a stale ETag", "POST", press7Path + "/disable", stale, fleet.Precondition},
		{"a deletion with a stale ETag", "DELETE", press7Path, stale, fleet.Precondition},
		{"an ETag for what is missing", "PUT", "/api/v1/sites/plant-1/instances/other", "*", fleet.Precondition},
		{"a version for what is missing", "PUT", "/api/v1/sites/plant-1/instances/other", `"7"`, fleet.Precondition},
		{"a weak ETag", "PUT", press7Path, "W/" + current, fleet.Invalid},
		{"two ETags", "PUT", press7Path, current + ", " + stale, fleet.Invalid},
		{"no ETag at all", "PUT", press7Path, "latest", fleet.Invalid},
		{"an ETag that would mean any", "PUT", press7Path, `"0"`, fleet.Invalid},
	} {
		t.Run("refuses "+c.name, func(t *testing.T) {
			var body any
			if c.method == http.MethodPut {
				body = `{"config":{"a":3}}`
			}
			a := r.call(r.operator, c.method, c.path, body, "If-Match", c.match)
			p := a.problem(t)
			require.Equal(t, api.ProblemPrefix+string(c.kind), p.Type, string(a.body))
			require.Equal(t, "If-Match", p.Field)
			after := r.rows()
			delete(after, "bodies")
			require.Equal(t, before, after)
		})
	}

	t.Run("takes the current ETag, and * for what exists", func(t *testing.T) {
		a := r.put(press7Path, `{"config":{"a":3}}`, "If-Match", current)
		r.put(press7Path, `{"config":{"a":4}}`, "If-Match", strings.Trim(a.header.Get("ETag"), `"`))
		r.put(press7Path, `{"config":{"a":5}}`, "If-Match", "*")
	})

	t.Run("looks at * in the write, so that a repeated deletion is answered as before", func(t *testing.T) {
		r.put("/api/v1/projects/brief", nil)
		for range 2 {
			a := r.call(r.admin, http.MethodDelete, "/api/v1/projects/brief", nil, "If-Match", "*", "Idempotency-Key", "gone")
			require.Equal(t, http.StatusOK, a.status, string(a.body))
		}
	})
}

// X2, X13, X19
func TestIdempotency(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()

	t.Run("answers the same request again from what it started", func(t *testing.T) {
		one := into[api.Accepted](t, r.put(press7Path, `{"config":{"a":1}}`, "Idempotency-Key", "k1"))
		before := r.rows()
		again := into[api.Accepted](t, r.put(press7Path, `{"config":{"a":1}}`, "Idempotency-Key", "k1"))
		require.Equal(t, one.Operation.ID, again.Operation.ID)
		after := r.rows()
		after["wakes"] = before["wakes"] // waking again does nothing
		require.Equal(t, before, after)
	})

	t.Run("refuses the key with another request", func(t *testing.T) {
		before := r.rows()
		for _, path := range []string{press7Path, press7Path + "?deploy=false", "/api/v1/sites/plant-1/instances/other"} {
			body := `{"config":{"a":1}}`
			if path == press7Path {
				body = `{"config":{"a":2}}`
			}
			a := r.call(r.admin, http.MethodPut, path, body, "Idempotency-Key", "k1")
			p := a.problem(t)
			require.Equal(t, api.ProblemPrefix+"conflict", p.Type)
			require.Equal(t, "Idempotency-Key", p.Field)
		}
		after := r.rows()
		after["bodies"] = before["bodies"] // one that nothing refers to is collected later
		require.Equal(t, before, after)
	})

	t.Run("refuses a key that is too long", func(t *testing.T) {
		a := r.call(r.admin, http.MethodPut, press7Path, `{"config":{}}`, "Idempotency-Key", strings.Repeat("k", 201))
		require.Equal(t, "Idempotency-Key", a.problem(t).Field)
	})

	t.Run("keeps keys of different callers apart", func(t *testing.T) {
		a := r.call(r.operator, http.MethodPut, press7Path, `{"config":{"a":9}}`, "Idempotency-Key", "k1")
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
	})
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	r.put(press7Path, `{"config":{"a":1}}`)
	before := r.rows()
	for _, c := range []struct {
		method, path string
		body         any
	}{
		{"PUT", press7Path, `{"config":{"a":1},"enabled":false}`},
		{"POST", press7Path + "/disable", nil},
		{"POST", press7Path + "/deploy", nil},
		{"DELETE", press7Path, nil},
		{"PUT", "/api/v1/sites/plant-2", pair("plant-2")},
		{"PUT", "/api/v1/projects/other", nil},
		{"POST", "/api/v1/tokens", `{"role":"viewer"}`},
		{"POST", "/api/v1/join-tokens", `{"site":"plant-1","node":"plant-1-a"}`},
	} {
		a := r.call(r.admin, c.method, c.path+"?dryRun=true", c.body)
		require.Less(t, a.status, 300, string(a.body))
		require.NotEqual(t, http.StatusAccepted, a.status)
		require.Empty(t, a.header.Get("Location"))
		require.Equal(t, before, r.rows(), c.method+" "+c.path)
		if strings.HasPrefix(c.path, press7Path) {
			accepted := into[api.Accepted](t, a)
			require.True(t, accepted.DryRun)
			require.Empty(t, accepted.Operation.ID)
		}
	}
}
