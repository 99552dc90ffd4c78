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
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
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
	if o.refuse(p.stand(o)); !o.ok() {
		return nil
	}
	part := p.s.Kinds[o.key.Kind]
	decide := part.decide
	if decide == nil {
		decide = (*planner).decidePlain
	}
	err := decide(p, ctx, o)
	if serve.OfRegion(err) {
		return err
	}
	o.refuse(err)
	if o.ok() && o.action != api.PlanUnchanged && !o.seen {
		o.refuse(p.caller.May(part.Writers))
	}
	return nil
}

// stand looks at the object as it is: may the caller write it, in this project and set?
func (p *planner) stand(o *planned) error {
	if now, found := p.known[o.key]; found {
		o.lookAt(now)
	} else if copied, is := p.copied[o.key]; is {
		return p.ofCopy(o.key, copied)
	}
	if o.key.Kind != fleet.KindProject {
		if !p.caller.Sees(o.project) {
			return fleet.Errorf(fleet.Denied, "the token is restricted to project %s", p.caller.Project).At("/project")
		}
		if o.project != fleet.DefaultProject && !p.copied[projectKey(o.project)].Only() {
			if _, err := p.refer(projectKey(o.project), "/project"); err != nil {
				return err
			}
		}
	}
	if err := decide.PlanAllowed(o.before, o.wanted(), p.caller.Sees); err != nil || o.now == nil {
		return err
	}
	return o.now.CheckOwner(p.s.Region)
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
		Enabled: p.spec.Enabled, Durability: p.spec.Durability, RunHash: p.runHash, Content: p.content.Hash,
	}
}

func (p *planner) decidePlain(_ context.Context, o *planned) error {
	for _, r := range fleet.ReferencesOf(o.plain) {
		if _, err := p.refer(r.Key, "/spec"+r.Field); err != nil {
			return err
		}
	}
	return o.settle(o.plain)
}

func (p *planner) decideSite(_ context.Context, o *planned) error {
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
	for i, c := range o.compositions {
		name, before := p.partOf(o, c), fleet.TemplatePin{}
		if o.now != nil {
			before = fleet.CompositionOf(o.now.Object, name)
		}
		pin, err := p.pin(ctx, fleet.TemplatePin{Name: name}, before, "/spec/compositions/"+strconv.Itoa(i))
		if err != nil {
			return err
		}
		o.template.Compositions[i] = pin
	}
	born, err := o.template, error(nil)
	if o.region() != "" {
		born, err = o.template.AsBorn(o.region())
	}
	if err == nil {
		err = o.settle(born)
	}
	if err != nil {
		return decode.Below("/spec", err)
	}
	o.next = decide.PlanGeneration(o.before, o.wanted(), p.last[o.key.Name])
	return nil
}

// partOf is the name here of a composition: a plain one is of the region that created the template.
func (p *planner) partOf(o *planned, name string) fleet.TemplateName {
	of := p.known[o.key].Region
	if _, _, copied := fleet.TemplateName(name).Copy(); of != "" && !copied {
		return fleet.CopiedTemplate(of, name)
	}
	return fleet.TemplateName(name)
}

// pin finds the template that a field names: of the request, of this region, or a copy. Without a generation it is the one that
// the template has when it is the object's turn.
func (p *planner) pin(ctx context.Context, want, before fleet.TemplatePin, field string) (fleet.TemplatePin, error) {
	if before.Name.Is(want.Name) {
		want.Name = before.Name
	}
	key := p.templateKey(want.Name)
	now, known := p.known[key]
	if !known && p.declared[key] == nil {
		at := pinning{want, before}
		if pin, read := p.pins[at]; read {
			return pin, nil
		}
		pin, err := p.s.Pin(ctx, want, before, field)
		if fleet.KindOf(err) == fleet.NotFound {
			err = notHere(key, field)
		}
		if err == nil {
			p.pins[at] = pin
		}
		return pin, err
	}
	if _, err := p.refer(key, field); err != nil {
		return want, err
	}
	if !p.usesTemplate(key.Name) {
		return want, fleet.Errorf(fleet.NotFound, "template %s not found", key.Name).At(field)
	}
	if want.Generation == 0 {
		want.Generation = p.generationOf(key.Name)
	}
	if known {
		want.Name = fleet.TemplateNameOf(now.Object)
	}
	return want, nil
}

// pinning is a question for a template that is not of the request.
type pinning struct{ want, before fleet.TemplatePin }

// pinned is what an object is pinned to as it stands.
func (p *planned) pinned() fleet.TemplatePin {
	if p.now == nil {
		return fleet.TemplatePin{}
	}
	return fleet.PinOf(p.now.Object)
}

func (p *planner) usesTemplate(name string) bool {
	if in := p.declared[fleet.TemplateKey(name)]; in != nil {
		return p.caller.Uses(in.project)
	}
	return p.caller.Uses(p.known[fleet.TemplateKey(name)].Project)
}

// generationOf is the generation that a template has once those of the request are written.
func (p *planner) generationOf(name string) int64 {
	if in := p.declared[fleet.TemplateKey(name)]; in != nil {
		return in.next
	}
	return p.known[fleet.TemplateKey(name)].Generation
}

// byComposition puts each template behind those that it is composed of, and refuses circles.
func (p *planner) byComposition(templates []*planned) []*planned {
	place, parts := make(map[*planned]int, len(templates)), make([][]string, len(templates))
	for i, o := range templates {
		place[o] = i
		for _, c := range o.compositions {
			parts[i] = append(parts[i], p.templateKey(p.partOf(o, c)).Name)
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
	site, err := p.siteOf(o.key.Scope)
	if err != nil {
		return err
	}
	o.spec.Durability = declare.DurabilityOf(o.put.Durability, site)
	switch {
	case o.put.Template != "":
		if err := p.pinInstance(ctx, o); err != nil {
			return err
		}
	case o.put.Artifact != "":
		size, err := p.sizeOf(o)
		if err != nil {
			return err
		}
		o.content = fleet.Content{Kind: fleet.ContentArtifact, Hash: o.put.Artifact, Size: size}
		o.spec.Artifact = &o.content
	}
	if _, o.runHash, err = declare.RunSection(o.spec.Run, o.project); err != nil {
		return err
	}
	return o.settle(o.spec)
}

// pinInstance fixes the generation of an instance's template.
func (p *planner) pinInstance(ctx context.Context, o *planned) error {
	pin, err := p.pin(ctx, fleet.TemplatePin{Name: o.spec.Template, Generation: o.spec.TemplateGeneration}, o.pinned(), "/spec/template")
	if err != nil {
		return err
	}
	o.spec.Template, o.spec.TemplateGeneration = pin.Name, pin.Generation
	_, _, err = p.templateSpec(ctx, pin)
	return decode.Below("/spec", err)
}

func (p *planner) sizeOf(o *planned) (int64, error) {
	if size, ok := p.sizes[plans.BodyOf{Project: o.project, Hash: o.put.Artifact}]; ok {
		return size, nil
	}
	for _, a := range p.r.head.Artifacts {
		if a.SHA256 == o.put.Artifact {
			return a.Size, nil
		}
	}
	return 0, fleet.Errorf(fleet.NotFound, "artifact not found in project %s", o.project).At("/spec/artifact").
		WithHint("upload it first: POST /api/v1/artifacts")
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
		d.refuse(o.CheckOwner(p.s.Region))
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
