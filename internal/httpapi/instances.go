package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declaration"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
)

// InstanceParams name an instance of a site.
type InstanceParams struct {
	Site string `path:"site"`
	Name string `path:"name"`
}

func (p InstanceParams) key() (fleet.ObjectKey, error) {
	key := fleet.InstanceKey(fleet.SiteName(p.Site), fleet.InstanceName(p.Name))
	if err := fleet.ValidateName("site", p.Site); err != nil {
		return key, err
	}
	return key, fleet.ValidateName("name", p.Name)
}

func (p InstanceParams) keyOf(fleet.ObjectKind) (fleet.ObjectKey, error) { return p.key() }

type putInstanceInput struct {
	InstanceParams
	ObjectParams
	Deploy  bool   `query:"deploy" default:"true" doc:"false writes the spec and releases nothing"`
	Project string `query:"project" maxLength:"63" format:"name" doc:"where the body names none"`
}

type getInstanceInput struct {
	InstanceParams
	RegionParam
	serve.InProject
}

type listInstancesInput struct {
	Site string `path:"site"`
	ListParams
	RegionParam
}

const instancePath = "/api/v1/sites/{site}/instances/{name}"

func (s *server) mountInstances(fleet.DeclaredKind) {
	put := serve.Endpoint(http.MethodPut, instancePath, "put-instance", "Declare an instance and start its delivery")
	put.DefaultStatus = http.StatusAccepted
	serve.Register(s.Server, serve.ForOperators, put, s.putInstance)
	serve.Takes[api.InstancePut](s.Server, put)
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, instancePath, "get-instance", "Read an instance"), s.getInstance)
	serve.Register(s.Server, serve.ForViewers, serve.Endpoint(http.MethodGet, "/api/v1/sites/{site}/instances", "list-instances", "List the instances of a site"), s.listInstances)
	s.mountInstanceReads()
}

func (s *server) getInstance(ctx context.Context, in *getInstanceInput) (*objectOutput, error) {
	key, err := in.key()
	if err != nil {
		return nil, err
	}
	return s.getObject(ctx, fleet.CopyKey{Region: fleet.RegionName(in.Region), ObjectKey: key}, s.instanceStatuses)
}

func (s *server) listInstances(ctx context.Context, in *listInstancesInput) (*objectsOutput, error) {
	if err := fleet.ValidateName("site", in.Site); err != nil {
		return nil, err
	}
	of := fleet.CopyKey{Region: fleet.RegionName(in.Region), ObjectKey: fleet.InstanceKey(fleet.SiteName(in.Site), "")}
	if in.Region != "" && of.Region != s.region {
		return s.listObjects(ctx, of, in.ListParams, nil)
	}
	key := fleet.ObjectKey{Kind: fleet.KindSite, Name: in.Site}
	site, err := s.store.GetObject(ctx, key)
	if err != nil {
		return nil, err
	}
	out, err := s.listObjects(ctx, of, in.ListParams, s.instanceStatuses)
	if err == nil && len(out.Body.Items) == 0 && !serve.CallOf(ctx).Uses(site.Project) {
		return nil, fleet.NoObject(key) // a site that the caller may not use, and has nothing at
	}
	return out, err
}

func (s *server) putInstance(ctx context.Context, in *putInstanceInput) (out *acceptedOutput, err error) {
	key, err := in.key()
	if err != nil {
		return nil, err
	}
	err = s.WithBody(ctx, s.Largest, func(raw []byte) error {
		change, err := s.changeFrom(ctx, key, in, raw)
		if err != nil {
			return err
		}
		started, err := s.store.PutInstance(ctx, change)
		if err != nil {
			return err
		}
		out = s.startedOutput(ctx, started, in.MutationParams)
		return nil
	})
	return out, err
}

// changeFrom makes the store's change of a request: everything is checked, and its bodies
// are stored, before the transaction begins.
func (s *server) changeFrom(ctx context.Context, key fleet.ObjectKey, in *putInstanceInput, raw []byte) (c deliveries.InstanceChange, err error) {
	i, err := declaration.ReadInstance(raw, api.InstancePut{Project: in.Project})
	if err != nil {
		return c, err
	}
	w, of, err := s.declare(ctx, key, in.ObjectParams, raw, beside{i.Put.Project, i.Put.Service, i.Put.Labels})
	if err != nil {
		return c, err
	}
	site, err := s.maker.Site(ctx, of)
	if err != nil {
		return c, err
	}
	if err := s.maker.Complete(ctx, of, site, &i); err != nil {
		return c, err
	}
	if err := s.maker.Fill(ctx, w.Project, &i); err != nil {
		return c, err
	}
	c = i.Change(w)
	c.Release = in.Deploy
	return c, nil
}

// answer says what a write came to, and wakes the entity that has work.
func (s *server) answer(ctx context.Context, st postgres.Started) *api.Accepted {
	return &s.startedOutput(ctx, st, MutationParams{}).Body
}

// startedOutput answers a change of an instance, and wakes the entity when it has work.
func (s *server) startedOutput(ctx context.Context, st postgres.Started, m MutationParams) *acceptedOutput {
	out := declared(st.Written, m)
	out.Body.Changes = st.Changes
	if st.Operation == nil {
		return out
	}
	view := s.operationView(*st.Operation)
	out.Body.Operation = &view
	if m.DryRun {
		view.ID = "" // it was rolled back and can never be read
		return out
	}
	out.Status, out.Location = http.StatusAccepted, "/api/v1/operations/"+view.ID
	s.wake(ctx, st.Operation.Subject)
	return out
}
