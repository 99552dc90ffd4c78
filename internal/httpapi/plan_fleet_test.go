package httpapi

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

const fleetManifest = `{"kind":"Fleet","name":"speed-up","spec":{"change":{"template":"press","patch":{"b":1.0}},"errorThreshold":5}}`

// N99, N107
func TestPlanOfFleetChanges(t *testing.T) {
	t.Parallel()
	r, f := withFleets(t)
	template := `{"kind":"Template","name":"press","spec":{"base":{"a":1}}}`
	both := many("", fleetManifest, template)

	t.Run("a run begins by what is new", func(t *testing.T) {
		p := r.plan(both)
		require.Equal(t, "press create, speed-up create", actions(p), "what it refers to comes first")
		require.True(t, planOf(t, p, "speed-up").Releases)
		require.Empty(t, f.puts)
		a := r.apply(both)
		require.Zero(t, a.Failed)
		require.Equal(t, "press create, speed-up create fleet", applied(a))
		put := f.puts[0]
		require.True(t, put.Start)
		require.EqualValues(t, 1, put.Spec.Change.TemplateGeneration)
		require.Equal(t, compose.ContentOf([]byte(`{"b":1}`)), *put.Spec.Change.Patch)
		_, err := r.store.OpenBody(t.Context(), put.Spec.Change.Patch.Hash)
		require.NoError(t, err)
	})

	spec, err := json.Marshal(f.puts[0].Spec)
	require.NoError(t, err)
	r.sql(`INSERT INTO objects (kind, project, name, generation, resource_version, spec, syncing, created_by)
		VALUES ('fleet', 'default', 'speed-up', 1, 1, $1, '{}', 'test')`, spec)

	t.Run("but not by what stands as it is", func(t *testing.T) {
		require.Equal(t, "press unchanged, speed-up unchanged", actions(r.plan(both)))
		f.puts = nil
		require.Zero(t, r.apply(both).Failed)
		require.Empty(t, f.puts)
	})

	t.Run("nor by a label, or without being asked to", func(t *testing.T) {
		labelled := many("", `{"kind":"fleet","name":"speed-up","labels":{"a":"b"},"spec":{"change":{"template":"press","patch":{"b":1}},"errorThreshold":5}}`)
		require.False(t, planOf(t, r.plan(labelled), "speed-up").Releases)
		require.Zero(t, r.apply(labelled).Failed)
		require.False(t, f.puts[0].Start)
		changed := many("", `{"kind":"fleet","name":"speed-up","spec":{"change":{"template":"press"},"errorThreshold":6}}`)
		o := planOf(t, r.plan(changed), "speed-up")
		require.True(t, o.Releases)
		require.NotEmpty(t, o.Declared.Changes)
		a := r.call(r.operator, http.MethodPost, planPath+"?deploy=false", changed)
		require.False(t, planOf(t, into[api.Plan](t, a), "speed-up").Releases)
	})

	t.Run("a template of the same request is pinned as it will be", func(t *testing.T) {
		f.puts = nil
		require.Zero(t, r.apply(many("", fleetManifest, `{"kind":"Template","name":"press","spec":{"base":{"a":2}}}`)).Failed)
		require.EqualValues(t, 2, f.puts[0].Spec.Change.TemplateGeneration)
	})

	for name, c := range map[string]struct{ spec, field string }{
		"no change":                    {`{}`, "/objects/0/spec/change"},
		"a patch that is no object":    {`{"change":{"patch":1}}`, "/objects/0/spec/change/patch"},
		"a duplicate key in the patch": {`{"change":{"patch":{"a":1,"a":2}}}`, "/objects/0/spec/change/patch/a"},
		"a template that is missing":   {`{"change":{"template":"ghost"}}`, "/objects/0/spec/change/template"},
		"a generation that is missing": {`{"change":{"template":"press","templateGeneration":9}}`, "/objects/0/spec/change/templateGeneration"},
		"a zone that is none":          {`{"change":{"patch":{}},"windows":[{"from":"01:00","to":"02:00","zone":"x"}]}`, "/objects/0/spec/windows/0/zone"},
		"labels in the spec":           {`{"labels":{},"change":{"patch":{}}}`, "/objects/0/spec"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			o := planOf(t, r.plan(many("", `{"kind":"Fleet","name":"x","spec":`+c.spec+`}`)), "x")
			require.NotNil(t, o.Problem)
			require.Equal(t, c.field, o.Problem.Field, o.Problem.Detail)
		})
	}

	t.Run("is for operators", func(t *testing.T) {
		order := fleet.DeclaredKinds()
		require.Equal(t, fleet.KindFleet, order[len(order)-1].Kind)
		require.Equal(t, serve.ForOperators, r.server.plans.Kinds[fleet.KindFleet].Writers)
	})
}
