package plans

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/declaration"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/plans"
)

const (
	// maxPlanned is how many objects one request may hold.
	maxPlanned = 50_000
	// planShare is how many largest configs a request of many objects may weigh.
	planShare = 2
	maxKind   = 80
)

// planned is one object of a request on its way through a plan.
type planned struct {
	place string // in the request, for problems

	calls *Calls
	key   fleet.ObjectKey
	// What was asked for. The documents are pieces of the request.
	project    fleet.ProjectName
	service    string
	labels     map[string]string
	plain      any             // the spec of a plain kind
	plainSpec  json.RawMessage // of it, once another object reads it
	template   declaration.Template
	instance   declaration.Instance
	deployment declaration.Deployment
	fleet      declaration.Fleet
	content    fleet.Content // final, "" until it is known
	deploy     bool          // what is written is delivered too

	now      *plans.Standing  // nil when there is none
	before   *decide.PlanSeen // of it
	next     int64            // the generation that a template will have
	declared []byte           // the spec that is written, canonical
	action   string
	releases bool
	// unreleased: nothing but the release is left to do.
	unreleased bool
	digest     string
	seen       bool // done already, under the same idempotency key
	problem    error
	// What is shown of a change.
	difference *api.Difference
	changes    []fleet.SpecChange
	rollout    *api.PlanRollout
	nodes      []api.PlanNodes
}

// refuse keeps the first thing that is wrong with an object, with its place in the request.
func (p *planned) refuse(err error) {
	if err == nil || p.problem != nil {
		return
	}
	p.problem = err
	var e *fleet.Error
	if errors.As(err, &e) {
		field := "/" + strings.TrimPrefix(e.Field, "/")
		p.problem = e.At(strings.TrimSuffix(p.place+field, "/"))
	}
}

func (p *planned) ok() bool { return p.problem == nil }

// planRequest is a request that was read, but not yet looked up.
type planRequest struct {
	head struct {
		ApplySet  string         `json:"applySet"`
		Prune     bool           `json:"prune"`
		Reason    string         `json:"reason"`
		Artifacts []api.Artifact `json:"artifacts"`
	}
	deploy  bool
	objects []*planned
	plan    *api.Plan

	calls *Calls
}

// readPlan splits a request into its objects. Whatever is wrong with one of them is kept
// there; what is wrong with the request itself is the error.
func (s *Calls) readPlan(raw []byte) (*planRequest, error) {
	var objects, plan []byte
	r := &planRequest{calls: s}
	if err := decode.Envelope(raw, map[string]*[]byte{"objects": &objects, "plan": &plan}, &r.head); err != nil {
		return nil, err
	}
	if plan != nil {
		r.plan = &api.Plan{}
		if err := decode.Body(plan, r.plan); err != nil {
			return nil, decode.Below("/plan", err)
		}
	}
	err := r.split(objects)
	return r, err
}

// check looks at what goes with the objects.
func (r *planRequest) check() error {
	if err := declare.CheckTexts(nil, r.head.Reason); err != nil {
		return err
	}
	switch {
	case r.head.ApplySet != "":
		return fleet.ValidateName("/applySet", r.head.ApplySet)
	case r.head.Prune:
		return fleet.Errorf(fleet.Invalid, "prune needs applySet").At("/prune").
			WithHint("applySet selects the objects that may be deleted")
	}
	return nil
}

func (r *planRequest) split(objects []byte) error {
	if objects == nil {
		return fleet.Errorf(fleet.Invalid, "objects is required").At("/objects").WithHint(`send {"objects":[…]}, empty to prune a whole set`)
	}
	tokens := jsontext.NewDecoder(bytes.NewBuffer(objects), jsontext.AllowDuplicateNames(true))
	if tokens.PeekKind() != jsontext.KindBeginArray {
		return fleet.Errorf(fleet.Invalid, "invalid objects: must be an array").At("/objects")
	}
	if _, err := tokens.ReadToken(); err != nil {
		return decode.Refuse(objects, err)
	}
	for tokens.PeekKind() != jsontext.KindEndArray {
		v, err := tokens.ReadValue()
		if err != nil {
			return decode.Refuse(objects, err)
		}
		if len(r.objects) == maxPlanned {
			return fleet.Errorf(fleet.TooLarge, "too many objects; the limit is %d", maxPlanned).At("/objects").WithHint("send them in parts")
		}
		end := tokens.InputOffset()
		p := &planned{place: "/objects/" + strconv.Itoa(len(r.objects)), calls: r.calls}
		p.refuse(p.read(objects[end-int64(len(v)) : end : end]))
		r.objects = append(r.objects, p)
	}
	return nil
}

// read takes one document in, as far as can be seen without the region's other objects.
func (p *planned) read(raw []byte) error {
	var m struct {
		Kind    string            `json:"kind"`
		Name    string            `json:"name"`
		Site    string            `json:"site"`
		Project string            `json:"project"`
		Service string            `json:"service"`
		Labels  map[string]string `json:"labels"`
	}
	var spec []byte
	err := decode.Envelope(raw, map[string]*[]byte{"spec": &spec}, &m)
	row := fleet.ObjectKind(strings.ToLower(m.Kind)).Declared()
	p.key = row.NewKey(m.Site, m.Name)
	p.project, p.service, p.labels = fleet.ProjectName(m.Project), m.Service, m.Labels
	if err != nil {
		return err
	}
	if spec == nil {
		spec = []byte("{}")
	}
	if err := fleet.ValidateName("/name", m.Name); err != nil {
		return err
	}
	if m.Project != "" {
		if row.NoProject {
			return fleet.Errorf(fleet.Invalid, "objects of kind %s belong to no project", row.Title).At("/project")
		}
		if err := fleet.ValidateName("/project", m.Project); err != nil {
			return err
		}
	}
	if m.Service != "" {
		if row.Holder {
			return fleet.Errorf(fleet.Invalid, "objects of kind %s belong to no service", row.Title).At("/service")
		}
		if err := fleet.ValidateName("/service", m.Service); err != nil {
			return err
		}
	}
	if m.Site != "" && !row.OfSite {
		return fleet.Errorf(fleet.Invalid, "only an instance has a site").At("/site")
	}
	if err := fleet.ValidateLabels("/labels", m.Labels); err != nil {
		return err
	}
	part, known := p.calls.Kinds[p.key.Kind]
	if !known {
		return fleet.Errorf(fleet.Invalid, "unknown kind %.40q", p.key.Kind).At("/kind").WithHint("use " + fleet.DeclaredKinds().Titles())
	}
	if row.OfSite {
		if err := fleet.ValidateName("/site", m.Site); err != nil {
			return err
		}
	}
	return decode.Below("/spec", part.read(p, spec))
}

func (p *planned) readProject(spec []byte) error {
	p.project = fleet.ProjectName(p.key.Name)
	var put api.ProjectPut
	if err := decode.Body(spec, &put); err != nil {
		return err
	}
	if err := besideSpec("", "", put.Labels); err != nil {
		return err
	}
	of, err := declare.Project(p.key.Name, put)
	p.plain = of
	return err
}

func (p *planned) readRegion([]byte) error {
	return fleet.Errorf(fleet.Invalid, "%s cannot be applied: a region declares itself", p.key).
		WithHint("start its servers with --location and --local-network; to add a peer: holdfast region join")
}

// site is the spec of a site, empty of another kind.
func (p *planned) site() fleet.SiteSpec {
	spec, _ := p.plain.(fleet.SiteSpec)
	return spec
}

// besideSpec refuses what a PUT has in its body and a manifest beside its spec.
func besideSpec(project, service string, labels map[string]string) error {
	if project != "" || service != "" || labels != nil {
		return fleet.Errorf(fleet.Invalid, "move project, service and labels out of spec, to the top level").At("/")
	}
	return nil
}

func (p *planned) readTemplate(spec []byte) (err error) {
	t, err := declaration.ReadTemplate(p.key.Name, spec, api.TemplatePut{})
	if beside := besideSpec(t.Put.Project, t.Put.Service, t.Put.Labels); beside != nil {
		return beside
	}
	p.template = t
	return err
}

func (p *planned) readInstance(spec []byte) (err error) {
	i, err := declaration.ReadInstance(spec, api.InstancePut{})
	if beside := besideSpec(i.Put.Project, i.Put.Service, i.Put.Labels); beside != nil {
		return beside
	}
	p.instance = i
	return err
}

func (p *planned) readDeployment(spec []byte) (err error) {
	if int64(len(spec)) > declare.MaxDeployment {
		return decode.TooLarge(declare.MaxDeployment)
	}
	d, err := p.calls.Maker.ReadDeployment(spec, api.DeploymentPut{})
	if beside := besideSpec(d.Put.Project, d.Put.Service, d.Put.Labels); beside != nil {
		return beside
	}
	p.deployment = d
	return err
}

func (p *planned) readFleet(spec []byte) (err error) {
	f, err := declaration.ReadFleet(spec, api.FleetPut{})
	if beside := besideSpec(f.Put.Project, f.Put.Service, f.Put.Labels); beside != nil {
		return beside
	}
	p.fleet = f
	return err
}

// digestOf hashes the canonical forms of the documents of a request, which keeps nothing.
func (s *Calls) digestOf(ctx context.Context, name string, doc []byte) (fleet.Content, error) {
	var out fleet.Content
	err := s.Maker.Budget.Do(ctx, int64(len(doc)), func() error {
		text, err := compose.Flatten([]compose.Layer{{Name: name, JSON: doc}}, s.Maker.Limits)
		if err == nil {
			out = compose.ContentOf(text)
		}
		return err
	})
	return out, err
}
