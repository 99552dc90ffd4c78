package httpapi

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
)

// pin finds the template that a field names, for a spec that is pinned to before now (a name, if any generation will do). Without a generation it is the one of
// now. A plain name keeps the template that it meant before, also when this region has one of that name since. If the copy of a
// template is gone, its pins stay as they are.
func (s *server) pin(ctx context.Context, want, before fleet.TemplatePin, field string) (fleet.TemplatePin, error) {
	if before.Name.Is(want.Name) {
		want.Name = before.Name
	}
	name, o, err := s.store.Template(ctx, want.Name)
	missing := fleet.NoPlace(fleet.TemplateKey(string(want.Name)), field)
	switch kind := fleet.KindOf(err); {
	case kind == fleet.IllegalState && before.Name == want.Name && before.Generation > 0 && (want.Generation == 0 || want.Generation == before.Generation):
		return before, nil
	case (kind == fleet.IllegalState || kind == fleet.Conflict) && serve.CallOf(ctx).Project != "":
		return want, missing // whose it was, or which of them the caller may use, is not known
	case kind == fleet.NotFound, err == nil && !serve.CallOf(ctx).Uses(o.Project):
		return want, missing
	case err != nil:
		var e *fleet.Error
		if errors.As(err, &e) {
			err = e.At(field)
		}
		return want, err
	}
	if want.Name = name; want.Generation == 0 {
		want.Generation = o.Generation
	}
	return want, nil
}

// pinned is what an object is pinned to now.
func (s *server) pinned(ctx context.Context, key fleet.ObjectKey) (fleet.TemplatePin, error) {
	o, err := s.now(ctx, fleet.CopyKey{ObjectKey: key})
	return fleet.PinOf(o), err
}

// now is what a write of a name would change, empty if there is nothing.
func (s *server) now(ctx context.Context, key fleet.CopyKey) (fleet.Object, error) {
	o, err := s.named(ctx, key)
	if fleet.KindOf(err) == fleet.NotFound {
		return fleet.Object{ObjectKey: key.ObjectKey}, nil
	}
	return o, err
}

// pinInstance fixes the template and its generation, if the instance has one.
func (s *server) pinInstance(ctx context.Context, c *deliveries.InstanceChange) error {
	if c.Spec.Template == "" {
		return nil
	}
	before, err := s.pinned(ctx, c.Key)
	if err != nil {
		return err
	}
	pin, err := s.pin(ctx, fleet.TemplatePin{Name: c.Spec.Template, Generation: c.Spec.TemplateGeneration}, before, "/template")
	c.Spec.Template, c.Spec.TemplateGeneration = pin.Name, pin.Generation
	return err
}

// pinFleet fixes the generation of the template, so that all instances get the same.
func (s *server) pinFleet(ctx context.Context, key fleet.ObjectKey, change *fleet.FleetChange) error {
	if change.Template == "" {
		return nil
	}
	before, err := s.pinned(ctx, key)
	if err != nil {
		return err
	}
	pin, err := s.pin(ctx, fleet.TemplatePin{Name: change.Template, Generation: change.TemplateGeneration}, before, "/change/template")
	if err != nil {
		return err
	}
	change.Template, change.TemplateGeneration = pin.Name, pin.Generation
	_, _, err = s.store.TemplateSpec(ctx, pin.Name, pin.Generation)
	return decode.Below("/change", err)
}
