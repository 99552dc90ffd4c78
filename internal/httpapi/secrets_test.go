package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
)

const (
	hiddenValue = "hunter2"
	openConfig  = `{"db":{"password":"hunter2","user":"u"},"n":1}`
	shutConfig  = `{"db":{"password":"<redacted>","user":"u"},"n":1}`
)

// configAs reads the desired config with a token.
func (r *region) configAs(token string, headers ...string) reply {
	r.t.Helper()
	return r.call(token, http.MethodGet, press7Path+"/config?revision=desired", nil, headers...)
}

// X10: paths that are marked secret.
func TestSecretPaths(t *testing.T) {
	t.Parallel()

	t.Run("are hidden from viewers and shown to operators", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.site()
		r.put(press7Path, `{"config":`+openConfig+`,"secrets":["/db/password","/not/there/yet"]}`)
		for _, token := range []string{r.operator, r.admin} {
			a := r.configAs(token)
			require.JSONEq(t, openConfig, string(a.body))
			require.Equal(t, serve.Quoted(string(compose.HashOf(a.body))), a.header.Get("ETag"))
			require.Empty(t, a.header.Get("Holdfast-Redacted"))
		}
		a := r.configAs(r.viewer)
		require.Equal(t, shutConfig, string(a.body))
		require.Equal(t, "1", a.header.Get("Holdfast-Redacted"))
		require.Equal(t, fmt.Sprint(len(shutConfig)), a.header.Get("Holdfast-Size"))
		require.Contains(t, a.header.Get("ETag"), "-redacted-")

		part := r.configAs(r.viewer, "Range", "bytes=8-25")
		require.Equal(t, http.StatusPartialContent, part.status)
		require.Equal(t, shutConfig[8:26], string(part.body))
		require.Equal(t, http.StatusNotModified, r.configAs(r.viewer, "If-None-Match", a.header.Get("ETag")).status)
		require.NotContains(t, r.log.String(), hiddenValue)
	})

	t.Run("of a template hold for its instances, also when they are marked later", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.site()
		r.put("/api/v1/templates/db", `{"base":{"db":{"password":"hunter2"}},"secrets":["/db/password"]}`)
		r.put("/api/v1/templates/press", `{"base":{"n":1},"compositions":["db"]}`)
		r.put(press7Path, `{"template":"press","overrides":{"db":{"user":"u"}}}`)
		require.Equal(t, shutConfig, string(r.configAs(r.viewer).body))
		require.JSONEq(t, openConfig, string(r.configAs(r.operator).body))

		r.put("/api/v1/templates/press", `{"base":{"n":1},"compositions":["db"],"secrets":["/n"]}`)
		require.Equal(t, strings.Replace(shutConfig, "1", `"<redacted>"`, 1), string(r.configAs(r.viewer).body))
	})

	t.Run("of a pinned template hold whatever its later generations mark", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.site()
		r.put("/api/v1/templates/db", `{"base":`+openConfig+`,"secrets":["/db/password"]}`)
		r.put(press7Path, `{"template":"db"}`)
		r.put("/api/v1/templates/db", `{"base":`+openConfig+`}`)
		require.Equal(t, shutConfig, string(r.configAs(r.viewer).body))
		r.put(press7Path, `{"template":"db"}`)
		require.JSONEq(t, openConfig, string(r.configAs(r.viewer).body))
	})

	t.Run("stay hidden in what is deployed until the unmarked spec is", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.site()
		r.put(press7Path, `{"config":`+openConfig+`,"secrets":["/db/password"]}`)
		r.put(press7Path+"?deploy=false", `{"config":`+openConfig+`}`)
		require.Equal(t, shutConfig, string(r.configAs(r.viewer).body))
		r.put(press7Path, `{"config":{"n":2},"secrets":["/db"]}`)
		r.put(press7Path, `{"config":`+openConfig+`}`)
		require.JSONEq(t, openConfig, string(r.configAs(r.viewer).body), "what nobody marks any more is open")
	})

	t.Run("hide what was released before they were marked, and after a rollback", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.site()
		r.put(press7Path, `{"config":`+openConfig+`}`)
		require.JSONEq(t, openConfig, string(r.configAs(r.viewer).body))
		r.put(press7Path+"?deploy=false", `{"config":{},"secrets":["/db/password"]}`)
		require.Equal(t, shutConfig, string(r.configAs(r.viewer).body))
		back := r.call(r.operator, http.MethodPost, press7Path+"/rollback", `{"revision":1}`)
		require.Equal(t, http.StatusAccepted, back.status, string(back.body))
		require.Equal(t, shutConfig, string(r.configAs(r.viewer).body))
	})

	for name, put := range map[string]string{
		"that is no pointer":       `{"config":{},"secrets":["db"]}`,
		"with a wrong escape":      `{"config":{},"secrets":["/a~2"]}`,
		"of more than 1 KiB":       `{"config":{},"secrets":["/` + strings.Repeat("x", 1024) + `"]}`,
		"beyond 100":               `{"config":{},"secrets":["` + strings.Repeat(`/a","`, 100) + `/a"]}`,
		"of an artifact":           `{"artifact":"` + strings.Repeat("a", 64) + `","secrets":["/a"]}`,
		"for a name with a sign =": `{"config":{},"secretEnv":["A=B"]}`,
	} {
		t.Run("refuse a mark "+name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			r.site()
			before := r.rows()
			a := r.call(r.operator, http.MethodPut, press7Path, put)
			require.Equal(t, http.StatusBadRequest, a.status)
			require.Contains(t, a.problem(t).Field, "/secret")
			require.Equal(t, before, r.rows())
		})
	}

	t.Run("of a template are checked too", func(t *testing.T) {
		t.Parallel()
		a := setup(t)
		p := a.call(a.operator, http.MethodPut, "/api/v1/templates/x", `{"base":{},"secrets":["x"]}`)
		require.Equal(t, "/secrets/0", p.problem(t).Field)
	})
}

// X10: marked environment of a run section.
func TestSecretEnvironment(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	r.put(press7Path, `{"config":{},"run":{"command":["/bin/true"],"env":{"TOKEN":"hunter2","LEVEL":"debug"}},"secretEnv":["TOKEN"]}`)
	r.put(press7Path, `{"config":{"n":2},"run":{"command":["/bin/true"],"env":{"TOKEN":"hunter2","LEVEL":"info"}}}`)
	r.put(press7Path, `{"config":{"n":3},"run":{"command":["/bin/true"],"env":{"TOKEN":"other","LEVEL":"info"}},"secretEnv":["TOKEN"]}`)
	r.settled(4)

	list := "/api/v1/sites/plant-1/instances"
	for _, path := range []string{press7Path, list} {
		seen := r.get(path)
		require.Contains(t, string(seen.body), `"TOKEN":"<redacted>"`, path)
		require.Contains(t, string(seen.body), `"LEVEL":"info"`, path)
		require.NotContains(t, string(seen.body), "other", path)
		require.Contains(t, string(r.call(r.operator, http.MethodGet, path, nil).body), "other", path)
	}
	for _, token := range []string{r.viewer, r.operator, r.admin} {
		events := into[api.List[api.Event]](t, r.call(token, http.MethodGet, "/api/v1/events", nil))
		require.Len(t, events.Items, 4)
		for _, e := range events.Items {
			both := string(e.Before) + string(e.After)
			require.NotContains(t, both, hiddenValue, "each of the events has a side that marks it")
			require.NotContains(t, both, "other")
		}
		require.Contains(t, string(events.Items[0].After), `"LEVEL"`)
	}
}

// What cannot be read is left out, never shown.
func TestRedactSpec(t *testing.T) {
	t.Parallel()
	spec := json.RawMessage(`{"future":[1],"run":{"env":{"A":"1","B":"2"},"more":true},"secretEnv":["A","C"]}`)
	require.JSONEq(t, `{"future":[1],"run":{"env":{"A":"<redacted>","B":"2"},"more":true},"secretEnv":["A","C"]}`, string(RedactSpec(spec)))
	plainSpec := json.RawMessage(`{"run":{"env":{"A":"1"}}}`)
	require.Equal(t, plainSpec, RedactSpec(plainSpec))
	noEnv := json.RawMessage(`{"enabled":true,"secretEnv":["A"]}`)
	require.Equal(t, noEnv, RedactSpec(noEnv))
}

// counting counts what the handlers ask of the store for statuses.
type counting struct {
	Store
	pages, rows atomic.Int32
}

func (c *counting) ViewInstances(ctx context.Context, site fleet.SiteName, names ...string) (map[string]deliveries.InstanceView, error) {
	c.pages.Add(1)
	return c.Store.ViewInstances(ctx, site, names...)
}

func (c *counting) ViewInstance(ctx context.Context, k fleet.ObjectKey) (deliveries.InstanceView, error) {
	c.rows.Add(1)
	return c.Store.ViewInstance(ctx, k)
}

func TestInstanceListReadsItsStatusesAtOnce(t *testing.T) {
	t.Parallel()
	var store *counting
	r := setup(t, func(d *Deps) {
		store = &counting{Store: d.Store}
		d.Store = store
	})
	r.site()
	const many = 200
	for i := range many {
		r.put(fmt.Sprintf("/api/v1/sites/plant-1/instances/i-%03d", i), `{"config":{}}`)
	}
	page := into[api.List[api.Object]](t, r.get("/api/v1/sites/plant-1/instances?limit=1000"))
	require.Len(t, page.Items, many)
	require.EqualValues(t, 1, store.pages.Load())
	require.Zero(t, store.rows.Load())
	for i, o := range page.Items {
		one := into[api.Object](t, r.get(fmt.Sprintf("/api/v1/sites/plant-1/instances/i-%03d", i)))
		require.JSONEq(t, string(one.Status), string(o.Status))
		var status api.InstanceStatus
		require.NoError(t, json.Unmarshal(o.Status, &status))
		require.EqualValues(t, 1, status.DesiredRevision)
		require.Len(t, status.Nodes, 2)
	}
}
