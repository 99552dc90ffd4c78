package plans

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/plans"
)

// layer is one document of a config: of the request, or of the store.
type layer struct {
	name string // for errors: where it comes from
	hash fleet.Hash
	size int64
	doc  []byte // nil when it is stored
}

// composition is the documents of a template with what they mark as secret.
type composition struct {
	layers  []layer
	secrets []string
	names   []fleet.TemplateName
}

// layersOf is what the config of an instance is merged from.
func (p *planner) layersOf(ctx context.Context, o *planned) ([]layer, error) {
	if o.doc.Config != nil {
		return []layer{{name: "/config", size: int64(len(o.doc.Config)), doc: o.doc.Config}}, nil
	}
	var c composition
	pin := fleet.TemplatePin{Name: o.spec.Template, Generation: o.spec.TemplateGeneration}
	if err := p.compose(ctx, pin, &c, map[fleet.TemplatePin]bool{}); err != nil {
		return nil, err
	}
	if o.doc.Overrides != nil {
		c.layers = append(c.layers, layer{name: "/overrides", size: int64(len(o.doc.Overrides)), doc: o.doc.Overrides})
	}
	return c.layers, nil
}

// compose is templateChain over the templates of the request, and of the store.
func (p *planner) compose(ctx context.Context, pin fleet.TemplatePin, c *composition, path map[fleet.TemplatePin]bool) error {
	spec, doc, err := p.templateSpec(ctx, pin)
	if err != nil {
		return err
	}
	switch {
	case path[pin]:
		return fleet.Errorf(fleet.Invalid, "template %s refers to itself", pin.Name).At("/template")
	case len(c.layers) >= compose.MaxLayers:
		return compose.TooManyLayers()
	}
	path[pin] = true
	defer delete(path, pin)
	name := "template " + string(pin.Name) + "@" + strconv.FormatInt(pin.Generation, 10)
	c.layers = append(c.layers, layer{name, spec.Base.Hash, spec.Base.Size, doc})
	c.secrets, c.names = append(c.secrets, spec.Secrets...), append(c.names, pin.Name)
	for _, next := range spec.Compositions {
		if err := p.compose(ctx, next, c, path); err != nil {
			return err
		}
	}
	return nil
}

// templateSpec is one generation of a template, with its base where that is in the request.
func (p *planner) templateSpec(ctx context.Context, pin fleet.TemplatePin) (fleet.TemplateSpec, []byte, error) {
	key := p.templateKey(pin.Name)
	if in := p.declared[key]; in != nil && in.ok() && in.next == pin.Generation {
		return in.template, in.base, nil
	}
	if spec, read := p.specs[pin]; read {
		return spec, nil, nil
	}
	var spec fleet.TemplateSpec
	var err error
	if now, found := p.known[key]; found && now.Generation == pin.Generation {
		err = json.Unmarshal(now.Spec, &spec)
		spec.Compositions = pin.Name.Pins(spec)
	} else {
		spec, _, err = p.s.Store.TemplateSpec(ctx, pin.Name, pin.Generation)
	}
	if err != nil {
		return spec, nil, err
	}
	p.specs[pin] = spec
	return spec, nil, nil
}

func weightOf(layers []layer) int64 {
	var total int64
	for _, l := range layers {
		total += l.size
	}
	return total
}

func (p *planner) flattened(ctx context.Context, layers []layer) ([]byte, error) {
	docs := make([]compose.Layer, len(layers))
	for i, l := range layers {
		docs[i] = compose.Layer{Name: l.name, JSON: l.doc}
		if l.doc != nil {
			continue
		}
		text, err := p.texts.load(ctx, p.s, l)
		if err != nil {
			return nil, err
		}
		docs[i].JSON = text
	}
	return compose.Flatten(docs, p.s.Limits)
}

// secretsFor collects what is marked in the config of an instance by any of the specs that
// a difference shows: those that nodes hold, the one of now and the new one, and by their
// templates as pinned and as they are now. So does secretsOf for viewers.
func (p *planner) secretsFor(ctx context.Context, o *planned, held []plans.HeldRevision) ([]string, error) {
	specs := []fleet.InstanceSpec{o.spec}
	if o.now != nil {
		var now fleet.InstanceSpec
		if err := json.Unmarshal(o.now.Spec, &now); err != nil {
			return nil, fleet.Errorf(fleet.Internal, "read the spec of %s: %w", o.key, err)
		}
		specs = append(specs, now)
	}
	for _, h := range held {
		if h.Known {
			specs = append(specs, h.Spec)
		}
	}
	var c composition
	pins := map[fleet.TemplatePin]bool{}
	for _, spec := range specs {
		c.secrets = append(c.secrets, spec.Secrets...)
		pin := fleet.TemplatePin{Name: spec.Template, Generation: spec.TemplateGeneration}
		if pin.Name == "" || pins[pin] {
			continue
		}
		pins[pin], c.layers = true, nil
		if err := p.compose(ctx, pin, &c, map[fleet.TemplatePin]bool{}); err != nil {
			return nil, err
		}
	}
	slices.Sort(c.names)
	for _, name := range slices.Compact(c.names) {
		marks, err := p.marksNow(ctx, name)
		if err != nil {
			return nil, err
		}
		c.secrets = append(c.secrets, marks...)
	}
	return c.secrets, nil
}

// marksNow is what a template marks as it stands, and as it will after the request.
func (p *planner) marksNow(ctx context.Context, name fleet.TemplateName) ([]string, error) {
	var marks []string
	if in := p.declared[p.templateKey(name)]; in != nil {
		marks = in.template.Secrets
	}
	pin := fleet.TemplatePin{Name: name} // generation 0 stands for now
	now, read := p.specs[pin]
	if !read {
		var err error
		now, _, err = p.s.Store.TemplateSpec(ctx, name, 0)
		if err != nil && fleet.KindOf(err) != fleet.NotFound { // deleted since, or not made yet
			return nil, err
		}
		p.specs[pin] = now
	}
	return append(slices.Clone(marks), now.Secrets...), nil
}
