package plans

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/holdfast-io/holdfast/internal/declaration"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/plans"
)

// The maker of a plan reads the objects of the request as they will be, and all others as they were looked up.
var (
	_ declaration.Reads  = (*planner)(nil)
	_ declaration.Bodies = planBodies{}
)

// of is an object of the request for the maker.
func (p *planner) of(o *planned) declaration.Of {
	of := declaration.Of{CopyKey: fleet.CopyKey{ObjectKey: o.key}, Project: o.project, By: p.caller.Project, Now: &fleet.Object{ObjectKey: o.key}}
	if o.now != nil {
		of.Now, of.CopyKey.Region = &o.now.Object, o.now.Region
	}
	return of
}

// asDeclared says that what is missing may also be declared in the request.
func asDeclared(err error) error {
	var e *fleet.Error
	if errors.As(err, &e) && e.Kind == fleet.NotFound && strings.HasPrefix(e.Hint, "declare it first") {
		return e.WithHint("declare it first, or in the same request")
	}
	return err
}

// Object gives an object that another one refers to.
func (p *planner) Object(_ context.Context, key fleet.CopyKey) (fleet.Object, error) {
	if copied := p.copied[key.ObjectKey]; key.Region == "" && copied.Only() {
		return copied.Object, nil
	}
	if in := p.declared[key.ObjectKey]; in != nil {
		return in.object()
	}
	if now, found := p.known[key.ObjectKey]; found && now.DeletingSince == nil {
		return now.Object, nil
	}
	return fleet.Object{}, fleet.NoObject(key.ObjectKey)
}

// object is an object of the request as others refer to it.
func (p *planned) object() (o fleet.Object, err error) {
	if !p.ok() {
		return o, fleet.Errorf(fleet.Invalid, "%s is rejected in this request", p.key).WithHint("correct it first: " + p.place)
	}
	o = fleet.Object{ObjectKey: p.key, Region: p.region(), Project: p.project, Generation: p.next}
	if p.key.Kind == fleet.KindSite && p.plainSpec == nil {
		if p.plainSpec, err = json.Marshal(p.plain); err != nil {
			return o, &fleet.Error{Kind: fleet.Internal, Message: "write the spec of " + p.key.String(), Err: err}
		}
	}
	o.Spec = p.plainSpec
	return o, nil
}

// Template finds the template that a name means: of the request, of this region, or a copy, with the generation that it has once the
// request is carried out.
func (p *planner) Template(ctx context.Context, name fleet.TemplateName) (fleet.TemplateName, fleet.Object, error) {
	key := p.templateKey(name)
	if in := p.declared[key]; in != nil {
		o, err := in.object()
		return fleet.TemplateNameOf(o), o, err
	}
	if now, known := p.known[key]; known {
		return fleet.TemplateNameOf(now.Object), now.Object, nil
	}
	read, is := p.templates[name]
	if !is {
		read.name, read.object, read.err = p.s.Maker.Template(ctx, name)
		p.templates[name] = read
	}
	return read.name, read.object, read.err
}

// templateRead is a template that is not of the request.
type templateRead struct {
	name   fleet.TemplateName
	object fleet.Object
	err    error
}

// templateKey is the key under which a request has a template: plain also for a copy that this region owns.
func (p *planner) templateKey(name fleet.TemplateName) fleet.ObjectKey {
	region, plain, copied := name.Copy()
	if key := fleet.TemplateKey(plain); copied && p.known[key].Region == region {
		return key
	}
	return fleet.TemplateKey(string(name))
}

// TemplateSpec is one generation of a template, 0 for the one that stands.
func (p *planner) TemplateSpec(ctx context.Context, name fleet.TemplateName, generation int64) (spec fleet.TemplateSpec, _ int64, err error) {
	key := p.templateKey(name)
	if in := p.declared[key]; in != nil && in.ok() && in.next == generation && generation > 0 {
		return in.template.Spec, generation, nil
	}
	pin := fleet.TemplatePin{Name: name, Generation: generation}
	if read, is := p.specs[pin]; is {
		return read.spec, generation, read.err
	}
	if now, found := p.known[key]; found && (generation == 0 || now.Generation == generation) {
		err = json.Unmarshal(now.Spec, &spec)
		spec.Compositions = name.Pins(spec)
	} else {
		spec, _, err = p.s.Maker.TemplateSpec(ctx, name, generation)
	}
	if !fleet.OfRegion(err) {
		p.specs[pin] = specRead{spec, err}
	}
	return spec, generation, err
}

// specRead is a generation of a template, or why there is none.
type specRead struct {
	spec fleet.TemplateSpec
	err  error
}

// siteRead is a site that instances are placed at, or why they cannot be.
type siteRead struct {
	spec fleet.SiteSpec
	err  error
}

// planBodies has the sizes of artifacts that are there, or will be.
type planBodies struct {
	declaration.Bodies
	p *planner
}

// BodySize is what was looked up, or what the request says of an artifact that is not uploaded yet.
func (b planBodies) BodySize(_ context.Context, project fleet.ProjectName, h fleet.Hash) (int64, error) {
	if size, is := b.p.sizes[plans.BodyOf{Project: project, Hash: h}]; is {
		return size, nil
	}
	for _, a := range b.p.r.head.Artifacts {
		if a.SHA256 == h {
			return a.Size, nil
		}
	}
	return 0, postgres.OrNotFound(nil, "artifact", string(h), "upload it first: POST /api/v1/artifacts")
}

// maxTexts is what is kept of the documents that many objects are merged from.
const maxTexts = 32 << 20

// ReadBody is the base of a template of the request, or a stored body.
func (b planBodies) ReadBody(ctx context.Context, h fleet.Hash) ([]byte, error) {
	if text, is := b.p.texts[h]; is {
		return text, nil
	}
	text, err := b.Bodies.ReadBody(ctx, h)
	if err == nil && b.p.kept+int64(len(text)) <= maxTexts {
		b.p.texts[h], b.p.kept = text, b.p.kept+int64(len(text))
	}
	return text, err
}
