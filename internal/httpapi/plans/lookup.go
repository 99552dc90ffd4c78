package plans

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/plans"
)

// sumOf is a digest in hex.
func sumOf(text []byte) string { return string(compose.HashOf(text)) }

// cutText bounds what is repeated of a request.
func cutText(s string, most int) string {
	if len(s) > most {
		return string([]rune(s[:most])) + "…"
	}
	return s
}

// hash names the documents of the request by their canonical forms, on all cores.
func (p *planner) hash(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	const share = 64
	for part := range slices.Chunk(p.r.objects, share) {
		group.Go(func() error {
			for _, o := range part {
				if !o.ok() {
					continue
				}
				if err := p.s.hashDocuments(ctx, o); fleet.KindOf(err) == fleet.Unavailable {
					return err // no time for this, and nothing wrong with the object
				} else if err != nil {
					o.refuse(decode.Below("/spec", err))
				}
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}

func (s *Calls) hashDocuments(ctx context.Context, o *planned) error {
	for _, d := range []struct {
		name string
		doc  []byte
		into func(fleet.Content)
	}{
		{"/base", o.base, func(c fleet.Content) { o.template.Base = c }},
		{"/config", o.doc.Config, func(c fleet.Content) { o.spec.Config, o.content = &c, c }},
		{"/overrides", o.doc.Overrides, func(c fleet.Content) { o.spec.Overrides = &c }},
		{"/change/patch", o.fleet.patch, func(c fleet.Content) { o.fleet.spec.Change.Patch = &c }},
	} {
		if d.doc == nil {
			continue
		}
		c, err := s.digestOf(ctx, d.name, d.doc)
		if err != nil {
			return err
		}
		d.into(c)
	}
	return nil
}

// wanted is what the objects of a request are, and refer to.
type wanted struct {
	keys      map[fleet.ObjectKey]bool
	templates map[string]bool
	nodes     map[string]bool
	bodies    map[plans.BodyOf]bool
}

func (w wanted) add(o *planned) {
	w.keys[o.key], w.keys[projectKey(o.project)] = true, true
	for _, t := range o.templates() {
		_, plain, _ := fleet.TemplateName(t).Copy()
		w.keys[fleet.TemplateKey(plain)] = true
	}
	if o.key.Kind == fleet.KindInstance {
		w.keys[siteKey(o.key.Scope)] = true
	}
	for _, r := range fleet.ReferencesOf(o.plain) {
		w.keys[r.Key] = true
	}
	for _, place := range o.deployment.places() {
		w.keys[place] = true
	}
	if o.key.Kind == fleet.KindTemplate {
		w.templates[o.key.Name] = true
	}
	for _, n := range o.site().Nodes {
		w.nodes[string(n.Name)] = true
	}
	if o.put.Artifact != "" {
		w.bodies[plans.BodyOf{Project: o.project, Hash: o.put.Artifact}] = true
	}
}

// lookUp reads all that the request names, with a few queries however many objects it has.
func (p *planner) lookUp(ctx context.Context) error {
	w := wanted{map[fleet.ObjectKey]bool{}, map[string]bool{}, map[string]bool{}, map[plans.BodyOf]bool{}}
	for _, o := range p.r.objects {
		if o.ok() {
			o.project = cmp.Or(o.project, p.caller.Project, fleet.DefaultProject)
			w.add(o)
		}
	}
	delete(w.keys, fleet.TemplateKey(""))
	var err error
	if p.known, err = p.s.Store.Standing(ctx, slices.Collect(maps.Keys(w.keys))); err != nil {
		return err
	}
	if err := p.lookUpCopied(ctx, w.keys); err != nil {
		return err
	}
	if err := p.lookUpDeployments(ctx, w.keys); err != nil {
		return err
	}
	if p.last, err = p.s.Store.LastTemplateGenerations(ctx, slices.Collect(maps.Keys(w.templates))); err != nil {
		return err
	}
	if p.nodes, err = p.s.Store.SitesOfNodes(ctx, slices.Collect(maps.Keys(w.nodes))); err != nil {
		return err
	}
	if p.sizes, err = p.s.Store.BodySizes(ctx, slices.Collect(maps.Keys(w.bodies))); err != nil {
		return err
	}
	return p.lookForSeen(ctx)
}

// lookUpCopied finds what names mean that no object of this region has. A copy that this region owns stands like its own.
func (p *planner) lookUpCopied(ctx context.Context, keys map[fleet.ObjectKey]bool) (err error) {
	var missing []fleet.ObjectKey
	for key := range keys {
		if _, known := p.known[key]; !known && key.Kind.Declared().Shared {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		p.copied, err = p.s.Store.Copied(ctx, missing)
	}
	for key, c := range p.copied {
		if c.Only() && c.Owner() == p.s.Region {
			p.known[key] = plans.Standing{Object: c.Object}
			delete(p.copied, key)
		}
	}
	return err
}

// templateKey is the key under which a request has a template: plain also for a copy that this region owns.
func (p *planner) templateKey(name fleet.TemplateName) fleet.ObjectKey {
	region, plain, copied := name.Copy()
	if key := fleet.TemplateKey(plain); copied && p.known[key].Region == region {
		return key
	}
	return fleet.TemplateKey(string(name))
}

// ofCopy refuses to plan what a name of a copy means: a write takes place in its owning region.
func (p *planner) ofCopy(key fleet.ObjectKey, c plans.Copied) error {
	if !c.Only() {
		return fleet.Ambiguous(key, string(c.Region), string(c.Other))
	}
	return fleet.OwnedBy(c.Named(p.s.Region), c.Owner())
}

func projectKey(name fleet.ProjectName) fleet.ObjectKey {
	return fleet.ObjectKey{Kind: fleet.KindProject, Name: string(name)}
}

func siteKey(name string) fleet.ObjectKey {
	return fleet.ObjectKey{Kind: fleet.KindSite, Name: name}
}

// lookForSeen finds the objects that an earlier try of the same request wrote.
func (p *planner) lookForSeen(ctx context.Context) error {
	if p.key == "" {
		return nil
	}
	keys := make([]string, len(p.r.objects))
	for i, o := range p.r.objects {
		keys[i] = partKey(p.key, o.key)
	}
	seen, err := p.s.Store.SeenKeys(ctx, p.caller.Actor, keys)
	for i, o := range p.r.objects {
		o.seen = seen[keys[i]]
	}
	return err
}

// partKey is the idempotency key of one object of a request.
func partKey(key string, of fleet.ObjectKey) string { return sumOf([]byte(key + "\n" + of.String())) }

// reference is an object that another one refers to: of the request, else as it stands.
type reference struct {
	in      *planned
	project fleet.ProjectName
}

// refer finds what an object refers to; missing says that there is nothing that it may use.
func (p *planner) refer(key fleet.ObjectKey, field string) (reference, error) {
	in := p.declared[key]
	if in != nil && !in.ok() {
		return reference{}, fleet.Errorf(fleet.Invalid, "%s is rejected in this request", key).At(field).
			WithHint("correct it first: " + in.place)
	}
	if in != nil {
		return reference{in, in.project}, nil
	}
	now, found := p.known[key]
	if !found || now.DeletingSince != nil || !p.caller.Uses(now.Project) {
		return reference{}, notHere(key, field)
	}
	return reference{project: now.Project}, nil
}

// notHere is the error for an object that is missing, and for one that the caller may not use.
func notHere(key fleet.ObjectKey, field string) error {
	return fleet.Errorf(fleet.NotFound, "%s %s not found", key.Kind, key.Name).At(field).
		WithHint("declare it first, or in the same request")
}

// siteOf reads the nodes of a site.
func (p *planner) siteOf(name string) (fleet.SiteSpec, error) {
	ref, err := p.refer(siteKey(name), "/site")
	switch {
	case err != nil:
		return fleet.SiteSpec{}, err
	case ref.in != nil && !p.caller.Uses(ref.project):
		return fleet.SiteSpec{}, fleet.Errorf(fleet.NotFound, "site %s not found", name).At("/site")
	case ref.in != nil:
		return ref.in.site(), nil
	}
	spec, read := p.sites[name]
	if !read {
		if err := json.Unmarshal(p.known[siteKey(name)].Spec, &spec); err != nil {
			return spec, fleet.Errorf(fleet.Internal, "read the spec of site %s: %w", name, err)
		}
		p.sites[name] = spec
	}
	return spec, nil
}

// texts keeps what was read of the documents that many objects are merged from.
type texts struct {
	kept map[fleet.Hash][]byte
	size int64
}

// maxTexts is what is kept of them.
const maxTexts = 32 << 20

func newTexts() texts { return texts{kept: map[fleet.Hash][]byte{}} }

func (t *texts) load(ctx context.Context, s *Calls, l layer) ([]byte, error) {
	if text, ok := t.kept[l.hash]; ok {
		return text, nil
	}
	text, err := s.Load(ctx, l.name, l.hash)
	if err == nil && t.size+l.size <= maxTexts {
		t.kept[l.hash], t.size = text, t.size+l.size
	}
	return text, err
}
