package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declaration"
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
	t, err := declaration.ReadTemplate(in.Name, raw, api.TemplatePut{Project: in.Project})
	if err != nil {
		return nil, err
	}
	w, of, err := s.declare(ctx, fleet.TemplateKey(in.Name), in.ObjectParams, raw, beside{t.Put.Project, t.Put.Service, t.Put.Labels})
	if err != nil {
		return nil, err
	}
	if err := s.maker.Compose(ctx, of, &t); err != nil {
		return nil, err
	}
	if err := s.maker.KeepBase(ctx, w.Project, &t); err != nil {
		return nil, err
	}
	written, err := s.store.Declare(ctx, w, t.Spec)
	if err != nil {
		return nil, err
	}
	return declared(written, in.MutationParams), nil
}
