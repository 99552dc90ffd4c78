package decide

import (
	"bytes"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// PlanAction is what an apply does to one object.
type PlanAction string

// The actions of a plan.
const (
	PlanCreate    PlanAction = "create"
	PlanChange    PlanAction = "change"
	PlanUnchanged PlanAction = "unchanged"
	PlanDelete    PlanAction = "delete"
)

// PlanSeen is an object as stored; for an instance or deployment it includes the last release. Spec is canonical,
// nil if it cannot be read.
type PlanSeen struct {
	Project            fleet.ProjectName
	Labels             map[string]string
	Generation         int64
	Deleting           bool
	Spec               []byte
	Released           fleet.Revision
	ReleasedGeneration int64
	ReleasedDurability fleet.Durability
}

// PlanWanted is the requested object. The last three fields are for instances; Content is "" while it is unknown
// without merging.
type PlanWanted struct {
	Key        fleet.ObjectKey
	Project    fleet.ProjectName
	Labels     map[string]string
	Spec       []byte
	Deploy     bool // deliver what is written
	Enabled    bool
	Durability fleet.Durability
	RunHash    fleet.Hash
	Content    fleet.Hash
}

// PlanStep is the result for an object. Releases is set if a revision is released and delivered, or a run of a
// fleet change starts; Unreleased if that is the only change.
type PlanStep struct {
	Action               PlanAction
	Releases, Unreleased bool
}

type planCase struct {
	now  *PlanSeen // nil if there is none
	want PlanWanted
}

var planRules = []struct {
	name string
	when func(c planCase) bool
	then PlanStep
}{
	{"there_is_none", planIsNew, PlanStep{Action: PlanCreate}},
	{"not_delivered", planUnreleased, PlanStep{Action: PlanChange, Unreleased: true}},
	{"as_it_stands", planStands, PlanStep{Action: PlanUnchanged}},
	{"another_spec", planAlways, PlanStep{Action: PlanChange}},
}

// Plan decides what an apply does to one object (N107).
func Plan(now *PlanSeen, want PlanWanted) PlanStep {
	c := planCase{now, want}
	for _, r := range planRules {
		if r.when(c) {
			step := r.then
			step.Releases = c.releases()
			return step
		}
	}
	return PlanStep{Action: PlanChange}
}

func planAlways(planCase) bool   { return true }
func planIsNew(c planCase) bool  { return c.now == nil || c.now.Deleting } // a PUT over a delete makes a new object
func planStands(c planCase) bool { return c.sameSpec() && maps.Equal(c.want.Labels, c.now.Labels) }

func planUnreleased(c planCase) bool {
	return (c.ofInstance() || c.ofDeployment()) && planStands(c) && c.releases()
}

func (c planCase) ofInstance() bool   { return c.want.Key.Kind == fleet.KindInstance }
func (c planCase) ofDeployment() bool { return c.want.Key.Kind == fleet.KindDeployment }

func (c planCase) sameSpec() bool {
	return c.now != nil && c.now.Spec != nil && bytes.Equal(c.now.Spec, c.want.Spec)
}

// releases: an unchanged fleet change does not run again; that takes an explicit request.
func (c planCase) releases() bool {
	switch {
	case !c.want.Deploy:
		return false
	case c.ofInstance():
		return !c.released()
	case c.ofDeployment(): // its spec determines its definition
		return planIsNew(c) || !c.sameSpec() || c.now.Released.Revision == 0 || c.now.ReleasedGeneration != c.now.Generation
	}
	return c.want.Key.Kind == fleet.KindFleet && (planIsNew(c) || !c.sameSpec())
}

// released reports whether the newest revision was made from the spec to be written.
func (c planCase) released() bool {
	if planIsNew(c) || !c.sameSpec() {
		return false
	}
	r := c.now.Released
	return c.now.ReleasedGeneration == c.now.Generation && r.Revision > 0 && r.Action != fleet.ActionDelete &&
		r.RunHash == c.want.RunHash && r.Enabled == c.want.Enabled && c.now.ReleasedDurability == c.want.Durability &&
		(c.want.Content == "" || r.Content.Hash == c.want.Content)
}

// PlanAllowed rejects objects of another project or another apply set. Sees reports whether the caller may know of
// a project's objects.
func PlanAllowed(now *PlanSeen, want PlanWanted, sees func(fleet.ProjectName) bool) error {
	if now == nil {
		return nil
	}
	switch own := now.Labels[fleet.ApplySetLabel]; {
	case now.Project != want.Project:
		return fleet.OtherProject(want.Key, now.Project, sees(now.Project))
	case own != "" && own != want.Labels[fleet.ApplySetLabel] && !now.Deleting:
		return fleet.Errorf(fleet.Conflict, "%s belongs to apply set %.80s", want.Key, own).At("/labels").
			WithHint("declare it with that set; to move it, first remove the label " + fleet.ApplySetLabel + " with a PUT of the object")
	}
	return nil
}

// PlanGeneration is the generation of a template once it is applied; last is the highest that its name ever had.
func PlanGeneration(now *PlanSeen, want PlanWanted, last int64) int64 {
	c := planCase{now, want}
	switch {
	case now == nil:
		return last + 1
	case c.sameSpec():
		return now.Generation
	}
	return now.Generation + 1
}

// PlanNodes is the index of the first node of a site that belongs to another site, -1 if none does: by what is
// stored, or by a site earlier in the request.
func PlanNodes(site string, nodes []fleet.SiteNode, standing, ahead map[string]string) int {
	return slices.IndexFunc(nodes, func(n fleet.SiteNode) bool {
		at := standing[string(n.Name)]
		return ahead[string(n.Name)] != "" || at != "" && at != site
	})
}
