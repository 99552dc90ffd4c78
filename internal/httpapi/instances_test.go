package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

func specOfObject(t *testing.T, o api.Object) fleet.InstanceSpec {
	t.Helper()
	var spec fleet.InstanceSpec
	require.NoError(t, json.Unmarshal(o.Spec, &spec))
	return spec
}

// desiredConfig is what the next delivery brings.
func (r *region) desiredConfig() string {
	r.t.Helper()
	a := r.get(press7Path + "/config?revision=desired")
	require.Equal(r.t, http.StatusOK, a.status, string(a.body))
	return string(a.body)
}

// N106
func TestTemplates(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	r.put("/api/v1/templates/net", `{"base":{"net":{"dns":"1","ntp":"1"},"order":["net"]}}`)
	r.put("/api/v1/templates/site", `{"base":{"net":{"dns":"2"},"order":["site"]}}`)
	r.put("/api/v1/templates/plant", `{"base":{"plant":1,"order":["plant"]},"compositions":["net"]}`)
	r.put("/api/v1/templates/press", `{"base":{"name":"press","speed":10,"order":["press"]},"compositions":["plant","site"]}`)

	t.Run("merge base, compositions in order, overrides", func(t *testing.T) {
		put := into[api.Accepted](t, r.put(press7Path, `{"template":"press","overrides":{"speed":null,"net":{"ntp":"9"}}}`))
		require.JSONEq(t, `{"name":"press","plant":1,"net":{"dns":"2","ntp":"9"},"order":["site"]}`, r.desiredConfig())
		spec := specOfObject(t, *put.Object)
		require.EqualValues(t, 1, spec.TemplateGeneration, "the current generation is pinned")
		require.Nil(t, spec.Config)
		require.NotContains(t, string(put.Object.Spec), "speed", "bodies stand in specs by hash")
	})

	t.Run("change no instance by being written", func(t *testing.T) {
		before, rows := r.desiredConfig(), r.rows()
		r.put("/api/v1/templates/net", `{"base":{"net":{"dns":"7","ntp":"7"}}}`)
		r.put("/api/v1/templates/press", `{"base":{"name":"press","speed":11},"compositions":["plant","site"]}`)
		after := r.rows()
		for _, table := range []string{"revisions", "operations", "outbox", "wakes"} {
			require.Equal(t, rows[table], after[table], table)
		}
		require.Equal(t, before, r.desiredConfig())
	})

	t.Run("are pinned by the next write, or as it says", func(t *testing.T) {
		put := into[api.Accepted](t, r.put(press7Path, `{"template":"press"}`))
		require.EqualValues(t, 2, specOfObject(t, *put.Object).TemplateGeneration)
		require.Contains(t, r.desiredConfig(), `"speed":11`)
		require.Contains(t, r.desiredConfig(), `"ntp":"1"`, "compositions are pinned by the template that names them")
		r.put(press7Path, `{"template":"press","templateGeneration":1}`)
		require.Contains(t, r.desiredConfig(), `"speed":10`)
	})

	t.Run("stay as long as an instance uses them", func(t *testing.T) {
		a := r.call(r.operator, http.MethodDelete, "/api/v1/templates/press", nil)
		require.Equal(t, api.ProblemPrefix+string(fleet.IllegalState), a.problem(t).Type)
		require.Equal(t, http.StatusOK, r.call(r.operator, http.MethodDelete, "/api/v1/templates/site", nil).status)
	})

	t.Run("are not merged without end", func(t *testing.T) {
		r.put("/api/v1/templates/wide-0", `{"base":{}}`)
		for i := range 3 { // wide-n has 6^0 + … + 6^n documents
			below := fmt.Sprintf(`"wide-%d"`, i)
			r.put(fmt.Sprintf("/api/v1/templates/wide-%d", i+1), `{"base":{},"compositions":[`+strings.Repeat(below+",", 5)+below+`]}`)
		}
		r.put(press7Path, `{"template":"wide-2"}`)
		before := r.rows()
		a := r.call(r.operator, http.MethodPut, press7Path, `{"template":"wide-3"}`)
		require.Equal(t, "/template", a.problem(t).Field)
		require.Equal(t, http.StatusBadRequest, a.status)
		require.Equal(t, before, r.rows())
	})
}

func TestInstanceChanges(t *testing.T) {
	t.Parallel()

	t.Run("give the same bytes the same hash, and start nothing for them", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.site()
		one := into[api.Accepted](t, r.put(press7Path, `{"config":{"b":1.0,"a":"\u00fc"}}`))
		a := r.call(r.operator, http.MethodPut, press7Path, ` { "config" : {"a":"ü", "b":1} , "enabled": true } `)
		require.Equal(t, http.StatusOK, a.status, "nothing was started")
		two := into[api.Accepted](t, a)
		require.Nil(t, two.Operation)
		require.Equal(t, one.Object.ResourceVersion, two.Object.ResourceVersion)
		require.Equal(t, compose.HashOf([]byte(`{"a":"ü","b":1}`)), specOfObject(t, *two.Object).Config.Hash)
	})

	t.Run("are synchronous where there is a standby", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.site()
		r.put("/api/v1/sites/solo", `{"nodes":[{"name":"solo-a","role":"active"}]}`)
		pair := into[api.Accepted](t, r.put(press7Path, `{"config":{}}`))
		require.Equal(t, fleet.DurabilitySync, specOfObject(t, *pair.Object).Durability)
		solo := into[api.Accepted](t, r.put("/api/v1/sites/solo/instances/x", `{"config":{}}`))
		require.Equal(t, fleet.DurabilityAsync, specOfObject(t, *solo.Object).Durability)
		require.True(t, specOfObject(t, *solo.Object).Enabled)
	})

	t.Run("wait for a deploy when they are asked to", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.site()
		r.put("/api/v1/templates/press", `{"base":{"speed":1}}`)
		staged := r.call(r.operator, http.MethodPut, press7Path+"?deploy=false", `{"template":"press","overrides":{"speed":2},"run":{"command":["/bin/x"]}}`)
		require.Equal(t, http.StatusOK, staged.status)
		require.Empty(t, r.wakes())
		require.Zero(t, r.rows()["revisions"])
		r.put("/api/v1/templates/press", `{"base":{"speed":9,"later":true}}`)

		a := r.call(r.operator, http.MethodPost, press7Path+"/deploy", api.ActionRequest{Reason: "window"})
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		require.Equal(t, "deploy", into[api.Accepted](t, a).Operation.Kind)
		require.JSONEq(t, `{"speed":2}`, r.desiredConfig(), "with the template as it was pinned")
		require.Equal(t, 1, r.rows()["revisions"])

		again := r.call(r.operator, http.MethodPost, press7Path+"/deploy", nil)
		require.Equal(t, http.StatusAccepted, again.status)
		require.Equal(t, 1, r.rows()["revisions"], "a second deploy delivers the same revision")
	})

	t.Run("turn it off and on, back, and away", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.site()
		r.put(press7Path, `{"config":{"v":1}}`)
		for i, c := range []struct {
			method, path, kind string
			enabled            bool
		}{
			{"POST", press7Path + "/disable", "disable", false},
			{"POST", press7Path + "/enable", "enable", true},
			{"DELETE", press7Path, "delete", true},
		} {
			a := r.call(r.operator, c.method, c.path, nil)
			require.Equal(t, http.StatusAccepted, a.status, string(a.body))
			accepted := into[api.Accepted](t, a)
			require.Equal(t, c.kind, accepted.Operation.Kind)
			require.EqualValues(t, i+2, accepted.Operation.Revision)
			require.Equal(t, c.enabled, specOfObject(t, *accepted.Object).Enabled)
		}
		require.NotNil(t, into[api.Object](t, r.get(press7Path)).DeletingSince)
		require.Equal(t, http.StatusNotFound, r.get(press7Path+"/config?revision=desired").status)
		refused := r.call(r.operator, http.MethodPost, press7Path+"/enable", nil)
		require.Equal(t, api.ProblemPrefix+string(fleet.IllegalState), refused.problem(t).Type)
		back := into[api.Accepted](t, r.put(press7Path, `{"config":{"v":2}}`))
		require.Nil(t, back.Object.DeletingSince, "a PUT supersedes the delete")
	})

	t.Run("roll back to a revision by its number", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.site()
		r.put(press7Path, `{"config":{"v":1}}`)
		r.put(press7Path, `{"config":{"v":2}}`)
		a := r.call(r.operator, http.MethodPost, press7Path+"/rollback", api.RollbackRequest{Revision: 1})
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		require.EqualValues(t, 3, into[api.Accepted](t, a).Operation.Revision)
		require.Equal(t, `{"v":1}`, r.desiredConfig())
		missing := r.call(r.operator, http.MethodPost, press7Path+"/rollback", api.RollbackRequest{Revision: 77})
		require.Equal(t, "/revision", missing.problem(t).Field)
	})

	t.Run("cancel an operation once", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.site()
		id := into[api.Accepted](t, r.put(press7Path, `{"config":{}}`)).Operation.ID
		a := r.call(r.operator, http.MethodPost, "/api/v1/operations/"+id+"/cancel", nil)
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		require.Len(t, r.wakes(), 2)
		r.sql(`UPDATE operations SET state = 'cancelled', ended_at = now()`)
		ended := r.call(r.operator, http.MethodPost, "/api/v1/operations/"+id+"/cancel", nil)
		require.Equal(t, api.ProblemPrefix+string(fleet.IllegalState), ended.problem(t).Type)
	})
}

// failingWaker cannot reach Temporal.
type failingWaker struct{}

func (failingWaker) Wake(context.Context, string) error { return errors.New("temporal is away") }

// F22, F44, X2: a change succeeds although the wake fails, for whatever reason; the outbox repeats it.
func TestAChangeSurvivesALostWake(t *testing.T) {
	t.Parallel()
	r := setup(t, func(d *Deps) { d.Waker = failingWaker{} })
	r.site()
	a := r.call(r.operator, http.MethodPut, press7Path, `{"config":{}}`)
	require.Equal(t, http.StatusAccepted, a.status, string(a.body))
	a = r.call(r.operator, http.MethodPut, webPath, `{"command":["x"],"health":{"type":"none"}}`)
	require.Equal(t, http.StatusAccepted, a.status, string(a.body))
	require.Equal(t, 2, r.rows()["outbox"], "what the relay repeats the wakes from")
	require.Contains(t, r.log.String(), "wake failed; the outbox repeats it")
}

// panicky fails where no error is expected.
type panicky struct{ Store }

func (panicky) ListNodes(context.Context, nodes.NodeFilter, string, int32) ([]nodes.Node, error) {
	var none []nodes.Node
	return none[:1], nil
}

func TestAPanicIsAnAnswer(t *testing.T) {
	t.Parallel()
	r := setup(t, func(d *Deps) { d.Store = panicky{d.Store} })
	a := r.get("/api/v1/nodes")
	require.Equal(t, http.StatusInternalServerError, a.status)
	p := a.problem(t)
	require.Equal(t, api.ProblemPrefix+string(fleet.Internal), p.Type)
	require.NotContains(t, string(a.body), "slice bounds")
	require.Contains(t, r.log.String(), "slice bounds")
	require.Equal(t, http.StatusOK, r.get("/api/v1/sites").status, "and the server goes on")
}

func TestReady(t *testing.T) {
	t.Parallel()
	r := setup(t, func(d *Deps) {
		d.Ready = func(context.Context) error { return errors.New("the database is at 10.0.0.7") }
	})
	a := r.call("", http.MethodGet, "/readyz", nil)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.NotContains(t, string(a.body), "10.0.0.7")
	require.Equal(t, http.StatusOK, r.call("", http.MethodGet, "/healthz", nil).status)
}
