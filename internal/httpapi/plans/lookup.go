package plans

import (
	"cmp"
	"context"
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
		{"/base", o.template.Base, func(c fleet.Content) { o.template.Spec.Base = c }},
		{"/config", o.instance.Docs.Config, func(c fleet.Content) { o.instance.Spec.Config, o.content = &c, c }},
		{"/overrides", o.instance.Docs.Overrides, func(c fleet.Content) { o.instance.Spec.Overrides = &c }},
		{"/change/patch", o.fleet.Patch, func(c fleet.Content) { o.fleet.Spec.Change.Patch = &c }},
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
	for _, t := range o.refers() {
		_, plain, _ := fleet.TemplateName(t).Copy()
		w.keys[fleet.TemplateKey(plain)] = true
	}
	if o.key.Kind == fleet.KindInstance {
		w.keys[siteKey(o.key.Scope)] = true
	}
	for _, r := range fleet.ReferencesOf(o.plain) {
		w.keys[r.Key] = true
	}
	for _, place := range o.places() {
		w.keys[place] = true
	}
	if o.key.Kind == fleet.KindTemplate {
		w.templates[o.key.Name] = true
	}
	for _, n := range o.site().Nodes {
		w.nodes[string(n.Name)] = true
	}
	if o.instance.Put.Artifact != "" {
		w.bodies[plans.BodyOf{Project: o.project, Hash: o.instance.Put.Artifact}] = true
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
		if c.Only() && c.Owner() == string(p.s.Maker.Region) {
			p.known[key] = plans.Standing{Object: c.Object}
			delete(p.copied, key)
		}
	}
	return err
}

// ofCopy refuses to plan what a name of a copy means: a write takes place in its owning region.
func (p *planner) ofCopy(key fleet.ObjectKey, c plans.Copied) error {
	if !c.Only() {
		return fleet.Ambiguous(key, string(c.Region), string(c.Other))
	}
	return fleet.OwnedBy(c.Named(string(p.s.Maker.Region)), c.Owner())
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
