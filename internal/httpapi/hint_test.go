package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

// X19: what to do next reaches whoever called, at every edge that answers with a problem.
func TestHintsReachTheCaller(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	const (
		openIt = "GET /openapi.json lists what there is"
		etag   = `send one ETag as returned, for example "42", or *`
		label  = "a name has 1 to 63 of a-z, 0-9 and '-', and starts and ends with a letter or digit"
	)
	upload := "/api/v1/artifacts/uploads/" + strings.Repeat("0", 32)
	for _, c := range []struct {
		edge, token, method, path, body, match string
		field, hint                            string
	}{
		{"a handler", r.admin, "GET", "/api/v1/deployments/ghost/logs", "", "", "deployment", "holdfast get deployments"},
		{"a header", r.admin, "PUT", press7Path, `{"config":{}}`, "latest", "If-Match", etag},
		{"a body", r.admin, "PUT", press7Path, "", "", "/", "send one JSON document"},
		{"a spec", r.admin, "PUT", webPath, `{"command":["x"],"ports":[{"name":"a","port":-1}]}`, "", "/ports/0/port", "use 0 to let the node choose a free one"},
		{"a name", r.admin, "PUT", "/api/v1/projects/No_1", "{}", "", "name", label},
		{"a stream", r.admin, "GET", upload, "", "", "upload", "start one: POST /api/v1/artifacts"},
		{"a role of a handler", r.viewer, "PUT", press7Path, `{"config":{}}`, "", "", "it requires the role operator"},
		{"a role of a stream", r.viewer, "POST", "/api/v1/artifacts", "x", "", "", "it requires the role operator"},
		{"no token", "", "GET", "/api/v1/sites", "", "", "", "send Authorization: Bearer TOKEN"},
		{"a node's call", "", "POST", "/api/internal/nodes/enrol", `{"node":"No_1"}`, "", "/node", label},
		{"a path", r.admin, "GET", "/api/v1/secrets", "", "", "", openIt},
		{"a method", r.admin, "PATCH", press7Path, "", "", "", openIt},
	} {
		t.Run(c.edge, func(t *testing.T) {
			var body any
			if c.body != "" {
				body = c.body
			}
			var headers []string
			if c.match != "" {
				headers = []string{"If-Match", c.match}
			}
			p := r.call(c.token, c.method, c.path, body, headers...).problem(t)
			require.Equal(t, []string{c.field, c.hint}, []string{p.Field, p.Hint}, p.Detail)
		})
	}

	t.Run("each object of a plan, and of an apply that is refused", func(t *testing.T) {
		many := `{"objects":[{"kind":"Project","name":"No_1","spec":{}},{"kind":"Pool","name":"fine","spec":{}}]}`
		plan := r.call(r.admin, http.MethodPost, planPath, many)
		require.Equal(t, http.StatusOK, plan.status, string(plan.body))
		require.Equal(t, label, into[api.Plan](t, plan).Objects[0].Problem.Hint)
		p := r.call(r.admin, http.MethodPost, applyPath, many).problem(t)
		require.Equal(t, label, p.Hint)
		require.Len(t, p.Objects, 1)
		require.Equal(t, label, p.Objects[0].Hint)
	})

	t.Run("what is internal, which only the log says", func(t *testing.T) {
		p := serve.ProblemFor(fleet.Errorf(fleet.Internal, "password is hunter2").WithHint("try hunter3"))
		require.Equal(t, "the server's log says why", p.Hint)
	})

	t.Run("the Go client, with its kind", func(t *testing.T) {
		client, err := api.NewClient(r.url, r.admin)
		require.NoError(t, err)
		_, err = client.Explain(t.Context(), "ghost")
		var e *fleet.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, []string{"not_found", "holdfast get deployments"}, []string{string(e.Kind), e.Hint})
		require.Equal(t, e.Hint, api.ProblemOf(err).Hint)
	})
}
