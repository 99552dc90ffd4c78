package httpapi

import (
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
)

// X19: a request for one object may name its project. One of another project reads as for a token of that project: not found,
// with a hint that names nothing that is hidden.
func TestObjectInProject(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	for _, name := range []string{"la", "lb"} {
		r.put("/api/v1/projects/"+name, api.ProjectPut{})
	}
	r.put("/api/v1/sites/yard?project=la", `{"nodes":[{"name":"yard-a","role":"active"}]}`)
	paths := map[string]string{
		"/api/v1/pools/north": `{}`, "/api/v1/templates/press": `{"base":{}}`, "/api/v1/sites/yard/instances/press-7": `{"config":{}}`,
		webPath: `{"command":["true"],"state":"stopped"}`, "/api/v1/services/web": `{}`,
		"/api/v1/fleets/pressure": `{"change":{"patch":{"a":1}}}`,
	}
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(paths))) { // a fleet change needs an instance
		body := paths[path]
		answer := r.call(r.admin, http.MethodPut, path+"?project=la", body)
		require.Contains(t, []int{http.StatusOK, http.StatusCreated, http.StatusAccepted}, answer.status, "%s: %s", path, answer.body)
	}
	ofLB := r.token("admin", "lb")
	for path, body := range paths {
		t.Run(path, func(t *testing.T) {
			require.Equal(t, http.StatusOK, r.call(r.admin, http.MethodGet, path+"?project=la", nil).status)
			hidden := r.call(ofLB, http.MethodGet, path, nil).problem(t)
			for _, method := range []string{http.MethodGet, http.MethodDelete} {
				p := r.call(r.admin, method, path+"?project=lb", nil).problem(t)
				require.Equal(t, http.StatusNotFound, p.Status, "%s %s", method, p.Detail)
				require.Equal(t, []string{hidden.Detail, hidden.Hint}, []string{p.Detail, p.Hint}, method)
				require.NotContains(t, p.Detail+p.Hint, "la ")
				p = r.call(ofLB, method, path+"?project=la", nil).problem(t)
				require.Equal(t, http.StatusForbidden, p.Status, method)
				if method == http.MethodGet { // others may be for tokens of the whole region
					require.Equal(t, []string{"project", "the token is restricted to project lb"}, []string{p.Field, p.Detail})
				}
			}

			// A PUT that names no project would be of the default one.
			p := r.call(r.admin, http.MethodPut, path, body).problem(t)
			require.Equal(t, http.StatusConflict, p.Status, p.Detail)
			require.Contains(t, p.Detail, " belongs to project la")
			require.Contains(t, p.Hint, "?project=la")
			require.Less(t, r.call(r.admin, http.MethodPut, path+"?project=la", body).status, 300, "what it advises")
			p = r.call(ofLB, http.MethodPut, path, body).problem(t)
			require.NotContains(t, p.Detail+p.Hint, "project la")
		})
	}
	for _, path := range []string{webPath, "/api/v1/sites/yard/instances/press-7"} {
		require.Equal(t, http.StatusNotFound, r.call(r.admin, http.MethodPost, path+"/deploy?project=lb", nil).status, path)
	}
	delete(paths, "/api/v1/fleets/pressure") // it runs
	for path := range paths {
		require.Less(t, r.call(r.admin, http.MethodDelete, path+"?project=la", nil).status, 300, path)
	}
}

// M39: an unknown region is an error, where a peer that shares nothing has an empty list.
func TestListOfUnknownRegion(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.meets("eu")
	for _, kind := range []string{"pools", "templates", "deployments", "sites/plant-1/instances"} {
		require.Equal(t, http.StatusOK, r.call(r.viewer, http.MethodGet, "/api/v1/"+kind+"?region=eu", nil).status, kind)
		p := r.call(r.viewer, http.MethodGet, "/api/v1/"+kind+"?region=nowhere", nil).problem(t)
		require.Equal(t, []any{http.StatusNotFound, "region", "use test or eu"}, []any{p.Status, p.Field, p.Hint}, kind)
	}
}
