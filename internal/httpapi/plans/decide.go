package plans

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/declaration"
	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/plans"
)

// decide says of each object what an apply would do, in the order of an apply.
func (p *planner) decide(ctx context.Context) error {
	some := map[fleet.ObjectKind][]*planned{}
	for _, o := range p.r.objects {
		if _, known := p.s.Kinds[o.key.Kind]; !known {
			p.ordered = append(p.ordered, o) // refused
		}
		some[o.key.Kind] = append(some[o.key.Kind], o)
	}
	some[fleet.KindTemplate] = p.byComposition(some[fleet.KindTemplate])
	for _, kind := range p.s.Declared {
		for _, o := range some[kind.Kind] {
			p.ordered = append(p.ordered, o)
			if err := p.decideOne(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// decideOne keeps what is wrong with an object there; the error is about the region.
func (p *planner) decideOne(ctx context.Context, o *planned) error {
	o.deploy = p.r.deploy
	if o.refuse(asDeclared(p.stand(ctx, o))); !o.ok() {
		return nil
	}
	part := p.s.Kinds[o.key.Kind]
	decide := part.decide
	if decide == nil {
		decide = (*planner).decidePlain
	}
	err := decide(p, ctx, o)
	if fleet.OfRegion(err) {
		return err
	}
	o.refuse(asDeclared(err))
	o.refuse(p.mayWrite(o))
	if o.ok() && o.action != api.PlanUnchanged && !o.seen {
		o.refuse(p.caller.May(part.Writers))
	}
	return nil
}

// stand looks at the object as it is, and at its project.
func (p *planner) stand(ctx context.Context, o *planned) error {
	if now, found := p.known[o.key]; found {
		o.lookAt(now)
	} else if copied, is := p.copied[o.key]; is {
		return p.ofCopy(o.key, copied)
	}
	if o.key.Kind != fleet.KindProject {
		if err := p.maker.CheckProject(ctx, p.of(o)); err != nil {
			return err
		}
	}
	return nil
}

// mayWrite refuses what the write would refuse of the object as it stands.
func (p *planner) mayWrite(o *planned) error {
	if err := decide.PlanAllowed(o.before, o.wanted(), p.caller.Sees); err != nil || o.now == nil {
		return err
	}
	return o.now.CheckOwner(string(p.s.Maker.Region))
}

// mayDeclare refuses what the policies over it, as the request leaves them, do not have written in this region.
func (p *planner) mayDeclare(ctx context.Context) error {
	var written []*planned
	var all []postgres.Declaring
	for _, o := range p.ordered {
		if !o.ok() || o.action == api.PlanUnchanged || o.seen {
			continue
		}
		d := postgres.Declaring{Object: &fleet.Object{
			ObjectKey: o.key, Region: o.region(), Project: o.project, Service: o.service, Spec: json.RawMessage(o.declared),
		}}
		if o.now != nil {
			d.Before, d.Object.Service = &o.now.Object, o.now.Service
		}
		written, all = append(written, o), append(all, d)
	}
	refused, err := p.s.Store.MayDeclare(ctx, all)
	for i, why := range refused {
		written[i].refuse(why)
	}
	return err
}

// settle compares what would be written with what stands.
func (p *planned) settle(spec any) error {
	text, err := json.Marshal(spec)
	if err == nil {
		text, err = compose.Canonical(text, compose.Limits{})
	}
	if err != nil {
		return fleet.Errorf(fleet.Internal, "write the spec of %s: %w", p.key, err)
	}
	p.declared = text
	labels, err := json.Marshal(p.labels) // sorted by name
	if err != nil {
		return fleet.Errorf(fleet.Internal, "write the labels of %s: %w", p.key, err)
	}
	p.digest = sumOf(bytes.Join([][]byte{[]byte(p.project), labels, text}, []byte{'\n'}))
	step := decide.Plan(p.before, p.wanted())
	p.action, p.releases, p.unreleased = string(step.Action), step.Releases, step.Unreleased
	return nil
}

// lookAt takes an object as it stands into the plan.
func (p *planned) lookAt(now plans.Standing) {
	p.now = &now
	p.before = &decide.PlanSeen{
		Project: now.Project, Labels: now.Labels, Generation: now.Generation, Deleting: now.DeletingSince != nil,
		Released: now.Released, ReleasedGeneration: now.ReleasedGeneration, ReleasedDurability: now.ReleasedDurability,
	}
	if spec, err := compose.Canonical(now.Spec, compose.Limits{}); err == nil {
		p.before.Spec = spec
	}
}

// isSpec says that what was written is what was planned.
func (p *planned) isSpec(now json.RawMessage) bool {
	text, err := compose.Canonical(now, compose.Limits{})
	return err == nil && bytes.Equal(text, p.declared)
}

func (p *planned) wanted() decide.PlanWanted {
	return decide.PlanWanted{
		Key: p.key, Project: p.project, Labels: p.labels, Spec: p.declared, Deploy: p.deploy,
		Enabled: p.instance.Spec.Enabled, Durability: p.instance.Spec.Durability, RunHash: p.instance.RunHash, Content: p.content.Hash,
	}
}

func (p *planner) decidePlain(ctx context.Context, o *planned) error {
	if err := p.maker.CheckReferences(ctx, p.of(o), o.plain); err != nil {
		return decode.Below("/spec", err)
	}
	return o.settle(o.plain)
}

func (p *planner) decideSite(_ context.Context, o *planned) error {
	if err := p.mayWrite(o); err != nil { // before it takes nodes
		return err
	}
	nodes := o.site().Nodes
	if i := decide.PlanNodes(o.key.Name, nodes, p.nodes, p.taken); i >= 0 {
		return fleet.Errorf(fleet.Conflict, "node %s belongs to another site", nodes[i].Name).
			At("/spec/nodes/" + strconv.Itoa(i)).WithHint("names of nodes are unique in a region")
	}
	for _, n := range nodes {
		p.taken[string(n.Name)] = o.key.Name
	}
	return o.settle(o.plain)
}

// decideTemplate pins the compositions as the write will: to the generations that they
// have when it is their turn.
func (p *planner) decideTemplate(ctx context.Context, o *planned) error {
	t := &o.template
	err := p.maker.Compose(ctx, p.of(o), t)
	born := t.Spec
	if err == nil && o.region() != "" {
		born, err = t.Spec.AsBorn(o.region())
	}
	if err == nil {
		err = o.settle(born)
	}
	if err != nil {
		return decode.Below("/spec", err)
	}
	o.next = decide.PlanGeneration(o.before, o.wanted(), p.last[o.key.Name])
	p.texts[t.Spec.Base.Hash] = t.Base
	return nil
}

// byComposition puts each template behind those that it is composed of, and refuses circles.
func (p *planner) byComposition(templates []*planned) []*planned {
	place, parts := make(map[*planned]int, len(templates)), make([][]string, len(templates))
	for i, o := range templates {
		place[o] = i
		for _, c := range o.template.Put.Compositions {
			parts[i] = append(parts[i], p.templateKey(declaration.PartOf(p.known[o.key].Object, c)).Name)
		}
	}
	order, circles := decide.ByComposition(parts, func(name string) (int, bool) {
		i, found := place[p.declared[fleet.TemplateKey(name)]]
		return i, found
	})
	for _, c := range circles {
		o := templates[c.Template]
		o.refuse(fleet.Errorf(fleet.Invalid, "%s includes itself through other templates", o.key).
			At("/spec/compositions/" + strconv.Itoa(c.Part)))
	}
	sorted := make([]*planned, len(order))
	for i, at := range order {
		sorted[i] = templates[at]
	}
	return sorted
}

func (p *planner) decideInstance(ctx context.Context, o *planned) error {
	of := p.of(o)
	site, read := p.sites[o.key.Scope]
	if !read {
		site.spec, site.err = p.maker.Site(ctx, of)
		p.sites[o.key.Scope] = site
	}
	if site.err != nil {
		return site.err
	}
	i := &o.instance
	if err := p.maker.Complete(ctx, of, site.spec, i); err != nil {
		return decode.Below("/spec", err)
	}
	i.RunJSON = nil // it is made again when it is written
	if i.Spec.Template != "" {
		if _, _, err := p.TemplateSpec(ctx, i.Spec.Template, i.Spec.TemplateGeneration); err != nil {
			return decode.Below("/spec", err)
		}
	}
	if i.Spec.Artifact != nil {
		o.content = i.Content
	}
	return o.settle(i.Spec)
}

// prune finds what carries the label of the set and is not in the request.
func (p *planner) prune(ctx context.Context) error {
	if p.r.head.ApplySet == "" {
		return nil
	}
	set, err := p.s.Store.ApplySet(ctx, p.r.head.ApplySet)
	if err != nil {
		return err
	}
	gone, objects := map[fleet.ObjectKind][]*planned{}, map[*fleet.Object]*planned{}
	for _, o := range set {
		if p.declared[o.ObjectKey] != nil || !p.caller.Sees(o.Project) {
			continue
		}
		d := &planned{key: o.ObjectKey, project: o.Project, action: api.PlanDelete, now: &plans.Standing{Object: o}}
		if !p.r.head.Prune {
			p.wouldPrune = append(p.wouldPrune, d.planKey())
			continue
		}
		d.refuse(p.caller.May(p.s.Kinds[o.Kind].Writers))
		d.refuse(o.CheckOwner(string(p.s.Maker.Region)))
		gone[o.Kind] = append(gone[o.Kind], d)
		objects[&d.now.Object] = d
	}
	refused, err := p.s.Store.MayDelete(ctx, slices.Collect(maps.Keys(objects)))
	if err != nil {
		return err
	}
	for o, why := range refused {
		objects[o].refuse(why)
	}
	for _, kind := range slices.Backward(p.s.Declared) {
		p.deletes = append(p.deletes, gone[kind.Kind]...)
	}
	return nil
}
