package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

// CreateParams come with a PUT that may be for a new object only.
type CreateParams struct {
	IfNoneMatch string `header:"If-None-Match" doc:"* for an object that must not exist yet"`
}

// bind has a write refused where there is such an object already.
func (p CreateParams) bind(w *postgres.Write) error {
	switch {
	case p.IfNoneMatch == "":
		return nil
	case p.IfNoneMatch != "*":
		return fleet.Errorf(fleet.Invalid, "invalid If-None-Match: want *").At("If-None-Match").WithHint("to change an existing object, use If-Match")
	case w.IfMatch != 0:
		return fleet.Errorf(fleet.Invalid, "If-Match and If-None-Match exclude each other").At("If-None-Match").WithHint("send only one of them")
	}
	w.IfMatch = postgres.NoVersion
	return nil
}

type putDeploymentInput struct {
	NameParam
	ObjectParams
	CreateParams
	Deploy  bool   `query:"deploy" default:"true" doc:"false writes the spec and releases nothing"`
	Project string `query:"project" maxLength:"63" format:"name" doc:"where the body names none"`
}

type listDeploymentsInput struct {
	ListParams
	RegionParam
	Ended bool `query:"ended" doc:"only those that have ended and are declared no more, as long as their record is kept"`
}

const deploymentPath = "/api/v1/deployments/{name}"

func (s *server) mountDeployments(fleet.DeclaredKind) {
	put := serve.Endpoint(http.MethodPut, deploymentPath, "put-deployment", "Declare a deployment and have it run")
	put.DefaultStatus = http.StatusAccepted
	serve.Register(s.Server, serve.ForOperators, put, s.putDeployment)
	serve.Takes[api.DeploymentPut](s.Server, put)
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, deploymentPath, "get-deployment", "Read a deployment"),
		func(ctx context.Context, in *getObjectInput) (*objectOutput, error) {
			return s.getObject(ctx, fleet.CopyKey{Region: fleet.RegionName(in.Region), ObjectKey: deploymentKey(in.Name)}, s.deploymentStatuses)
		})
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, "/api/v1/deployments", "list-deployments", "List deployments"),
		func(ctx context.Context, in *listDeploymentsInput) (*objectsOutput, error) {
			if in.Ended {
				return s.listEnded(ctx, in.ListParams)
			}
			return s.listObjects(ctx, fleet.CopyKey{Region: fleet.RegionName(in.Region), ObjectKey: fleet.ObjectKey{Kind: fleet.KindDeployment}}, in.ListParams, s.deploymentStatuses)
		})
	s.mountDeploymentReads()
	s.mountReplicas()
	s.mountExplain()
}

// listEnded lists what is left of deployments that ended: no spec, and where they stood (S118).
func (s *server) listEnded(ctx context.Context, in ListParams) (*objectsOutput, error) {
	project, err := listProject(ctx, in.Project)
	if err != nil {
		return nil, err
	}
	after, err := placeOf(in.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListEndedDeployments(ctx, project, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, func(d deployments.EndedDeployment) string { return string(d.Name) })
	objects := make([]fleet.Object, len(cut.Items))
	for i, d := range cut.Items {
		objects[i] = fleet.Object{
			ObjectKey: fleet.DeploymentKey(d.Name), UID: d.UID, Project: d.Project, UpdatedAt: d.EndedAt, Spec: json.RawMessage(`{}`), Syncing: json.RawMessage(`{}`),
		}
	}
	views, err := shownWith(ctx, objects, s.deploymentStatuses)
	return &objectsOutput{Body: api.List[api.Object]{Items: views, Next: cut.Next}}, err
}

func deploymentKey(name string) fleet.ObjectKey {
	return fleet.DeploymentKey(fleet.DeploymentName(name))
}

func (s *server) putDeployment(ctx context.Context, in *putDeploymentInput) (out *acceptedOutput, err error) {
	if err := fleet.ValidateName("name", in.Name); err != nil {
		return nil, err
	}
	err = s.WithBody(ctx, declare.MaxDeployment, func(raw []byte) error {
		p, err := s.deploymentFrom(ctx, in, raw)
		if err != nil {
			return err
		}
		started, err := s.store.PutDeployment(ctx, p)
		if err != nil {
			return err
		}
		out = s.startedOutput(ctx, started, in.MutationParams)
		return nil
	})
	return out, err
}

// deploymentFrom makes the store's change of a request: everything is checked, and its bodies
// are stored, before the transaction begins.
func (s *server) deploymentFrom(ctx context.Context, in *putDeploymentInput, raw []byte) (p deployments.DeploymentPut, err error) {
	d, err := s.maker.ReadDeployment(raw, api.DeploymentPut{Project: in.Project})
	if err != nil {
		return p, err
	}
	w, of, err := s.declare(ctx, deploymentKey(in.Name), in.ObjectParams, raw, beside{d.Put.Project, d.Put.Service, d.Put.Labels})
	if err != nil {
		return p, err
	}
	if err := in.bind(&w); err != nil {
		return p, err
	}
	if err := s.maker.CheckPlaces(ctx, of, d.Spec.Placement); err != nil {
		return p, err
	}
	p = d.Change(w)
	p.Deploy = in.Deploy
	return p, s.maker.KeepDeployment(ctx, w.Project, d.Made)
}
