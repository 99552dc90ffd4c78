package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/plans"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

// Every kind that can be declared has its part in the API, and no other has one.
func TestKindParts(t *testing.T) {
	t.Parallel()
	parts := kindParts()
	require.Len(t, parts, len(fleet.DeclaredKinds()))
	for _, k := range fleet.DeclaredKinds() {
		require.Contains(t, parts, k.Kind)
	}
}

// gadgetPut declares a gadget, a plain kind that refers to a site.
type gadgetPut struct {
	Project string            `json:"project,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Site    string            `json:"site"`
	Size    int               `json:"size"`
}

type gadgetSpec struct {
	Site string `json:"site"`
	Size int    `json:"size"`
}

func gadgetOf(p gadgetPut) (declare.Plain, error) {
	if p.Size < 1 {
		return declare.Plain{}, fleet.Errorf(fleet.Invalid, "a gadget has a size").At("/size")
	}
	return declare.Plain{Project: p.Project, Labels: p.Labels, Spec: gadgetSpec{p.Site, p.Size}}, nil
}

func (s gadgetSpec) References() []fleet.Reference {
	return []fleet.Reference{{Key: fleet.ObjectKey{Kind: fleet.KindSite, Name: s.Site}, Field: "/site"}}
}

// N107, X19: a plain kind that is registered is declared, read, listed, watched, planned, applied, pruned and deleted
// without another edit. It refers only to what is declared, and what it refers to is not deleted.
func TestRegisteredKind(t *testing.T) {
	t.Parallel()
	const gadget = fleet.ObjectKind("gadget")
	r := setup(t, func(d *Deps) {
		d.register = func(s *server) {
			s.declared = append(s.declared, fleet.DeclaredKind{Kind: gadget, Title: "Gadget", Plural: "gadgets"})
			s.kinds[gadget] = kindPart{mount: mountPlain("Declare a gadget", gadgetOf)}
			s.plans.Declared, s.plans.Kinds[gadget] = s.declared, plans.Plain(serve.ForOperators, gadgetOf)
		}
	})
	const path = "/api/v1/gadgets/g1"
	refused := func(body any, status int, field string) {
		t.Helper()
		p := into[api.Problem](t, r.call(r.operator, http.MethodPut, path, body))
		require.Equal(t, status, p.Status, p.Detail)
		require.Equal(t, field, p.Field, p.Detail)
	}
	refused(gadgetPut{Site: "plant-1", Size: 1}, http.StatusNotFound, "/site")
	r.site()
	refused(gadgetPut{Site: "plant-1"}, http.StatusBadRequest, "/size")
	refused(map[string]any{"colour": 1}, http.StatusBadRequest, "/colour")
	require.Equal(t, http.StatusForbidden, r.call(r.viewer, http.MethodPut, path, gadgetPut{Site: "plant-1", Size: 1}).status)

	r.put(path, gadgetPut{Site: "plant-1", Size: 1})
	client, err := api.NewClient(r.url, r.operator)
	require.NoError(t, err)
	key := fleet.ObjectKey{Kind: gadget, Name: "g1"}
	o, etag, err := client.Object(t.Context(), key)
	require.NoError(t, err)
	require.JSONEq(t, `{"site":"plant-1","size":1}`, string(o.Spec))
	_, err = client.Delete(t.Context(), key, api.Mutation{IfMatch: `"999"`})
	require.Equal(t, fleet.Precondition, fleet.KindOf(err))
	require.NotEmpty(t, etag)

	other := r.token("operator", "line") // whose project's objects may not refer to those of another
	r.put("/api/v1/projects/press", nil)
	r.put("/api/v1/sites/plant-9?project=press", pair("plant-9"))
	hidden := into[api.Problem](t, r.call(other, http.MethodPut, "/api/v1/gadgets/g9", gadgetPut{Site: "plant-9", Size: 1}))
	missing := into[api.Problem](t, r.call(other, http.MethodPut, "/api/v1/gadgets/g9", gadgetPut{Site: "plant-8", Size: 1}))
	require.Equal(t, http.StatusNotFound, hidden.Status, hidden.Detail)
	require.Equal(t, strings.ReplaceAll(missing.Detail, "plant-8", "plant-9"), hidden.Detail)

	set := `"labels":{"` + api.ApplySetLabel + `":"mine"}`
	two := many(`"applySet":"mine","prune":true`,
		`{"kind":"Gadget","name":"g2",`+set+`,"spec":{"site":"plant-2","size":2}}`,
		strings.Replace(siteManifest("plant-2"), `"spec"`, set+`,"spec"`, 1))
	plan := r.plan(two)
	require.Nil(t, planOf(t, plan, "g2").Problem)
	require.Equal(t, api.PlanCreate, planOf(t, plan, "g2").Action)
	require.Zero(t, r.apply(two).Failed)
	wrong := r.plan(many("", `{"kind":"Gadget","name":"g3","spec":{"site":"ghost","size":2}}`))
	require.Equal(t, "/objects/0/spec/site", planOf(t, wrong, "g3").Problem.Field)
	list, err := client.Objects(t.Context(), gadget, "", api.Page{})
	require.NoError(t, err)
	require.Len(t, list.Items, 2)

	used := into[api.Problem](t, r.call(r.admin, http.MethodDelete, "/api/v1/sites/plant-1", nil))
	require.Equal(t, http.StatusUnprocessableEntity, used.Status)
	require.Equal(t, "gadget/g1 still refers to site/plant-1", used.Detail)
	require.NotEmpty(t, used.Hint)

	pruned := r.apply(many(`"applySet":"mine","prune":true`))
	require.Zero(t, pruned.Failed, "the gadget goes before its site")
	_, err = client.Delete(t.Context(), key, api.Mutation{})
	require.NoError(t, err)
	list, err = client.Objects(t.Context(), gadget, "", api.Page{})
	require.NoError(t, err)
	require.Empty(t, list.Items, "g1 was deleted, g2 pruned")
	require.Eventually(t, func() bool { // other tests hold the end of the feed back
		events, err := client.Events(t.Context(), api.Page{Limit: 100})
		of := 0
		for _, e := range events.Items {
			if e.Kind == string(gadget) {
				of++
			}
		}
		return err == nil && of == 4
	}, time.Minute, time.Millisecond, "each was created and removed")
}
