package httpapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// sharing is a peer that shares templates.
type sharing struct {
	*region
	claim  fleet.StreamClaim
	number int64
}

func (r *region) sharing(peer fleet.RegionName) *sharing {
	r.t.Helper()
	claim, err := r.store.ClaimStream(r.t.Context(), peer, "run-1")
	require.NoError(r.t, err)
	return &sharing{r, claim, 0}
}

func (p *sharing) change(c fleet.CopyChange) {
	p.t.Helper()
	p.number++
	c.Version = fleet.CopyVersion{OwnerEpoch: 1, Number: p.number}
	done, err := p.store.ApplyCopies(p.t.Context(), fleet.CopySet{Claim: p.claim, Changes: []fleet.CopyChange{c}})
	require.NoError(p.t, err)
	require.Equal(p.t, 1, done.Written+done.Ended)
}

// shares has the peer share a generation of a template.
func (p *sharing) shares(project fleet.ProjectName, name string, generation int64, base string, secrets ...string) {
	p.t.Helper()
	hash, err := p.store.PutBody(p.t.Context(), "elsewhere", []byte(base))
	require.NoError(p.t, err)
	spec, err := json.Marshal(fleet.TemplateSpec{Base: fleet.Content{Kind: fleet.ContentJSON, Hash: hash, Size: int64(len(base))}, Secrets: secrets})
	require.NoError(p.t, err)
	syncing, err := json.Marshal(fleet.Syncing{OwningRegion: string(p.claim.Peer), Regions: []string{string(p.claim.Peer), "test"}})
	require.NoError(p.t, err)
	key := fleet.TemplateKey(name)
	p.change(fleet.CopyChange{Key: fleet.CopyKey{Region: p.claim.Peer, ObjectKey: key}, Object: &fleet.Object{
		ObjectKey: key, UID: "6f9619ff-8b86-4011-b42d-00c04fc964ff", Project: project, Generation: generation, Spec: spec, Syncing: syncing, CreatedBy: "test",
	}})
}

// takesBack has the peer share a template no more.
func (p *sharing) takesBack(name string) {
	p.t.Helper()
	p.change(fleet.CopyChange{Key: fleet.CopyKey{Region: p.claim.Peer, ObjectKey: fleet.TemplateKey(name)}, End: fleet.CopyRemoved})
}

func (r *region) pinOf(path string) fleet.TemplatePin {
	r.t.Helper()
	o := into[api.Object](r.t, r.get(path))
	return fleet.PinOf(fleet.Object{ObjectKey: fleet.ObjectKey{Kind: fleet.ObjectKind(o.Kind)}, Spec: o.Spec})
}

// M18, M27, M35, N106: what a region declares uses templates of other regions, and keeps what it is pinned to.
func TestPinsOfCopies(t *testing.T) {
	t.Parallel()
	const press8, lines, status = "/api/v1/sites/plant-1/instances/press-8", "/api/v1/fleets/lines", "/api/v1/regions/eu"
	r := setup(t)
	r.site()
	r.meets("eu")
	eu, ap := r.sharing("eu"), r.sharing("ap")
	eu.shares("default", "cell", 3, `{"n":3,"password":"hunter2"}`, "/password")
	v3 := fleet.TemplatePin{Name: "eu/cell", Generation: 3}

	t.Run("by the plain name of the only copy", func(t *testing.T) {
		r.put(press7Path, `{"template":"cell","overrides":{"o":1}}`)
		require.Equal(t, v3, r.pinOf(press7Path))
		require.JSONEq(t, `{"n":3,"o":1,"password":"hunter2"}`, string(r.configAs(r.operator).body))
		require.JSONEq(t, `{"n":3,"o":1,"password":"<redacted>"}`, string(r.configAs(r.viewer).body))
		none := r.call(r.admin, http.MethodPut, press8, `{"template":"cell","templateGeneration":2}`)
		require.Equal(t, http.StatusNotFound, none.status, "a generation that did not arrive")
		require.Equal(t, http.StatusBadRequest, r.call(r.admin, http.MethodPut, press8, `{"template":"eu/cell/x"}`).status)
	})
	t.Run("for life, whatever has that name later", func(t *testing.T) {
		eu.shares("default", "cell", 4, `{"n":4}`, "/n")
		require.Equal(t, v3, r.pinOf(press7Path))
		require.JSONEq(t, `{"n":"<redacted>","o":1,"password":"<redacted>"}`, string(r.configAs(r.viewer).body), "a mark that is made later holds too")
		r.put("/api/v1/templates/cell?region=test", `{"base":{"local":true}}`)
		require.JSONEq(t, `{"n":3,"o":1,"password":"hunter2"}`, string(r.configAs(r.operator).body))
		r.put(press7Path, `{"template":"cell","templateGeneration":3,"overrides":{"o":2}}`)
		require.Equal(t, v3, r.pinOf(press7Path), "the plain name keeps what it meant")
		require.JSONEq(t, `{"n":3,"o":2,"password":"hunter2"}`, string(r.configAs(r.operator).body))
		r.put(press8, `{"template":"cell"}`)
		require.Equal(t, fleet.TemplatePin{Name: "cell", Generation: 1}, r.pinOf(press8), "to anything new it means the region's own")
		require.Equal(t, http.StatusUnprocessableEntity, r.call(r.admin, http.MethodDelete, "/api/v1/templates/cell", nil).status, "press-8 uses it")
		r.put(press8, `{"config":{}}`)
		require.Equal(t, http.StatusOK, r.call(r.admin, http.MethodDelete, "/api/v1/templates/cell", nil).status, "what uses the copy does not")
	})
	t.Run("by its region if several have the name", func(t *testing.T) {
		ap.shares("default", "cell", 9, `{"n":9}`)
		a := r.call(r.admin, http.MethodPut, press8, `{"template":"cell"}`)
		require.Equal(t, http.StatusConflict, a.status)
		require.Contains(t, string(a.body), "ap/cell or eu/cell")
		r.put(press8, `{"template":"ap/cell"}`)
		require.Equal(t, fleet.TemplatePin{Name: "ap/cell", Generation: 9}, r.pinOf(press8))
		r.put("/api/v1/templates/mine", `{"base":{"mine":1},"compositions":["eu/cell","ap/cell"]}`)
		r.put(press8, `{"template":"test/mine"}`)
		require.Equal(t, fleet.TemplatePin{Name: "mine", Generation: 1}, r.pinOf(press8), "of this region itself")
		ap.takesBack("cell")
	})
	t.Run("in a plan and its apply", func(t *testing.T) {
		body := []string{
			instanceManifest("press-9", `{"template":"cell"}`), instanceManifest("press-7", `{"template":"cell","templateGeneration":3,"overrides":{"o":2}}`),
			`{"kind":"Template","name":"upon","spec":{"base":{"upon":1},"compositions":["cell"]}}`, instanceManifest("press-10", `{"template":"upon"}`),
			`{"kind":"Fleet","name":"lines","spec":{"change":{"template":"eu/cell"}}}`,
		}
		p := r.plan(many("", body...))
		require.True(t, p.Valid, "%+v", p.Objects)
		require.Equal(t, api.PlanUnchanged, planOf(t, p, "press-7").Action)
		applied := r.apply(many(bound(t, p), body...))
		require.Zero(t, applied.Failed, "%+v", applied)
		v4 := fleet.TemplatePin{Name: "eu/cell", Generation: 4}
		require.Equal(t, v4, r.pinOf("/api/v1/sites/plant-1/instances/press-9"))
		require.Equal(t, v4, r.pinOf(lines))
		require.JSONEq(t, `{"n":4,"upon":1}`, string(r.call(r.operator, http.MethodGet, "/api/v1/sites/plant-1/instances/press-10/config?revision=desired", nil).body))
		for _, o := range r.plan(many("", body...)).Objects {
			require.Equal(t, api.PlanUnchanged, o.Action, o.Name)
		}
	})
	t.Run("in a template that is written again", func(t *testing.T) {
		r.put("/api/v1/templates/cell?region=test", `{"base":{"local":true}}`)
		body := `{"kind":"Template","name":"upon","spec":{"base":{"upon":2},"compositions":["cell"]}}`
		require.Zero(t, r.apply(many("", body)).Failed)
		r.put("/api/v1/templates/upon", `{"base":{"upon":3},"compositions":["cell"]}`)
		require.Contains(t, string(r.get("/api/v1/templates/upon").body), `"eu/cell"`, "the plain name keeps what it meant")
		r.put("/api/v1/templates/upon", `{"base":{"upon":3},"compositions":["test/cell"]}`)
		require.NotContains(t, string(r.get("/api/v1/templates/upon").body), `"eu/cell"`, "until another one is named")
		r.put("/api/v1/templates/upon", `{"base":{"upon":3},"compositions":["eu/cell"]}`)
		require.Equal(t, http.StatusOK, r.call(r.admin, http.MethodDelete, "/api/v1/templates/cell", nil).status)
	})
	t.Run("by a fleet change", func(t *testing.T) {
		made := r.changes(fleet.FleetChange{Template: "eu/cell", TemplateGeneration: 4}, r.target("press-7"), r.target("press-10"))
		require.NoError(t, made[0].Refused)
		require.EqualValues(t, 4, made[0].Spec.TemplateGeneration)
		require.Error(t, made[1].Refused, "it uses another template")
	})
	t.Run("after the copy was removed: as before, but nothing new", func(t *testing.T) {
		eu.takesBack("cell")
		require.JSONEq(t, `{"n":3,"o":2,"password":"hunter2"}`, string(r.configAs(r.operator).body))
		r.put(press7Path, `{"template":"cell","overrides":{"o":3}}`)
		require.Equal(t, v3, r.pinOf(press7Path))
		require.Less(t, r.call(r.admin, http.MethodPost, press7Path+"/deploy", nil).status, 300)
		for _, spec := range []string{`{"template":"cell"}`, `{"template":"eu/cell"}`, `{"template":"eu/cell","templateGeneration":3}`} {
			a := r.call(r.admin, http.MethodPut, press8, spec)
			require.Equal(t, http.StatusUnprocessableEntity, a.status, string(a.body))
			require.Contains(t, string(a.body), "/cell was removed")
			p := r.plan(many("", instanceManifest("press-8", spec)))
			require.False(t, p.Valid)
		}
		require.Equal(t, http.StatusUnprocessableEntity, r.call(r.admin, http.MethodPut, press7Path, `{"template":"eu/cell","templateGeneration":4}`).status)
		require.Equal(t, http.StatusUnprocessableEntity, r.call(r.admin, http.MethodPut, "/api/v1/fleets/more", `{"change":{"template":"cell"}}`).status)
		followed := r.regionStatus("eu").Followed
		require.Equal(t, []api.KeptGeneration{{Template: "eu/cell", Generation: 3, UsedBy: 1}, {Template: "eu/cell", Generation: 4, UsedBy: 4}}, followed.Kept)
		require.NotContains(t, string(r.call(r.token("viewer", "other"), http.MethodGet, status, nil).body), "eu/cell")
		p := r.plan(many("", instanceManifest("press-7", `{"template":"cell","overrides":{"o":4}}`)))
		require.True(t, p.Valid, "%+v", p.Objects)
	})
	t.Run("not by its hash, nor from a project that the caller does not use", func(t *testing.T) {
		ap.shares("theirs", "secret", 1, `{"s":1}`)
		r.put("/api/v1/projects/own", nil)
		own := r.token("operator", "own")
		const path = "/api/v1/sites/plant-1/instances/press-11"
		a := r.call(own, http.MethodPut, path, `{"project":"own","template":"ap/secret"}`)
		require.Equal(t, http.StatusNotFound, a.status)
		none := r.call(own, http.MethodPut, path, `{"project":"own","template":"ap/nothing"}`)
		require.Equal(t, http.StatusNotFound, none.status)
		require.Equal(t, strings.ReplaceAll(string(none.body), "nothing", "X"), strings.ReplaceAll(string(a.body), "secret", "X"))
		a = r.call(own, http.MethodPut, path, `{"project":"own","template":"eu/cell"}`)
		require.Equal(t, http.StatusNotFound, a.status, "the project of a removed copy is unknown")
	})
}
