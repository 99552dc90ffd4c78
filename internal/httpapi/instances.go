package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/declare"
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
func (s *server) changeFrom(ctx context.Context, key fleet.ObjectKey, in *putInstanceInput, raw []byte) (deliveries.InstanceChange, error) {
	c := deliveries.InstanceChange{Release: in.Deploy}
	put := api.InstancePut{Project: in.Project}
	var doc declare.Documents
	if err := serve.Envelope(raw, map[string]*[]byte{"config": &doc.Config, "overrides": &doc.Overrides}, &put); err != nil {
		return c, err
	}
	var err error
	if c.Write, err = s.write(ctx, key, in.ObjectParams, raw); err != nil {
		return c, err
	}
	site, err := s.siteFor(ctx, key)
	if err != nil {
		return c, err
	}
	if c.Project, err = s.projectOf(ctx, put.Project, c.Region); err != nil {
		return c, err
	}
	c.Labels, c.Service, c.Reason = put.Labels, put.Service, put.Reason
	if c.Spec, err = declare.Instance(put, doc, site); err != nil {
		return c, err
	}
	if c.RunJSON, c.RunHash, err = declare.RunSection(c.Spec.Run, c.Project); err != nil {
		return c, err
	}
	return c, s.fillContent(ctx, &c, doc)
}

// fillContent stores the bodies of a spec, and gives it and its revision their hashes.
func (s *server) fillContent(ctx context.Context, c *deliveries.InstanceChange, doc declare.Documents) error {
	if c.Spec.Config != nil {
		content, err := s.canonical(ctx, c.Project, compose.Layer{Name: "/config", JSON: doc.Config})
		c.Spec.Config, c.Content = &content, content
		return err
	}
	if err := s.pinInstance(ctx, c); err != nil {
		return err
	}
	if doc.Overrides != nil {
		content, err := s.canonical(ctx, c.Project, compose.Layer{Name: "/overrides", JSON: doc.Overrides})
		if err != nil {
			return err
		}
		c.Spec.Overrides = &content
	}
	return s.contentOf(ctx, c)
}

// resolve gives a change the content that its spec stands for, from what is stored.
func (s *server) resolve(ctx context.Context, c *deliveries.InstanceChange) error {
	if c.Spec.Config != nil {
		c.Content = *c.Spec.Config
		return nil
	}
	if err := s.pinInstance(ctx, c); err != nil {
		return err
	}
	return s.contentOf(ctx, c)
}

// contentOf gives a change the content of its artifact, or of its pinned template with its overrides.
func (s *server) contentOf(ctx context.Context, c *deliveries.InstanceChange) error {
	if c.Spec.Artifact != nil {
		size, err := s.store.BodySize(ctx, c.Project, c.Spec.Artifact.Hash)
		if err != nil {
			return err
		}
		c.Content = fleet.Content{Kind: fleet.ContentArtifact, Hash: c.Spec.Artifact.Hash, Size: size}
		c.Spec.Artifact = &c.Content
		return nil
	}
	layers, _, err := s.templateChain(ctx, c.Spec.Template, c.Spec.TemplateGeneration)
	if err != nil {
		return err
	}
	if o := c.Spec.Overrides; o != nil {
		layers = append(layers, storedLayer{name: "/overrides", hash: o.Hash, size: o.Size})
	}
	c.Content, err = s.merged(ctx, c.Project, layers)
	return err
}

// siteFor reads the site of an instance. A project's token may not place anything on the
// nodes of another project.
func (s *server) siteFor(ctx context.Context, key fleet.ObjectKey) (fleet.SiteSpec, error) {
	var spec fleet.SiteSpec
	o, err := s.store.GetObject(ctx, fleet.ObjectKey{Kind: fleet.KindSite, Name: key.Scope})
	if fleet.KindOf(err) == fleet.NotFound || err == nil && !serve.CallOf(ctx).Uses(o.Project) {
		return spec, fleet.Errorf(fleet.NotFound, "site %s not found", key.Scope).At("site").
			WithHint("declare it first: PUT /api/v1/sites/" + key.Scope)
	}
	if err != nil {
		return spec, err
	}
	return spec, json.Unmarshal(o.Spec, &spec)
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
