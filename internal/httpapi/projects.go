package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

type putProjectInput struct {
	NameParam
	ObjectParams
}

func (s *server) mountProjects(fleet.DeclaredKind) {
	op := serve.Endpoint(http.MethodPut, "/api/v1/projects/{name}", "put-project", "Declare a project")
	serve.Register(s.Server, serve.ForAdmins, op, s.putProject)
	serve.Takes[api.ProjectPut](s.Server, op)
}

func (s *server) putProject(ctx context.Context, in *putProjectInput) (*acceptedOutput, error) {
	if err := fleet.ValidateName("name", in.Name); err != nil {
		return nil, err
	}
	var put api.ProjectPut
	raw, err := s.ReadOptional(ctx, &put)
	if err != nil {
		return nil, err
	}
	if err := fleet.ValidateLabels("/labels", put.Labels); err != nil {
		return nil, err
	}
	spec, err := declare.Project(in.Name, put)
	if err != nil {
		return nil, err
	}
	w, err := s.write(ctx, fleet.ObjectKey{Kind: fleet.KindProject, Name: in.Name}, in.ObjectParams, raw)
	if err != nil {
		return nil, err
	}
	w.Project, w.Labels = fleet.ProjectName(in.Name), put.Labels
	written, err := s.store.Declare(ctx, w, spec)
	if err != nil {
		return nil, err
	}
	s.wakePolicy(ctx, written, in.MutationParams)
	return declared(written, in.MutationParams), nil
}
