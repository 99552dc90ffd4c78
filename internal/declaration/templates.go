package declaration

import (
	"context"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Template is a declared template on its way to the store.
type Template struct {
	Put  api.TemplatePut
	Base []byte // as it was sent
	Spec fleet.TemplateSpec
}

// ReadTemplate reads the body of a PUT, whose project is put's where it names none.
func ReadTemplate(name string, raw []byte, put api.TemplatePut) (t Template, err error) {
	t.Put = put
	if err := decode.Envelope(raw, map[string]*[]byte{"base": &t.Base}, &t.Put); err != nil {
		return t, err
	}
	if err := fleet.ValidateLabels("/labels", t.Put.Labels); err != nil {
		return t, err
	}
	t.Spec, err = declare.Template(name, t.Put, t.Base)
	return t, err
}

// Compose pins what a template is composed of to the generations of now. A plain name is one of the region that created the template.
func (m *Maker) Compose(ctx context.Context, of Of, t *Template) error {
	if len(t.Spec.Compositions) == 0 {
		return nil
	}
	now, err := m.now(ctx, of)
	if err != nil {
		return err
	}
	for i, r := range t.Spec.References() {
		name := PartOf(now, string(t.Spec.Compositions[i].Name))
		pin, err := m.pin(ctx, of, fleet.TemplatePin{Name: name}, fleet.CompositionOf(now, name), r.Field)
		if err != nil {
			return err
		}
		t.Spec.Compositions[i] = pin
	}
	return nil
}

// KeepBase stores the base of a template.
func (m *Maker) KeepBase(ctx context.Context, project fleet.ProjectName, t *Template) (err error) {
	t.Spec.Base, err = m.Canonical(ctx, project, compose.Layer{Name: "/base", JSON: t.Base})
	return err
}

// PartOf is the name here of what a template is composed of.
func PartOf(now fleet.Object, name string) fleet.TemplateName {
	if _, _, copied := fleet.TemplateName(name).Copy(); now.Region != "" && !copied {
		return fleet.CopiedTemplate(now.Region, name)
	}
	return fleet.TemplateName(name)
}

// pin finds the template that a field names, for a spec that is pinned to before now (a name, if any generation will do). Without a
// generation it is the one of now. A plain name keeps the template that it meant before, also when this region has one of that name
// since. If the copy of a template is gone, its pins stay as they are.
func (m *Maker) pin(ctx context.Context, of Of, want, before fleet.TemplatePin, field string) (fleet.TemplatePin, error) {
	if before.Name.Is(want.Name) {
		want.Name = before.Name
	}
	name, o, err := m.Template(ctx, want.Name)
	missing := fleet.NoPlace(fleet.TemplateKey(string(want.Name)), field)
	switch kind := fleet.KindOf(err); {
	case kind == fleet.IllegalState && before.Name == want.Name && before.Generation > 0 && (want.Generation == 0 || want.Generation == before.Generation):
		return before, nil
	case (kind == fleet.IllegalState || kind == fleet.Conflict) && of.By != "":
		return want, missing // whose it was, or which of them the caller may use, is not known
	case kind == fleet.NotFound, err == nil && !of.uses(o.Project):
		return want, missing
	case err != nil:
		return want, at(field, err)
	}
	if want.Name = name; want.Generation == 0 {
		want.Generation = o.Generation
	}
	return want, nil
}

// pinNow is pin for an object that is pinned to one template.
func (m *Maker) pinNow(ctx context.Context, of Of, want fleet.TemplatePin, field string) (fleet.TemplatePin, error) {
	now, err := m.now(ctx, of)
	if err != nil {
		return want, err
	}
	return m.pin(ctx, of, want, fleet.PinOf(now), field)
}
