package fleet

import (
	"encoding/json"
	"fmt"
	"slices"
)

// MultiRegionPolicy names the regions that may declare objects under a policy holder, and get copies of them (M41).
type MultiRegionPolicy struct {
	EnabledRegions []string `json:"enabledRegions"`
	// DefaultControlRegion owns and creates the objects of shared kinds.
	DefaultControlRegion string `json:"defaultControlRegion"`
	// CriteriaForDisabledSync keep objects out of some of the enabled regions.
	CriteriaForDisabledSync []DisabledSync `json:"criteriaForDisabledSync,omitempty"`
}

// DisabledSync matches copies that are not made: of a kind, from a region to a region. A blank field matches any.
type DisabledSync struct {
	ResourceTypeName string `json:"resourceTypeName,omitempty"` // the title of a kind
	SourceRegion     string `json:"sourceRegion,omitempty"`
	DestRegion       string `json:"destRegion,omitempty"`
}

// Limits of a policy.
const (
	MaxEnabledRegions = 32
	MaxDisabledSyncs  = 128
)

// Validate checks a policy; nil is none.
func (p *MultiRegionPolicy) Validate(at string) error {
	if p == nil {
		return nil
	}
	if n := len(p.EnabledRegions); n < 1 || n > MaxEnabledRegions {
		return Errorf(Invalid, "%d enabled regions given; give 1 to %d", n, MaxEnabledRegions).At(at + "/enabledRegions")
	}
	for i, region := range p.EnabledRegions {
		field := fmt.Sprintf("%s/enabledRegions/%d", at, i)
		if err := ValidateName(field, region); err != nil {
			return err
		}
		if slices.Contains(p.EnabledRegions[:i], region) {
			return Errorf(Invalid, "region %s is given twice", region).At(field)
		}
	}
	if !slices.Contains(p.EnabledRegions, p.DefaultControlRegion) {
		return Errorf(Invalid, "control region %.80q is not enabled; use %s", p.DefaultControlRegion, OrList(p.EnabledRegions)).
			At(at + "/defaultControlRegion")
	}
	if n := len(p.CriteriaForDisabledSync); n > MaxDisabledSyncs {
		return Errorf(Invalid, "%d criteria given; the limit is %d", n, MaxDisabledSyncs).At(at + "/criteriaForDisabledSync")
	}
	for i, c := range p.CriteriaForDisabledSync {
		if err := c.validate(fmt.Sprintf("%s/criteriaForDisabledSync/%d", at, i)); err != nil {
			return err
		}
	}
	return nil
}

func (d DisabledSync) validate(at string) error {
	kinds := DeclaredKinds()
	known := slices.ContainsFunc(kinds, func(k DeclaredKind) bool { return k.Title == d.ResourceTypeName })
	if d.ResourceTypeName != "" && !known {
		return Errorf(Invalid, "unknown kind %.80q; use %s, or leave it out for any", d.ResourceTypeName, kinds.Titles()).At(at + "/resourceTypeName")
	}
	for _, r := range []struct{ field, name string }{{"/sourceRegion", d.SourceRegion}, {"/destRegion", d.DestRegion}} {
		if r.name == "" {
			continue
		}
		if err := ValidateName(at+r.field, r.name); err != nil {
			return err
		}
	}
	return nil
}

// Disables reports whether the policy keeps objects of a kind, owned by one region, out of another.
func (p *MultiRegionPolicy) Disables(title, source, dest string) bool {
	fits := func(pattern, value string) bool { return pattern == "" || pattern == value }
	return slices.ContainsFunc(p.CriteriaForDisabledSync, func(c DisabledSync) bool {
		return fits(c.ResourceTypeName, title) && fits(c.SourceRegion, source) && fits(c.DestRegion, dest)
	})
}

// HolderSpec is what the specs of all policy holders have.
type HolderSpec struct {
	MultiRegionPolicy *MultiRegionPolicy `json:"multiRegionPolicy,omitempty"`
}

// Validate checks what a spec says of regions.
func (h HolderSpec) Validate() error { return h.MultiRegionPolicy.Validate("/multiRegionPolicy") }

// OrganizationSpec is the spec of an organization: projects may belong to it.
type OrganizationSpec struct{ HolderSpec }

// ServiceSpec is the spec of a service: objects of its project may belong to it.
type ServiceSpec struct{ HolderSpec }

// ProjectSpec is the spec of a project.
type ProjectSpec struct {
	HolderSpec
	// Organization is what the project belongs to, for life.
	Organization string `json:"organization,omitempty"`
}

// Validate checks a spec. What belongs to the project default stays in its region.
func (p ProjectSpec) Validate(name ProjectName) error {
	const hint = "declare a project of your own"
	switch {
	case name == DefaultProject && p.MultiRegionPolicy != nil:
		return Errorf(Invalid, "project %s cannot have a policy: what belongs to it stays in its region", name).At("/multiRegionPolicy").WithHint(hint)
	case name == DefaultProject && p.Organization != "":
		return Errorf(Invalid, "project %s cannot have an organization: what belongs to it stays in its region", name).At("/organization").WithHint(hint)
	case p.Organization != "":
		if err := ValidateName("/organization", p.Organization); err != nil {
			return err
		}
	}
	return p.HolderSpec.Validate()
}

// HolderOf reads what the stored spec of a policy holder says of regions; nothing of other kinds.
func HolderOf(kind ObjectKind, spec json.RawMessage) (ProjectSpec, error) {
	var out ProjectSpec
	if !kind.Declared().Holder {
		return out, nil
	}
	if err := json.Unmarshal(spec, &out); err != nil {
		return out, Errorf(Internal, "read the spec of a %s: %w", kind, err)
	}
	return out, nil
}
