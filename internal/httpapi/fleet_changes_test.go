package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/declaration"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
)

// patchOf stores a patch as a PUT of a fleet change does.
func (r *region) patchOf(text string) *fleet.Content {
	r.t.Helper()
	content, err := r.server.maker.Canonical(r.t.Context(), fleet.DefaultProject, compose.Layer{Name: "/change/patch", JSON: []byte(text)})
	require.NoError(r.t, err)
	return &content
}

// target is an instance as a run of a fleet change finds it.
func (r *region) target(name string) fleets.FleetTarget {
	r.t.Helper()
	o, err := r.store.GetObject(r.t.Context(), fleet.InstanceKey("plant-1", fleet.InstanceName(name)))
	require.NoError(r.t, err)
	t := fleets.FleetTarget{Instance: fleet.InstanceName(name), Project: o.Project, Labels: o.Labels, Generation: o.Generation}
	require.NoError(r.t, json.Unmarshal(o.Spec, &t.Spec))
	return t
}

func (r *region) changes(change fleet.FleetChange, targets ...fleets.FleetTarget) []deliveries.BatchChange {
	r.t.Helper()
	out, err := r.server.maker.FleetChanges(r.t.Context(), fleet.FleetSpec{Change: change}, targets)
	require.NoError(r.t, err)
	require.Len(r.t, out, len(targets))
	return out
}

// N98, N106
func TestFleetChangesAreWhatAPutGives(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	r.put("/api/v1/templates/common", `{"base":{"log":{"level":"info","to":["a",null]},"zone":"eu"}}`)
	r.put("/api/v1/templates/press", `{"base":{"speed":1,"limits":{"max":10,"min":1},"zone":"x"},"compositions":["common"]}`)
	r.put("/api/v1/templates/press", `{"base":{"speed":2,"limits":{"max":12,"min":1},"added":true},"compositions":["common"]}`)
	run := `,"run":{"command":["/bin/press","--fast"],"env":{"B":"2","A":"1"}},"secrets":["/limits"],"secretEnv":["A"]`

	for _, c := range []struct {
		name, before string
		change       fleet.FleetChange
		patch, after string
	}{
		{
			"a template's generation", `{"template":"press","templateGeneration":1}`,
			fleet.FleetChange{Template: "press", TemplateGeneration: 2},
			``, `{"template":"press","templateGeneration":2}`,
		},
		{
			"a generation under overrides", `{"template":"press","templateGeneration":1,"overrides":{"speed":7,"log":null}}`,
			fleet.FleetChange{Template: "press", TemplateGeneration: 2},
			``, `{"template":"press","templateGeneration":2,"overrides":{"speed":7,"log":null}}`,
		},
		{
			"overrides", `{"template":"press","templateGeneration":1,"overrides":{"speed":7,"zone":"us","log":null}}`,
			fleet.FleetChange{},
			`{"speed":8,"zone":null,"limits":{"max":1.50,"min":null}}`,
			`{"template":"press","templateGeneration":1,"overrides":{"speed":8,"log":null,"limits":{"max":1.5}}}`,
		},
		{
			"an instance that had no overrides", `{"template":"press","templateGeneration":1}`,
			fleet.FleetChange{},
			`{"speed":8,"nothing":null}`, `{"template":"press","templateGeneration":1,"overrides":{"speed":8}}`,
		},
		{
			"an instance that gets none", `{"template":"press","templateGeneration":1}`,
			fleet.FleetChange{},
			`{"nothing":null}`, `{"template":"press","templateGeneration":1}`,
		},
		{
			"overrides that are taken away", `{"template":"press","templateGeneration":1,"overrides":{"speed":7}}`,
			fleet.FleetChange{},
			`{"speed":null}`, `{"template":"press","templateGeneration":1,"overrides":{}}`,
		},
		{
			"both at once", `{"template":"press","templateGeneration":1,"overrides":{"speed":7}}`,
			fleet.FleetChange{Template: "press", TemplateGeneration: 2},
			`{"limits":{"max":5}}`,
			`{"template":"press","templateGeneration":2,"overrides":{"speed":7,"limits":{"max":5}}}`,
		},
		{
			"a config", `{"config":{"b":1,"a":{"x":null,"y":2}}}`,
			fleet.FleetChange{},
			`{"a":{"y":null,"z":"ä"},"c":[1,null]}`, `{"config":{"b":1,"a":{"x":null,"z":"ä"},"c":[1,null]}}`,
		},
		{
			"an instance with a run section and secrets, disabled", `{"template":"press","templateGeneration":1,"enabled":false,"durability":"async"` + run + `}`,
			fleet.FleetChange{Template: "press", TemplateGeneration: 2},
			`{"speed":3}`,
			`{"template":"press","templateGeneration":2,"overrides":{"speed":3},"enabled":false,"durability":"async"` + run + `}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := strings.ReplaceAll(c.name, " ", "-")
			name = strings.NewReplacer("'", "", ",", "").Replace(name)
			r.put("/api/v1/sites/plant-1/instances/"+name, c.before)
			if c.patch != "" {
				c.change.Patch = r.patchOf(c.patch)
			}
			got := r.changes(c.change, r.target(name))[0]
			require.NoError(t, got.Refused)
			require.EqualValues(t, 1, got.Generation)
			body, err := r.store.OpenBody(t.Context(), got.Content.Hash)
			require.NoError(t, err, "the body is stored")
			require.Equal(t, got.Content.Size, body.Size())

			r.put("/api/v1/sites/plant-1/instances/"+name, c.after)
			want := r.target(name)
			require.Equal(t, want.Spec, got.Spec)
			_, released, err := r.store.Deployed(t.Context(), fleet.InstanceKey("plant-1", fleet.InstanceName(name)))
			require.NoError(t, err)
			require.Equal(t, released.Content, got.Content)
			require.Equal(t, released.RunHash, got.RunHash)
			if got.RunHash != "" {
				require.Equal(t, got.RunHash, compose.HashOf(got.RunJSON))
			}
		})
	}
}

// N98
func TestFleetChangesLeaveOutWhatCannotBe(t *testing.T) {
	t.Parallel()
	r := setup(t, func(d *Deps) { d.Limits = compose.Limits{MaxBytes: 200} })
	r.site()
	r.put("/api/v1/templates/press", `{"base":{"speed":1}}`)
	r.put("/api/v1/templates/oven", `{"base":{"temp":1}}`)
	long := strings.Repeat("x", 150)
	for name, body := range map[string]string{
		"good": `{"template":"press","overrides":{"a":1}}`, "other": `{"template":"oven"}`, "config": `{"config":{"a":1}}`,
		"full": `{"template":"press","overrides":{"b":"` + long + `"}}`,
	} {
		r.put("/api/v1/sites/plant-1/instances/"+name, body)
	}
	a := r.call(r.operator, "POST", "/api/v1/artifacts", "bytes")
	r.put("/api/v1/sites/plant-1/instances/binary", api.InstancePut{Artifact: into[api.Artifact](t, a).SHA256})
	patch := r.patchOf(`{"c":"` + strings.Repeat("y", 100) + `"}`)

	refused := func(c deliveries.BatchChange) *fleet.Error {
		t.Helper()
		var e *fleet.Error
		require.ErrorAs(t, c.Refused, &e)
		return e
	}

	t.Run("an artifact with a patch, and what becomes too large, and no others", func(t *testing.T) {
		gone := fleet.Errorf(fleet.NotFound, "it is gone")
		lost := r.target("good")
		lost.Refused = gone
		out := r.changes(fleet.FleetChange{Patch: patch}, r.target("binary"), r.target("full"), lost, r.target("good"), r.target("config"))
		require.Equal(t, "/artifact", refused(out[0]).Field)
		require.Equal(t, fleet.TooLarge, refused(out[1]).Kind)
		require.Same(t, gone, refused(out[2]))
		for _, c := range out[3:] {
			require.NoError(t, c.Refused)
			require.NotEmpty(t, c.Content.Hash)
		}
	})

	t.Run("an instance of another template", func(t *testing.T) {
		out := r.changes(fleet.FleetChange{Template: "press", TemplateGeneration: 1}, r.target("other"), r.target("config"), r.target("good"))
		require.Equal(t, "/template", refused(out[0]).Field)
		require.Equal(t, "/template", refused(out[1]).Field)
		require.NoError(t, out[2].Refused)
	})

	t.Run("a generation that there is not", func(t *testing.T) {
		out := r.changes(fleet.FleetChange{Template: "press", TemplateGeneration: 9}, r.target("good"))
		require.Equal(t, fleet.NotFound, refused(out[0]).Kind)
	})

	t.Run("what was released before, and what is restored, passes as it is", func(t *testing.T) {
		before, back := r.target("binary"), r.target("other")
		before.Revision = 4
		back.Restore = &fleets.FleetRestore{Spec: r.target("good").Spec, Content: fleet.Content{Kind: fleet.ContentJSON, Hash: "h", Size: 3}, RunHash: "r"}
		out := r.changes(fleet.FleetChange{Patch: patch}, before, back)
		require.EqualValues(t, 4, out[0].Revision)
		require.NoError(t, out[0].Refused)
		require.Equal(t, back.Restore.Spec, out[1].Spec)
		require.Equal(t, back.Restore.Content, out[1].Content)
		require.Equal(t, fleet.Hash("r"), out[1].RunHash)
	})
}

// countingStore counts the questions that must not come once per instance.
type countingStore struct {
	Store
	specs, opened, whole int
	put                  []int // bytes
	fail                 error
}

func (c *countingStore) TemplateSpec(ctx context.Context, name fleet.TemplateName, generation int64) (fleet.TemplateSpec, int64, error) {
	c.specs++
	return c.Store.TemplateSpec(ctx, name, generation)
}

func (c *countingStore) OpenBody(ctx context.Context, h fleet.Hash) (*postgres.Body, error) {
	c.opened++
	return c.Store.OpenBody(ctx, h)
}

func (c *countingStore) WholeBodies(ctx context.Context, hashes []fleet.Hash) (map[fleet.Hash][]byte, error) {
	c.whole++
	return c.Store.WholeBodies(ctx, hashes)
}

func (c *countingStore) PutBodies(ctx context.Context, project fleet.ProjectName, bodies [][]byte) ([]fleet.Hash, error) {
	size := 0
	for _, b := range bodies {
		size += len(b)
	}
	c.put = append(c.put, size)
	if c.fail != nil {
		return nil, c.fail
	}
	return c.Store.PutBodies(ctx, project, bodies)
}

func TestFleetChangesAskInSets(t *testing.T) {
	t.Parallel()
	counting := &countingStore{}
	r := setup(t, func(d *Deps) { counting.Store, d.Store = d.Store, counting })
	r.site()
	r.put("/api/v1/templates/press", `{"base":{"speed":1}}`)
	r.put("/api/v1/templates/press", `{"base":{"speed":2,"fill":"`+strings.Repeat("x", 100_000)+`"}}`)
	r.put("/api/v1/sites/plant-1/instances/press-7", `{"template":"press","templateGeneration":1}`)
	change := fleet.FleetChange{Template: "press", TemplateGeneration: 2}
	var targets []fleets.FleetTarget
	for i := range 300 {
		one := r.target("press-7")
		one.Spec.Overrides = r.patchOf(fmt.Sprintf(`{"n":%d}`, i))
		targets = append(targets, one)
	}
	*counting = countingStore{Store: counting.Store}
	out := r.changes(change, targets...)
	require.Equal(t, 1, counting.specs)
	require.Zero(t, counting.opened)
	require.LessOrEqual(t, counting.whole, 5, "once per group")
	require.Len(t, counting.put, 4, "30 MB in pieces of at most 8 MiB")
	for _, size := range counting.put {
		require.LessOrEqual(t, size, fleet.MaxBatchBytes)
	}
	hashes := map[fleet.Hash]bool{}
	for _, c := range out {
		require.NoError(t, c.Refused)
		hashes[c.Content.Hash] = true
	}
	require.Len(t, hashes, len(targets))

	t.Run("fails as a whole when the region does", func(t *testing.T) {
		counting.fail = fleet.Errorf(fleet.Unavailable, "no database")
		_, err := r.server.maker.FleetChanges(t.Context(), fleet.FleetSpec{Change: change}, targets[:2])
		require.ErrorIs(t, err, counting.fail)
	})

	t.Run("ends with its context", func(t *testing.T) {
		counting.fail = nil
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := r.server.maker.FleetChanges(ctx, fleet.FleetSpec{Change: change}, targets[:2])
		require.Equal(t, fleet.Unavailable, fleet.KindOf(err))
	})
}

// memoryBodies is a store of bodies for measuring what composing costs by itself.
type memoryBodies struct {
	Store
	template fleet.TemplateSpec
	bodies   map[fleet.Hash][]byte
}

func (m *memoryBodies) TemplateSpec(context.Context, fleet.TemplateName, int64) (fleet.TemplateSpec, int64, error) {
	return m.template, 2, nil
}

func (m *memoryBodies) WholeBodies(_ context.Context, hashes []fleet.Hash) (map[fleet.Hash][]byte, error) {
	out := make(map[fleet.Hash][]byte, len(hashes))
	for _, h := range hashes {
		out[h] = m.bodies[h]
	}
	return out, nil
}

func (*memoryBodies) PutBodies(_ context.Context, _ fleet.ProjectName, bodies [][]byte) ([]fleet.Hash, error) {
	out := make([]fleet.Hash, len(bodies))
	for i, b := range bodies {
		out[i] = compose.HashOf(b)
	}
	return out, nil
}

// BenchmarkFleetChanges composes 500 instances of a template of 4 KB.
func BenchmarkFleetChanges(b *testing.B) {
	base := map[string]any{}
	for i := range 100 {
		base[fmt.Sprintf("setting-%03d", i)] = map[string]any{"value": i, "unit": "mm", "on": true}
	}
	text, err := json.Marshal(base)
	require.NoError(b, err)
	keep := func(m *memoryBodies, text string) *fleet.Content {
		c := compose.ContentOf([]byte(text))
		m.bodies[c.Hash] = []byte(text)
		return &c
	}
	store := &memoryBodies{bodies: map[fleet.Hash][]byte{}}
	store.template.Base = *keep(store, string(text))
	var targets []fleets.FleetTarget
	for i := range fleet.MaxBatchItems {
		targets = append(targets, fleets.FleetTarget{Instance: "press", Project: "default", Spec: fleet.InstanceSpec{
			Template: "press", TemplateGeneration: 1, Enabled: true, Overrides: keep(store, fmt.Sprintf(`{"setting-007":{"value":%d},"site":"plant"}`, i)),
			Run: &fleet.Run{Command: []string{"/bin/press"}},
		}})
	}
	spec := fleet.FleetSpec{Change: fleet.FleetChange{Template: "press", TemplateGeneration: 2, Patch: keep(store, `{"setting-050":{"value":1}}`)}}
	m := declaration.New(store, "eu", nil, compose.NewBudget(128<<20), compose.Limits{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.FleetChanges(b.Context(), spec, targets); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/fleet.MaxBatchItems, "ns/instance")
}
