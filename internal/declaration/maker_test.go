package declaration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

// memory is a region whose objects and bodies lie in maps.
type memory struct {
	objects   map[fleet.CopyKey]fleet.Object
	specs     map[fleet.TemplatePin]fleet.TemplateSpec
	gone      map[fleet.TemplateName]bool // copies that take no new pins
	bodies    map[fleet.Hash][]byte
	artifacts map[fleet.ProjectName]fleet.Hash
	asked     []string
	renames   bool // stores bodies under other names than their own
}

func newMemory() (*memory, *Maker) {
	r := &memory{
		objects: map[fleet.CopyKey]fleet.Object{}, specs: map[fleet.TemplatePin]fleet.TemplateSpec{}, gone: map[fleet.TemplateName]bool{},
		bodies: map[fleet.Hash][]byte{}, artifacts: map[fleet.ProjectName]fleet.Hash{},
	}
	m := New(nil, "eu", nil, compose.NewBudget(1<<20), compose.Limits{})
	return r, m.With(r, r)
}

// has declares an object of this region, or a copy.
func (r *memory) has(key fleet.ObjectKey, region fleet.RegionName, project fleet.ProjectName, spec any) {
	text, _ := json.Marshal(spec)
	r.objects[fleet.CopyKey{Region: region, ObjectKey: key}] = fleet.Object{ObjectKey: key, Region: region, Project: project, Generation: 1, Spec: text}
}

// template has another generation of a template.
func (r *memory) template(name fleet.TemplateName, project fleet.ProjectName, base string, compositions ...fleet.TemplatePin) fleet.TemplatePin {
	region, plain, _ := name.Copy()
	key := fleet.CopyKey{Region: region, ObjectKey: fleet.TemplateKey(plain)}
	o := r.objects[key]
	spec := fleet.TemplateSpec{Base: compose.ContentOf([]byte(base)), Compositions: compositions, Secrets: []string{"/of/" + plain}}
	r.has(key.ObjectKey, region, project, spec)
	after := r.objects[key]
	after.Generation = o.Generation + 1
	r.objects[key] = after
	pin := fleet.TemplatePin{Name: name, Generation: after.Generation}
	r.specs[pin], r.bodies[spec.Base.Hash] = spec, []byte(base)
	return pin
}

func (r *memory) Object(_ context.Context, key fleet.CopyKey) (fleet.Object, error) {
	r.asked = append(r.asked, key.String())
	named := key.Region != ""
	if key.Region == "eu" {
		key.Region = ""
	}
	if o, is := r.objects[key]; is {
		return o, nil
	}
	for _, at := range slices.SortedFunc(maps.Keys(r.objects), func(a, b fleet.CopyKey) int { return slices.Compare([]byte(a.Region), []byte(b.Region)) }) {
		if !named && at.ObjectKey == key.ObjectKey && key.Kind.Declared().Shared {
			return r.objects[at], nil
		}
	}
	return fleet.Object{}, fleet.NoObject(key.ObjectKey)
}

func (r *memory) Template(ctx context.Context, name fleet.TemplateName) (fleet.TemplateName, fleet.Object, error) {
	if r.gone[name] {
		return "", fleet.Object{}, fleet.Errorf(fleet.IllegalState, "the copy of template %s was removed", name)
	}
	region, plain, _ := name.Copy()
	o, err := r.Object(ctx, fleet.CopyKey{Region: region, ObjectKey: fleet.TemplateKey(plain)})
	return fleet.TemplateNameOf(o), o, err
}

func (r *memory) TemplateSpec(_ context.Context, name fleet.TemplateName, generation int64) (fleet.TemplateSpec, int64, error) {
	for n := int64(1); generation == 0 && r.specs[fleet.TemplatePin{Name: name, Generation: n}].Base.Hash != ""; n++ {
		if r.specs[fleet.TemplatePin{Name: name, Generation: n + 1}].Base.Hash == "" {
			generation = n
		}
	}
	spec, is := r.specs[fleet.TemplatePin{Name: name, Generation: generation}]
	if !is {
		return spec, 0, fleet.Errorf(fleet.NotFound, "this generation of template %s not found", name).At("/templateGeneration")
	}
	return spec, generation, nil
}

func (r *memory) PutBody(_ context.Context, _ fleet.ProjectName, body []byte) (fleet.Hash, error) {
	h := compose.HashOf(body)
	r.bodies[h] = body
	return h, nil
}

func (r *memory) PutBodies(ctx context.Context, project fleet.ProjectName, bodies [][]byte) ([]fleet.Hash, error) {
	out := make([]fleet.Hash, len(bodies))
	for i, b := range bodies {
		out[i], _ = r.PutBody(ctx, project, b)
		if r.renames {
			out[i] = "another"
		}
	}
	return out, nil
}

func (r *memory) BodySize(_ context.Context, project fleet.ProjectName, h fleet.Hash) (int64, error) {
	if r.artifacts[project] != h {
		return 0, fleet.Errorf(fleet.NotFound, "artifact %s not found", h).At("artifact")
	}
	return int64(len(r.bodies[h])), nil
}

func (r *memory) ReadBody(_ context.Context, h fleet.Hash) ([]byte, error) {
	text, is := r.bodies[h]
	if !is {
		return nil, fleet.Errorf(fleet.NotFound, "body %s not found", h)
	}
	return text, nil
}

func (r *memory) WholeBodies(_ context.Context, hashes []fleet.Hash) (map[fleet.Hash][]byte, error) {
	out := map[fleet.Hash][]byte{}
	for _, h := range hashes {
		if text, is := r.bodies[h]; is {
			out[h] = text
		}
	}
	return out, nil
}

func ofInstance(project, by fleet.ProjectName) Of {
	return Of{CopyKey: fleet.CopyKey{ObjectKey: fleet.InstanceKey("plant-1", "i")}, Project: project, By: by}
}

// refused wants an error of a kind at a field.
func refused(t *testing.T, err error, kind fleet.Kind, field string) {
	t.Helper()
	require.Equal(t, kind, fleet.KindOf(err), "%v", err)
	var e *fleet.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, field, e.Field)
}

// X20: a project is one of this region, or one whose copy is here; that of an object of another region is known there.
func TestCheckProject(t *testing.T) {
	t.Parallel()
	r, m := newMemory()
	r.has(fleet.ProjectKey("red"), "", "red", fleet.ProjectSpec{})
	r.has(fleet.ProjectKey("shared"), "us", "shared", fleet.ProjectSpec{})
	for _, row := range []struct {
		of    Of
		kind  fleet.Kind
		asked int
	}{
		{ofInstance("red", ""), "", 1},
		{ofInstance("red", "red"), "", 1},
		{ofInstance("shared", ""), "", 1},
		{ofInstance("default", ""), "", 0},
		{ofInstance("blue", ""), fleet.NotFound, 1},
		{ofInstance("red", "blue"), fleet.Denied, 0},
		{ofInstance("default", "blue"), fleet.Denied, 0},
		{Of{CopyKey: fleet.CopyKey{Region: "us"}, Project: "blue"}, "", 0},
		{Of{CopyKey: fleet.CopyKey{Region: "eu"}, Project: "blue"}, fleet.NotFound, 1},
	} {
		r.asked = nil
		err := m.CheckProject(t.Context(), row.of)
		require.Len(t, r.asked, row.asked)
		if row.kind == "" {
			require.NoError(t, err, "%v", row.of)
			continue
		}
		refused(t, err, row.kind, "/project")
	}
}

// N97, S9: what a declaration refers to is there, and of a project that may be used.
func TestReferences(t *testing.T) {
	t.Parallel()
	r, m := newMemory()
	r.has(fleet.ObjectKey{Kind: fleet.KindSite, Name: "plant-1"}, "", "default", fleet.SiteSpec{Nodes: []fleet.SiteNode{{Name: "a", Role: fleet.RoleActive}, {Name: "b", Role: fleet.RoleStandby}}})
	r.has(fleet.ObjectKey{Kind: fleet.KindSite, Name: "blue"}, "", "blue", fleet.SiteSpec{})

	site, err := m.Site(t.Context(), ofInstance("red", "red"))
	require.NoError(t, err)
	require.True(t, site.HasStandby())
	of := ofInstance("red", "red")
	of.Scope = "blue"
	_, err = m.Site(t.Context(), of)
	refused(t, err, fleet.NotFound, "site")

	r.template("press", "default", `{}`)
	r.template("blue", "blue", `{}`)
	r.template("us/line", "default", `{}`)
	refers := func(by fleet.ProjectName, names ...fleet.TemplateName) error {
		spec := fleet.TemplateSpec{} // the only one that refers so far
		for _, name := range names {
			spec.Compositions = append(spec.Compositions, fleet.TemplatePin{Name: name})
		}
		return m.CheckReferences(t.Context(), Of{By: by}, spec)
	}
	require.NoError(t, refers("red", "press"))
	require.NoError(t, refers("", "press", "blue"))
	refused(t, refers("red", "press", "blue"), fleet.NotFound, "/compositions/1")
	refused(t, refers("", "A b"), fleet.Invalid, "/compositions/0")
	refused(t, refers("", "line"), fleet.NotFound, "/compositions/0")
	require.NoError(t, m.CheckReferences(t.Context(), Of{}, fleet.PoolSpec{}))

	place := func(project, by fleet.ProjectName, sites ...fleet.SiteName) error {
		return m.CheckPlaces(t.Context(), Of{Project: project, By: by}, fleet.PlacementSpec{Sites: sites})
	}
	require.NoError(t, place("red", "red", "plant-1"))
	require.NoError(t, place("blue", "", "plant-1", "blue"))
	refused(t, place("red", "red", "plant-1", "blue"), fleet.NotFound, "/placement/sites/1")
	refused(t, place("red", "", "blue"), fleet.Invalid, "/placement/sites/0")
	refused(t, place("red", "", "A b"), fleet.Invalid, "/placement/sites/0")
}

// N106, M39: a name means the template that it meant before, and its generation is that of now unless it is given.
func TestPins(t *testing.T) {
	t.Parallel()
	r, m := newMemory()
	r.template("press", "default", `{}`)
	r.template("press", "default", `{"v":2}`)
	r.template("blue", "blue", `{}`)
	r.template("us/line", "default", `{}`)
	r.template("us/press", "default", `{}`)
	r.gone["us/gone"] = true
	for name, row := range map[string]struct {
		want, before, is fleet.TemplatePin
		by               fleet.ProjectName
		kind             fleet.Kind
	}{
		"the newest":                          {fleet.TemplatePin{Name: "press"}, fleet.TemplatePin{}, fleet.TemplatePin{Name: "press", Generation: 2}, "", ""},
		"one that is given":                   {fleet.TemplatePin{Name: "press", Generation: 1}, fleet.TemplatePin{}, fleet.TemplatePin{Name: "press", Generation: 1}, "", ""},
		"the only copy":                       {fleet.TemplatePin{Name: "line"}, fleet.TemplatePin{}, fleet.TemplatePin{Name: "us/line", Generation: 1}, "", ""},
		"the copy that it meant before":       {fleet.TemplatePin{Name: "press"}, fleet.TemplatePin{Name: "us/press", Generation: 1}, fleet.TemplatePin{Name: "us/press", Generation: 1}, "", ""},
		"another than before":                 {fleet.TemplatePin{Name: "press"}, fleet.TemplatePin{Name: "us/line", Generation: 1}, fleet.TemplatePin{Name: "press", Generation: 2}, "", ""},
		"missing":                             {fleet.TemplatePin{Name: "nothing"}, fleet.TemplatePin{}, fleet.TemplatePin{}, "", fleet.NotFound},
		"of another project":                  {fleet.TemplatePin{Name: "blue"}, fleet.TemplatePin{}, fleet.TemplatePin{}, "red", fleet.NotFound},
		"of the caller's project":             {fleet.TemplatePin{Name: "blue"}, fleet.TemplatePin{}, fleet.TemplatePin{Name: "blue", Generation: 1}, "blue", ""},
		"gone, as it was":                     {fleet.TemplatePin{Name: "us/gone"}, fleet.TemplatePin{Name: "us/gone", Generation: 3}, fleet.TemplatePin{Name: "us/gone", Generation: 3}, "red", ""},
		"gone, the generation as it was":      {fleet.TemplatePin{Name: "gone", Generation: 3}, fleet.TemplatePin{Name: "us/gone", Generation: 3}, fleet.TemplatePin{Name: "us/gone", Generation: 3}, "", ""},
		"gone, another generation":            {fleet.TemplatePin{Name: "us/gone", Generation: 4}, fleet.TemplatePin{Name: "us/gone", Generation: 3}, fleet.TemplatePin{}, "", fleet.IllegalState},
		"gone, only the name was":             {fleet.TemplatePin{Name: "us/gone"}, fleet.TemplatePin{Name: "us/gone"}, fleet.TemplatePin{}, "", fleet.IllegalState},
		"gone, for who may not know whose it": {fleet.TemplatePin{Name: "us/gone"}, fleet.TemplatePin{}, fleet.TemplatePin{}, "red", fleet.NotFound},
	} {
		pin, err := m.pin(t.Context(), Of{By: row.by}, row.want, row.before, "/template")
		if row.kind != "" {
			require.Error(t, err, name)
			refused(t, err, row.kind, "/template")
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, row.is, pin, name)
	}
}

// N106: the documents of a template are its own, then those of its compositions, each once per way to it.
func TestChain(t *testing.T) {
	t.Parallel()
	r, m := newMemory()
	common := r.template("common", "default", `{"a":1,"c":0}`)
	line := r.template("line", "default", `{"b":2}`, common)
	press := r.template("press", "default", `{"c":3}`, line, common)
	var c Chain
	generation, err := c.Add(t.Context(), m, fleet.TemplatePin{Name: "press"})
	require.NoError(t, err)
	require.Equal(t, press.Generation, generation)
	var names []string
	for _, l := range c.Layers {
		names = append(names, l.Name)
	}
	require.Equal(t, []string{"template press@1", "template line@1", "template common@1", "template common@1"}, names)
	require.Equal(t, []string{"/of/press", "/of/line", "/of/common", "/of/common"}, c.Secrets)
	require.EqualValues(t, len(`{"c":3}`)+len(`{"b":2}`)+2*len(`{"a":1,"c":0}`), WeightOf(c.Layers))

	r.specs[common] = fleet.TemplateSpec{Compositions: []fleet.TemplatePin{press}}
	_, err = (&Chain{}).Add(t.Context(), m, press)
	refused(t, err, fleet.Invalid, "/template")

	r.specs[common] = fleet.TemplateSpec{Compositions: slices.Repeat([]fleet.TemplatePin{{Name: "leaf", Generation: 1}}, compose.MaxLayers)}
	r.template("leaf", "default", `{}`)
	_, err = (&Chain{}).Add(t.Context(), m, common)
	require.Equal(t, compose.TooManyLayers().Error(), err.Error())
	r.specs[common] = fleet.TemplateSpec{Compositions: slices.Repeat([]fleet.TemplatePin{{Name: "leaf", Generation: 1}}, compose.MaxLayers-1)}
	_, err = (&Chain{}).Add(t.Context(), m, common)
	require.NoError(t, err)
}

// instance makes one as a PUT does.
func instance(t *testing.T, m *Maker, of Of, body string) (Instance, error) {
	t.Helper()
	i, err := ReadInstance([]byte(body), api.InstancePut{})
	if err == nil {
		err = m.Complete(t.Context(), of, fleet.SiteSpec{}, &i)
	}
	if err == nil {
		err = m.Fill(t.Context(), of.Project, &i)
	}
	return i, err
}

// N97, N106, X2: an instance gets its pins, bodies and hashes; what is only written is released as it would have been at once.
func TestInstances(t *testing.T) {
	t.Parallel()
	r, m := newMemory()
	r.template("press", "default", `{"v":1,"of":"press"}`)
	sum := compose.HashOf([]byte("bytes"))
	r.artifacts["red"], r.bodies[sum] = sum, []byte("bytes")
	content := func(text string) fleet.Content { return compose.ContentOf([]byte(text)) }
	for name, row := range map[string]struct {
		body string
		want fleet.Content
	}{
		"a config":    {`{"config":{"b":1.0,"a":2}}`, content(`{"a":2,"b":1}`)},
		"a template":  {`{"template":"press"}`, content(`{"of":"press","v":1}`)},
		"overrides":   {`{"template":"press","overrides":{"v":2,"of":null}}`, content(`{"v":2}`)},
		"an artifact": {fmt.Sprintf(`{"artifact":%q,"run":{"command":["x"]}}`, sum), fleet.Content{Kind: fleet.ContentArtifact, Hash: sum, Size: 5}},
	} {
		i, err := instance(t, m, ofInstance("red", ""), row.body)
		require.NoError(t, err, name)
		require.Equal(t, row.want, i.Content, name)
		c := i.Change(postgres.Write{Request: postgres.Request{Project: "red"}})
		require.Equal(t, row.want, c.Content, name)
		require.Equal(t, c.Spec.Run != nil, c.RunHash != "" && len(c.RunJSON) > 0, name)
		if row.want.Kind == fleet.ContentJSON {
			require.Contains(t, r.bodies, row.want.Hash, name)
		}
		switch {
		case i.Spec.Config != nil:
			require.Equal(t, row.want, *i.Spec.Config)
		case i.Spec.Artifact != nil:
			require.Equal(t, row.want, *i.Spec.Artifact)
		default:
			require.EqualValues(t, 1, i.Spec.TemplateGeneration)
		}
		spec, err := json.Marshal(i.Spec)
		require.NoError(t, err)
		again, err := m.Unreleased(t.Context(), "", fleet.Object{ObjectKey: fleet.InstanceKey("plant-1", "i"), Project: "red", Spec: spec})
		require.NoError(t, err, name)
		require.Equal(t, []any{i.Spec, i.Content, i.RunHash, string(i.RunJSON)}, []any{again.Spec, again.Content, again.RunHash, string(again.RunJSON)}, name)
	}

	t.Run("what is wrong", func(t *testing.T) {
		t.Parallel()
		_, err := instance(t, m, ofInstance("blue", ""), fmt.Sprintf(`{"artifact":%q}`, sum))
		refused(t, err, fleet.NotFound, "artifact")
		_, err = instance(t, m, ofInstance("red", ""), `{"template":"nothing"}`)
		refused(t, err, fleet.NotFound, "/template")
		_, err = m.Unreleased(t.Context(), "", fleet.Object{Spec: json.RawMessage(`{"enabled":"secret"}`)})
		require.Equal(t, fleet.Internal, fleet.KindOf(err))
		require.NotContains(t, err.Error(), "secret")
	})

	t.Run("what it is pinned to counts for who may see it", func(t *testing.T) {
		t.Parallel()
		r, m := newMemory()
		r.template("press", "default", `{}`)
		r.template("us/press", "default", `{}`)
		r.has(fleet.InstanceKey("plant-1", "i"), "", "red", fleet.InstanceSpec{Template: "us/press", TemplateGeneration: 1})
		seen, err := instance(t, m, ofInstance("red", "red"), `{"template":"press"}`)
		require.NoError(t, err)
		require.EqualValues(t, "us/press", seen.Spec.Template)
		now := r.objects[fleet.CopyKey{ObjectKey: fleet.InstanceKey("plant-1", "i")}]
		for _, known := range []*fleet.Object{nil, &now} {
			of := ofInstance("blue", "blue")
			of.Now = known
			unseen, err := instance(t, m, of, `{"template":"press"}`)
			require.NoError(t, err)
			require.EqualValues(t, "press", unseen.Spec.Template)
		}
	})
}

// M39, N106: a template is composed of templates of the region that created it, by the names that they have here.
func TestCompose(t *testing.T) {
	t.Parallel()
	r, m := newMemory()
	r.template("base", "default", `{}`)
	r.template("us/base", "default", `{}`)
	r.has(fleet.TemplateKey("press"), "us", "default", fleet.TemplateSpec{})
	of := func(region fleet.RegionName) Of {
		return Of{CopyKey: fleet.CopyKey{Region: region, ObjectKey: fleet.TemplateKey("press")}, Project: "default"}
	}
	made, err := ReadTemplate("press", []byte(`{"base":{"b":1.0},"compositions":["base"]}`), api.TemplatePut{})
	require.NoError(t, err)
	require.NoError(t, m.Compose(t.Context(), of("us"), &made))
	require.Equal(t, []fleet.TemplatePin{{Name: "us/base", Generation: 1}}, made.Spec.Compositions)
	require.NoError(t, m.KeepBase(t.Context(), "default", &made))
	require.Equal(t, compose.ContentOf([]byte(`{"b":1}`)), made.Spec.Base)

	delete(r.objects, fleet.CopyKey{Region: "us", ObjectKey: fleet.TemplateKey("press")})
	made.Spec.Compositions = []fleet.TemplatePin{{Name: "base"}}
	require.NoError(t, m.Compose(t.Context(), of(""), &made))
	require.Equal(t, []fleet.TemplatePin{{Name: "base", Generation: 1}}, made.Spec.Compositions)

	made.Spec.Compositions = []fleet.TemplatePin{{Name: "base"}, {Name: "nothing"}}
	refused(t, m.Compose(t.Context(), of(""), &made), fleet.NotFound, "/compositions/1")
}

// N98: a fleet change is pinned to one generation, and its patch is stored.
func TestFleetIsPinned(t *testing.T) {
	t.Parallel()
	r, m := newMemory()
	r.template("press", "default", `{}`)
	of := Of{CopyKey: fleet.CopyKey{ObjectKey: fleet.FleetKey("f")}, Project: "default"}
	read := func(change string) Fleet {
		f, err := ReadFleet([]byte(`{"change":`+change+`,"selector":{"labels":{"a":"b"}}}`), api.FleetPut{})
		require.NoError(t, err)
		return f
	}
	f := read(`{"template":"press"}`)
	require.NoError(t, m.Pin(t.Context(), of, &f))
	require.EqualValues(t, 1, f.Spec.Change.TemplateGeneration)
	require.NoError(t, m.KeepPatch(t.Context(), "default", &f))
	require.Nil(t, f.Spec.Change.Patch)
	f = read(`{"template":"press","templateGeneration":2}`)
	refused(t, m.Pin(t.Context(), of, &f), fleet.NotFound, "/change/templateGeneration")
	f = read(`{"patch":{"b":1.0}}`)
	require.NoError(t, m.Pin(t.Context(), of, &f))
	require.NoError(t, m.KeepPatch(t.Context(), "default", &f))
	require.Equal(t, compose.ContentOf([]byte(`{"b":1}`)), *f.Spec.Change.Patch)
	_, err := ReadFleet([]byte(`{"change":{"patch":{},"path":1},"selector":{}}`), api.FleetPut{})
	refused(t, err, fleet.Invalid, "/change/path")
}

// F51, S121: a deployment that is released later is the one that was declared.
func TestReleaseIsWhatWasDeclared(t *testing.T) {
	t.Parallel()
	r, m := newMemory()
	d, err := m.ReadDeployment([]byte(`{"command":["x"],"files":[{"path":"a.txt","content":"ä"}],"reason":"why"}`), api.DeploymentPut{})
	require.NoError(t, err)
	require.NoError(t, m.KeepDeployment(t.Context(), "red", d.Made))
	w := postgres.Write{Request: postgres.Request{Project: "red", Door: postgres.Door{Run: "r"}}}
	declared := d.Change(w)
	require.Equal(t, "why", declared.Reason)
	p, err := m.Release(t.Context(), w, declared.Spec)
	require.NoError(t, err)
	require.Equal(t, declared.Definition, p.Definition)
	require.Equal(t, []any{true, true, "r"}, []any{p.Deploy, p.Converge, p.Door.Run})

	delete(r.bodies, compose.HashOf([]byte("ä")))
	_, err = m.Release(t.Context(), w, declared.Spec)
	require.ErrorContains(t, err, "file a.txt")
	r.renames = true
	require.Equal(t, fleet.Internal, fleet.KindOf(m.KeepDeployment(t.Context(), "red", declare.Made{Definition: []byte("{}")})))
}

// X10: marks that were made later hold for what was made before.
func TestSecrets(t *testing.T) {
	t.Parallel()
	r, m := newMemory()
	pin := r.template("press", "default", `{}`)
	r.template("press", "default", `{"v":2}`)
	later := fleet.TemplatePin{Name: "press", Generation: 2}
	spec := r.specs[later]
	spec.Secrets = []string{"/later"}
	r.specs[later] = spec
	marks, templates, err := m.Secrets(t.Context(), fleet.InstanceSpec{Secrets: []string{"/own"}, Template: pin.Name, TemplateGeneration: 1},
		fleet.InstanceSpec{Template: pin.Name, TemplateGeneration: 1}, fleet.InstanceSpec{Secrets: []string{"/config"}})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"/own", "/config", "/later", "/of/press"}, marks)
	require.Equal(t, []fleet.TemplateName{"press"}, templates)
	_, _, err = m.Secrets(t.Context(), fleet.InstanceSpec{Template: "press", TemplateGeneration: 9})
	require.Equal(t, fleet.NotFound, fleet.KindOf(err))
	held := r.specs[pin]
	r.specs = map[fleet.TemplatePin]fleet.TemplateSpec{{Name: "press", Generation: 9}: held}
	marks, _, err = m.Secrets(t.Context(), fleet.InstanceSpec{Template: "press", TemplateGeneration: 9})
	require.NoError(t, err, "the template is gone, and the generation is held")
	require.Equal(t, []string{"/of/press"}, marks)
	_, _, err = m.With(broken{m}, r).Secrets(t.Context(), fleet.InstanceSpec{Template: "press", TemplateGeneration: 9})
	require.Equal(t, fleet.Unavailable, fleet.KindOf(err))

	require.Equal(t, []string{"/run/env/a~1b", "/process/env/a~1b"}, SecretEnvAt(json.RawMessage(`{"secretEnv":["a/b"]}`)))
	require.Empty(t, SecretEnvAt(json.RawMessage(`[]`)))
}

// deletedAt is when something was deleted.
var deletedAt = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// broken cannot read what templates are now.
type broken struct{ Reads }

func (b broken) TemplateSpec(ctx context.Context, name fleet.TemplateName, generation int64) (fleet.TemplateSpec, int64, error) {
	if generation == 0 {
		return fleet.TemplateSpec{}, 0, fleet.Errorf(fleet.Unavailable, "no database")
	}
	return b.Reads.TemplateSpec(ctx, name, generation)
}

// copying is a store with an object of this region and a copy.
type copying struct {
	Store
	missing fleet.Kind
}

func (c copying) GetObject(_ context.Context, k fleet.ObjectKey) (fleet.Object, error) {
	if c.missing != "" {
		return fleet.Object{}, fleet.Errorf(c.missing, "no object")
	}
	return fleet.Object{ObjectKey: k, UID: "here"}, nil
}

func (copying) GetCopy(_ context.Context, k fleet.CopyKey) (fleet.Object, error) {
	return fleet.Object{ObjectKey: k.ObjectKey, UID: "copy"}, nil
}

// M39: a name without a region also means the only copy, if the kind is shared and this region has no such object.
func TestStoredObjects(t *testing.T) {
	t.Parallel()
	project, template := fleet.ProjectKey("red"), fleet.TemplateKey("press")
	instance := fleet.InstanceKey("plant-1", "i")
	for name, row := range map[string]struct {
		missing fleet.Kind
		key     fleet.CopyKey
		want    string
	}{
		"here":                           {"", fleet.CopyKey{ObjectKey: project}, "here"},
		"here, by region":                {"", fleet.CopyKey{Region: "eu", ObjectKey: project}, "here"},
		"of another region":              {"", fleet.CopyKey{Region: "us", ObjectKey: project}, "copy"},
		"the only copy":                  {fleet.NotFound, fleet.CopyKey{ObjectKey: template}, "copy"},
		"not here, by region":            {fleet.NotFound, fleet.CopyKey{Region: "eu", ObjectKey: project}, "not_found"},
		"of a kind that is not shared":   {fleet.NotFound, fleet.CopyKey{ObjectKey: instance}, "not_found"},
		"while the database is not here": {fleet.Unavailable, fleet.CopyKey{ObjectKey: project}, "unavailable"},
	} {
		o, err := New(copying{missing: row.missing}, "eu", nil, nil, compose.Limits{}).Object(t.Context(), row.key)
		if err != nil {
			o.UID = string(fleet.KindOf(err))
		}
		require.Equal(t, row.want, o.UID, name)
	}
	limits := compose.Limits{MaxBytes: 1}
	require.Equal(t, limits, New(copying{}, "eu", nil, nil, limits).Limits)
	require.Equal(t, compose.DefaultLimits(), New(copying{}, "eu", nil, nil, compose.Limits{}).Limits)
}

// turning is a store for turns.
type turning struct {
	TurnStore
	views  map[string]deployments.DeploymentView
	object fleet.Object
	moves  int // how often another write comes first
	anew   bool
	puts   []deployments.DeploymentPut
	turns  []deployments.DeploymentTurn
	before int64
}

func (s *turning) GetObject(context.Context, fleet.ObjectKey) (fleet.Object, error) {
	if s.object.UID == "" {
		return s.object, fleet.Errorf(fleet.NotFound, "no such object")
	}
	s.object.ResourceVersion++
	if s.anew {
		s.object.UID += "'"
	}
	return s.object, nil
}

func (s *turning) ViewDeployments(context.Context, ...string) (map[string]deployments.DeploymentView, error) {
	return s.views, nil
}

func (s *turning) PutDeployment(_ context.Context, p deployments.DeploymentPut) (postgres.Started, error) {
	s.puts = append(s.puts, p)
	if s.moves--; s.moves >= 0 {
		return postgres.Started{}, fleet.Errorf(fleet.Precondition, "another write came first")
	}
	return postgres.Started{}, nil
}

func (s *turning) TurnDeployment(_ context.Context, t deployments.DeploymentTurn) (postgres.Started, error) {
	s.turns = append(s.turns, t)
	return postgres.Started{}, nil
}

func (s *turning) RevisionBefore(context.Context, fleet.DeploymentName) (int64, error) {
	return s.before, nil
}

func (s *turning) ListDeploymentRevisions(_ context.Context, _ fleet.DeploymentName, after postgres.Place, _ int32) ([]deployments.DeploymentRevision, error) {
	if after.ID != "3" {
		return nil, nil
	}
	return []deployments.DeploymentRevision{{Revision: 2, Spec: fleet.DeploymentSpec{Process: fleet.Process{Command: []string{"old"}}}.WithDefaults()}}, nil
}

func (s *turning) Repeated(_ context.Context, _ postgres.Write, refusal error) (postgres.Started, error) {
	return postgres.Started{}, refusal
}

// S121, F63, X2: a deploy of what was only written releases it, bound to what was read; any other turn is the store's.
func TestTurns(t *testing.T) {
	t.Parallel()
	key := fleet.DeploymentKey("web")
	setup := func(generation int64) (*turning, Turns) {
		_, m := newMemory()
		spec, err := json.Marshal(fleet.DeploymentSpec{Process: fleet.Process{Command: []string{"new"}}}.WithDefaults())
		require.NoError(t, err)
		s := &turning{
			object: fleet.Object{ObjectKey: key, UID: "u", Project: "red", Labels: map[string]string{"a": "b"}, Generation: 2, ResourceVersion: 7, Spec: spec}, before: 2,
			views: map[string]deployments.DeploymentView{"web": {UID: "u", Revision: 1, Generation: generation}},
		}
		return s, Turns{Maker: m, Store: s}
	}
	turn := deployments.DeploymentTurn{Write: postgres.Write{Key: key, Request: postgres.Request{Actor: "ann"}}, Kind: fleet.OperationConverge, Reason: "why"}

	s, by := setup(1)
	_, err := by.TurnDeployment(t.Context(), turn)
	require.NoError(t, err)
	require.Empty(t, s.turns)
	require.Equal(t, []any{fleet.ProjectName("red"), "b", int64(8), "why", "ann"}, []any{s.puts[0].Project, s.puts[0].Labels["a"], s.puts[0].IfMatch, s.puts[0].Reason, s.puts[0].Actor})

	for name, change := range map[string]func(*turning, *deployments.DeploymentTurn){
		"released": func(s *turning, _ *deployments.DeploymentTurn) {
			s.views["web"] = deployments.DeploymentView{UID: "u", Revision: 1, Generation: 2}
		},
		"a retry":       func(_ *turning, t *deployments.DeploymentTurn) { t.Again = true },
		"a restart":     func(_ *turning, t *deployments.DeploymentTurn) { t.Kind = fleet.OperationRestart },
		"being deleted": func(s *turning, _ *deployments.DeploymentTurn) { at := deletedAt; s.object.DeletingSince = &at },
		"none":          func(s *turning, _ *deployments.DeploymentTurn) { s.object = fleet.Object{} },
	} {
		s, by := setup(1)
		ask := turn
		change(s, &ask)
		_, err := by.TurnDeployment(t.Context(), ask)
		require.NoError(t, err, name)
		require.Empty(t, s.puts, name)
		require.Len(t, s.turns, 1, name)
	}

	for name, view := range map[string]deployments.DeploymentView{
		"never released": {UID: "u", Generation: 2}, "of one before": {UID: "v", Revision: 1, Generation: 2},
	} {
		s, by := setup(1)
		s.views["web"] = view
		_, err := by.TurnDeployment(t.Context(), turn)
		require.NoError(t, err, name)
		require.Len(t, s.puts, 1, name)
	}

	t.Run("another write comes first", func(t *testing.T) {
		t.Parallel()
		s, by := setup(1)
		s.moves = 2
		_, err := by.TurnDeployment(t.Context(), turn)
		require.NoError(t, err)
		require.Len(t, s.puts, 3)
		require.EqualValues(t, 10, s.puts[2].IfMatch, "bound to what was read last")

		s, by = setup(1)
		s.moves = 100
		_, err = by.TurnDeployment(t.Context(), turn)
		require.Equal(t, fleet.Precondition, fleet.KindOf(err))
		require.Len(t, s.puts, readAgain+1)

		s, by = setup(1)
		s.moves = 1
		bound := turn
		bound.IfMatch = 7
		_, err = by.TurnDeployment(t.Context(), bound)
		require.Equal(t, fleet.Precondition, fleet.KindOf(err))
		require.Len(t, s.puts, 1)
		require.EqualValues(t, 7, s.puts[0].IfMatch)

		s, by = setup(1)
		s.moves, s.anew = 1, true
		_, err = by.TurnDeployment(t.Context(), turn)
		require.ErrorContains(t, err, "was declared anew")
	})

	t.Run("back to an earlier revision", func(t *testing.T) {
		t.Parallel()
		for _, revision := range []int64{0, 2} {
			s, by := setup(2)
			back := turn
			back.Reason = ""
			_, err := by.RollBackDeployment(t.Context(), back, revision)
			require.NoError(t, err)
			require.Equal(t, []string{"old"}, s.puts[0].Spec.Process.Command)
			require.Equal(t, "back to revision 2", s.puts[0].Reason)
		}
		s, by := setup(2)
		s.moves = 1
		_, err := by.RollBackDeployment(t.Context(), turn, 0)
		require.Equal(t, fleet.Precondition, fleet.KindOf(err), "after another write, the one before may be another")
		s, by = setup(2)
		s.moves = 1
		_, err = by.RollBackDeployment(t.Context(), turn, 2)
		require.NoError(t, err)
		require.Len(t, s.puts, 2)
		for revision, kind := range map[int64]fleet.Kind{-1: fleet.Invalid, 1: fleet.NotFound, 3: fleet.NotFound} {
			_, err := by.RollBackDeployment(t.Context(), turn, revision)
			refused(t, err, kind, "/revision")
		}
		s.object = fleet.Object{}
		_, err = by.RollBackDeployment(t.Context(), turn, 2)
		require.Equal(t, fleet.NotFound, fleet.KindOf(err))
	})
}

// N107: an instance that is being deleted has nothing to release.
func TestUnreleasedInstance(t *testing.T) {
	t.Parallel()
	r, m := newMemory()
	text := []byte(`{"a":1}`)
	content := compose.ContentOf(text)
	r.bodies[content.Hash] = text
	spec, err := json.Marshal(fleet.InstanceSpec{Config: &content, Enabled: true})
	require.NoError(t, err)
	s := &turning{object: fleet.Object{ObjectKey: fleet.InstanceKey("plant-1", "i"), UID: "u", Project: "red", Labels: map[string]string{"a": "b"}, Spec: spec}}
	by := Turns{Maker: m, Store: s}
	c, err := by.UnreleasedInstance(t.Context(), postgres.Write{Key: s.object.ObjectKey})
	require.NoError(t, err)
	require.Equal(t, []any{fleet.ProjectName("red"), "b", true, content}, []any{c.Project, c.Labels["a"], c.Release, c.Content})
	at := deletedAt
	s.object.DeletingSince = &at
	c, err = by.UnreleasedInstance(t.Context(), postgres.Write{Key: s.object.ObjectKey})
	require.NoError(t, err)
	require.Nil(t, c)
	s.object = fleet.Object{}
	_, err = by.UnreleasedInstance(t.Context(), postgres.Write{})
	require.Equal(t, fleet.NotFound, fleet.KindOf(err))
}
