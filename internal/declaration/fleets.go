package declaration

import (
	"context"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Fleet is a declared fleet change on its way to the store.
type Fleet struct {
	Put   api.FleetPut
	Spec  fleet.FleetSpec
	Patch []byte // as it was sent
}

// ReadFleet reads the body of a PUT, whose project is put's where it names none.
func ReadFleet(raw []byte, put api.FleetPut) (f Fleet, err error) {
	f.Put = put
	var change []byte
	if err := decode.Envelope(raw, map[string]*[]byte{"change": &change}, &f.Put); err != nil {
		return f, err
	}
	if change != nil { // else it is refused with the spec
		if err := decode.Below("/change", decode.Envelope(change, map[string]*[]byte{"patch": &f.Patch}, &f.Put.Change)); err != nil {
			return f, err
		}
	}
	f.Spec, err = declare.Fleet(f.Put, f.Patch)
	return f, err
}

// Pin fixes the generation of the template, so that all instances get the same.
func (m *Maker) Pin(ctx context.Context, of Of, f *Fleet) error {
	change := &f.Spec.Change
	if change.Template == "" {
		return nil
	}
	pin, err := m.pinNow(ctx, of, fleet.TemplatePin{Name: change.Template, Generation: change.TemplateGeneration}, "/change/template")
	if err != nil {
		return err
	}
	change.Template, change.TemplateGeneration = pin.Name, pin.Generation
	_, _, err = m.TemplateSpec(ctx, pin.Name, pin.Generation)
	return decode.Below("/change", err)
}

// KeepPatch stores the patch of a fleet change.
func (m *Maker) KeepPatch(ctx context.Context, project fleet.ProjectName, f *Fleet) error {
	if f.Patch == nil {
		return nil
	}
	content, err := m.Canonical(ctx, project, compose.Layer{Name: "/change/patch", JSON: f.Patch})
	f.Spec.Change.Patch = &content
	return err
}
