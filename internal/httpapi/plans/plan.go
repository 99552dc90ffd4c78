package plans

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declaration"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres/plans"
)

type planInput struct{ ManyParams }

type planOutput struct{ Body api.Plan }

// planLimit is the longest request of many objects.
func (s *Calls) planLimit() int64 { return planShare * s.Largest }

// Mount mounts plan and apply.
func (s *Calls) Mount() {
	op := serve.Endpoint(http.MethodPost, "/api/v1/plan", "plan", "Say what an apply of many objects would do, and do nothing")
	serve.Register(s.Server, serve.ForOperators, op, s.plan)
	serve.Takes[api.PlanRequest](s.Server, op)
	s.alsoYAML(op)
	s.mountApply()
}

func (s *Calls) plan(ctx context.Context, in *planInput) (out *planOutput, err error) {
	err = s.withMany(ctx, in.ManyParams, func(r *planRequest, _ []byte) error {
		if r.plan != nil {
			return fleet.Errorf(fleet.Invalid, "the request already contains a plan").At("/plan").WithHint("apply it: POST /api/v1/apply")
		}
		p, err := s.planFor(ctx, r, "")
		if err != nil {
			return err
		}
		out = &planOutput{Body: p.answer()}
		return nil
	})
	return out, err
}

// planner looks up what a request needs, set by set, and decides what becomes of each
// object. It writes nothing.
type planner struct {
	s      *Calls
	r      *planRequest
	caller serve.Caller
	key    string // the Idempotency-Key of an apply

	declared map[fleet.ObjectKey]*planned
	known    map[fleet.ObjectKey]plans.Standing
	copied   map[fleet.ObjectKey]plans.Copied
	sites    map[string]siteRead // of instances
	nodes    map[string]string   // the sites of nodes
	taken    map[string]string   // by the sites of the request
	last     map[string]int64    // template generations
	specs    map[fleet.TemplatePin]specRead
	maker    *declaration.Maker // that sees all of this
	// templates are those that are not of the request.
	templates map[fleet.TemplateName]templateRead
	sizes     map[plans.BodyOf]int64
	texts     map[fleet.Hash][]byte
	kept      int64 // bytes of texts that were read
	room      int   // for differences
	// roomsLooked is for how many deployments it was looked whether there is room.
	roomsLooked int
	ordered     []*planned
	deletes     []*planned
	wouldPrune  []api.PlanKey
}

func (s *Calls) planFor(ctx context.Context, r *planRequest, key string) (*planner, error) {
	p := &planner{
		s: s, r: r, caller: serve.CallOf(ctx).Caller, key: key, room: planRoom,
		declared: map[fleet.ObjectKey]*planned{}, taken: map[string]string{}, sites: map[string]siteRead{},
		specs: map[fleet.TemplatePin]specRead{}, templates: map[fleet.TemplateName]templateRead{}, texts: map[fleet.Hash][]byte{},
	}
	p.maker = s.Maker.With(p, planBodies{s.Maker, p})
	p.name()
	for _, step := range []func(context.Context) error{p.hash, p.lookUp, p.decide, p.mayDeclare, p.prune, p.detail} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// name rejects duplicate objects, and labels those of an apply set.
func (p *planner) name() {
	for _, o := range p.r.objects {
		if first := p.declared[o.key]; first != nil && o.key.Name != "" {
			o.refuse(fleet.Errorf(fleet.Invalid, "%s is already declared in %s", o.key, first.place).At("/name"))
			continue
		}
		p.declared[o.key] = o
		if p.r.head.ApplySet != "" && o.ok() {
			o.refuse(o.join(p.r.head.ApplySet))
		}
	}
}

// join gives an object the label of the set.
func (p *planned) join(set string) error {
	if own, has := p.labels[api.ApplySetLabel]; has && own != set {
		return fleet.Errorf(fleet.Invalid, "the label %s does not match the set of the request", api.ApplySetLabel).At("/labels").
			WithHint("omit the label")
	}
	labels := map[string]string{api.ApplySetLabel: set}
	for name, value := range p.labels {
		labels[name] = value
	}
	p.labels = labels
	return fleet.ValidateLabels("/labels", labels)
}

func (p *planner) answer() api.Plan {
	a := api.Plan{
		Valid: true, ApplySet: p.r.head.ApplySet, Prune: p.r.head.Prune, Deploy: p.r.deploy,
		Objects: make([]api.PlanObject, 0, len(p.ordered)+len(p.deletes)), WouldPrune: p.wouldPrune,
	}
	for _, o := range p.all() {
		view := o.view()
		a.Objects = append(a.Objects, view)
		switch {
		case view.Problem != nil:
			a.Summary.Refused++
		case o.action == api.PlanCreate:
			a.Summary.Create++
		case o.action == api.PlanChange:
			a.Summary.Change++
		case o.action == api.PlanDelete:
			a.Summary.Delete++
		default:
			a.Summary.Unchanged++
		}
	}
	a.Valid = a.Summary.Refused == 0
	a.Changes = a.Summary.Create+a.Summary.Change+a.Summary.Delete > 0
	a.Digest = digestOfPlan(a)
	return a
}

// all is every object of the request in the order of an apply, and what is deleted.
func (p *planner) all() []*planned {
	return append(append([]*planned{}, p.ordered...), p.deletes...)
}

func (p *planned) planKey() api.PlanKey {
	cut := func(s string) string { return cutText(s, maxKind) }
	return api.PlanKey{Kind: cut(string(p.key.Kind)), Site: cut(p.key.Scope), Name: cut(p.key.Name), Region: string(p.region())}
}

// region is the other region that created the object, if one did.
func (p *planned) region() fleet.RegionName {
	if p.now == nil {
		return ""
	}
	return p.now.Region
}

func (p *planned) view() api.PlanObject {
	v := api.PlanObject{PlanKey: p.planKey(), Project: cutText(string(p.project), maxKind)}
	if p.now != nil && p.callerSees() {
		v.Generation, v.ResourceVersion = p.now.Generation, strconv.FormatInt(p.now.ResourceVersion, 10)
	}
	if !p.ok() {
		v.Problem = serve.ProblemFor(p.problem)
		return v
	}
	v.Action, v.Digest, v.Releases, v.Unreleased = p.action, p.digest, p.releases, p.unreleased
	v.Hash, v.Size = p.content.Hash, p.content.Size
	v.Declared, v.Nodes, v.Changes, v.Rollout = p.difference, p.nodes, p.changes, p.rollout
	return v
}

// callerSees: an object of a project that the caller may not see has its problem instead.
func (p *planned) callerSees() bool { return p.ok() || p.now.Project == p.project }

// digestOfPlan is of all that an apply would write, and of what it was planned from.
func digestOfPlan(a api.Plan) string {
	type line struct {
		api.PlanKey
		Action, Version, Digest string
		Generation              int64
		Releases                bool
	}
	all := struct {
		Set           string
		Prune, Deploy bool
		Objects       []line
	}{a.ApplySet, a.Prune, a.Deploy, nil}
	for _, o := range a.Objects {
		all.Objects = append(all.Objects, line{o.PlanKey, o.Action, o.ResourceVersion, o.Digest, o.Generation, o.Releases})
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "" // strings and numbers: it cannot be
	}
	return sumOf(text)
}
