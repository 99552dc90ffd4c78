package httpapi

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func TestAuthentication(t *testing.T) {
	t.Parallel()
	r := setup(t)

	t.Run("refuses who shows no token, or a wrong one", func(t *testing.T) {
		for _, header := range []string{"", "Bearer", "Bearer ", "Bearer nonsense", "Basic " + r.admin, r.admin} {
			a := r.call("", http.MethodGet, "/api/v1/sites", nil, "Authorization", header)
			p := a.problem(t)
			require.Equal(t, api.ProblemPrefix+string(fleet.Unauthenticated), p.Type, header)
			require.NotEmpty(t, p.Hint)
			require.Equal(t, "Bearer", a.header.Get("WWW-Authenticate"))
		}
		require.Equal(t, http.StatusUnauthorized, r.call("", http.MethodGet, "/api/v1/sites?token="+r.admin, nil).status)
	})

	t.Run("lets nobody in after a revocation", func(t *testing.T) {
		made := into[api.Token](t, r.call(r.admin, http.MethodPost, "/api/v1/tokens", api.TokenRequest{Role: "viewer", Note: "guest"}))
		require.NotEmpty(t, made.Token)
		require.Equal(t, http.StatusOK, r.call(made.Token, http.MethodGet, "/api/v1/sites", nil).status)
		require.Equal(t, http.StatusNoContent, r.call(r.admin, http.MethodDelete, "/api/v1/tokens/"+made.ID, nil).status)
		require.Equal(t, http.StatusUnauthorized, r.call(made.Token, http.MethodGet, "/api/v1/sites", nil).status)
		require.Equal(t, http.StatusNotFound, r.call(r.admin, http.MethodDelete, "/api/v1/tokens/"+made.ID, nil).status)
	})

	t.Run("lets nobody in after the token's end", func(t *testing.T) {
		made := into[api.Token](t, r.call(r.admin, http.MethodPost, "/api/v1/tokens", api.TokenRequest{Role: "viewer", Seconds: 3600}))
		require.WithinDuration(t, now().Add(time.Hour), *made.ExpiresAt, time.Minute)
		r.sql(`UPDATE api_tokens SET expires_at = now() - interval '1 second' WHERE id = $1`, made.ID)
		require.Equal(t, http.StatusUnauthorized, r.call(made.Token, http.MethodGet, "/api/v1/sites", nil).status)
	})

	t.Run("shows a token once", func(t *testing.T) {
		r.site()
		made := r.call(r.admin, http.MethodPost, "/api/v1/join-tokens", api.JoinTokenRequest{Site: "plant-1", Node: "plant-1-a"})
		require.Equal(t, http.StatusCreated, made.status)
		token := into[api.Token](t, made).Token
		for _, path := range []string{"/api/v1/tokens", "/api/v1/join-tokens"} {
			list := r.call(r.admin, http.MethodGet, path, nil)
			require.NotEmpty(t, into[api.List[api.Token]](t, list).Items)
			require.NotContains(t, string(list.body), token)
			require.NotContains(t, string(list.body), r.admin)
		}
	})

	t.Run("asks nobody who looks after the server", func(t *testing.T) {
		for _, path := range []string{"/healthz", "/readyz", "/openapi.json"} {
			require.Equal(t, http.StatusOK, r.call("", http.MethodGet, path, nil).status, path)
		}
	})
}

func TestRoles(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.put("/api/v1/projects/red", nil)
	r.put("/api/v1/projects/unused", nil)
	r.site()
	r.put(press7Path, `{"config":{}}`)
	bound := r.token("admin", "red")
	artifact := "x"

	// Each call is valid for whom it is allowed; the matrix says for whom it is denied.
	for _, c := range []struct {
		method, path string
		body         any
		allowed      []string
	}{
		{"GET", "/api/v1/sites", nil, []string{"viewer", "operator", "admin", "bound"}},
		{"GET", "/api/v1/nodes", nil, []string{"viewer", "operator", "admin", "bound"}},
		{"GET", "/api/v1/operations", nil, []string{"viewer", "operator", "admin", "bound"}},
		{"GET", "/api/v1/events", nil, []string{"viewer", "operator", "admin", "bound"}},
		{"GET", "/metrics", nil, []string{"viewer", "operator", "admin"}},
		{"GET", press7Path, nil, []string{"viewer", "operator", "admin"}},
		{"GET", press7Path + "/config?revision=desired", nil, []string{"viewer", "operator", "admin"}},
		{"PUT", press7Path, `{"config":{}}`, []string{"operator", "admin"}},
		{"POST", press7Path + "/deploy", nil, []string{"operator", "admin"}},
		{"PUT", "/api/v1/templates/of-{who}", `{"base":{}}`, []string{"operator", "admin", "bound"}},
		{"POST", "/api/v1/artifacts", artifact, []string{"operator", "admin", "bound"}},
		{"PUT", "/api/v1/sites/plant-1", pair("plant-1"), []string{"admin"}},
		{"DELETE", "/api/v1/sites/plant-1?dryRun=true", nil, nil}, // not even an admin while it has instances
		{"PUT", "/api/v1/projects/red", nil, []string{"admin"}},
		{"GET", "/api/v1/tokens", nil, []string{"admin"}},
		{"POST", "/api/v1/tokens", `{"role":"viewer"}`, []string{"admin"}},
		{"GET", "/api/v1/join-tokens", nil, []string{"admin"}},
		{"POST", "/api/v1/join-tokens", `{"site":"plant-1","node":"plant-1-a"}`, []string{"admin"}},
		{"DELETE", "/api/v1/projects/unused", nil, []string{"admin"}},
	} {
		// From the least to the most, so that a change by one does not disturb the next.
		for _, who := range []struct{ name, token string }{
			{"viewer", r.viewer}, {"bound", bound}, {"operator", r.operator}, {"admin", r.admin},
		} {
			before := r.rows()
			a := r.call(who.token, c.method, strings.ReplaceAll(c.path, "{who}", who.name), c.body)
			name := who.name + " " + c.method + " " + c.path + " " + string(a.body)
			if slices.Contains(c.allowed, who.name) {
				require.Less(t, a.status, 300, name)
				continue
			}
			p := a.problem(t)
			require.Equal(t, before, r.rows(), name)
			if who.name == "viewer" && c.method != http.MethodGet || who.name == "operator" {
				require.Equal(t, http.StatusForbidden, a.status, name)
				require.NotEmpty(t, p.Hint)
			}
		}
	}
}

func TestProjectTokens(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.put("/api/v1/projects/red", nil)
	r.put("/api/v1/projects/blue", nil)
	r.site() // of the default project, which is shared
	blueSite := pair("plant-2")
	blueSite.Project = "blue"
	r.put("/api/v1/sites/plant-2", blueSite)
	red, blue := r.token("operator", "red"), r.token("operator", "blue")
	mine := r.call(red, http.MethodPut, press7Path, `{"config":{"of":"red"}}`)
	require.Equal(t, http.StatusAccepted, mine.status, string(mine.body))
	require.Equal(t, "red", into[api.Accepted](t, mine).Object.Project)
	op := "/api/v1/operations/" + into[api.Accepted](t, mine).Operation.ID

	t.Run("see what is theirs", func(t *testing.T) {
		require.Equal(t, http.StatusOK, r.call(red, http.MethodGet, press7Path, nil).status)
		require.Equal(t, http.StatusOK, r.call(red, http.MethodGet, op, nil).status)
		require.Len(t, into[api.List[api.Object]](t, r.call(red, http.MethodGet, "/api/v1/sites/plant-1/instances", nil)).Items, 1)
		require.Len(t, into[api.List[api.Operation]](t, r.call(red, http.MethodGet, "/api/v1/operations", nil)).Items, 1)
		require.Len(t, into[api.List[api.Node]](t, r.call(blue, http.MethodGet, "/api/v1/nodes", nil)).Items, 2)
	})

	t.Run("see and touch nothing else", func(t *testing.T) {
		before := r.rows()
		for _, c := range []struct{ method, path string }{
			{"GET", press7Path},
			{"GET", press7Path + "/config?revision=desired"},
			{"GET", press7Path + "/deliveries"},
			{"GET", press7Path + "/logs"},
			{"GET", op},
			{"POST", op + "/cancel"},
			{"POST", press7Path + "/deploy"},
			{"POST", press7Path + "/disable"},
			{"POST", press7Path + "/rollback"},
			{"DELETE", press7Path},
			{"GET", "/api/v1/sites/plant-1"},
			{"GET", "/api/v1/nodes/plant-1-a"},
		} {
			a := r.call(blue, c.method, c.path, nil)
			require.Equal(t, http.StatusNotFound, a.status, c.method+" "+c.path+" "+string(a.body))
		}
		require.Equal(t, http.StatusConflict, r.call(blue, http.MethodPut, press7Path, `{"config":{}}`).status)
		require.Equal(t, http.StatusForbidden, r.call(blue, http.MethodPut, press7Path, `{"config":{},"project":"red"}`).status)
		require.Equal(t, http.StatusForbidden, r.call(blue, http.MethodGet, "/api/v1/operations?project=red", nil).status)
		require.Empty(t, into[api.List[api.Object]](t, r.call(blue, http.MethodGet, "/api/v1/sites/plant-1/instances", nil)).Items)
		require.Empty(t, into[api.List[api.Operation]](t, r.call(blue, http.MethodGet, "/api/v1/operations", nil)).Items)
		for _, e := range into[api.List[api.Event]](t, r.call(blue, http.MethodGet, "/api/v1/events", nil)).Items {
			require.Equal(t, "blue", e.Project)
		}
		after := r.rows()
		after["bodies"] = before["bodies"] // one that nothing refers to is collected later
		require.Equal(t, before, after)
	})

	t.Run("place nothing on the nodes of another project", func(t *testing.T) {
		a := r.call(red, http.MethodPut, "/api/v1/sites/plant-2/instances/spy", `{"config":{}}`)
		require.Equal(t, http.StatusNotFound, a.status, string(a.body))
	})

	t.Run("do not read another project's template through a config of their own", func(t *testing.T) {
		made := r.call(red, http.MethodPut, "/api/v1/templates/red-secret", `{"base":{"secret":1}}`)
		require.Equal(t, http.StatusOK, made.status, string(made.body))
		for _, c := range []struct{ path, body string }{
			{"/api/v1/sites/plant-1/instances/spy", `{"template":"red-secret"}`},
			{"/api/v1/sites/plant-1/instances/spy", `{"template":"red-secret","overrides":{}}`},
			{"/api/v1/templates/spy", `{"base":{},"compositions":["red-secret"]}`},
		} {
			a := r.call(blue, http.MethodPut, c.path, c.body)
			require.Equal(t, http.StatusNotFound, a.status, string(a.body))
		}
		require.Equal(t, http.StatusNotFound, r.call(blue, http.MethodDelete, "/api/v1/templates/red-secret", nil).status)
	})
}
