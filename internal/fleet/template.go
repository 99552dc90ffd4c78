package fleet

import (
	"encoding/json"
	"strconv"
	"strings"
)

// TemplateSpec is a base document and other templates that are merged over it in order, each pinned to the
// generation it had when this one was written.
type TemplateSpec struct {
	Base         Content       `json:"base"`
	Compositions []TemplatePin `json:"compositions,omitempty"`
	// Secrets are JSON pointers into the final config of every instance of this template.
	Secrets []string `json:"secrets,omitempty"`
}

// TemplatePin names one generation of a template. A pin of a copied template is as its region wrote it: relative to that
// template's own name.
type TemplatePin struct {
	Name       TemplateName `json:"name"`
	Generation int64        `json:"generation"`
}

// References are the templates that are merged.
func (t TemplateSpec) References() []Reference {
	refers := make([]Reference, len(t.Compositions))
	for i, c := range t.Compositions {
		refers[i] = Reference{Key: ObjectKey{Kind: KindTemplate, Name: string(c.Name)}, Field: "/compositions/" + strconv.Itoa(i), Pinned: true}
	}
	return refers
}

// MaxCompositions limits how many templates one template may merge.
const MaxCompositions = 32

// Validate rejects invalid names, and a template that refers to itself.
func (t TemplateSpec) Validate(self TemplateName) error {
	if len(t.Compositions) > MaxCompositions {
		return Errorf(Invalid, "%d compositions given; the limit is %d", len(t.Compositions), MaxCompositions).At("/compositions")
	}
	for i, c := range t.Compositions {
		at := "/compositions/" + strconv.Itoa(i)
		if err := c.Name.Validate(at); err != nil {
			return err
		}
		if c.Name == self {
			return Errorf(Invalid, "template %s refers to itself", self).At(at)
		}
	}
	return ValidateSecrets("/secrets", t.Secrets)
}

// Bodies lists the bodies that the spec refers to; the write protects them from collection.
func (t TemplateSpec) Bodies() []Hash { return []Hash{t.Base.Hash} }

// PinOf is the template generation that an instance or a fleet change is pinned to.
func PinOf(o Object) TemplatePin {
	var spec struct {
		FleetChange
		Change FleetChange `json:"change"`
	}
	if json.Unmarshal(o.Spec, &spec) != nil {
		return TemplatePin{} // the next write replaces it
	}
	c := spec.Change
	if o.Kind == KindInstance {
		c = spec.FleetChange
	}
	return TemplatePin{Name: c.Template, Generation: c.TemplateGeneration}
}

// CompositionsOf are the templates that a template merges now, as its spec names them.
func CompositionsOf(o Object) []TemplatePin {
	var spec TemplateSpec
	if json.Unmarshal(o.Spec, &spec) != nil {
		return nil // the next write replaces it
	}
	return spec.Compositions
}

// CompositionOf is the name under which a template merges another one now; empty if it does not.
func CompositionOf(o Object, name TemplateName) TemplatePin {
	found := TemplatePin{}
	for _, p := range CompositionsOf(o) {
		switch {
		case p.Name == name:
			return TemplatePin{Name: name}
		case p.Name.Is(name):
			found.Name = p.Name
		}
	}
	return found
}

// The name of a template is plain, or that of a copy: the region that created it, and its name there, for example eu/base.
// What eu has of ap is eu/ap/base here.

// CopiedTemplate names the copy of a template.
func CopiedTemplate(region RegionName, name string) TemplateName {
	return TemplateName(string(region) + "/" + name)
}

// TemplateNameOf is the name of a template in specs: that of one of this region, or of a copy.
func TemplateNameOf(o Object) TemplateName {
	if o.Region == "" {
		return TemplateName(o.Name)
	}
	return CopiedTemplate(o.Region, o.Name)
}

// In is the name as it is in a region: without the name of that region.
func (n TemplateName) In(self RegionName) TemplateName {
	if region, name, copied := n.Copy(); copied && region == self {
		return TemplateName(name)
	}
	return n
}

// AsBorn is the spec of a template that another region created, as that region would write it. It merges only templates that
// the same region created.
func (t TemplateSpec) AsBorn(region RegionName) (TemplateSpec, error) {
	pins := make([]TemplatePin, len(t.Compositions))
	for i, p := range t.Compositions {
		of, name, _ := p.Name.Copy()
		if of != region || strings.Contains(name, "/") {
			return t, Errorf(Invalid, "region %s created this template, so it merges only templates that %s created, not %s", region, region, p.Name).
				At("/compositions/" + strconv.Itoa(i)).WithHint("name one of them: " + string(region) + "/NAME")
		}
		pins[i] = TemplatePin{Name: TemplateName(name), Generation: p.Generation}
	}
	if len(pins) > 0 {
		t.Compositions = pins
	}
	return t, nil
}

// Validate refuses what names neither a template nor a copy of one.
func (n TemplateName) Validate(field string) error {
	region, name, copied := n.Copy()
	if copied {
		if err := ValidateName(field, string(region)); err != nil {
			return err
		}
	}
	return ValidateName(field, name)
}

// Copy splits the name of a copy.
func (n TemplateName) Copy() (region RegionName, name string, copied bool) {
	before, after, copied := strings.Cut(string(n), "/")
	if !copied {
		return "", string(n), false
	}
	return RegionName(before), after, true
}

// Is reports whether a plain name means the template: it is its name, or that of the copy without the region.
func (n TemplateName) Is(plain TemplateName) bool {
	_, name, _ := n.Copy()
	return n == plain || name == string(plain)
}

// Pins are the generations that the spec of a template merges, by their names here.
func (n TemplateName) Pins(spec TemplateSpec) []TemplatePin {
	at := strings.LastIndexByte(string(n), '/') + 1
	out := make([]TemplatePin, len(spec.Compositions))
	for i, p := range spec.Compositions {
		out[i] = TemplatePin{Name: n[:at] + p.Name, Generation: p.Generation}
	}
	return out
}

// maxTemplatePath bounds the name of a generation that went through several regions.
const maxTemplatePath = 1024

// ReadCopiedTemplate reads the spec of a template of another region, and refuses what no region can have stored.
func ReadCopiedTemplate(self TemplateName, raw json.RawMessage) (TemplateSpec, error) {
	var t TemplateSpec
	if err := json.Unmarshal(raw, &t); err != nil || !isObject(raw) {
		return t, Errorf(Invalid, "the spec of template %s cannot be read", self).At("/")
	}
	if err := ValidateHash("/base", t.Base.Hash); err != nil {
		return t, err
	}
	if t.Base.Size < 0 || len(t.Compositions) > MaxCompositions {
		return t, Errorf(Invalid, "the size of the base or the number of compositions is out of range").At("/")
	}
	for _, p := range self.Pins(t) {
		if len(p.Name) > maxTemplatePath || p.Generation < 1 {
			return t, Errorf(Invalid, "invalid pin %.80q", p.Name).At("/compositions")
		}
		for _, part := range strings.Split(string(p.Name), "/") {
			if err := ValidateName("/compositions", part); err != nil {
				return t, err
			}
		}
	}
	return t, nil
}

// TemplateParts are what is missing of what a template is composed of.
type TemplateParts struct {
	Body *Content
	Pins []TemplatePin
}

// None reports whether nothing is missing.
func (p TemplateParts) None() bool { return p.Body == nil && len(p.Pins) == 0 }
