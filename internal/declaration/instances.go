package declaration

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
)

// Instance is a declared instance on its way to the store.
type Instance struct {
	Put     api.InstancePut
	Docs    declare.Documents // as they were sent
	Spec    fleet.InstanceSpec
	Content fleet.Content // of the revision, known once it is filled, of an artifact before
	RunJSON json.RawMessage
	RunHash fleet.Hash
}

// ReadInstance reads the body of a PUT, whose project is put's where it names none.
func ReadInstance(raw []byte, put api.InstancePut) (i Instance, err error) {
	i.Put = put
	if err := decode.Envelope(raw, map[string]*[]byte{"config": &i.Docs.Config, "overrides": &i.Docs.Overrides}, &i.Put); err != nil {
		return i, err
	}
	i.Spec, err = declare.Instance(i.Put, i.Docs, fleet.SiteSpec{}) // which is not known yet
	return i, err
}

// Change is what the store takes.
func (i Instance) Change(w postgres.Write) deliveries.InstanceChange {
	return deliveries.InstanceChange{Write: w, Spec: i.Spec, Content: i.Content, RunJSON: i.RunJSON, RunHash: i.RunHash, Reason: i.Put.Reason}
}

// Site reads the site of an instance. A project's token may not place anything on the nodes of another project.
func (m *Maker) Site(ctx context.Context, of Of) (spec fleet.SiteSpec, err error) {
	o, err := m.here(ctx, of, fleet.ObjectKey{Kind: fleet.KindSite, Name: of.Scope}, "site")
	if err != nil {
		return spec, err
	}
	if err := json.Unmarshal(o.Spec, &spec); err != nil {
		return spec, &fleet.Error{Kind: fleet.Internal, Message: "read the spec of " + o.String(), Err: err}
	}
	return spec, nil
}

// Complete gives an instance the defaults of its site, and resolves it.
func (m *Maker) Complete(ctx context.Context, of Of, site fleet.SiteSpec, i *Instance) error {
	i.Spec.Durability = declare.DurabilityOf(i.Put.Durability, site)
	return m.Resolve(ctx, of, i)
}

// Resolve gives an instance the generation of its template, the size of its artifact and its run section. One that was resolved before
// stays what it is, or is refused by now.
func (m *Maker) Resolve(ctx context.Context, of Of, i *Instance) (err error) {
	if i.RunJSON, i.RunHash, err = declare.RunSection(i.Spec.Run, of.Project); err != nil {
		return err
	}
	switch {
	case i.Spec.Template != "":
		want := fleet.TemplatePin{Name: i.Spec.Template, Generation: i.Spec.TemplateGeneration}
		pin, err := m.pinNow(ctx, of, want, "/template")
		i.Spec.Template, i.Spec.TemplateGeneration = pin.Name, pin.Generation
		return err
	case i.Spec.Artifact != nil:
		size, err := m.BodySize(ctx, of.Project, i.Spec.Artifact.Hash)
		if err != nil {
			return err
		}
		content := fleet.Content{Kind: fleet.ContentArtifact, Hash: i.Spec.Artifact.Hash, Size: size}
		i.Content, i.Spec.Artifact = content, &content
	}
	return nil
}

// Unreleased is the instance of a spec that was only written so far, for a caller who is bound to a project, or to none.
func (m *Maker) Unreleased(ctx context.Context, by fleet.ProjectName, o fleet.Object) (i Instance, err error) {
	if err := json.Unmarshal(o.Spec, &i.Spec); err != nil {
		return i, &fleet.Error{Kind: fleet.Internal, Message: "read the spec of " + o.String(), Err: err}
	}
	of := Of{CopyKey: fleet.CopyKey{ObjectKey: o.ObjectKey}, Project: o.Project, By: by, Now: &o}
	if err := m.Resolve(ctx, of, &i); err != nil {
		return i, err
	}
	return i, m.Fill(ctx, o.Project, &i)
}

// LayersOf is what the config of a completed instance is merged from; none of an artifact.
func (m *Maker) LayersOf(ctx context.Context, i Instance) ([]Layer, error) {
	if i.Spec.Config != nil {
		return []Layer{layerOf("/config", i.Docs.Config, *i.Spec.Config)}, nil
	}
	var c Chain
	if _, err := c.Add(ctx, m, fleet.TemplatePin{Name: i.Spec.Template, Generation: i.Spec.TemplateGeneration}); err != nil {
		return nil, err
	}
	if i.Spec.Overrides != nil {
		c.Layers = append(c.Layers, layerOf("/overrides", i.Docs.Overrides, *i.Spec.Overrides))
	}
	return c.Layers, nil
}

// layerOf is a document that was sent, or else is stored.
func layerOf(name string, doc []byte, stored fleet.Content) Layer {
	if doc != nil {
		return Layer{Name: name, Size: int64(len(doc)), Doc: doc}
	}
	return Layer{Name: name, Hash: stored.Hash, Size: stored.Size}
}

// Fill stores the bodies of a completed instance, and gives it and its revision their hashes.
func (m *Maker) Fill(ctx context.Context, project fleet.ProjectName, i *Instance) error {
	switch {
	case i.Spec.Artifact != nil:
		return nil
	case i.Spec.Config != nil && i.Docs.Config == nil:
		i.Content = *i.Spec.Config
		return nil
	}
	if i.Docs.Overrides != nil {
		content, err := m.Canonical(ctx, project, compose.Layer{Name: "/overrides", JSON: i.Docs.Overrides})
		if err != nil {
			return err
		}
		i.Spec.Overrides = &content
	}
	layers, err := m.LayersOf(ctx, *i)
	if err != nil {
		return err
	}
	content, err := m.merged(ctx, project, layers)
	if i.Content = content; i.Spec.Config != nil {
		i.Spec.Config = &content
	}
	return err
}
