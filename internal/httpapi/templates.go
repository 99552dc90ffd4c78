package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

type putTemplateInput struct {
	NameParam
	ObjectParams
	Project string `query:"project" maxLength:"63" format:"name" doc:"where the body names none"`
}

func (s *server) mountTemplates(fleet.DeclaredKind) {
	op := serve.Endpoint(http.MethodPut, "/api/v1/templates/{name}", "put-template", "Declare a template; no instance changes by it")
	serve.Register(s.Server, serve.ForOperators, op, s.putTemplate)
	serve.Takes[api.TemplatePut](s.Server, op)
}

func (s *server) putTemplate(ctx context.Context, in *putTemplateInput) (out *acceptedOutput, err error) {
	if err := fleet.ValidateName("name", in.Name); err != nil {
		return nil, err
	}
	err = s.WithBody(ctx, s.Largest, func(raw []byte) error {
		out, err = s.templateFrom(ctx, in, raw)
		return err
	})
	return out, err
}

func (s *server) templateFrom(ctx context.Context, in *putTemplateInput, raw []byte) (*acceptedOutput, error) {
	put := api.TemplatePut{Project: in.Project}
	var base []byte
	if err := serve.Envelope(raw, map[string]*[]byte{"base": &base}, &put); err != nil {
		return nil, err
	}
	if err := fleet.ValidateLabels("/labels", put.Labels); err != nil {
		return nil, err
	}
	key := fleet.TemplateKey(in.Name)
	spec, err := s.compositions(ctx, fleet.CopyKey{Region: fleet.RegionName(in.Region), ObjectKey: key}, put, base)
	if err != nil {
		return nil, err
	}
	w, err := s.write(ctx, key, in.ObjectParams, raw)
	if err != nil {
		return nil, err
	}
	if w.Project, err = s.projectOf(ctx, put.Project, w.Region); err != nil {
		return nil, err
	}
	w.Labels, w.Service = put.Labels, put.Service
	if spec.Base, err = s.canonical(ctx, w.Project, compose.Layer{Name: "/base", JSON: base}); err != nil {
		return nil, err
	}
	written, err := s.store.Declare(ctx, w, spec)
	if err != nil {
		return nil, err
	}
	return declared(written, in.MutationParams), nil
}

// compositions checks what a template refers to before anything is stored; the store pins
// the generations. A plain name is one of the region that created the template.
func (s *server) compositions(ctx context.Context, self fleet.CopyKey, put api.TemplatePut, base []byte) (fleet.TemplateSpec, error) {
	spec, err := declare.Template(self.Name, put, base)
	if err != nil {
		return spec, err
	}
	if len(spec.Compositions) == 0 {
		return spec, nil
	}
	now, err := s.now(ctx, self)
	if err != nil {
		return spec, err
	}
	for i, r := range spec.References() {
		name := spec.Compositions[i].Name
		if _, _, copied := name.Copy(); now.Region != "" && !copied {
			name = fleet.CopiedTemplate(now.Region, string(name))
		}
		pin, err := s.pin(ctx, fleet.TemplatePin{Name: name}, fleet.CompositionOf(now, name), r.Field)
		if err != nil {
			return spec, err
		}
		spec.Compositions[i].Name = pin.Name
	}
	return spec, nil
}

// usable refuses an object that is missing, or of a project that the caller's objects may
// not refer to.
func (s *server) usable(ctx context.Context, r fleet.Reference) error {
	if err := fleet.ValidateName(r.Field, r.Key.Name); err != nil {
		return err
	}
	o, err := s.store.GetObject(ctx, r.Key)
	if fleet.KindOf(err) == fleet.NotFound || err == nil && !serve.CallOf(ctx).Uses(o.Project) {
		return fleet.NoPlace(r.Key, r.Field)
	}
	return err
}
